"""Downloads against a server that breaks off, lies and serves wrong bytes; archives that attack."""

import io
import os
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from dmlkit.data import download
from dmlkit.data.download import DownloadError, fetch, unpack

CONTENT = bytes(range(256)) * 8192  # 2 MB


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT as told by ``behavior``; counts the requests and their first bytes."""

    behavior = "honest"
    starts: ClassVar[list[int]] = []

    def do_GET(self):
        cls = type(self)
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        cls.starts.append(first)
        turn, kind = len(cls.starts), cls.behavior
        if kind == "missing":
            return self.send_error(404)
        if kind == "busy" and turn == 1:
            return self.send_error(503)
        if first >= len(CONTENT):
            return self.send_error(416)
        ranged = first and kind != "no ranges"
        body = CONTENT[first:] if ranged else CONTENT
        if kind == "wrong bytes":
            body = b"x" * len(body)
        length = len(body)
        if kind == "says less":
            length = 1000
        if kind == "says more":
            length += 1000
        if kind in ("breaks off", "no ranges") and turn <= 3:
            body = body[: 300_000 * turn]
        if kind == "breaks at once":
            body = b""
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body[:length])
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Server.behavior, Server.starts = "honest", []
    yield f"http://127.0.0.1:{server.server_port}/a.zip"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def md5(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "content"
    path.write_bytes(CONTENT)
    return download.checksum(path)


def get(url, path, md5):
    return fetch(url, path, md5, progress=False, timeout=5)


@pytest.mark.parametrize("behavior", ["honest", "breaks off", "no ranges", "says more", "busy"])
def test_the_whole_file_comes_whatever_the_server_does(url, tmp_path, md5, behavior):
    Server.behavior = behavior
    assert get(url, tmp_path / "a.zip", md5).read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["a.zip"]
    if behavior == "breaks off":
        assert Server.starts == [0, 300_000, 900_000, 1_800_000]  # never a byte twice


def test_goes_on_from_what_an_earlier_process_left(url, tmp_path, md5):
    (tmp_path / "a.zip.part").write_bytes(CONTENT[:1_000_000])
    assert get(url, tmp_path / "a.zip", md5).read_bytes() == CONTENT
    assert Server.starts == [1_000_000]


def test_what_is_there_and_right_is_not_fetched_again(url, tmp_path, md5):
    (tmp_path / "a.zip").write_bytes(CONTENT)
    get(url, tmp_path / "a.zip", md5)
    assert not Server.starts
    (tmp_path / "a.zip").write_bytes(b"corrupted since")
    assert get(url, tmp_path / "a.zip", md5).read_bytes() == CONTENT


@pytest.mark.parametrize("behavior", ["wrong bytes", "says less"])
def test_other_bytes_are_refused_and_deleted(url, tmp_path, md5, behavior):
    Server.behavior = behavior
    with pytest.raises(DownloadError, match=f"other bytes: MD5 .*, expected {md5}; they were del"):
        get(url, tmp_path / "a.zip", md5)
    assert not os.listdir(tmp_path)


def test_gives_up_and_keeps_what_has_come(url, tmp_path, md5):
    Server.behavior = "breaks at once"
    (tmp_path / "a.zip.part").write_bytes(CONTENT[:10])
    with pytest.raises(DownloadError, match="broke off 5 times without a new byte"):
        get(url, tmp_path / "a.zip", md5)
    assert (tmp_path / "a.zip.part").read_bytes() == CONTENT[:10]


def test_a_missing_file_is_said_at_once(url, tmp_path, md5):
    Server.behavior = "missing"
    with pytest.raises(DownloadError, match="the server says 404"):
        get(url, tmp_path / "a.zip", md5)
    assert len(Server.starts) == 1


# Unpacking


def zipped(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return path


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
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
def test_zips_that_reach_out_are_refused_whole(tmp_path, entries):
    archive = zipped(tmp_path / "bad.zip", entries)
    with pytest.raises(ValueError, match=r"leads out|is a link"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["bad.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_tars_with_links_and_devices_are_refused_whole(tmp_path, kind):
    archive = tarred(tmp_path / "bad.tgz", [("ok", tarfile.REGTYPE, b"1"), ("x", kind, b"")])
    with pytest.raises(ValueError, match="x is a link or a device"):
        unpack(archive, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["bad.tgz"]


def test_bombs_and_broken_archives_are_refused_whole(tmp_path):
    bomb = zipped(tmp_path / "bomb.zip", [("zeros", b"\0" * 10**6, 0)])
    with pytest.raises(ValueError, match="holds more than 1000 bytes"):
        unpack(bomb, tmp_path / "folder", limit=1000)
    whole = tarred(tmp_path / "a.tgz", [("x", tarfile.REGTYPE, os.urandom(10**5))])
    whole.write_bytes(whole.read_bytes()[:5000])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(whole, tmp_path / "folder")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(tmp_path / "text", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
