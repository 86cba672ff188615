"""Metrics, and exact neighbors: candidates by one of four routes, then one measure that decides.

``dmlkit.retrieval`` says by which rules. Distances below float64's rounding of products, some 1e-7
of the norms, are tied where more than 16 beyond k are as small.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import faiss
import numpy as np
import torch
from torch import Tensor

from dmlkit.arrays import INTEGERS, Array, as_tensor, as_whole
from dmlkit.checks import check_positive
from dmlkit.geometry import distances, normalize
from dmlkit.losses.hyperbolic import HyperbolicLoss, exponential_map, poincare_distances

Metric = Literal["euclidean", "cosine", "hamming", "poincare"] | Mapping[str, Any]

_SPARE = 16  # candidates beyond k: faiss's rounding may have swapped those next to the boundary
BLOCK_ENTRIES = 2**22  # of one block of a matrix: 32 MB in float64
_ON_GPU = 16  # as many times larger blocks, 0.5 GB, keep a GPU busy
_BALL = HyperbolicLoss()  # whose curvature and clip are those of "poincare"


class Euclidean:
    """‖x − y‖, of embeddings as they are given."""

    sign = -1  # a caller's value times this is the higher, the nearer

    def points(self, x: Tensor) -> Tensor:
        """Embeddings as they are compared: (N, d) of any real type -> (N, d) float64."""
        return x.double()

    def read(self, D: Tensor) -> Tensor:
        """What the caller calls a distance, or a cosine, from distances of points."""
        return D

    def likeness(self, x: Tensor, y: Tensor) -> Tensor:
        """Cosines, or minus the distances, of points: (M, d), (N, d) -> (M, N)."""
        return -distances(x, y)


class Cosine(Euclidean):
    """xᵀy / ‖x‖‖y‖: on the unit sphere, 1 − ‖x − y‖² / 2."""

    sign = 1

    def points(self, x: Tensor) -> Tensor:
        zero = (x == 0).all(dim=1)
        if zero.any():
            row = int(zero.nonzero()[0])
            raise ValueError(f"row {row} is zero and has no cosine; use metric='euclidean'")
        return normalize(x.double())

    def read(self, D: Tensor) -> Tensor:
        return 1 - D.square() / 2

    def likeness(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y.T


class Hamming(Euclidean):
    """How many bits differ: a number's bit is whether it is above 0; a uint8 has eight of them.

    So a byte that is 0 or 1 is one bit either way, and what ``np.packbits`` gives is read.
    """

    def points(self, x: Tensor) -> Tensor:
        if x.dtype == torch.uint8:
            bits = x[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=x.device)
            return (bits & 1).flatten(1).double()  # (N, 8d)
        if x.dtype in INTEGERS and (most := x.double().abs().max()) > 1:
            raise ValueError(
                f"hamming compares bits: expected packed ones as uint8, or numbers whose bit is "
                f"whether they are above 0, got {x.dtype} up to ±{most:.0f}: packed bits want "
                ".view(np.uint8), numbers .astype(float)"
            )
        return (x > 0).double()

    def read(self, D: Tensor) -> Tensor:
        return D.square()

    def likeness(self, x: Tensor, y: Tensor) -> Tensor:
        return -distances(x, y).square()


@dataclass(frozen=True)
class Poincare(Euclidean):
    """2/√c · arsinh(√c‖x − y‖ / √((1 − c‖x‖²)(1 − c‖y‖²))), in the ball of ``HyperbolicLoss``."""

    c: float = _BALL.c
    clip: float = _BALL.clip

    def __post_init__(self) -> None:
        check_positive(c=self.c, clip=self.clip)

    def points(self, x: Tensor) -> Tensor:
        return exponential_map(x.double(), self.c, self.clip)

    def room(self, points: Tensor) -> Tensor:
        """1 − c‖x‖², (N,): a squared distance is divided by that of both its ends."""
        return (1 - self.c * points.square().sum(dim=1)).clamp_min(1e-15)

    def read(self, D: Tensor) -> Tensor:
        return 2 / self.c**0.5 * (self.c**0.5 * D).asinh()

    def likeness(self, x: Tensor, y: Tensor) -> Tensor:
        return -poincare_distances(x, y, self.c)


_METRICS = {"euclidean": Euclidean, "cosine": Cosine, "hamming": Hamming, "poincare": Poincare}


def metric_of(metric: Metric) -> Euclidean:
    """A metric by its name, or by a mapping of its name and arguments."""
    args = dict(metric) if isinstance(metric, Mapping) else {"name": metric}
    name = args.pop("name", None)
    if name not in _METRICS:
        raise ValueError(f"metric: expected one of {', '.join(_METRICS)}, got {metric!r}")
    return _METRICS[name](**args)


class Sets(NamedTuple):
    """Queries and gallery as they are compared, and what their squared distances mean."""

    x: Tensor  # (Q, d) float32
    y: Tensor  # (N, d) float32; x itself where the queries are their own gallery
    metric: Euclidean
    unit: float = 1.0  # of a distance
    room_x: Tensor | None = None  # (Q,), see Poincare.room
    room_y: Tensor | None = None  # (N,)
    own: Tensor | None = None  # (Q,) rows of y that are the queries themselves, −1 for none

    def read(self, squared: Tensor) -> Tensor:
        """What the caller calls a distance, or a cosine, from squared ones: (Q, k) float32."""
        D = squared.double().sqrt() * self.unit  # not the square of the unit, which may overflow
        if self.room_x is not None:
            D = D / self.room_x[:, None].sqrt()
        return self.metric.read(D).float()


def search_blocks(sets: Sets, k: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The k nearest rows of y for each row of x, in blocks: indices (b, k), squared (b, k).

    Where x is y, no row is its own neighbor. Elsewhere, a query's own row comes last, at infinity.
    """
    x, y, own = sets.x, sets.y, sets.own
    if own is None:
        places = torch.arange(len(x), device=x.device)
        own = places if x is y else torch.full_like(places, -1)
    # faiss wants thousands of queries at a time: a hundred at a time cost it four times as much.
    size = min(4096, BLOCK_ENTRIES // k)
    deep = k + 1 + _SPARE >= len(y)
    if deep or x.device.type != "cpu" or sets.room_y is not None:  # faiss knows no curved space
        size = _block_entries(x) // len(y)
        route = partial(by_rows if deep else by_products, y=y, k=k, room=sets.room_y)
    elif isinstance(sets.metric, Hamming):
        bits = faiss.IndexBinaryFlat(8 * _codes(y).shape[1])
        bits.add(_codes(y))
        route = partial(by_bits, index=bits, k=k)
    else:
        flat = faiss.IndexFlatL2(y.shape[1])
        flat.add(y.numpy())
        route = partial(by_faiss, y=y, index=flat, k=k)
    for block in zip(x.split(max(1, size)), own.split(max(1, size)), strict=True):
        yield route(*block)


def _block_entries(x: Tensor) -> int:
    """Entries of one block of a matrix where x lies."""
    return BLOCK_ENTRIES * (_ON_GPU if x.is_cuda else 1)


def _codes(x: Tensor) -> np.ndarray:
    """A bit for each number: (N, d) -> (N, ⌈d/8⌉) uint8."""
    return np.packbits(x.numpy() > 0, axis=1)


def by_bits(x: Tensor, own: Tensor, index: faiss.IndexBinaryFlat, k: int) -> tuple[Tensor, Tensor]:
    """Neighbors by faiss's Hamming distances, which are whole numbers, ties by index."""
    differing, candidates = index.search(_codes(x), min(k + 1, index.ntotal))
    squared, indices = torch.from_numpy(differing).float(), torch.from_numpy(candidates)
    return _smallest(squared.masked_fill_(indices == own[:, None], math.inf), indices, k)


def by_rows(
    x: Tensor, own: Tensor, y: Tensor, k: int, room: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Neighbors by the differences to all rows, where nearly all are asked for."""
    D = torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return _decide(D.square_().float(), own, torch.arange(len(y), device=y.device), k, room)


def by_products(
    x: Tensor, own: Tensor, y: Tensor, k: int, room: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Neighbors by the matrix of all distances, (‖x‖² + ‖y‖² − 2xᵀy) / room.

    In float64: float32 products lose near neighbors to rounding, and on a GPU may be TF32.
    What lies below the rounding of float64 is tied. In place, for twice the speed of
    ``geometry.squared_distances``, which serves gradients.
    """
    X, Y = x.double(), y.double()
    xx, yy = X.square().sum(dim=1, keepdim=True), Y.square().sum(dim=1)  # (b, 1), (N,)
    # Only rows of nearly equal norms cancel, so that ‖x‖² stands for both.
    noise = 8 * math.sqrt(X.shape[1]) * torch.finfo(X.dtype).eps * xx  # (b, 1)
    squared = torch.addmm(yy, X, Y.T, alpha=-2).add_(xx)  # (b, N)
    squared = torch.maximum(squared, noise, out=squared)
    squared = (squared if room is None else squared.div_(room)).float()
    everything = torch.arange(len(y), device=y.device)
    candidates, _ = _smallest(squared, everything, min(k + 1 + _SPARE, len(y)))
    return _remeasure(x, own, y, candidates, k, room)


def by_faiss(
    x: Tensor, own: Tensor, y: Tensor, index: faiss.IndexFlatL2, k: int
) -> tuple[Tensor, Tensor]:
    """Neighbors by faiss, whose float32 distances are wrong by as much as products are.

    A row whose k-th distance lies within that rounding of its last candidate may have lost a
    neighbor (many copies of one point, say), and is done over from the matrix.
    """
    count = min(k + 1 + _SPARE, len(y))
    rounded, candidates = map(torch.from_numpy, index.search(x.numpy(), count))
    indices, squared = _remeasure(x, own, y, candidates, k)
    if count < len(y):
        # |rounded − exact| ≤ c ε (‖x‖ + ‖y‖)², and ‖y‖ ≤ ‖x‖ + distance for the y that matter.
        noise = 2 * math.sqrt(y.shape[1]) * torch.finfo(torch.float32).eps
        bound = squared[:, -1] * (1 + 2 * noise) + 8 * noise * x.square().sum(dim=1)
        doubtful = (bound >= rounded[:, -1]).nonzero().squeeze(1)
        size = max(1, BLOCK_ENTRIES // len(y))
        for start in range(0, len(doubtful), size):
            rows = doubtful[start : start + size]
            indices[rows], squared[rows] = by_products(x[rows], own[rows], y, k)
    return indices, squared


def _remeasure(
    x: Tensor, own: Tensor, y: Tensor, candidates: Tensor, k: int, room: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k nearest among each query's candidates (b, c), by differences in float64."""
    squared = torch.empty(candidates.shape, dtype=torch.float32, device=x.device)  # (b, c)
    entries = _block_entries(x) // (1 if x.is_cuda else 16)  # on a CPU, 2 MB stay in the cache
    size = max(1, entries // (candidates.shape[1] * y.shape[1]))
    for start in range(0, len(x), size):
        near = candidates[start : start + size]
        differences = y.index_select(0, near.flatten()).double().view(*near.shape, -1)  # (_, c, d)
        differences -= x[start : start + size, None]
        squared[start : start + size] = differences.square_().sum(dim=2)
    return _decide(squared, own, candidates, k, room)


def _decide(
    squared: Tensor, own: Tensor, candidates: Tensor, k: int, room: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The k nearest among candidates (b, c), or (c,), without the query itself."""
    if room is not None:
        squared /= room[candidates]
    squared.masked_fill_(candidates == own[:, None], math.inf)
    return _smallest(squared, candidates, k)


def _smallest(squared: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest of every row, ties by index: (b, c) float32 ≥ 0 -> (b, k), (b, k).

    The bits of a float32 ≥ 0 rise with its value: with the index below them, one int64 sorts both.
    """
    keys = squared.view(torch.int32).long().bitwise_left_shift_(32).bitwise_or_(indices)
    keys = keys.topk(k, dim=1, largest=False).values
    return keys & 0xFFFFFFFF, (keys >> 32).int().view(torch.float32)


def prepare(
    embeddings: Array, gallery: Array | None, metric: Metric, own: Array | None = None
) -> Sets:
    """Queries and gallery in float32 near the origin, and the unit that distances are now in.

    A shift leaves distances alone, and spares faiss's float32 the rounding of large numbers.
    Embeddings are shifted only if they are so far away that float32 input loses no bit: what was
    tied remains tied. The unit, a power of two, is the size of the usual row, and larger only
    beside one so enormous that its squared distances would overflow.

    Raises ValueError where beside such a row those of all others would be 0.
    """
    kind = metric_of(metric)
    x, y, rows = as_sets(embeddings, gallery, metric, own)
    if isinstance(kind, Hamming):
        x = x.float()
        return Sets(x, x if gallery is None else y.float(), kind, own=rows)
    room_x, room_y = (kind.room(z) if isinstance(kind, Poincare) else None for z in (x, y))
    center = y.mean(dim=0)
    sets = {"gallery": y} if y is x else {"gallery": y, "embeddings": x}
    grid = _power_of_two(max((z - center).abs().max().item() for z in sets.values()))
    center = torch.where(center.abs() > 3 * grid, (center / grid).round() * grid, 0)
    sets = {name: z - center for name, z in sets.items()}
    unit = grid if isinstance(kind, Poincare) else _unit(**sets)
    y, *others = ((z / unit).float() for z in sets.values())
    x = others[0] if others else y
    return Sets(x, y, kind, unit, room_x, room_y, rows)


def _unit(gallery: Tensor, embeddings: Tensor | None = None) -> float:
    """See ``prepare``."""
    sizes = gallery.abs().amax(dim=1)  # (N,)
    usual = torch.where(sizes > 0, sizes, torch.nan).nanmedian().nan_to_num().item()
    most = sizes.max().item()
    most = most if embeddings is None else max(most, embeddings.abs().max().item())
    if most > 2**90 * usual > 0:
        raise ValueError(
            f"embeddings: half the rows are below {usual:.0e}, and one is as large as {most:.0e} "
            f"(row {int(sizes.argmax())}?): float32 holds no distances of both; leave that one out"
        )
    return max(_power_of_two(usual or most), _power_of_two(most) / 2**50)


def _power_of_two(x: float) -> float:
    """The next that is larger, and no subnormal number."""
    return math.ldexp(1.0, max(-1000, math.frexp(x)[1]))


def as_sets(
    embeddings: Array, gallery: Array | None, metric: Metric, own: Array | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Queries (Q, d), gallery (N, d) on their device, the queries themselves where none is given,
    and the gallery's rows that are the queries, −1 for none: (Q,).

    See ``as_matrix``. Raises ValueError for what that refuses, for another number of columns, and
    rows that are none.
    """
    x = as_matrix(embeddings, "embeddings", metric)
    y = x if gallery is None else as_matrix(gallery, "gallery", metric).to(x.device)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"gallery: expected as many columns as embeddings, {x.shape[1]}, got {y.shape[1]}"
        )
    if own is None:
        return x, y, None
    if gallery is None:
        raise ValueError("own: expected a gallery; without one, each query is left out anyway")
    rows = as_whole(as_tensor(own, "own"), x, "own")
    low, high = int(rows.min()), int(rows.max())
    if low < -1 or high >= len(y):
        raise ValueError(f"own: expected gallery rows to {len(y) - 1}, or -1, got {low} to {high}")
    return x, y, rows


def as_matrix(embeddings: Array, name: str, metric: Metric) -> Tensor:
    """Embeddings (N, d) as a metric compares them, in float64.

    Raises ValueError for an unknown metric, another shape, complex numbers, rows that are not
    finite and, under cosine, rows of zeros.
    """
    x = as_tensor(embeddings, name)
    if x.ndim != 2 or x.numel() == 0 or x.is_complex():
        raise ValueError(
            f"{name}: expected real numbers of shape (items, dimensions), at least one of each, "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
    bad = ~x.isfinite().all(dim=1)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(f"{name}: row {row} is not finite; did the training diverge?")
    return metric_of(metric).points(x)
