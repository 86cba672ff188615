"""A search as a service: a picture's bytes in, products and distances out (extra ``service``)."""

import asyncio
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from torch import nn

from dmlkit import diagnosis, openset, search, training
from dmlkit.data.pictures import READS_HEIC, open_picture, suffixes
from dmlkit.files import StrPath
from dmlkit.neighbors import Metric, metric_of
from dmlkit.search import Index
from dmlkit.training import Run

#: What a query may be: bytes, and by Pillow's names of kinds pixels (a bomb is refused by its
#: header). A JPEG is decoded at the size that is needed, others in full: 150 MB of 12 million, of
#: HEIC 210 MB of the 24 million that telephones write.
MOST_BYTES = 10_000_000
MOST_PIXELS = {"JPEG": 50_000_000, "MPO": 50_000_000, "PNG": 12_500_000, "WEBP": 12_500_000}
_KINDS = "JPEG, PNG, WEBP"  # a telephone's MPO begins with a JPEG, and is named one
if ".heic" in suffixes():
    MOST_PIXELS["HEIF"], _KINDS = 25_000_000, f"{_KINDS}, HEIC"
SECONDS = 10.0  # in which a body has to be there
WAITING = 32  # queries at a time, of which one is computed; more are sent away with 503
#: On the groceries 23 % of strangers passed a threshold for 10 %, chosen so: see docs/service.md.
TRAINED = (
    "These products were trained on, so true strangers pass more often than asked, on groceries "
    "twice as often: `dmlkit final` keeps some apart; or give --strangers FOLDER, pictures of what "
    "you do not have, or half the --share"
)
NOT_THERE = "not in the catalog"
CONNECTIONS = 100  # of any kind at a time
_NEAR = 50  # pictures that are looked at for the nearest products


class _Sent(io.BytesIO):
    """Bytes of a query, by the name that errors give it."""

    def __str__(self) -> str:
        return "the picture"


@dataclass(eq=False)
class Catalog:
    """What a service searches, and from which likeness on it answers.

    ``least`` is a cosine, or minus a distance: see ``openset``.
    """

    run: Run
    model: nn.Module
    index: Index
    least: float
    products: int = 5  # that are told

    def __post_init__(self) -> None:
        gone = self.index.removed
        kept = [item[1] for i, item in enumerate(self.index.items) if i not in gone]
        self.count = len(set(kept))

    def answer(self, body: bytes) -> dict[str, Any]:
        """The nearest products, and the first one's name if it is near enough.

        A distance is 1 − cosine, or the Euclidean one. Raises ValueError for what is no picture.
        """
        features = self.run.image_shape[1:] == (1, 1)
        if not features:
            check_picture(body)
        x = training.embed(self.model, search.as_seen(self.run, [_Sent(body)]))
        places, values = self.index.search(x, min(_NEAR, len(self.index)))
        likeness = metric_of(self.index.metric).sign * np.asarray(values)[0].astype(float)
        nearest: dict[str, float] = {}  # each product once, by its nearest picture
        for place, value in zip(places[0], likeness, strict=True):
            nearest.setdefault(self.index.items[place][1], self.distance(value))
        known = bool(likeness[0] > self.least)
        told = [{"product": p, "distance": d} for p, d in list(nearest.items())[: self.products]]
        return {"answer": told[0]["product"] if known else NOT_THERE, "nearest": told}

    def distance(self, likeness: float) -> float:
        """As it is told."""
        plus = 1 if self.index.metric == "cosine" else 0
        return round(plus - float(likeness), 4)

    def health(self) -> dict[str, Any]:
        """What is searched."""
        return {
            "status": "ok",
            "run": self.run.path.name,
            "pictures": len(self.index),
            "products": self.count,
            "answers_within": self.distance(self.least),
        }


def check_picture(body: bytes) -> None:
    """ValueError for what is no picture of a kind of ``MOST_PIXELS``, or has more than these."""
    try:
        with open_picture(io.BytesIO(body)) as image:
            kind, (width, height) = str(image.format), image.size
    except ValueError as error:
        if isinstance(error.__cause__, Image.DecompressionBombError):  # its own bound is higher
            most = max(MOST_PIXELS.values())
            raise ValueError(f"expected at most {most:,} pixels, got more") from None
        got = "HEIC: send it as JPEG" if READS_HEIC in str(error) else "another file"
        raise ValueError(f"expected a picture ({_KINDS}), got {got}") from None
    if kind not in MOST_PIXELS:
        raise ValueError(f"expected a picture ({_KINDS}), got {kind}")
    if width * height > (most := MOST_PIXELS[kind]):
        raise ValueError(f"expected at most {most:,} pixels of {kind}, got {width} x {height}")


class Threshold(NamedTuple):
    """From which likeness on it is answered, and what says so."""

    least: float
    strangers: int
    products: int  # of which these are
    low: float  # of further products' strangers so many pass, 0..1: see openset.spread
    high: float
    trained: bool  # on these products
    known: int  # pictures of the catalog that asked without their near copies
    right: float  # of these so many are answered right, 0..1, nan where there are none


