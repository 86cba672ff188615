"""Exact neighbors, the scores of retrieval (Recall@K, R-precision, MAP@R, NMI); verification.

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
- **Refused**, by ValueError: empty sets, NaN or infinite embeddings, zero rows under cosine, labels
  that are not integers, one per row, and labels none of which has a relevant item.

Arrays may be NumPy's or torch's. CPU goes through faiss, a GPU tensor stays where it is; one on an
Apple GPU, which has no float64, is compared on the CPU.
"""

from collections.abc import Callable, Sequence
from operator import index

import faiss
import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from dmlkit.neighbors import Array as Array
from dmlkit.neighbors import Metric as Metric
from dmlkit.neighbors import Sets, labels_of_both, prepare, search_blocks
from dmlkit.verification import verification as verification

Score = Callable[[Tensor, Tensor], Tensor]  # hits (b, k) bool, R (b,) -> (b,), NaN to leave out


def nearest_neighbors(
    queries: Array, k: int, gallery: Array | None = None, metric: Metric = "euclidean"
) -> tuple[Array, Array]:
    """The k nearest items of every query, nearest first: (Q, d), (N, d) -> (Q, k), (Q, k).

    Returns indices (int64) into the gallery, and distances (float32, rising; Euclidean ones in the
    embeddings' own unit, Hamming ones in bits) or cosines (float32, falling). The neighbors are
    exact. Without a gallery the queries are their own gallery, each without itself. NumPy in,
    NumPy out; a tensor's result is on its device.

    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0]]), k=2)
    (array([[1, 2],
           [0, 2],
           [1, 0]]), array([[1., 3.],
           [1., 2.],
           [2., 3.]], dtype=float32))
    """
    k, sets = index(k), prepare(queries, gallery, metric, "queries")
    available = len(sets.y) - (gallery is None)
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
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> dict[int, float]:
    """Recall@K: the share of queries with an item of their own class among the K nearest.

    Recall@K = (1/Q) Σ_q 1[some i ≤ K: rel_q(i)], where rel_q(i) says whether the i-th neighbor of
    q has q's label. Embeddings (Q, d), labels (Q,); gallery (N, d), gallery_labels (N,).
    In 0..1.

    Source: Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding (2016).

    >>> recall_at_k(np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([0, 1, 0, 1]), ks=(1, 2))
    {1: 0.0, 2: 0.75}
    """
    ks = [index(k) for k in ks]
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric)
    found = _average(_recalls(ks), *sets, depth=max(ks), up_to_r=False)
    return {k: found[f"recall_at_{k}"] for k in ks}


def r_precision(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> float:
    """R-precision: of a query's R nearest items, the share of its own class, averaged over queries.

    R-precision = (1/R) Σ_{i ≤ R} rel(i), with R the number of items of the query's class in the
    gallery, itself not counted. Shapes as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> r_precision(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0]))
    0.5
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric)
    return _average({"": _r_precision}, *sets)[""]


def map_at_r(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "euclidean",
) -> float:
    """MAP@R: R-precision that also wants the relevant items first, averaged over queries.

    MAP@R = (1/R) Σ_{i ≤ R} P(i) rel(i), with P(i) the precision among the i nearest and R as in
    ``r_precision``. Shapes as in ``recall_at_k``. In 0..1.

    Source: Musgrave et al., A Metric Learning Reality Check (2020).

    >>> round(map_at_r(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 0, 1, 0])), 4)
    0.4167
    """
    sets = _prepare(embeddings, labels, gallery, gallery_labels, metric)
    return _average({"": _map_at_r}, *sets)[""]


def nmi(embeddings: Array, labels: Array, seed: int = 0, metric: Metric = "euclidean") -> float:
    """NMI: how much of the classes a k-means clustering of the embeddings finds again.

    NMI = 2 I(clusters; classes) / (H(clusters) + H(classes)), k-means with as many clusters as
    there are classes, 20 iterations from a random start that ``seed`` fixes. In 0..1. Bits, and
    points of the Poincaré ball, are clustered by their Euclidean distances.
    Embeddings (N, d), labels (N,); one-image classes are welcome.

    Source: Manning et al., Introduction to Information Retrieval (2008), Section 16.3.

    >>> nmi(np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([3, 3, 8, 8]))
    1.0
    """
    sets, classes, _ = _prepare(embeddings, labels, None, None, metric)
    return _nmi(sets.x, classes, seed)


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
    embeddings, not of the gallery, with ``seed``). Shapes as in ``recall_at_k``.

    >>> evaluate(np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1]), ks=(1,))
    {'recall_at_1': 1.0, 'r_precision': 1.0, 'map_at_r': 1.0, 'nmi': 1.0}
    """
    ks = [index(k) for k in ks]
    scores = _recalls(ks) | {"r_precision": _r_precision, "map_at_r": _map_at_r}
    sets, of_query, of_item = _prepare(embeddings, labels, gallery, gallery_labels, metric)
    found = _average(scores, sets, of_query, of_item, depth=max(ks), up_to_r=True)
    alone = sets if gallery is None else prepare(embeddings, None, metric)
    return found | {"nmi": _nmi(alone.x, of_query, seed)}


# Scores: from which neighbors are relevant to one number per query


def _recalls(ks: Sequence[int]) -> dict[str, Score]:
    if not ks or min(ks) < 1:
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


def _nmi(points: Tensor, classes: Tensor, seed: int) -> float:
    """NMI of k-means clusters of points (N, d) float32, and classes (N,)."""
    x, y = points.cpu().numpy(), classes.cpu().numpy()
    kmeans = faiss.Kmeans(
        x.shape[1],
        len(np.unique(y)),
        niter=20,
        seed=index(seed),
        min_points_per_centroid=1,  # else faiss complains of small classes on stderr
        max_points_per_centroid=len(x),  # else faiss trains on a sample
    )
    kmeans.train(x)
    _, clusters = kmeans.index.search(x, 1)
    return float(normalized_mutual_info_score(y, clusters[:, 0]))


def _prepare(
    embeddings: Array,
    labels: Array,
    gallery: Array | None,
    gallery_labels: Array | None,
    metric: Metric,
) -> tuple[Sets, Tensor, Tensor]:
    """The sets, the labels of the queries (Q,), and those of the gallery (N,)."""
    sets = prepare(embeddings, gallery, metric)
    return sets, *labels_of_both(labels, gallery_labels, sets.x, sets.y)


def _average(
    scores: dict[str, Score],
    sets: Sets,
    of_query: Tensor,
    of_item: Tensor,
    depth: int = 1,
    up_to_r: bool = True,
) -> dict[str, float]:
    """Mean of each score over the queries, from the depth (and R, if asked) nearest of each."""
    own = int(sets.x is sets.y)  # items of the gallery that are the query itself
    R = _relevant_items(of_query, of_item) - own  # (Q,)
    if R.max() < 1:
        raise ValueError("labels: expected some query to have a relevant item, got none that has")
    depth = min(max(depth, int(R.max())) if up_to_r else depth, len(sets.y) - own)
    values: dict[str, list[Tensor]] = {name: [] for name in scores}
    start = 0
    for indices, _ in search_blocks(sets, depth):
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
