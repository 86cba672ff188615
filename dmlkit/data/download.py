"""Published files: fetched, verified and unpacked, whole or not at all."""

import hashlib
import tempfile
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from dmlkit.files import write_whole


class File(NamedTuple):
    """A published file."""

    name: str
    md5: str | None  # None: whoever publishes it makes it anew each time
    url: str


def verify(path: Path, md5: str | None) -> None:
    """Raises ValueError where ``path`` does not hold the published bytes."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        raise ValueError(f"{path} is not the published file: its MD5 is {found}, expected {md5}")


def fetch(file: File, folder: Path) -> Path:
    """The path of the file in ``folder``, downloaded unless it is there already, as published.

    Raises OSError where the download fails or brings other bytes, of which nothing is kept.
    """
    from torchvision.datasets.utils import check_integrity, download_url  # a slow import

    path = folder / file.name
    if check_integrity(path, file.md5):
        return path
    try:
        write_whole({path: lambda beside: download_url(file.url, folder, beside.name, file.md5)})
    except (OSError, RuntimeError, ValueError, HTTPException) as error:
        raise OSError(
            f"cannot fetch {file.url} ({error}): try again later, or place {file.name} "
            f"{f'(MD5 {file.md5}) ' if file.md5 else ''}in {folder}"
        ) from error
    return path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or tar archive as ``folder``, which appears whole or not at all."""
    from torchvision.datasets.utils import extract_archive

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as beside:
        content = Path(beside) / "content"
        extract_archive(archive, content)
        content.replace(folder)
