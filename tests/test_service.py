"""A service on loopback, asked by a real client: pictures, broken ones, huge and malicious ones."""

import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection

import numpy as np
import pytest
from PIL import Image

from dmlkit import data, diagnosis, openset, search, training
from dmlkit.training import Experiment
from tests.data import trees

service = pytest.importorskip("dmlkit.service", reason="needs starlette and uvicorn")
from benchmarks.service import serving  # noqa: E402

PICTURES = {"crop": 16, "resize": 18}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return trees.classes(tmp_path_factory.mktemp("shop"), "ant bee cat dog", each=8)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    experiment = Experiment(
        data="folder", data_args=PICTURES, model_args={"widths": [4, 8]}, dim=8, steps=4,
        sampler_args={"classes": 2, "per_class": 2},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLKIT_DATA", str(folder))
        store = tmp_path_factory.mktemp("runs")
        return training.run(experiment, store=store, device="cpu", progress=False)


@pytest.fixture(scope="module")
def catalog(run, folder, tmp_path_factory):
    gallery = search.gallery(run, folder)
    path = tmp_path_factory.mktemp("index") / "shop"
    index, _ = search.index(run, gallery, path, device="cpu")
    model = run.model()
    least = service.threshold(run, model, index, 0.1).least
    return service.Catalog(run, model, index, least)


@pytest.fixture
def port(catalog):
    """Of a server that is up."""
    with serving(catalog) as port:
        yield port


def ask(port, body=None, path="/", kind="image/png", **headers):
    """Status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    how = {"Content-Type": kind} | headers if body is not None else headers
    with closing(connection):
        connection.request("GET" if body is None else "POST", path, body, how)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def png(width=20, height=20, color=(200, 10, 10)):
    file = io.BytesIO()
    Image.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def chunk(name, content):
    """Of a PNG."""
    check = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + check


def stuffed(name):
    """A small PNG with a text, or a profile of colors, that unpacks to 100 MB."""
    whole = png()
    return whole[:33] + chunk(name, b"a\0\0" + zlib.compress(bytes(100_000_000), 9)) + whole[33:]


def bomb(side):
    """A PNG of some kilobytes that says it has so many pixels a side."""
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    body = zlib.compress(bytes(5001) * 4000, 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*each) for each in ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    )


def test_a_picture_of_the_catalog_is_found_at_distance_0(port, folder, catalog):
    for name in ("ant", "dog"):
        status, reply = ask(port, (folder / name / "3.png").read_bytes())
        assert status == 200
        assert reply["answer"] == reply["nearest"][0]["product"] == name
        distances = [each["distance"] for each in reply["nearest"]]
        assert distances[0] == pytest.approx(0, abs=1e-4)
        assert distances == sorted(distances)
        assert len({each["product"] for each in reply["nearest"]}) == 4
    status, health = ask(port, path="/health")
    assert (status, health["status"], health["pictures"], health["products"]) == (200, "ok", 32, 4)
    assert health["answers_within"] == pytest.approx(1 - catalog.least, abs=1e-4)


def test_what_is_farther_than_the_threshold_is_not_in_the_catalog(folder, catalog):
    body = (folder / "ant" / "3.png").read_bytes()
    never = service.Catalog(catalog.run, catalog.model, catalog.index, least=1.1)
    assert never.answer(body)["answer"] == "not in the catalog"
    assert never.answer(body)["nearest"] == catalog.answer(body)["nearest"]


@pytest.mark.parametrize(
    "body, kind, status, told",
    [
        (b"", "image/png", 400, "expected a picture"),
        (b"a photograph", "image/jpeg", 400, "expected a picture (JPEG, PNG, WEBP"),
        (os.urandom(5000), "application/octet-stream", 400, "expected a picture"),
        (png()[:40], "image/png", 400, "picture"),
        (png(3000, 2000)[:9000], "image/png", 400, "the picture cannot be read"),
        (bomb(40_000), "image/png", 400, "expected at most 50,000,000 pixels, got more"),
        (bomb(8_000), "image/png", 400, "at most 12,500,000 pixels of PNG, got 8000 x 8000"),
        (stuffed(b"zTXt"), "image/png", 400, "expected a picture"),
        (stuffed(b"iCCP"), "image/png", 400, "expected a picture"),
        (b"<svg onload='alert(1)'/>", "image/svg+xml", 400, "expected a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image/x-eps", 400, "expected a"),
        (b"GIF89a" + bytes(20), "image/gif", 400, "expected a picture"),
        (b"{}", "application/json", 415, "send a picture's bytes as they are, not application/js"),
        (b"--x", "multipart/form-data; boundary=x", 415, "not multipart/form-data"),
        (bytes(10_000_001), "image/png", 413, "expected at most 10,000,000 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_picture_is_refused_and_the_service_goes_on(port, body, kind, status, told):
    before = time.monotonic()
    found, reply = ask(port, body, kind=kind)
    assert (found, told in reply["error"]) == (status, True), reply
    assert "BytesIO" not in reply["error"]
    assert time.monotonic() - before < 5  # a bomb is not decoded
    assert ask(port, png())[0] == 200


def test_what_telephones_write_is_a_picture(port):
    file, turned = io.BytesIO(), Image.Exif()
    turned[274] = 6
    views = [Image.new("RGB", (30, 20), color) for color in ("red", "blue")]
    views[0].save(file, "MPO", save_all=True, append_images=views[1:], exif=turned)
    status, reply = ask(port, file.getvalue(), kind="image/jpeg")
    assert (status, len(reply["nearest"])) == (200, 4), reply


def test_heic_is_a_picture_where_its_reader_is(port, catalog, monkeypatch):
    pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 10, 10)).save(file, "HEIF")
    status, reply = ask(port, file.getvalue(), kind="image/heic")
    assert (status, len(reply["nearest"])) == (200, 4), reply
    monkeypatch.delitem(Image.OPEN, "HEIF")
    with pytest.raises(ValueError, match="got HEIC: send it as JPEG"):
        catalog.answer(file.getvalue())


def test_a_body_without_an_end_is_refused_when_it_is_too_large(port):
    def parts():
        for _ in range(200):
            yield bytes(100_000)

    try:
        status, reply = ask(port, parts(), **{"Transfer-Encoding": "chunked"})
    except (BrokenPipeError, ConnectionResetError):  # it hangs up while we send
        status, reply = 413, {"error": "10,000,000"}
    assert status == 413
    assert "10,000,000" in reply["error"]
    assert ask(port, png())[0] == 200


def test_a_body_that_does_not_come_is_waited_for_some_seconds(port, monkeypatch):
    monkeypatch.setattr(service, "SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        assert b" 408 " in slow.recv(1000).partition(b"\r\n")[0]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as rude:
        rude.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as odd:
        odd.sendall(b"\x16\x03\x01" + bytes(200) + b"\r\n\r\n")  # TLS, to a port without it
        assert b" 400 " in odd.recv(1000).partition(b"\r\n")[0]
    assert ask(port, png())[0] == 200


def test_other_pages_and_methods_do_not_exist(port):
    assert ask(port, path="/../../etc/passwd")[0] == 404
    assert ask(port, path="/")[0] == 405
    assert ask(port, png(), path="/health")[0] == 405


def test_under_load_each_is_answered_or_sent_away(port, monkeypatch):
    monkeypatch.setattr(service, "WAITING", 4)
    with ThreadPoolExecutor(16) as clients:
        replies = list(clients.map(lambda _: ask(port, png()), range(64)))
    statuses = [status for status, _ in replies]
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 4
    answers = [reply for status, reply in replies if status == 200]
    assert all(answer == answers[0] for answer in answers)  # whoever else asks meanwhile
    assert ask(port, png())[0] == 200


def test_the_threshold_lets_the_share_of_strangers_through(run, catalog, folder, tmp_path):
    index, model = catalog.index, catalog.model
    x = np.asarray(index.faiss.reconstruct_n())
    labels = np.repeat(np.arange(4), 8)
    strangers = [max(x[labels != k] @ row) for row, k in zip(x, labels, strict=True)]
    asks = diagnosis.in_turns(labels, x)
    best = [max(x[~asks & (labels == k)] @ row) for row, k in zip(x, labels, strict=True)]
    other = [max(x[~asks & (labels != k)] @ row) for row, k in zip(x, labels, strict=True)]
    for share in (0.05, 0.25):
        found = service.threshold(run, model, index, share)
        assert (found.strangers, found.products, found.trained) == (32, 4, True)  # of 4, 2 trained
        expected = float(sorted(strangers)[-1 - int(share * 32)])
        assert found.least == pytest.approx(expected, abs=1e-6)
        assert 0 <= found.low <= share <= found.high
        right = np.greater(best, other) & np.greater(best, found.least)
        each = [right[asks & (labels == k)].mean() for k in np.unique(labels[asks])]
        assert (found.known, found.right) == (asks.sum(), pytest.approx(np.mean(each)))
    for i in range(10):
        trees.picture(tmp_path / "street" / f"{i}.png", 1000 + i)
    found = service.threshold(run, model, index, 0.2, tmp_path / "street")
    passed = [
        service.Catalog(run, model, index, found.least).answer(path.read_bytes())["answer"]
        for path in (tmp_path / "street").iterdir()
    ]
    # The third is at the threshold itself, where a batch of another size has other last bits.
    assert sum(answer != service.NOT_THERE for answer in passed) in (2, 3)
    assert (found.strangers, found.products, found.trained) == (10, 10, False)
    lone = search.Index.build(x[::8])  # a picture of each product
    lone.items = [(str(k), str(k), "") for k in range(4)]
    found = service.threshold(run, model, lone, 0.2, tmp_path / "street")
    assert (found.known, np.isnan(found.right)) == (0, True)
    with pytest.raises(ValueError, match="expected 100 strangers or more to let"):
        service.threshold(run, model, index, 0.01)
    with pytest.raises(ValueError, match="expected pictures of strangers in"):
        service.threshold(run, model, index, 0.1, tmp_path / "nowhere")


def test_products_that_did_not_train_choose_the_threshold(run, catalog, monkeypatch):
    index, model = catalog.index, catalog.model
    x, names = index.faiss.reconstruct_n(), np.array([item[1] for item in index.items])
    assert len(run.class_names) == 2
    apart = ~np.isin(names, run.class_names)
    strangers = [
        max(x[names != name] @ row) for row, name in zip(x[apart], names[apart], strict=True)
    ]
    monkeypatch.setattr(openset, "FEWEST", 2)
    found = service.threshold(run, model, index, 0.25)
    assert (found.strangers, found.products, found.trained) == (16, 2, False)
    assert found.least == pytest.approx(float(sorted(strangers)[-5]), abs=1e-6)
    older = replace(run, class_names=())  # which does not say what it was trained on
    assert service.threshold(older, model, index, 0.25).trained


def test_what_a_threshold_costs_is_told_about_as_another_visit_finds(run):
    """As docs/service.md says it, of groceries by the features that come with the package."""
    whole = data.load("grocery", "test", fold=None, features="photos_grocery_lite0@128")
    for there, numbers in ((~whole.queries, (79, 48, 52)), (whole.queries, (79, 46, 50))):
        x, y = whole.images.flatten(1).numpy(), whole.labels
        index = search.Index.build(x[there])
        index.items = [(str(i), f"{label:02d}", "") for i, label in enumerate(y[there])]
        found = service.threshold(replace(run, class_names=()), run.model(), index, 0.1)
        shares = []
        for met in (
            openset.meet(x[there], y[there]),
            openset.meet(x[~there], y[~there], x[there], y[there]),
        ):
            right = (met.own > found.least) & (met.own > met.stranger)
            shares.append(100 * met.weights @ right)
        copied, visit = shares
        assert (copied, 100 * found.right, visit) == pytest.approx(numbers, abs=1)


def test_the_command_serves_this_machine_alone_until_it_is_interrupted(run, folder, tmp_path):
    environment = os.environ | {"DMLKIT_CACHE": str(tmp_path), "COLUMNS": "200"}
    command = ["serve", str(run.path), "--pictures", str(folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "dmlkit", *command],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as done:  # fmt: skip
        said = []
        for line in done.stdout:
            said.append(line)
            if "POST pictures to http://127.0.0.1:" in line:
                break
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        status, reply = ask(port, (folder / "bee" / "2.png").read_bytes())
        done.send_signal(signal.SIGINT)
    assert "32 pictures of 4 products, 32 of them new" in "".join(said)
    assert "% are answered right, by " in "".join(said)
    assert (status, reply["answer"]) == (200, "bee")


def test_features_come_as_numbers(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.repeat([f"c{k}" for k in range(8)], 6)
    x = np.repeat(rng.normal(size=(8, 5)), 6, axis=0) + 0.1 * rng.normal(size=(48, 5))
    np.savez(tmp_path / "mine.npz", features=x, labels=labels)
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / "mine.npz"))
    experiment = Experiment(
        data="features", model="linear", dim=4, steps=3,
        sampler_args={"classes": 2, "per_class": 2},
    )  # fmt: skip
    run = training.run(experiment, store=tmp_path, device="cpu", progress=False)
    gallery = search.gallery(run)
    index, _ = search.index(run, gallery, tmp_path / "index", device="cpu")
    catalog = service.Catalog(run, run.model(), index, -1.0)
    vector = gallery.images.images[7].numpy().astype("<f4")
    file = io.BytesIO()
    np.save(file, vector.ravel())
    for body in (vector.tobytes(), file.getvalue()):
        found = catalog.answer(body)
        assert found["answer"] == gallery.items[7][1]
        assert found["nearest"][0]["distance"] == pytest.approx(0, abs=1e-4)
    for bad, told in (
        (
            vector.tobytes()[:-4],
            "expected the 5 features of a picture, 20 bytes of float32, got 16",
        ),
        (vector.astype("<f8").tobytes(), "got 40"),
        (np.full(5, np.nan, "<f4").tobytes(), "expected 5 finite features"),
    ):
        with pytest.raises(ValueError, match=told):
            catalog.answer(bad)
    met = openset.meet(index.faiss.reconstruct_n(), gallery.images.labels)
    assert met.others.shape == (24, 3)
