"""``python -m dmlkit.extras.site``."""

import sys

from dmlkit.extras.site import main

sys.exit(main())
