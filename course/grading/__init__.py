"""Students' answers, run where they can do no harm and reach nothing that checks them."""