def threshold(
    run: Run, model: nn.Module, index: Index, share: float, strangers: StrPath | None = None
) -> Threshold:
    """The likeness that at most a share of strangers exceeds.

    They are the pictures in a folder of what is not for sale, each of a product of its own; else
    those in the index, their own product taken out: of products that did not train, if there are
    ``openset.FEWEST``, else of all; by these it is told what the threshold costs. Raises
    ValueError for fewer strangers than 1/share.
    """
    rows = [i for i in range(len(index.items)) if i not in index.removed]
    x = np.asarray(index.faiss.reconstruct_n()[rows])
    names = np.array([index.items[i][1] for i in rows])
    y = np.unique(names, return_inverse=True)[1]
    apart = ~np.isin(names, run.class_names)
    trained = len(np.unique(y[apart])) < openset.FEWEST or not run.class_names
    asked = apart | trained
    if strangers is None:
        met = openset.meet(x[asked], y[asked], x, y, metric=index.metric)
        likeness, of = met.stranger, met.product
    else:
        paths = sorted(p for p in Path(strangers).rglob("*") if p.suffix.lower() in suffixes())
        if not paths:
            raise ValueError(f"expected pictures of strangers in {strangers}, found none")
        found = index.search(training.embed(model, search.as_seen(run, paths)), 1)[1]
        likeness = metric_of(index.metric).sign * np.asarray(found)[:, 0].astype(float)
        of = np.arange(len(paths))
    if len(likeness) * share < 1:
        raise ValueError(
            f"expected {math.ceil(1 / share)} strangers or more to let {share:.2g} of them "
            f"through, got {len(likeness)}"
        )
    least, (low, high) = openset.threshold(likeness, share), openset.spread(likeness, of, share)
    trained &= strangers is None
    known = _known(x, y, asked, least, index.metric)
    return Threshold(least, len(likeness), len(np.unique(of)), low, high, trained, *known)


def _known(
    x: np.ndarray, y: np.ndarray, asked: np.ndarray, least: float, metric: Metric
) -> tuple[int, float]:
    """How many of embeddings (N, d) ask without their near copies, and the share answered right.

    With these, each in all others, groceries promised 79 % where another visit gave 52 %, and so
    48 % (the fine-tuned features that come with the package).
    """
    queries = diagnosis.in_turns(y, x)
    ask = asked & queries
    try:
        met = openset.meet(x[ask], y[ask], x[~queries], y[~queries], metric)
    except ValueError:  # no two products have pictures on both sides
        return 0, math.nan
    right = (met.own > least) & (met.own > met.stranger)
    return len(right), float(met.weights @ right)


def server(catalog: Catalog) -> uvicorn.Server:
    """What serves a catalog on sockets: ``server(catalog).run(sockets=[...])``."""
    config = uvicorn.Config(
        app(catalog.answer, catalog.health),
        log_level="warning",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        server_header=False,
        lifespan="off",
        ws="none",
    )
    return uvicorn.Server(config)


def app(
    answer: Callable[[bytes], dict[str, Any]], health: Callable[[], dict[str, Any]]
) -> Starlette:
    """POST / takes a picture's bytes, GET /health tells what is searched.

    Answers are JSON: 400 for what is no picture, 408 for a body that does not come, 413 for one
    that is too large, 415 for another kind, 503 where too many wait.
    """
    turn, waiting = asyncio.Semaphore(1), 0

    async def post(request: Request) -> JSONResponse:
        nonlocal waiting
        kind = request.headers.get("content-type", "application/octet-stream").split(";")[0]
        if not (kind.startswith("image/") or kind == "application/octet-stream"):
            line = f"send a picture's bytes as they are, not {kind[:40]}"
            raise HTTPException(415, f"{line}; as a header, Content-Type: image/jpeg")
        if waiting >= WAITING:
            raise HTTPException(503, "too many wait: ask again", {"Retry-After": "1"})
        waiting += 1
        try:
            body = await asyncio.wait_for(_body(request), SECONDS)
            async with turn:
                return JSONResponse(await run_in_threadpool(answer, body))
        except ClientDisconnect:
            return JSONResponse({"error": "gone"}, 400)  # nobody reads it
        except TimeoutError:
            raise HTTPException(408, f"the picture did not come in {SECONDS:.0f} s") from None
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        finally:
            waiting -= 1

    async def told(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def get(_: Request) -> JSONResponse:
        return JSONResponse(health())

    routes = [Route("/", post, methods=["POST"]), Route("/health", get)]
    return Starlette(routes=routes, exception_handlers={HTTPException: told})


async def _body(request: Request) -> bytes:
    """All of it, unless it is too large, which its header or its own length says."""
    too_large = HTTPException(413, f"expected at most {MOST_BYTES:,} bytes")
    if int(request.headers.get("content-length", 0)) > MOST_BYTES:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise too_large
    return bytes(body)
