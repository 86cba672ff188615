"""Files from elsewhere: whatever they hold, they are read in full, or refused by name."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from PIL import Image

#: What Pillow may read. It looks at contents, not at suffixes, and would give others to programs
#: such as Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def check_regular(path: Path) -> None:
    """Raise ValueError for a pipe, socket, device or folder, where a reader would wait or fail.

    A missing file raises FileNotFoundError, as opening it would.

    >>> check_regular(Path("."))
    Traceback (most recent call last):
    ValueError: . is not a regular file
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path} is not a regular file")


def read_text(path: Path) -> str:
    """A regular file as UTF-8, with or without a byte order mark. Raises ValueError for others."""
    check_regular(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text: {error}") from error


@contextmanager
def open_picture(name: Path | str, content: IO[bytes] | None = None) -> Iterator[Image.Image]:
    """Open a picture file, or the ``content`` of one, in one of ``FORMATS``.

    Raises ValueError, with the name, for what is none or cannot be read in full: so also for
    whatever Pillow raises within the block, where it decodes.

    >>> with open_picture("nothing.jpg"):
    ...     pass
    Traceback (most recent call last):
    ValueError: nothing.jpg cannot be read: [Errno 2] No such file or directory: 'nothing.jpg'
    """
    try:
        if content is None:
            check_regular(Path(name))
        with Image.open(content or name, formats=FORMATS) as image:
            yield image
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        raise ValueError(f"{name} cannot be read: {str(error) or type(error).__name__}") from error
