"""What docs/grocery64.md shows is what was kept."""

import pandas as pd

from studies import steps


def test_the_tables_of_the_page_are_those_of_the_evidence():
    page = steps.PAGE.read_text("utf-8")
    for mark, written in steps.tables(pd.read_csv(steps.PATH)).items():
        assert f"<!-- {mark} -->\n{written}\n<!-- /{mark} -->" in page, mark


def test_what_is_kept_is_what_the_script_would_make():
    """No row of another recipe: each is of a part, split, fold and number of steps of the plan."""
    table = pd.read_csv(steps.PATH)
    planned = {
        (seen, e.split, e.data_args.get("fold", 0), count)
        for seen, e in steps.experiments()
        for count in (0, e.steps)
    }
    kept = table[[*steps.ABOUT, "steps"]].itertuples(index=False, name=None)
    assert set(kept) <= planned
    assert not table.duplicated([*steps.ABOUT, "steps", "name"]).any()
