"""``python -m course.explainer FOLDER``: see the package."""

import sys
from pathlib import Path

from course import live
from course.explainer import page

live.report(Path(sys.argv[1]), page.write(Path(sys.argv[1])))
