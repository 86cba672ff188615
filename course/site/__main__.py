"""``python -m course.site``."""

import sys

from course.site import main

sys.exit(main())
