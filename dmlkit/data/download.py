"""Published files: fetched, verified and unpacked, whole or not at all."""

import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

from torch.hub import download_url_to_file

from dmlkit.files import write_whole


class File(NamedTuple):
    """A published file."""

    name: str
    md5: str
    url: str


def checksum(path: Path) -> str:
    """MD5 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def verify(file: File, path: Path) -> None:
    """Raises ValueError where ``path`` does not hold the published bytes."""
    found = checksum(path)
    if found != file.md5:
        raise ValueError(
            f"{path} is not the published file: its MD5 is {found}, expected {file.md5}"
        )


def fetch(file: File, folder: Path) -> Path:
    """The path of the file in ``folder``, downloaded unless the published bytes are there already.

    Raises OSError where the download fails or brings other bytes; nothing of it is kept then.
    """
    path = folder / file.name
    if not path.is_file() or checksum(path) != file.md5:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            write_whole({path: lambda beside: _download(file, beside)})
        except (OSError, ValueError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            raise OSError(
                f"cannot fetch {file.url} ({error}): try again, or place {file.name} "
                f"(MD5 {file.md5}) in {folder}"
            ) from error
    return path


def _download(file: File, path: Path) -> None:
    download_url_to_file(file.url, str(path))
    verify(file, path)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a zip or tar archive as ``folder``, which appears whole or not at all.

    Nothing is written outside, and no links or devices: zipfile makes plain files only, and the
    others are refused in a tar archive.

    Raises:
        ValueError: the archive is unreadable, or holds what is refused.
        FileExistsError: ``folder`` is there already.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: delete it to unpack {archive} again")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as beside:
        target = Path(beside) / "unpacked"
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(target)
            else:
                with tarfile.open(archive) as tarred:
                    tarred.extractall(target, filter=_plain)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{archive} cannot be unpacked: {error}") from error
        target.replace(folder)
    return folder


def _plain(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """tarfile's data filter, without links: it would let those through that stay inside."""
    if member.issym() or member.islnk():
        raise tarfile.FilterError(f"{member.name} is a link")
    return tarfile.data_filter(member, folder)
