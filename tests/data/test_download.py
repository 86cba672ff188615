"""Downloads from a server that breaks off, or serves wrong bytes; archives that break off."""

import hashlib
import io
import tarfile
import threading
import zipfile
from contextlib import suppress
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
        with suppress(ConnectionError):  # who asked has given up
            self.wfile.write(body[: len(body) // 2] if self.behavior == "breaks off" else body)
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
    md5 = hashlib.md5(CONTENT).hexdigest()
    yield File("a.zip", md5, f"http://127.0.0.1:{server.server_port}/a.zip")
    server.shutdown()
    server.server_close()
    thread.join(60)


def listed(folder):
    return [path.name for path in folder.iterdir()]


def test_a_file_is_fetched_once_and_again_where_its_bytes_are_others(file, tmp_path):
    folder = tmp_path / "new"
    assert fetch(file, folder).read_bytes() == CONTENT
    asked = Server.requests
    assert fetch(file, folder).read_bytes() == CONTENT
    assert Server.requests == asked
    (folder / "a.zip").write_bytes(b"corrupted since")
    assert fetch(file, folder).read_bytes() == CONTENT
    assert listed(folder) == ["a.zip"]


@pytest.mark.parametrize("behavior", ["wrong bytes", "breaks off", "missing"])
def test_nothing_is_kept_of_what_fails_and_it_is_said_what_to_place_where(file, tmp_path, behavior):
    (tmp_path / "a.zip").write_bytes(b"another")
    Server.behavior = behavior
    with pytest.raises(OSError, match=f"cannot fetch {file.url} ") as error:
        fetch(file, tmp_path)
    assert error.match(rf"place a\.zip \(MD5 {file.md5}\) in {tmp_path}")
    if behavior == "missing":
        error.value.__cause__.close()  # urllib's error holds the connection
    assert listed(tmp_path) == ["a.zip"]
    assert (tmp_path / "a.zip").read_bytes() == b"another"  # what was there stays


def test_without_a_network_it_is_said_what_to_place_where(tmp_path):
    with pytest.raises(OSError, match=r"cannot fetch http://127\.0\.0\.1:9/a .*place a \(MD5 0"):
        fetch(File("a", "0" * 32, "http://127.0.0.1:9/a"), tmp_path)
    assert listed(tmp_path) == []


@pytest.mark.parametrize("suffix", ["zip", "tgz"])
def test_an_archive_is_unpacked_whole_or_not_at_all(tmp_path, suffix):
    archive = tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("x/a b.txt", CONTENT)
            file.writestr("x/c.txt", CONTENT)
    else:
        with tarfile.open(archive, "w:gz") as file:
            for name in ("x/a b.txt", "x/c.txt"):
                member = tarfile.TarInfo(name)
                member.size = len(CONTENT)
                file.addfile(member, io.BytesIO(CONTENT))
    unpack(archive, tmp_path / "out")
    assert (tmp_path / "out" / "x" / "a b.txt").read_bytes() == CONTENT
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(Exception, match=r"File is not a zip|end-of-stream"):
        unpack(archive, tmp_path / "half")
    assert sorted(listed(tmp_path)) == [archive.name, "out"]
