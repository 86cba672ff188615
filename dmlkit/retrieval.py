"""Exact neighbors, the scores of retrieval (Recall@K, R-precision, MAP@R, NMI), a search index.

The rules, which every function here keeps:

- **Metric.** ``"euclidean"`` takes embeddings as they are given; ``"cosine"`` projects them onto
  the unit sphere first. On the sphere both give the same order. ``"hamming"`` keeps one bit of
  every number, whether it is above 0, and counts the bits that differ. ``"poincare"`` carries
  embeddings into the Poincaré ball as ``HyperbolicLoss`` does; another curvature or radius than
  that loss's defaults is given as ``{"name": "poincare", "c": 1.0, "clip": 2.3}``.
- **The query.** Without a gallery every item queries all the others. It is left out by its index,
  never by its distance, so an exact copy of it elsewhere in the set counts like any other item.
- **Ties.** Embeddings count as float32; their squared distances are summed in float64 and compared
  as float32; equal ones stand in the order of their index in the gallery, an order that knows
  nothing of the query's label.
- **A query with no relevant item** (a class with one image) is a miss in Recall@K, as the field
  counts it, and is left out of R-precision and MAP@R, where R = 0 leaves nothing to average.
- **K beyond the gallery** means the whole gallery in Recall@K; ``nearest_neighbors``, which
  promises k columns, refuses it.
- **Refused:** empty sets, NaN or infinite embeddings, zero rows under cosine, labels that are not
  integers, one per row, and labels none of which has a relevant item.

Arrays may be NumPy's or torch's. CPU goes through faiss, a GPU tensor stays where it is.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import faiss
import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from dmlkit.geometry import normalize
from dmlkit.losses.hyperbolic import HyperbolicLoss, exponential_map

Array = np.ndarray | Tensor
Metric = Literal["euclidean", "cosine", "hamming", "poincare"] | Mapping[str, Any]
Score = Callable[[Tensor, Tensor], Tensor]  # hits (b, k) bool, R (b,) -> (b,), NaN to leave out

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_SPARE = 16  # candidates beyond k: faiss's rounding may have swapped those next to the boundary
_ENTRIES = 2**22  # of one block of a matrix: 32 MB in float64
_ON_GPU = 16  # as many times larger blocks, 0.5 GB, keep a GPU busy
_BALL = HyperbolicLoss()  # whose curvature and clip are those of "poincare"


def nearest_neighbors(
    queries: Array, k: int, gallery: Array | None = None, metric: Metric = "euclidean"
) -> tuple[Array, Array]:
    """The k nearest items of every query, nearest first: (Q, d), (N, d) -> (Q, k), (Q, k).

    Returns indices (int64) into the gallery, and distances (float32, rising; Euclidean ones in the
    embeddings' own unit, Hamming ones in bits) or cosines (float32, falling). The neighbors are
    exact. Without a gallery the queries are their own gallery, each without itself. NumPy in,
    NumPy out; a tensor's result is on its device.

    Raises ValueError for what the module refuses, and for a k beyond the gallery.

    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), k=2)
    (array([[1, 2],
           [0, 2],
           [1, 0]]), array([[1., 3.],
           [1., 2.],
           [2., 3.]], dtype=float32))
    """
    sets = _prepare(queries, gallery, metric, "queries")
    available = len(sets.y) - (gallery is None)
    if not 1 <= _integer(k, "k") <= available:
        raise ValueError(
            f"k: expected 1 to {available}, the number of items a query has to choose from, got {k}"
        )
    blocks = list(_search(sets, k, exclude_self=gallery is None))
    indices = torch.cat([block[0] for block in blocks])
    found = _in_own_unit(torch.cat([block[1] for block in blocks]).double(), sets).float()
    return (indices, found) if isinstance(queries, Tensor) else (indices.numpy(), found.numpy())


#: The name by which scripts outside of the project call it.
nearest_neighbours = nearest_neighbors


def recall_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> dict[int, float]:
    """Recall@K: the share of queries with an item of their own class among the K nearest.

    Recall@K = (1/Q) Σ_q 1[some i ≤ K: rel_q(i)], where rel_q(i) says whether the i-th neighbor of
    q has q's label. Embeddings (Q, d), labels (Q,); gallery (N, d), gallery_labels (N,).
    In 0..1. Raises ValueError for what the module refuses.

    Source: Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding (2016).

    >>> recall_at_k(np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([0, 1, 0, 1]), ks=(1, 2))
    {1: 0.0, 2: 0.75}
    """
    scores = _recalls(ks)
    sets = (embeddings, labels, gallery, gallery_labels)
    found = _average(scores, *sets, metric=metric, k=max(ks), up_to_r=False)
    return {int(k): found[f"recall_at_{k}"] for k in ks}


def r_precision(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> float:
    """R-precision: of a query's R nearest items, the share of its own class, averaged over queries.

    R-precision = (1/R) Σ_{i ≤ R} rel(i), with R the number of items of the query's class in the
    gallery, itself not counted. Shapes and errors as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> r_precision(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0]))
    0.5
    """
    sets = (embeddings, labels, gallery, gallery_labels)
    return _average({"": _r_precision}, *sets, metric=metric, k=1, up_to_r=True)[""]


def map_at_r(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> float:
    """MAP@R: R-precision that also wants the relevant items first, averaged over queries.

    MAP@R = (1/R) Σ_{i ≤ R} P(i) rel(i), with P(i) the precision among the i nearest and R as in
    ``r_precision``. Shapes and errors as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> round(map_at_r(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0])), 4)
    0.4167
    """
    sets = (embeddings, labels, gallery, gallery_labels)
    return _average({"": _map_at_r}, *sets, metric=metric, k=1, up_to_r=True)[""]


def nmi(embeddings: Array, labels: Array, seed: int = 0, metric: Metric = "euclidean") -> float:
    """NMI: how much of the classes a k-means clustering of the embeddings finds again.

    NMI = 2 I(clusters; classes) / (H(clusters) + H(classes)), k-means with as many clusters as
    there are classes, 20 iterations from a random start that ``seed`` fixes. In 0..1. Bits, and
    points of the Poincaré ball, are clustered by their Euclidean distances.
    Embeddings (N, d), labels (N,). Errors as in ``recall_at_k``; one-image classes are welcome.

    Source: Manning et al., Introduction to Information Retrieval (2008), Section 16.3.

    >>> nmi(np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([3, 3, 8, 8]))
    1.0
    """
    x = _prepare(embeddings, None, metric).x
    classes = _labels(labels, x, "labels").cpu().numpy()
    points = x.cpu().numpy()
    kmeans = faiss.Kmeans(
        points.shape[1],
        len(np.unique(classes)),
        niter=20,
        seed=seed,
        min_points_per_centroid=1,  # else faiss complains of small classes on stderr
        max_points_per_centroid=len(points),  # else faiss trains on a sample
    )
    kmeans.train(points)
    _, clusters = kmeans.index.search(points, 1)
    return float(normalized_mutual_info_score(classes, clusters[:, 0]))


def evaluate(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    seed: int = 0,
    metric: Metric = "euclidean",
) -> dict[str, float]:
    """Every score of this module from one search for neighbors.

    Keys: ``recall_at_K`` for each K of ``ks``, ``r_precision``, ``map_at_r``, and ``nmi`` (of the
    embeddings, not of the gallery, with ``seed``). Shapes and errors as in ``recall_at_k``.

    >>> evaluate(np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1]), ks=(1,))
    {'recall_at_1': 1.0, 'r_precision': 1.0, 'map_at_r': 1.0, 'nmi': 1.0}
    """
    scores = _recalls(ks) | {"r_precision": _r_precision, "map_at_r": _map_at_r}
    sets = (embeddings, labels, gallery, gallery_labels)
    found = _average(scores, *sets, metric=metric, k=max(ks), up_to_r=True)
    return found | {"nmi": nmi(embeddings, labels, seed, metric)}


# Scores: from which neighbors are relevant to one number per query


def _recalls(ks: Sequence[int]) -> dict[str, Score]:
    if len(ks) == 0 or min(_integer(k, "ks") for k in ks) < 1:
        raise ValueError(f"ks: expected one or more integers from 1, got {ks}")

    def recall(k: int) -> Score:
        return lambda hits, _: hits[:, :k].any(dim=1)

    return {f"recall_at_{k}": recall(k) for k in ks}


def _r_precision(hits: Tensor, R: Tensor) -> Tensor:
    hits = hits[:, : int(R.max())]
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    return (hits & (rank <= R[:, None])).sum(dim=1, dtype=torch.float64) / R  # 0/0 where R = 0


def _map_at_r(hits: Tensor, R: Tensor) -> Tensor:
    hits = hits[:, : int(R.max())]
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits.cumsum(dim=1, dtype=torch.float64) / rank  # P(i): (b, k)
    return (precision * (hits & (rank <= R[:, None]))).sum(dim=1) / R


def _average(
    scores: dict[str, Score],
    embeddings: Array,
    labels: Array,
    gallery: Array | None,
    gallery_labels: Array | None,
    *,
    metric: Metric,
    k: int,
    up_to_r: bool,
) -> dict[str, float]:
    """Mean of each score over the queries, from the k (and R, if asked) nearest of every query."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels: expected both or neither, got one of them")
    own = int(gallery is None)  # items of the gallery that are the query itself
    sets = _prepare(embeddings, gallery, metric)
    x, y = sets.x, sets.y
    of_query = _labels(labels, x, "labels")
    of_item = of_query if gallery_labels is None else _labels(gallery_labels, y, "gallery_labels")
    R = _relevant_items(of_query, of_item) - own  # (Q,)
    if R.max() < 1:
        raise ValueError(
            "labels: expected some query to have a relevant item, got labels that "
            + ("all differ" if own else "do not occur in gallery_labels")
        )
    depth = min(max(k, int(R.max())) if up_to_r else k, len(y) - own)
    values: dict[str, list[Tensor]] = {name: [] for name in scores}
    start = 0
    for indices, _ in _search(sets, depth, exclude_self=gallery is None):
        rows = slice(start, start := start + len(indices))
        hits = of_item[indices] == of_query[rows, None]  # (b, depth)
        for name, score in scores.items():
            values[name].append(score(hits, R[rows]).double())
    return {name: torch.cat(parts).nanmean().item() for name, parts in values.items()}


