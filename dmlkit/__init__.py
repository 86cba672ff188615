"""dmlkit: learn, teach and honestly test deep metric learning."""

import os
from pathlib import Path

__version__ = "0.1.0"

_CHECKOUT = Path(__file__).resolve().parent.parent

#: The project: the checkout that holds this package, else (an installed wheel) the current folder.
ROOT = _CHECKOUT if (_CHECKOUT / "notebooks").is_dir() else Path.cwd()


def cache_folder() -> Path:
    """Where dmlkit keeps what it makes itself (Glyphs, Runs): ``$DMLKIT_CACHE``, else ``data/``."""
    return Path(os.environ.get("DMLKIT_CACHE") or ROOT / "data")
