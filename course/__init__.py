"""What makes the course out of notebooks/: reproduce, check, student copies, grades, the site."""

import dmlkit as dmlkit  # first: it sets the instruction set before NumPy is loaded
