"""What makes the course out of notebooks/: reproduce, check, student copies, grades, the site."""
