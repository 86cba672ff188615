"""Files that are there whole, or not at all."""

import errno
import glob
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil


def write_whole(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write files that belong together: each beside its place, then all take their names.

    A reader sees an old file or a new one, never a half. Each writer is called with the path that
    it has to write; where one raises, no file changes. What a killed process left beside a file is
    removed when that file is written again on the same machine.

    Raises:
        OSError: a disk is full, named with its file; or what a writer raises.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "score.txt")
    ...     write_whole({path: lambda beside: beside.write_text("0.8")})
    ...     print(path.read_text(), len(list(Path(folder).iterdir())))
    0.8 1
    """
    mark = f"{platform.node()}-"
    written = {path: path.with_name(f"{path.name}.{mark}{os.getpid()}") for path in writers}
    try:
        for path, beside in written.items():
            _remove_leftovers(path, mark)
            with naming_full_disk(path):
                writers[path](beside)
        for path, beside in written.items():
            with naming_full_disk(path):
                beside.replace(path)
    finally:
        for beside in written.values():
            beside.unlink(missing_ok=True)


def _remove_leftovers(path: Path, mark: str) -> None:
    for leftover in path.parent.glob(f"{glob.escape(f'{path.name}.{mark}')}*"):
        process = leftover.name.removeprefix(f"{path.name}.{mark}").partition(".")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            leftover.unlink(missing_ok=True)


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Inside, the error of a full disk names that disk, and the file that finds no room on it.

    >>> with naming_full_disk(Path("data/a")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: make room on the disk at /..., which has ... MB
    left: 'data/a'
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        disk, left = disk_of(path)
        told = f"{error.strerror}: make room on the disk at {disk}, which has {left:.1f} MB left"
        raise OSError(error.errno, told, str(path)) from error


def disk_of(path: Path) -> tuple[Path, float]:
    """Where the disk of a file is mounted, and the MB that are left on it."""
    disk = path.resolve()
    while not disk.is_mount():
        disk = disk.parent
    return disk, shutil.disk_usage(disk).free / 1e6
