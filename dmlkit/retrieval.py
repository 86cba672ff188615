"""Exact neighbors, the scores of retrieval, by query too, and those of clusters; verification.

The rules, which every function here keeps:

- **Metric.** ``"euclidean"`` takes embeddings as they are given; ``"cosine"`` projects them onto
  the unit sphere first. On the sphere both give the same order. ``"hamming"`` keeps one bit of
  every number, whether it is above 0, or all eight of a uint8, as ``np.packbits`` packs them, and
  counts the bits that differ. ``"poincare"`` carries
  embeddings into the Poincaré ball as ``HyperbolicLoss`` does; another curvature or radius than
  that loss's defaults is given as ``{"name": "poincare", "c": 1.0, "clip": 2.3}``.
- **The query.** Without a gallery every item queries all the others. It is left out by its index,
  never by its distance, so an exact copy of it elsewhere in the set counts like any other item. A
  gallery that holds queries says where: ``own`` (Q,) are their rows in it, −1 for a query that it
  does not hold. Without that, queries that are their own gallery are refused.
- **Ties.** Embeddings count as float32; their squared distances are summed in float64 and compared
  as float32; equal ones stand in the order of their index in the gallery, an order that knows
  nothing of the query's label.
- **A query with no relevant item** (a class with one image) is a miss in Recall@K and precision@K,
  as the field counts it. It is left out of R-precision and all that averages precisions, where
  R = 0 leaves nothing to average, and of CMC, whose closed set has a match for every query.
- **K beyond the gallery** means the whole gallery (though precision@K still divides by K);
  ``nearest_neighbors``, which promises k columns, refuses it.
- **Labels** are integers, or names as text, in queries and gallery alike, one for each row.
- **Refused**, by ValueError: empty sets, NaN or infinite embeddings, zero rows under cosine, other
  labels, labels none of which has a relevant item, and a row 1e27 times as large as half the rows,
  beside which float32 holds no distance of theirs.

Arrays may be NumPy's or torch's, lists, or columns of a table. CPU goes through faiss, a GPU tensor
stays where it is; one on an Apple GPU, which has no float64, is compared on the CPU.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dmlkit.arrays import Array as Array
from dmlkit.arrays import as_labels_of, labels_of_both
from dmlkit.checks import check_gallery, listed
from dmlkit.clusters import ami as ami
from dmlkit.clusters import nmi as nmi
from dmlkit.neighbors import Metric as Metric
from dmlkit.neighbors import Sets, prepare, search_blocks
from dmlkit.verification import verification as verification

Score = Callable[[Tensor, Tensor], Tensor]  # hits (b, k) bool, R (b,) -> (b,), NaN to leave out


def nearest_neighbors(
    queries: Array,
    k: int,
    gallery: Array | None = None,
    metric: Metric = "euclidean",
    own: Array | None = None,
) -> tuple[Array, Array]:
    """The k nearest items of every query, nearest first: (Q, d), (N, d) -> (Q, k), (Q, k).

    Returns indices (int64) into the gallery, and distances (float32, rising; Euclidean ones in the
    embeddings' own unit, Hamming ones in bits) or cosines (float32, falling). The neighbors are
    exact. Without a gallery the queries are their own gallery, each without itself; a given one is
    taken as it is, but for the rows ``own``. NumPy in, NumPy out; a tensor's result is on its
    device.

    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), k=2)
    (array([[1, 2],
           [0, 2],
           [1, 0]]), array([[1., 3.],
           [1., 2.],
           [2., 3.]], dtype=float32))
    """
    k, sets = index(k), prepare(queries, gallery, metric, own)
    held = gallery is None or (sets.own is not None and bool((sets.own >= 0).any()))
    available = len(sets.y) - held
    if not 1 <= k <= available:
        raise ValueError(
            f"k: expected 1 to {available}, the number of items a query has to choose from, got {k}"
        )
    blocks = list(search_blocks(sets, k))
    indices, squared = (torch.cat(part) for part in zip(*blocks, strict=True))
    found = sets.read(squared)
    if isinstance(queries, Tensor):
        return indices.to(queries.device), found.to(queries.device)
    return indices.numpy(), found.numpy()


#: The name by which scripts outside of the project call it.
nearest_neighbours = nearest_neighbors


def recall_at_k(
    embeddings: Array,
    labels: Array,
    ks: Sequence[int] | int = (1, 2, 4, 8, 16),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
    own: Array | None = None,
) -> dict[int, float]:
    """Recall@K: the share of queries with an item of their own class among the K nearest.

    Recall@K = (1/Q) Σ_q 1[some i ≤ K: rel_q(i)], where rel_q(i) says whether the i-th neighbor of
    q has q's label. Embeddings (Q, d), labels (Q,); gallery (N, d), gallery_labels (N,); own (Q,),
    the gallery's rows that are the queries themselves. In 0..1.

    Source: Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding (2016).

    >>> recall_at_k(np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([0, 1, 0, 1]), ks=(1, 2))
    {1: 0.0, 2: 0.75}
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric, own)
    return dict(zip(map(index, listed(ks)), _average(_recalls(ks), *sets).values(), strict=True))


