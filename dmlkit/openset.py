"""Open-set search: a query's product may be missing, and more products may come.

A query meets every picture of the gallery; of each product its best match counts. It is answered
where the best match of all lies above a threshold. A *stranger* is a query whose own product was
taken out of the gallery. Each product counts the same, however many pictures it has.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, special, stats

from dmlkit.arrays import Array
from dmlkit.neighbors import BLOCK_ENTRIES, Metric, as_sets, metric_of

Floats = NDArray[np.float64]

_Z, _WEIGHTS = np.polynomial.hermite_e.hermegauss(61)  # the mean over a normal number
_WEIGHTS /= _WEIGHTS.sum()
_DRAWS = 500
#: Of products that did not train, to choose a threshold by their strangers alone.
FEWEST = 4


class Met(NamedTuple):
    """What known queries meet, as likenesses: cosines, or minus the distances."""

    own: Floats  # (Q,) best match of the query's own product
    others: Floats  # (Q, C - 1) best match of each other one
    product: NDArray[np.int64]  # (Q,)

    @property
    def stranger(self) -> Floats:
        """The best match where the own product is missing: (Q,)."""
        return np.asarray(self.others.max(axis=1))

    @property
    def weights(self) -> Floats:
        """Of queries, so that each product counts the same: (Q,), their sum is 1."""
        _, place, counts = np.unique(self.product, return_inverse=True, return_counts=True)
        return np.asarray(1 / counts[place] / len(counts))


def meet(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "cosine",
) -> Met:
    """What queries (Q, d) meet in a gallery (G, d), else each in all others.

    Queries whose product is not in the gallery are left out. Raises ValueError where fewer than
    two products can be searched.

    >>> met = meet([[0.0], [1.0], [9.0], [12.0]], [0, 0, 1, 1], metric="euclidean")
    >>> met.own, met.stranger
    (array([-1., -1., -3., -3.]), array([ -9.,  -8.,  -8., -11.]))
    """
    x, y, _ = as_sets(embeddings, gallery, metric, None)
    of_x = np.asarray(labels)
    of_y = of_x if gallery_labels is None else np.asarray(gallery_labels)
    order = np.argsort(of_y, kind="stable")
    products, starts = np.unique(of_y[order], return_index=True)
    kind, size, parts = metric_of(metric), max(1, BLOCK_ENTRIES // len(y)), []
    for start in range(0, len(x), size):
        s = kind.likeness(x[start : start + size], y).cpu().numpy()  # (b, G)
        if gallery is None:  # a picture does not find itself
            s[np.arange(len(s)), start + np.arange(len(s))] = -np.inf
        parts.append(np.maximum.reduceat(s[:, order], starts, axis=1))
    best, is_own = np.concatenate(parts), of_x[:, None] == products  # (Q, C)
    known = np.where(is_own, best, -np.inf).max(axis=1) > -np.inf
    if len(np.unique(of_x[known])) < 2:
        raise ValueError("expected queries of two products or more that are in the gallery")
    best, is_own = best[known], is_own[known]
    others = best[~is_own].reshape(len(best), -1)
    return Met(best[is_own], others, of_x[known])


def threshold(likeness: Floats, share: float, weights: Floats | None = None) -> float:
    """The likeness that at most this share of strangers' (S,) exceeds, by their weights (S,).

    >>> threshold(np.array([0.1, 0.5, 0.9, 0.3]), share=0.25)
    0.5
    """
    order = np.argsort(-likeness)
    passed = (np.ones(len(order)) if weights is None else weights)[order].cumsum()
    most = share * passed[-1] * (1 + 1e-9)  # of sums that are rounded
    return float(likeness[order][np.searchsorted(passed, most, side="right")])


def spread(likeness: Floats, product: NDArray[Any], share: float) -> tuple[float, float]:
    """How many strangers of as many further products pass a ``threshold`` of these, 0..1: 95 %.

    By the bootstrap over products, of which one draw chooses and another asks: of strangers (S,),
    each of a product (S,). It knows nothing of strangers of another kind.

    >>> low, high = spread(np.arange(90.0), np.repeat(np.arange(9), 10), share=0.1)
    >>> f"{low:.2f} to {high:.2f}"
    '0.00 to 0.46'
    """
    products, place = np.unique(product, return_inverse=True)
    P, order = len(products), np.argsort(-likeness)
    rng, chance = np.random.default_rng(0), np.full(len(products), 1 / len(products))
    choose, ask = (  # (D, S): how many were drawn of those that are as near
        rng.multinomial(P, chance, size=_DRAWS)[:, place[order]].cumsum(axis=1) for _ in range(2)
    )
    passed = (choose <= share * choose[:, -1:]).sum(axis=1)  # (D,) places in the order
    asked = np.where(passed > 0, ask[np.arange(_DRAWS), passed - 1], 0) / ask[:, -1]
    low, high = np.quantile(asked, [0.025, 0.975])
    return float(low), float(high)


def cuts(met: Met, share: float) -> Floats:
    """Each query's threshold, chosen by the strangers of the other half of the products: (Q,)."""
    half = np.unique(met.product, return_inverse=True)[1] % 2
    rest = [half != part for part in (0, 1)]
    each = [threshold(met.stranger[rows], share, met.weights[rows]) for rows in rest]
    return np.array(each)[half]


