"""Zip and tar archives: unpacked whole or not at all, and nothing outside the folder."""

import errno
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dmlkit.data.untrusted import check_regular

_ENDINGS = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")
# Python before 3.11.4 has no such filter; all that it would refuse is refused here.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
_LONGEST_END = 22 + 2**16  # bytes, of a zip: what says where its list is, and a comment


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a zip or tar archive as ``folder``, which appears whole or not at all.

    Nothing is written outside, and no links or devices: an archive that holds such, or a name
    twice, is refused. All of it is read, so that its own checksums are compared: those of a zip
    cover every file, that of a tgz the whole; a plain tar has them of names and sizes only.

    Raises:
        ValueError: the archive is damaged, encrypted, empty, or holds what is refused, or nothing
            but another archive.
        FileExistsError: ``folder`` is there already.
        OSError: there is no room for its files.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: delete it to unpack {archive} again")
    check_regular(archive)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as beside:
        target = Path(beside) / "unpacked"
        target.mkdir()
        try:
            with archive.open("rb") as file:
                zipped = file.read(2) == b"PK"  # is_zipfile takes a tar that ends with a zip
            (_extract_zip if zipped else _extract_tar)(archive, target, folder)
            _check_content(target)
        except Exception as error:  # a dozen kinds
            if is_full(error):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{archive} cannot be unpacked: {reason}") from error
        target.replace(folder)
    return folder


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or what one may have of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def room_for(what: Path, folder: Path, needed: int | None) -> Iterator[None]:
    """Raise OSError, with file and sizes, where a disk is too full now, or is within the block.

    ``needed`` are bytes, or None where that is not known before.
    """
    free = shutil.disk_usage(next(filter(Path.exists, (folder, *folder.parents)))).free
    try:
        if needed is not None and needed > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield
    except OSError as error:
        if not is_full(error):
            raise
        needs = "" if needed is None else f"it needs {needed / 1e6:,.1f} MB, and "
        reason = f"the disk is full: no room for {what} in {folder}: {needs}{free / 1e6:,.1f} MB"
        hint = " were free. Make room there, or name another folder"
        raise OSError(error.errno, reason + hint) from error


def _extract_zip(archive: Path, target: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        entries = zipped.infolist()
        _check_count(archive, len(entries))
        for entry in entries:
            if entry.flag_bits & 1:
                raise ValueError(f"{entry.filename} is encrypted: unpack it yourself")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise ValueError(f"{entry.filename} is a link")
        _check_names([entry.filename for entry in entries if not entry.is_dir()])
        with room_for(archive, folder, sum(entry.file_size for entry in entries)):
            zipped.extractall(target)


def _check_count(archive: Path, found: int) -> None:
    """Compare with the number of entries that the end of a zip states, which zipfile does not."""
    with archive.open("rb") as file:
        file.seek(max(0, archive.stat().st_size - _LONGEST_END))
        tail = file.read()
    end = tail.rfind(b"PK\5\6")
    (stated,) = struct.unpack_from("<H", tail, end + 10)
    if stated not in (found % 2**16, 2**16 - 1):  # the last: it stands elsewhere
        raise ValueError(f"it is damaged: its end states {stated} entries, but {found} were found")


def _extract_tar(archive: Path, target: Path, folder: Path) -> None:
    with tarfile.open(archive) as tarred:
        members, needed = [], 0
        for member in tarred:
            if member.issym() or member.islnk():  # tarfile lets those pass that stay inside
                raise ValueError(f"{member.name} is a link")
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"{member.name} is a device or a pipe")
            _check_inside(member.name)  # of folders, too
            member.mode = 0o755 if member.isdir() else 0o644
            members.append(member)
            needed += member.size
            with room_for(archive, folder, needed):
                pass  # before all of it is passed over: it may be a bomb
        _check_names([member.name for member in members if not member.isdir()])
        _check_end(tarred)
        with room_for(archive, folder, needed):
            tarred.extractall(target, members, **_FILTER)


def _check_end(tarred: tarfile.TarFile) -> None:
    """Read on to the end: tarfile takes a damaged header, or a cut, for the end of the archive."""
    file = tarred.fileobj
    assert file is not None
    file.seek(tarred.offset)
    length = 0
    while part := file.read(2**20):  # up to the checksum of a tgz
        length += len(part)
        if any(part):
            break
    if part or length < tarfile.BLOCKSIZE:  # what follows the last file are blocks of zeros
        raise ValueError(f"it is damaged or cut off at byte {tarred.offset}")


def _check_names(names: list[str]) -> None:
    """Refuse names that lead outside, and files of which one would overwrite another."""
    seen = set()
    for name in names:
        _check_inside(name)
        path = PurePosixPath(name)
        if path in seen:
            raise ValueError(f"it holds {name} twice")
        seen.add(path)
    for path in seen:
        for parent in path.parents:
            if parent in seen:
                raise ValueError(f"it holds {parent} both as a file and as a folder")


def _check_inside(name: str) -> None:
    windows = PureWindowsPath(name)
    if ".." in windows.parts or PurePosixPath(name).is_absolute() or windows.drive:
        raise ValueError(f"{name} leads outside of the folder")


def _check_content(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:
        raise ValueError("it holds no files")
    if len(files) == 1 and files[0].name.lower().endswith(_ENDINGS):
        raise ValueError(f"it holds nothing but another archive, {files[0].name}: unpack that")
