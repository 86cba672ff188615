"""What no notebook before the comparison needs: search, tuning, clusters, DREML, recipes."""