def by_size(met: Met, sizes: Sequence[int], share: float = 0.1) -> pd.DataFrame:
    """What to expect in galleries of other numbers of products, in 0..1: one row for each.

    Columns: ``products``; ``recall_at_1``; and at thresholds that let this ``share`` of strangers
    through in the gallery as it is, each chosen on the other half of the products (``cuts``):
    ``strangers`` answered, known queries answered ``right``; ``model``, whether the row is beyond
    what is there.

    Of a query's m = C − 1 other products, k are nearer than its own. Among n − 1 others drawn from
    these none is nearer with the chance C(m − k, n − 1)/C(m, n − 1). Beyond m it is assumed that
    each query has a chance p that a further product is nearer, and that this is a normal number's:

        Recall@1(n) = E (1 − p)^(n−1),  p = Φ(μ + σ z),  z ~ N(0, 1)

    μ and σ fit all k best, as k ~ Binomial(m, p). Likewise for products above the threshold.
    Sources: Zheng, Achanta and Benjamini 2018, "Extrapolating Expected Accuracies for Large
    Multi-Class Problems", JMLR 19, for the mean of powers; μ and σ are our choice, on Glyphs, where
    a Beta for p told 48 % of 1,000 products for 35 (see data/evidence/gallery_size.csv).

    >>> met = meet([[0.0], [1.0], [9.0], [12.0]], [0, 0, 1, 1], metric="euclidean")
    >>> by_size(met, [2])["recall_at_1"].tolist()
    [1.0]
    """
    w, t, m = met.weights, cuts(met, share), met.others.shape[1]
    nearer = (met.others >= met.own[:, None]).sum(axis=1)
    above, known = (met.others > t[:, None]).sum(axis=1), met.own > t
    n = np.asarray(sizes) - 1
    right = none_of(nearer[known], m, n, w[known]) * w[known].sum() if known.any() else 0.0 * n
    columns = {"products": sizes, "recall_at_1": none_of(nearer, m, n, w)}
    columns |= {"strangers": 1 - none_of(above, m, n, w), "right": right, "model": n > m}
    return pd.DataFrame(columns)


def none_of(k: NDArray[np.integer], m: int, n: NDArray[np.integer], weights: Floats) -> Floats:
    """The mean chance that none of n products is one of the k of m: see ``by_size``; k (Q,).

    >>> none_of(np.array([0, 5]), 5, np.array([1, 5]), np.array([0.5, 0.5]))
    array([0.5, 0.5])
    """
    w = weights / weights.sum()
    found = w @ stats.hypergeom.pmf(0, m, k[:, None], np.minimum(n, m))
    if (n <= m).all():
        return np.asarray(found)
    values, place = np.unique(k, return_inverse=True)
    of_value = np.bincount(place, weights=w)

    def logs(at: Floats) -> tuple[Floats, Floats]:
        z = at[0] + np.exp(at[1]) * _Z
        return special.log_ndtr(z), special.log_ndtr(-z)  # of p and 1 − p, at each point

    def loss(at: Floats) -> float:
        of_p, of_rest = logs(at)
        terms = values[:, None] * of_p + (m - values[:, None]) * of_rest
        return -float(of_value @ special.logsumexp(terms, axis=1, b=_WEIGHTS))

    best = optimize.minimize(loss, [-1.5, 0.0], method="Nelder-Mead", bounds=[(-9, 9), (-4, 3)])
    beyond = _WEIGHTS @ np.exp(n * logs(best.x)[1][:, None])
    return np.asarray(np.where(n <= m, found, beyond))
