"""What a service takes: a picture's time from its bytes to its answer, over loopback, by clients.

A network of 224 x 224 pixels with random weights searches a gallery of 10,000 vectors.
"""

import io
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from unittest import mock

import numpy as np
from PIL import Image

from dmlkit import search, service, training
from dmlkit.training import Experiment

CLIENTS, ASKED, GALLERY = (1, 4, 16), 96, 10_000
MODEL = "tf_efficientnet_lite0"

Row = dict[str, str | float]


def rows() -> list[Row]:
    """Latency and load, by how many clients ask at once."""
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as port:
        body = _picture()
        _ask(port, body)  # the first is slow
        return [_row(port, body, clients) for clients in CLIENTS]


def _row(port: int, body: bytes, clients: int) -> Row:
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda _: _ask(port, body), range(ASKED)))
    seconds = time.perf_counter() - began
    took = 1000 * np.array([ms for status, ms in found if status == 200])
    statuses = Counter(status for status, _ in found)
    return {
        "what": f"{clients} clients, {MODEL}",
        "median ms": float(np.median(took)),
        "95 % ms": float(np.percentile(took, 95)),
        "a second": statuses[200] / seconds,
        "sent away": float(statuses[503]),
    }


def _ask(port: int, body: bytes) -> tuple[int, float]:
    began = time.perf_counter()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/", body, {"Content-Type": "image/jpeg"})
        reply = connection.getresponse()
        reply.read()
    return reply.status, time.perf_counter() - began


def _picture(side: int = 1000) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


@contextmanager
def serving(catalog: service.Catalog) -> Iterator[int]:
    """The port on which a catalog is served meanwhile."""
    server = service.server(catalog)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@contextmanager
def _served(folder: Path) -> Iterator[int]:
    """The port of a service, whose Run is two steps on pictures that are made up."""
    for k, name in enumerate("abcd"):
        (folder / "shop" / name).mkdir(parents=True)
        for i in range(3):
            (folder / "shop" / name / f"{i}.jpg").write_bytes(_picture(240 + 4 * i + k))
    with mock.patch.dict(os.environ, DMLKIT_DATA=str(folder / "shop")):
        run = training.run(
            Experiment(
                data="folder", data_args={"crop": 224, "resize": 252},
                model=MODEL, model_args={"pretrained": False, "freeze_batch_norm": True}, dim=128,
                steps=1, sampler_args={"classes": 2, "per_class": 2}, lr=1e-5,
            ),
            store=folder, progress=False,
        )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(GALLERY, 128)).astype(np.float32)
    index = search.Index.build(x)
    index.items = [(f"{i}", f"product {i % 500}", "") for i in range(GALLERY)]
    with serving(service.Catalog(run, run.model(), index, 0.5)) as port:
        yield port
