"""Downloads from a server that breaks off and serves wrong bytes; archives that attack."""

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dmlkit.data.download import File, fetch, unpack

CONTENT = bytes(range(256)) * 8192  # 2 MB


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT as told by ``behavior``; counts the requests."""

    behavior, requests = "honest", 0

    def do_GET(self):
        Server.requests += 1
        if self.behavior == "missing":
            return self.send_error(404)
        body = b"x" * len(CONTENT) if self.behavior == "wrong bytes" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.behavior == "breaks off" else body)
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def file():
    """A published file that the server has."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Server.behavior, Server.requests = "honest", 0
    md5 = hashlib.md5(CONTENT).hexdigest()
    yield File("a.zip", md5, f"http://127.0.0.1:{server.server_port}/a.zip")
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_is_fetched_once_and_again_where_its_bytes_are_others(file, tmp_path):
    folder = tmp_path / "new"
    for _ in range(2):
        assert fetch(file, folder).read_bytes() == CONTENT
        assert os.listdir(folder) == ["a.zip"]
    assert Server.requests == 1
    (folder / "a.zip").write_bytes(b"corrupted since")
    assert fetch(file, folder).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "behavior, reason",
    [
        ("wrong bytes", "its MD5 is .*, expected"),
        ("breaks off", "MD5|IncompleteRead"),
        ("missing", "404"),
    ],
)
def test_nothing_is_kept_of_what_fails_and_it_is_said_what_to_place_where(
    file, tmp_path, behavior, reason
):
    Server.behavior = behavior
    with pytest.raises(OSError, match=f"cannot fetch {file.url} ") as error:
        fetch(file, tmp_path)
    assert error.match(reason)
    assert error.match(rf"place a\.zip \(MD5 {file.md5}\) in {tmp_path}")
    assert not os.listdir(tmp_path)


def test_what_was_there_stays_where_a_download_fails(file, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"another")
    Server.behavior = "breaks off"
    with pytest.raises(OSError, match="cannot fetch"):
        fetch(file, tmp_path)
    assert (tmp_path / "a.zip").read_bytes() == b"another"


# Unpacking


def zipped(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return path


def tarred(path, members, target=""):
    with tarfile.open(path, "w:gz") as archive:
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
    "link": [("link", b"/etc/passwd", 0o120777)],
    "late": [("fine", b"1", 0), ("../evil", b"", 0)],
}


@pytest.mark.parametrize("entries", BAD_ZIPS.values(), ids=BAD_ZIPS)
def test_zips_that_reach_out_make_plain_files_inside(tmp_path, entries):
    archive = zipped(tmp_path / "bad.zip", entries)
    folder = unpack(archive, tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["bad.zip", "folder"]
    found = [path for path in folder.rglob("*") if not path.is_dir()]
    assert len(found) == len(entries)
    assert all(path.is_file() and not path.is_symlink() for path in found)


REFUSED = {
    "link": ("x", tarfile.SYMTYPE, "/etc/passwd", "x is a link"),
    "link that stays inside": ("x", tarfile.SYMTYPE, "ok", "x is a link"),
    "hard link": ("x", tarfile.LNKTYPE, "ok", "x is a link"),
    "device": ("x", tarfile.CHRTYPE, "", "special file"),
    "up": ("../x", tarfile.REGTYPE, "", "outside"),
    "hidden up": ("a/../../x", tarfile.REGTYPE, "", "outside"),
}


@pytest.mark.parametrize("name, kind, target, reason", REFUSED.values(), ids=REFUSED)
def test_tars_that_reach_out_or_hold_links_or_devices_are_refused_whole(
    tmp_path, name, kind, target, reason
):
    archive = tarred(
        tmp_path / "bad.tgz", [("ok", tarfile.REGTYPE, b"1"), (name, kind, b"")], target
    )
    with pytest.raises(ValueError, match=rf"bad\.tgz cannot be unpacked: .*{reason}"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["bad.tgz"]


def test_an_absolute_path_in_a_tar_is_made_inside(tmp_path):
    archive = tarred(tmp_path / "bad.tgz", [("/dmlkit-x", tarfile.REGTYPE, b"1")])
    assert (unpack(archive, tmp_path / "folder") / "dmlkit-x").is_file()


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
