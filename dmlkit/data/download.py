"""Published files: fetched and verified, whole or not at all."""

import hashlib
import sys
import time
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tqdm.auto import tqdm

from dmlkit.data.archives import is_full, room_for
from dmlkit.files import write_whole

PAUSES = (1, 2, 4, 8)  # seconds before a further attempt
PATIENCE = 60  # seconds without a byte
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # HTTP's answers that may be others soon


class File(NamedTuple):
    """A published file."""

    name: str
    md5: str
    url: str


def checksum(path: Path) -> str:
    """MD5 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def verify(md5: str, path: Path) -> None:
    """Raises ValueError where ``path`` does not hold the published bytes."""
    found = checksum(path)
    if found != md5:
        raise ValueError(f"{path} is not the published file: its MD5 is {found}, expected {md5}")


def fetch(file: File, folder: Path) -> Path:
    """The path of the file in ``folder``, downloaded unless the published bytes are there already.

    Where a connection fails or a server is busy it is tried again, after pauses of ``PAUSES``.

    Raises OSError where the download fails or brings other bytes, or the disk is full; nothing of
    it is kept then.
    """
    path = folder / file.name
    if path.is_file() and checksum(path) == file.md5:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    for pause in (*PAUSES, None):
        try:
            _download(file, path)
            break
        except (OSError, ValueError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            if is_full(error):
                raise
            if pause is None or not _may_pass(error):
                raise OSError(
                    f"cannot fetch {file.url} ({error}): try again later, or place {file.name} "
                    f"(MD5 {file.md5}) in {folder}"
                ) from error
            tqdm.write(f"{file.url}: {error}; next attempt in {pause} s", file=sys.stderr)
        time.sleep(pause)
    return path


def _may_pass(error: Exception) -> bool:
    """Whether a further attempt may do better: other bytes, or a wrong address, will not."""
    if isinstance(error, HTTPError):
        return error.code in _PASSING
    if isinstance(error, URLError):
        return isinstance(error.reason, OSError) and not isinstance(error.reason, FileNotFoundError)
    return isinstance(error, ConnectionError | TimeoutError | HTTPException)


def _download(file: File, path: Path) -> None:
    request = Request(file.url, headers={"User-Agent": "dmlkit"})
    with urlopen(request, timeout=PATIENCE) as answer:
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        with room_for(path, path.parent, total):
            write_whole({path: lambda beside: _copy(answer, file, total, beside)})


def _copy(answer: HTTPResponse, file: File, total: int | None, path: Path) -> None:
    """Write what a server sends; raise where it is not the whole of the published file."""
    bar = tqdm(total=total, desc=file.name, unit="B", unit_scale=True)
    with path.open("wb") as copy, bar:
        while part := answer.read(2**16):
            copy.write(part)
            bar.update(len(part))
    if total is not None and bar.n < total:
        raise ConnectionError(f"it broke off after {bar.n} of {total} bytes")
    verify(file.md5, path)
