"""Fetch an archive once: resumable, verified before use, unpacked where it cannot do harm."""

import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm.auto import tqdm

CHUNK = 2**20  # bytes
ATTEMPTS = 5  # without a single new byte, before we give up


class DownloadError(OSError):
    """A file could not be fetched, or is not the one that was expected."""


def fetch(url: str, path: Path, md5: str, *, progress: bool = True, timeout: float = 30) -> Path:
    """The file at ``url``, at ``path``, with the MD5 ``md5``; what is there and right stays.

    Bytes arrive in ``path`` + ``.part``, from where a broken transfer goes on, now or in another
    process; only a complete file of the right checksum is renamed to ``path``.

    Raises:
        DownloadError: the server refuses, ends too early again and again, or serves other bytes;
            those are deleted.

    >>> fetch("https://host.invalid/a.zip", Path("/nonexistent/a.zip"), md5="0" * 32)
    Traceback (most recent call last):
    FileNotFoundError: folder /nonexistent does not exist: make it, or name another
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: make it, or name another")
    if path.exists() and checksum(path) == md5:
        return path
    part = path.with_name(path.name + ".part")
    idle = 0
    with tqdm(unit="B", unit_scale=True, desc=path.name, disable=not progress) as bar:
        while idle < ATTEMPTS:
            before = part.stat().st_size if part.exists() else 0
            try:
                complete = _transfer(url, part, bar, timeout)
            except urllib.error.HTTPError as error:
                if error.code == 416 and before:  # nothing is left to send
                    complete = True
                elif error.code < 500:
                    raise DownloadError(
                        f"{url}: the server says {error.code} {error.reason}"
                    ) from error
                else:
                    complete = False
            except (OSError, HTTPException):  # it broke off: go on from where it stands
                complete = False
            if complete:
                break
            idle = 0 if part.exists() and part.stat().st_size > before else idle + 1
        else:
            raise DownloadError(
                f"{url} broke off {ATTEMPTS} times without a new byte: try again later; "
                f"what has come is kept in {part}"
            )
    found = checksum(part)
    if found != md5:
        part.unlink()
        raise DownloadError(
            f"{url} served other bytes: MD5 {found}, expected {md5}; they were deleted"
        )
    part.replace(path)
    return path


def _transfer(url: str, part: Path, bar: "tqdm[None]", timeout: float) -> bool:
    """Append what is missing to ``part``; whether the server's count of bytes is now there."""
    there = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if there and response.status != 206:  # it does not know ranges: from the start
            there = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else there + int(length)
        bar.total = total
        bar.update(there - bar.n)
        with part.open("ab" if there else "wb") as file:
            for chunk in _chunks(response):
                file.write(chunk)
                bar.update(len(chunk))
    return total is None or part.stat().st_size >= total


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def checksum(path: Path) -> str:
    """MD5 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def unpack(archive: Path, folder: Path, *, limit: int = 50 * 2**30) -> Path:
    """Unpack a zip or tar archive as ``folder``, which appears whole or not at all.

    Only plain files and folders inside ``folder`` are written.

    Raises:
        ValueError: the archive is unreadable, holds links, devices or paths that lead out, or
            more than ``limit`` bytes once unpacked.
        FileExistsError: ``folder`` is there already.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: delete it to unpack {archive} again")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as beside:
        target = Path(beside) / "unpacked"
        target.mkdir()
        try:
            _extract(archive, target, limit)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{archive} cannot be unpacked ({error}): fetch it again") from error
        os.replace(target, folder)
    return folder


def _extract(archive: Path, target: Path, limit: int) -> None:
    written = 0
    for name, stream in _members(archive):
        path = target / _inside(name, archive)
        path.parent.mkdir(parents=True, exist_ok=True)
        with stream, path.open("wb") as file:
            for chunk in _chunks(stream):
                written += len(chunk)  # counted as it comes: a header may lie
                if written > limit:
                    raise ValueError(f"{archive} holds more than {limit} bytes: it is refused")
                file.write(chunk)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of every file; anything but files and folders is refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                kind = entry.external_attr >> 28  # of a Unix mode, where there is one
                if kind not in (0, 0o4, 0o10):
                    raise ValueError(f"{archive}: {entry.filename} is a link or a device")
                if not entry.is_dir():
                    yield entry.filename, zipped.open(entry)
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if member.isdir():
                continue
            stream = tarred.extractfile(member) if member.isfile() else None
            if stream is None:
                raise ValueError(f"{archive}: {member.name} is a link or a device")
            yield member.name, stream


def _inside(name: str, archive: Path) -> PurePosixPath:
    """The name as a path that stays inside, or an error."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or "\0" in name:
        raise ValueError(f"{archive}: {name!r} leads out of the folder")
    return path