def r_precision(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
    own: Array | None = None,
) -> float:
    """R-precision: of a query's R nearest items, the share of its own class, averaged over queries.

    R-precision = (1/R) Σ_{i ≤ R} rel(i), with R the number of items of the query's class in the
    gallery, itself not counted. Shapes as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> r_precision(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0]))
    0.5
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric, own)
    return _average(["r_precision"], *sets)["r_precision"]


def map_at_r(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
    own: Array | None = None,
) -> float:
    """MAP@R: R-precision that also wants the relevant items first, averaged over queries.

    MAP@R = (1/R) Σ_{i ≤ R} P(i) rel(i), with P(i) the precision among the i nearest and R as in
    ``r_precision``. Shapes as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> round(map_at_r(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0])), 4)
    0.4167
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric, own)
    return _average(["map_at_r"], *sets)["map_at_r"]


def by_query(
    embeddings: Array,
    labels: Array,
    scores: Sequence[str] | str = ("recall_at_1", "r_precision", "map_at_r"),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
    own: Array | None = None,
    cameras: tuple[Array, Array] | None = None,
) -> pd.DataFrame:
    """Scores of every query, one row each, indexed by its label; NaN where it is left out.

    ``.mean()`` is the score of all, ``.groupby("label").mean()`` that of each class. With rel(i)
    whether the i-th neighbor is relevant, P(i) the share of such among the i nearest and R their
    number in the gallery, ``scores`` are, for any whole number K from 1,

    - ``recall_at_K``, ``r_precision``, ``map_at_r``: as the functions of these names;
    - ``precision_at_K``: P(K);
    - ``map``: (1/R) Σ_i P(i) rel(i), over the whole ranking, in blocks;
    - ``map_at_K``: (1/min(R, K)) Σ_{i ≤ K} P(i) rel(i); others divide by R, or by hits until K;
    - ``cmc_at_K``: 1[some i ≤ K: rel(i)], where R > 0: the closed set's rank-K identification rate.

    In re-identification, items of the query's label from the query's camera are no items:
    ``cameras`` are those of the queries (Q,) and of the gallery (N,), twice the same without one.
    Other shapes as in ``recall_at_k``.

    Source: Manning et al., Introduction to Information Retrieval (2008), Section 8.4; Zheng et al.,
    Scalable Person Re-identification: A Benchmark (2015), for mAP, CMC and cameras.

    >>> x, y = np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([0, 1, 0, 1])
    >>> by_query(x, y, ["cmc_at_2", "map"]).groupby("label").mean().round(3)
           cmc_at_2    map
    label
    0           1.0  0.500
    1           0.5  0.417
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric, own)
    each = _values(listed(scores), *sets, None if cameras is None else _views(cameras, *sets))
    numbers = isinstance(labels, Tensor) or np.asarray(labels).dtype.kind in "iu"
    return pd.DataFrame(
        {name: values.cpu().numpy() for name, values in each.items()},
        index=pd.Index(sets[1].cpu().numpy() if numbers else np.asarray(labels), name="label"),
    )


def evaluate(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    ks: Sequence[int] | int = (1, 2, 4, 8, 16),
    seed: int = 0,
    metric: Metric = "euclidean",
    own: Array | None = None,
) -> dict[str, float]:
    """The scores that papers give, from one search for neighbors; ``by_query`` has others.

    Keys: ``recall_at_K`` for each K of ``ks``, ``r_precision``, ``map_at_r``, and ``nmi`` (of the
    embeddings, not of the gallery, with ``seed``). Shapes as in ``recall_at_k``.

    >>> evaluate(np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1]), ks=(1,))
    {'recall_at_1': 1.0, 'r_precision': 1.0, 'map_at_r': 1.0, 'nmi': 1.0}
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric, own)
    found = _average([*_recalls(ks), "r_precision", "map_at_r"], *sets)
    return found | {"nmi": nmi(embeddings, labels, seed, metric)}


# Scores: from which neighbors are relevant to one number per query


def _recalls(ks: Sequence[int] | int) -> list[str]:
    ks = listed(ks)
    if not ks or min(ks) < 1:
        raise ValueError(f"ks: expected one or more integers from 1, got {ks}")
    return [f"recall_at_{index(k)}" for k in ks]


def _average_precision(hits: Tensor, R: Tensor) -> Tensor:
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits.cumsum(dim=1, dtype=torch.float64) / rank  # P(i): (b, k)
    return (precision * hits).sum(dim=1) / R  # 0/0 where R = 0


def _up_to_r(hits: Tensor, R: Tensor) -> Tensor:
    hits = hits[:, : int(R.max())]
    return hits & (torch.arange(1, hits.shape[1] + 1, device=hits.device) <= R[:, None])


