"""Downloads from a server that breaks off, is busy, and serves wrong bytes; a full disk."""

import hashlib
import os
import platform
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dmlkit.data import archives, download
from dmlkit.data.download import File, fetch

CONTENT = bytes(range(256)) * 8192  # 2 MB


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT as told by ``behavior``; counts the requests."""

    behavior, requests, released = "honest", 0, threading.Event()

    def do_GET(self):
        Server.requests += 1
        if self.behavior == "missing":
            return self.send_error(404)
        if self.behavior == "busy twice" and Server.requests <= 2:
            return self.send_error(503)
        body = b"x" * len(CONTENT) if self.behavior == "wrong bytes" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = self.behavior in ("breaks off", "stalls")
        with suppress(ConnectionError):  # who asked has given up
            self.wfile.write(body[: len(body) // 2] if half else body)
        if self.behavior == "stalls":
            Server.released.wait(30)
        return None

    def log_message(self, *args):
        pass


@pytest.fixture
def file():
    """A published file that the server has."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Server.behavior, Server.requests = "honest", 0
    Server.released.clear()
    md5 = hashlib.md5(CONTENT).hexdigest()
    yield File("a.zip", md5, f"http://127.0.0.1:{server.server_port}/a.zip")
    Server.released.set()
    server.shutdown()
    server.server_close()
    thread.join(60)
    assert not thread.is_alive(), "the server has not ended"


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses that were asked for, none of which is made."""
    made = []
    monkeypatch.setattr(download.time, "sleep", made.append)
    return made


def test_a_file_is_fetched_once_and_again_where_its_bytes_are_others(file, tmp_path):
    folder = tmp_path / "new"
    for _ in range(2):
        assert fetch(file, folder).read_bytes() == CONTENT
        assert os.listdir(folder) == ["a.zip"]
    assert Server.requests == 1
    (folder / "a.zip").write_bytes(b"corrupted since")
    assert fetch(file, folder).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "behavior, reason, attempts",
    [
        ("wrong bytes", "its MD5 is .*, expected", 1),
        ("breaks off", r"it broke off after \d+ of 2097152 bytes", 5),
        ("stalls", "timed out", 5),
        ("missing", "404", 1),
    ],
)
def test_nothing_is_kept_of_what_fails_and_it_is_said_what_to_place_where(
    file, tmp_path, monkeypatch, pauses, behavior, reason, attempts
):
    monkeypatch.setattr(download, "PATIENCE", 0.5)
    Server.behavior = behavior
    with pytest.raises(OSError, match=f"cannot fetch {file.url} ") as error:
        fetch(file, tmp_path)
    assert error.match(reason)
    assert error.match(rf"place a\.zip \(MD5 {file.md5}\) in {tmp_path}")
    assert not os.listdir(tmp_path)
    assert Server.requests == attempts  # what another attempt cannot better has none
    assert pauses == [1, 2, 4, 8][: attempts - 1]


def test_a_busy_server_is_asked_again_after_growing_pauses(file, tmp_path, pauses, capsys):
    Server.behavior = "busy twice"
    assert fetch(file, tmp_path).read_bytes() == CONTENT
    assert pauses == [1, 2]
    assert "Service Unavailable; next attempt in 2 s" in capsys.readouterr().err


def test_an_address_that_is_none_is_not_tried_again(tmp_path, pauses):
    for url in ("no:", (tmp_path / "missing").as_uri()):
        with pytest.raises(OSError, match="cannot fetch"):
            fetch(File("a.zip", "0" * 32, url), tmp_path)
    assert not pauses


def test_a_disk_too_small_is_said_with_file_and_sizes_before_a_byte_is_written(
    file, tmp_path, monkeypatch, pauses
):
    free = archives.shutil.disk_usage(tmp_path)._replace(free=10**6)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: free)
    message = (
        r"the disk is full: no room for .*a\.zip in .*: it needs 2\.1 MB, and 1\.0 MB were free"
    )
    with pytest.raises(OSError, match=message) as error:
        fetch(file, tmp_path)
    assert "try again" not in str(error.value)
    assert not os.listdir(tmp_path)
    assert not pauses


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_fills_up_is_said_too(file, tmp_path, pauses):
    beside = f"a.zip.{platform.node()}-{os.getpid()}"  # where it is written at first
    (tmp_path / beside).symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"the disk is full: no room for .*a\.zip .* needs 2\.1 MB"):
        fetch(file, tmp_path)
    assert not os.listdir(tmp_path)
    assert not pauses


def test_what_was_there_stays_where_a_download_fails(file, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"another")
    Server.behavior = "breaks off"
    with pytest.raises(OSError, match="cannot fetch"):
        fetch(file, tmp_path)
    assert (tmp_path / "a.zip").read_bytes() == b"another"
