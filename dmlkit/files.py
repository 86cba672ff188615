"""Files that are there whole, or not at all; paths, and what errors of them say."""

import os
import platform
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

StrPath = str | os.PathLike[str]  # what open() takes for a path


def told(error: Exception) -> str:
    """The first sentence of an error: libraries go on with advice that would run a file's code.

    >>> told(ValueError("This file contains pickled data. You can load it unsafely."))
    'This file contains pickled data'
    """
    return re.split(r"\.\s|\n", str(error))[0] or type(error).__name__


def write_whole(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together: each beside its place, then all take their names.

    A reader sees an old file or a new one, never a half. Each writer is called with the path that
    it has to write, in a folder that is there; where one raises, no file changes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "score.txt")
    ...     write_whole({path: lambda beside: beside.write_text("0.8")})
    ...     print(path.read_text(), len(list(Path(folder).iterdir())))
    0.8 1
    """
    mark = f"{platform.node()}-{os.getpid()}"  # others may write the same file
    places = {path: path.with_name(f"{path.name}.{mark}") for path in writers}
    try:
        for path, beside in places.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[path](beside)
        for path, beside in places.items():
            beside.replace(path)
    finally:
        for beside in places.values():
            beside.unlink(missing_ok=True)


def write_between(page: Path, mark: str, written: str) -> None:
    """Replace what a page has between the lines ``<!-- mark -->`` and ``<!-- /mark -->``.

    Raises ValueError for a page without these two lines.
    """
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    pieces = re.split(rf"(?<={begin}\n).*(?={end})", text, flags=re.DOTALL)
    if len(pieces) != 2:
        raise ValueError(f"{page} needs a line {begin} and one {end} below it, found none")
    text = (written + "\n").join(pieces)
    write_whole({page: partial(Path.write_text, data=text, encoding="utf-8")})