_ALL, _UP_TO_R = 0, -1  # in the place of a depth
#: To which depth a score looks, and the score.
_SCORES: dict[str, tuple[int, Score]] = {
    "r_precision": (
        _UP_TO_R,
        lambda hits, R: _up_to_r(hits, R).sum(dim=1, dtype=torch.float64) / R,
    ),
    "map_at_r": (_UP_TO_R, lambda hits, R: _average_precision(_up_to_r(hits, R), R)),
    "map": (_ALL, _average_precision),
}
_AT_K: dict[str, Callable[..., Tensor]] = {
    "recall": lambda hits, _, k: hits[:, :k].any(dim=1),
    "precision": lambda hits, _, k: hits[:, :k].sum(dim=1, dtype=torch.float64) / k,
    "map": lambda hits, R, k: _average_precision(hits[:, :k], R.clamp(max=k)),
    "cmc": lambda hits, R, k: hits[:, :k].any(dim=1).double().where(R > 0, torch.nan),
}


def _named(name: str) -> tuple[int, Score]:
    """To which depth a score looks, and the score."""
    if name in _SCORES:
        return _SCORES[name]
    found = re.fullmatch(rf"({'|'.join(_AT_K)})_at_([1-9]\d*)", name)
    if not found:
        known = ", ".join([*_SCORES, *(f"{kind}_at_K" for kind in _AT_K)])
        raise ValueError(f"scores: expected some of {known}, got {name!r}")
    k = int(found[2])
    return k, partial(_AT_K[found[1]], k=k)


def _prepare(
    embeddings: Array,
    labels: Array,
    gallery: Array | None,
    gallery_labels: Array | None,
    metric: Metric,
    own: Array | None = None,
) -> tuple[Sets, Tensor, Tensor]:
    """The sets, the labels of the queries (Q,), and those of the gallery (N,)."""
    check_gallery(embeddings, gallery, own)
    sets = prepare(embeddings, gallery, metric, own)
    return sets, *labels_of_both(labels, gallery_labels, sets.x, sets.y, sets.own)


def _average(
    scores: Iterable[str], sets: Sets, of_query: Tensor, of_item: Tensor
) -> dict[str, float]:
    """Mean of each score over the queries, see ``_values``."""
    each = _values(scores, sets, of_query, of_item)
    return {name: values.nanmean().item() for name, values in each.items()}


def _values(
    scores: Iterable[str],
    sets: Sets,
    of_query: Tensor,
    of_item: Tensor,
    views: Sequence[Tensor] | None = None,
) -> dict[str, Tensor]:
    """Each score of every query (Q,); items that share its view, (Q,) and (N,), are left out."""
    chosen = {name: _named(name) for name in scores}
    if views is not None:
        left_out = _relevant_items(*views)  # (Q,), the query itself among them
    elif sets.own is not None:
        left_out = (sets.own >= 0).long()
    else:
        left_out = torch.full_like(of_query, sets.x is sets.y)
    R = _relevant_items(of_query, of_item) - left_out
    if R.max() < 1:
        raise ValueError("labels: expected some query to have a relevant item, got none that has")
    depths = {_UP_TO_R: int(R.max()), _ALL: len(sets.y)}
    depth = max((depths.get(each, each) for each, _ in chosen.values()), default=1)
    depth += 0 if views is None else int(left_out.max())
    values: dict[str, list[Tensor]] = {name: [] for name in chosen}
    start = 0
    for indices, _ in search_blocks(sets, min(depth, len(sets.y) - (sets.x is sets.y))):
        rows = slice(start, start := start + len(indices))
        hits = of_item[indices] == of_query[rows, None]  # (b, depth)
        if sets.own is not None:
            hits &= indices != sets.own[rows, None]
        if views is not None:  # what is left out goes to the end
            junk = views[1][indices] == views[0][rows, None]
            hits = (hits & ~junk).gather(1, junk.int().argsort(dim=1, stable=True))
        for name, (_, score) in chosen.items():
            values[name].append(score(hits, R[rows]).double())
    return {name: torch.cat(parts) for name, parts in values.items()}


def _views(
    cameras: tuple[Array, Array], sets: Sets, of_query: Tensor, of_item: Tensor
) -> Sequence[Tensor]:
    """One number for each pair of a label and a camera: (Q,), (N,)."""
    seen_by = as_labels_of(*(("cameras", of, x) for of, x in zip(cameras, sets[:2], strict=True)))
    both = torch.stack([torch.cat([of_query, of_item]), torch.cat(seen_by)])
    return both.unique(dim=1, return_inverse=True)[1].split([len(of_query), len(of_item)])


def _relevant_items(labels: Tensor, gallery_labels: Tensor) -> Tensor:
    """How many gallery items carry each query's label: (Q,), (N,) -> (Q,)."""
    classes, counts = gallery_labels.unique(return_counts=True)  # sorted
    at = torch.searchsorted(classes, labels).clamp(max=len(classes) - 1)
    return torch.where(classes[at] == labels, counts[at], 0)