def _relevant_items(labels: Tensor, gallery_labels: Tensor) -> Tensor:
    """How many gallery items carry each query's label: (Q,), (N,) -> (Q,)."""
    classes, counts = gallery_labels.unique(return_counts=True)  # sorted
    at = torch.searchsorted(classes, labels).clamp(max=len(classes) - 1)
    return torch.where(classes[at] == labels, counts[at], 0)


# Exact neighbors: candidates by one of three routes, then one measure that decides


class _Sets(NamedTuple):
    """Queries and gallery as they are compared, and what their squared distances mean."""

    x: Tensor  # (Q, d) float32
    y: Tensor  # (N, d) float32; x itself where the queries are their own gallery
    unit: float  # of a distance
    metric: str
    c: float  # curvature of the Poincaré ball
    room_x: Tensor | None = None  # (Q,) in that ball: 1 − c‖x‖²
    room_y: Tensor | None = None  # (N,)


def _search(sets: _Sets, k: int, exclude_self: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """The k nearest rows of y for each row of x, in blocks: indices (b, k), squared (b, k)."""
    x, y = sets.x, sets.y
    # faiss wants thousands of queries at a time: a hundred at a time cost it four times as much.
    size = min(4096, _ENTRIES // k)
    if x.device.type != "cpu" or sets.metric == "poincare":  # faiss knows no curved space
        size = _room(x) // len(y)
        route = partial(_by_products, y=y, k=k, room=sets.room_y)
    elif sets.metric == "hamming":
        route = partial(_by_bits, index=_binary_index(y), k=k)
    else:
        route = partial(_by_faiss, y=y, index=_flat_index(y), k=k)
    for rows in torch.arange(len(x), device=x.device).split(max(1, size)):
        # each query's place in y, (b,)
        yield route(x[rows], rows if exclude_self else torch.full_like(rows, -1))


def _room(x: Tensor) -> int:
    """Entries of one block of a matrix where x lies."""
    return _ENTRIES * (_ON_GPU if x.is_cuda else 1)


def _flat_index(y: Tensor) -> faiss.IndexFlatL2:
    index = faiss.IndexFlatL2(y.shape[1])
    index.add(y.numpy())
    return index


def _binary_index(y: Tensor) -> faiss.IndexBinaryFlat:
    codes = np.packbits(y.numpy() > 0, axis=1)  # (N, ⌈d/8⌉)
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    return index


def _by_bits(x: Tensor, own: Tensor, index: faiss.IndexBinaryFlat, k: int) -> tuple[Tensor, Tensor]:
    """Neighbors by faiss's Hamming distances, which are whole numbers, ties by index."""
    codes = np.packbits(x.numpy() > 0, axis=1)
    differing, candidates = index.search(codes, min(k + 1, index.ntotal))
    squared, indices = torch.from_numpy(differing).float(), torch.from_numpy(candidates)
    return _smallest(squared.masked_fill_(indices == own[:, None], math.inf), indices, k)


def _by_products(
    x: Tensor, own: Tensor, y: Tensor, k: int, room: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Neighbors by the matrix of all distances, (‖x‖² + ‖y‖² − 2xᵀy) / room.

    In float64: float32 products lose near neighbors to rounding, and on a GPU may be TF32.
    What lies below the rounding of float64 is tied. In place, for twice the speed of
    ``geometry.squared_distances``, which serves gradients.
    """
    X, Y = x.double(), y.double()
    xx, yy = X.square().sum(dim=1, keepdim=True), Y.square().sum(dim=1)  # (b, 1), (N,)
    noise = 4 * torch.finfo(X.dtype).eps * (xx + yy.max())  # (b, 1)
    squared = torch.addmm(yy, X, Y.T, alpha=-2).add_(xx)  # (b, N)
    squared = torch.maximum(squared, noise, out=squared)
    squared = (squared if room is None else squared.div_(room)).float()
    everything = torch.arange(len(y), device=y.device)
    candidates, _ = _smallest(squared, everything, min(k + 1 + _SPARE, len(y)))
    return _remeasure(x, own, y, candidates, k, room)


def _by_faiss(
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
        size = max(1, _ENTRIES // len(y))
        for start in range(0, len(doubtful), size):
            rows = doubtful[start : start + size]
            indices[rows], squared[rows] = _by_products(x[rows], own[rows], y, k)
    return indices, squared


def _remeasure(
    x: Tensor, own: Tensor, y: Tensor, candidates: Tensor, k: int, room: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k nearest among each query's candidates (b, c), by differences in float64."""
    squared = torch.empty(candidates.shape, dtype=torch.float32, device=x.device)  # (b, c)
    entries = _room(x) // (1 if x.is_cuda else 16)  # on a CPU, 2 MB stay in the cache
    size = max(1, entries // (candidates.shape[1] * y.shape[1]))
    for start in range(0, len(x), size):
        near = candidates[start : start + size]
        differences = y.index_select(0, near.flatten()).double().view(*near.shape, -1)  # (_, c, d)
        differences -= x[start : start + size, None]
        squared[start : start + size] = differences.square_().sum(dim=2)
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


def _in_own_unit(squared: Tensor, sets: _Sets) -> Tensor:
    """What the caller calls a distance, or a cosine, from squared distances (Q, k)."""
    squared = squared * sets.unit**2
    if sets.metric == "cosine":
        return 1 - squared / 2
    if sets.room_x is not None:
        return 2 / sets.c**0.5 * (sets.c * squared / sets.room_x[:, None]).sqrt().asinh()
    return squared if sets.metric == "hamming" else squared.sqrt()


# Input


def _prepare(
    embeddings: Array, gallery: Array | None, metric: Metric, name: str = "embeddings"
) -> _Sets:
    """Queries and gallery in float32 near the origin, and the unit that distances are now in.

    A shift leaves distances alone, and spares faiss's float32 the rounding of large numbers. The
    unit, a power of two, bounds the spread round the mean, and embeddings are shifted only if they
    are so far away that float32 input loses no bit: what was tied remains tied.
    """
    kind, c, clip = _parse(metric)
    x = _matrix(embeddings, name, kind)
    y = x if gallery is None else _matrix(gallery, "gallery", kind).to(x.device)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"gallery: expected as many columns as {name}, {x.shape[1]}, got {y.shape[1]}"
        )
    if gallery is None and len(x) == 1:
        raise ValueError(f"{name}: expected two or more rows, or a gallery to search, got one row")
    if kind == "hamming":
        x = (x > 0).float()
        return _Sets(x, x if gallery is None else (y > 0).float(), 1.0, kind, c)
    room_x = room_y = None
    if kind == "poincare":
        x, y = exponential_map(x, c, clip), exponential_map(y, c, clip)
        room_x, room_y = ((1 - c * z.square().sum(dim=1)).clamp_min(1e-15) for z in (x, y))
    center = y.mean(dim=0)
    spread = max((x - center).abs().max().item(), (y - center).abs().max().item())
    unit = math.ldexp(1.0, math.frexp(spread)[1])
    center = torch.where(center.abs() > 3 * unit, (center / unit).round() * unit, 0)
    x = ((x - center) / unit).float()
    y = x if gallery is None else ((y - center) / unit).float()
    return _Sets(x, y, unit, kind, c, room_x, room_y)


def _parse(metric: Metric) -> tuple[str, float, float]:
    """A metric's name, curvature and clipping radius."""
    args: dict[str, Any] = dict(metric) if isinstance(metric, Mapping) else {"name": metric}
    name = str(args.pop("name", None))
    c, clip = args.pop("c", _BALL.c), args.pop("clip", _BALL.clip)
    known = name in ("euclidean", "cosine", "hamming", "poincare")
    if not known or args or (isinstance(metric, Mapping) and name != "poincare"):
        raise ValueError(
            "metric: expected 'euclidean', 'cosine', 'hamming', 'poincare' or "
            f'{{"name": "poincare", "c": ..., "clip": ...}}, got {metric!r}'
        )
    if c <= 0 or clip <= 0:
        raise ValueError(f"metric: expected c and clip above 0, got {c} and {clip}")
    return name, c, clip


def _matrix(embeddings: Array, name: str, metric: str) -> Tensor:
    """Embeddings (N, d), float64, every row finite and, if only its direction counts, of norm 1."""
    x = _tensor(embeddings)
    if x.ndim != 2 or x.numel() == 0 or x.is_complex():
        raise ValueError(
            f"{name}: expected real numbers of shape (items, dimensions), at least one of each, "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
    x = x.double()
    _refuse(~x.isfinite().all(dim=1), name, "are not finite; did the training diverge?")
    if metric == "cosine":
        _refuse((x == 0).all(dim=1), name, "are zero and have no cosine; use metric='euclidean'")
        x = normalize(x)
    return x


def _labels(labels: Array, embeddings: Tensor, name: str) -> Tensor:
    """Labels (N,) int64, one for each embedding, on the embeddings' device."""
    found = _tensor(labels)
    if found.dtype not in _INTEGERS or found.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{name}: expected int64 of shape ({len(embeddings)},), one label for each embedding, "
            f"got {found.dtype} of shape {tuple(found.shape)}"
        )
    return found.long().to(embeddings.device)


def _tensor(values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    return torch.from_numpy(np.array(values, order="C"))  # a copy: torch wants it writable


def _refuse(rows: Tensor, name: str, why: str) -> None:
    if rows.any():
        first = int(rows.int().argmax())
        raise ValueError(
            f"{name}: {int(rows.sum())} of {len(rows)} rows (the first at index {first}) {why}"
        )


def _integer(value: int, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected an integer, got {value!r}") from None
