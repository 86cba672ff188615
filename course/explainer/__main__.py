"""``python -m course.explainer FOLDER``: see the package."""

import sys
from pathlib import Path

from course.explainer import page

page.main(Path(sys.argv[1]))
