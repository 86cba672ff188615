"""Archives that attack, are damaged, or hold something else."""

import errno
import gzip
import io
import os
import shutil
import struct
import tarfile
import zipfile

import pytest

from dmlkit.data import archives
from dmlkit.data.archives import unpack


def zipped(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return path


def tarred(path, members, target="", mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), target
            archive.addfile(member, io.BytesIO(content))
    return path


def test_good_archives_unpack_whole(tmp_path):
    one = zipped(tmp_path / "a.zip", [("x/a b.txt", b"1", 0o100644), ("x/", b"", 0o40755)])
    two = tarred(
        tmp_path / "a.tgz", [("x", tarfile.DIRTYPE, b""), ("x/ü.txt", tarfile.REGTYPE, b"2")]
    )
    assert (unpack(one, tmp_path / "one") / "x" / "a b.txt").read_bytes() == b"1"
    assert (unpack(two, tmp_path / "two") / "x" / "ü.txt").read_bytes() == b"2"
    with pytest.raises(FileExistsError, match="delete it to unpack"):
        unpack(one, tmp_path / "one")


BAD_ZIPS = {
    "up": [("../evil", b"", 0)],
    "hidden up": [("x/../../evil", b"", 0)],
    "absolute": [("/evil", b"", 0)],
    "backslashes": [("..\\evil", b"", 0)],
    "drive": [("C:\\evil", b"", 0)],
    "link": [("evil", b"/etc/passwd", 0o120777)],
    "late": [("fine", b"1", 0), ("../evil", b"", 0)],
    "file as folder": [("evil/x", b"1", 0), ("evil", b"2", 0)],
}


@pytest.mark.parametrize("entries", BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_zips_that_reach_out_or_hold_links_are_refused_whole(tmp_path, entries):
    archive = zipped(tmp_path / "bad.zip", entries)
    with pytest.raises(ValueError, match=r"bad\.zip cannot be unpacked: .*evil"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["bad.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(tmp_path):
    twice = [("x", b"1", 0), ("./x", b"2", 0)]
    members = [(name, tarfile.REGTYPE, content) for name, content, _ in twice]
    for archive in (zipped(tmp_path / "a.zip", twice), tarred(tmp_path / "a.tgz", members)):
        with pytest.raises(ValueError, match=r"cannot be unpacked: it holds \./x twice"):
            unpack(archive, tmp_path / "folder")


REFUSED = {
    "link": ("x", tarfile.SYMTYPE, "/etc/passwd", "x is a link"),
    "link that stays inside": ("x", tarfile.SYMTYPE, "ok", "x is a link"),
    "hard link": ("x", tarfile.LNKTYPE, "ok", "x is a link"),
    "device": ("x", tarfile.CHRTYPE, "", "a device or a pipe"),
    "pipe": ("x", tarfile.FIFOTYPE, "", "a device or a pipe"),
    "up": ("../x", tarfile.REGTYPE, "", "outside"),
    "a folder up": ("../x", tarfile.DIRTYPE, "", "outside"),
    "hidden up": ("a/../../x", tarfile.REGTYPE, "", "outside"),
    "absolute": ("/dmlkit-x", tarfile.REGTYPE, "", "outside"),
}


@pytest.mark.parametrize("python", ["3.11.2", "3.11.4"])
@pytest.mark.parametrize("name, kind, target, reason", REFUSED.values(), ids=REFUSED)
def test_tars_that_reach_out_or_hold_links_or_devices_are_refused_whole(
    tmp_path, monkeypatch, python, name, kind, target, reason
):
    if python == "3.11.2":  # whose tarfile filters nothing
        monkeypatch.setattr(archives, "_FILTER", {})
    archive = tarred(
        tmp_path / "bad.tgz", [("ok", tarfile.REGTYPE, b"1"), (name, kind, b"")], target
    )
    with pytest.raises(ValueError, match=rf"bad\.tgz cannot be unpacked: .*{reason}"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["bad.tgz"]


def test_no_file_of_a_tar_may_be_run(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("x")
        member.size, member.mode = 1, 0o6777
        archive.addfile(member, io.BytesIO(b"1"))
    unpacked = unpack(tmp_path / "a.tar", tmp_path / "folder")
    assert (unpacked / "x").stat().st_mode & 0o7133 == 0


def test_broken_archives_are_refused_whole(tmp_path):
    whole = tarred(tmp_path / "a.tgz", [("x", tarfile.REGTYPE, os.urandom(10**5))])
    whole.write_bytes(whole.read_bytes()[:5000])
    (tmp_path / "text").write_text("no archive")
    cut = zipped(tmp_path / "a.zip", [("x", os.urandom(10**5), 0o100644)])
    content = bytearray(cut.read_bytes())
    content[1000] ^= 1
    cut.write_bytes(content)
    for path in (whole, tmp_path / "text", cut):
        with pytest.raises(ValueError, match="cannot be unpacked"):
            unpack(path, tmp_path / "folder")
        assert sorted(os.listdir(tmp_path)) == ["a.tgz", "a.zip", "text"]


def plain_tar(path, count=3):
    with tarfile.open(path, "w") as archive:
        for i in range(count):
            member = tarfile.TarInfo(f"x/{i}.txt")
            member.size = 600
            archive.addfile(member, io.BytesIO(bytes([i]) * 600))
    return path


def damaged(path, at, value=0xFF):
    content = bytearray(path.read_bytes())
    content[at] ^= value
    path.write_bytes(content)
    return path


def cut(path, length):
    path.write_bytes(path.read_bytes()[:length])
    return path


def compressed(path):
    """A tgz of the plain tar, as one block that is stored: so a damaged byte stays one."""
    path.write_bytes(gzip.compress(plain_tar(path).read_bytes(), compresslevel=0))
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda path: damaged(plain_tar(path), 1536),  # the header of the second file
        lambda path: cut(plain_tar(path), 1536),  # before that header
        lambda path: cut(plain_tar(path), 1600),  # within it
        lambda path: cut(plain_tar(path), 2500),  # within the file
        lambda path: cut(plain_tar(path), 3 * 1536),  # before the end is marked
        lambda path: damaged(compressed(path), 700, 1),  # a byte of a file
        lambda path: damaged(compressed(path), -6, 1),  # the checksum
        lambda path: cut(compressed(path), -8),  # no checksum
        lambda path: path.write_bytes(compressed(path).read_bytes() + b"more") and path,
    ],
)
def test_a_damaged_tar_never_unpacks_in_part(tmp_path, make):
    archive = make(tmp_path / "a.tar")
    with pytest.raises(ValueError, match=r"a\.tar cannot be unpacked: \S"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["a.tar"]


def encrypted(path):
    zipped(path, [("secret.txt", b"1234", 0)])
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + flags] |= 1
    path.write_bytes(content)
    return path


def shortened(path):
    """The first entry's comment reaches over the entries after it: zipfile finds one of three."""
    zipped(path, [(f"{i}.txt", b"1234", 0) for i in range(3)])
    content = bytearray(path.read_bytes())
    first, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    struct.pack_into("<H", content, first + 32, end - first - 46 - len("0.txt"))
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "make, message",
    [
        (shortened, "its end states 3 entries, but 1 were found"),
        (encrypted, r"secret\.txt is encrypted"),
        (lambda path: zipped(path, []), "it holds no files"),
        (lambda path: zipped(path, [("x/", b"", 0o40755)]), "it holds no files"),
        (lambda path: tarred(path, []), "it holds no files"),
        (lambda path: (path.write_bytes(b"") and path) or path, "empty file"),
        (
            lambda path: tarred(path, [("in.zip", tarfile.REGTYPE, b"PK")]),
            r"nothing but another archive, in\.zip: unpack that",
        ),
        (lambda path: os.mkfifo(path) or path, "not a regular file"),
        (lambda path: path.mkdir() or path, "not a regular file"),
        (lambda path: zipped(path, [("n" * 300, b"", 0)]), "name too long"),
    ],
)
def test_an_encrypted_empty_or_nested_archive_is_named(tmp_path, make, message):
    archive = make(tmp_path / "archive")
    with pytest.raises(ValueError, match=f"archive .*{message}"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["archive"]


def test_a_tar_that_ends_with_a_zip_is_a_tar(tmp_path):
    inner = zipped(tmp_path / "in.zip", [("y", b"", 0)]).read_bytes()
    archive = tarred(
        tmp_path / "a.tar",
        [("x", tarfile.REGTYPE, b"1"), ("in.zip", tarfile.REGTYPE, inner)],
        mode="w",
    )
    folder = unpack(archive, tmp_path / "deep" / "folder")
    assert sorted(os.listdir(folder)) == ["in.zip", "x"]


def bomb(path):
    """A tar that says it holds 8 TB."""
    member = tarfile.TarInfo("x")
    member.size = 2**43
    path.write_bytes(gzip.compress(member.tobuf() + bytes(10**6)))
    return path


@pytest.mark.parametrize("many", [False, True])
def test_what_there_is_no_room_for_is_refused_with_its_size(tmp_path, monkeypatch, many):
    archive = bomb(tmp_path / "a.tgz")
    if not many:
        archive = zipped(tmp_path / "a.zip", [("x", bytes(10**7), 0)])
        free = shutil.disk_usage(tmp_path)._replace(free=10**6)
        monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: free)
    size = "8,796,093.0" if many else "10.0"
    message = (
        rf"the disk is full: no room for .*{archive.name} in .*folder: it needs {size} MB, and"
    )
    with pytest.raises(OSError, match=message) as error:
        unpack(archive, tmp_path / "folder")
    assert error.value.errno == errno.ENOSPC
    assert not (tmp_path / "folder").exists()
