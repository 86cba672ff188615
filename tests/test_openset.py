"""Open-set search against plain loops, all draws of products, and simulated likenesses."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dmlkit import openset
from studies.practice import of_products


@pytest.fixture(scope="module")
def crowd():
    """Queries and gallery of six products: embeddings and labels of each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 4))
    y, of = np.repeat(np.arange(6), 5), np.repeat(np.arange(6), 3)
    x, gallery = (centers[k] + 0.8 * rng.normal(size=(len(k), 4)) for k in (y, of))
    return x, y, gallery, of


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_what_is_met_is_the_best_of_each_product(crowd, metric):
    x, y, gallery, of = crowd
    met = openset.meet(x, y, gallery, of, metric)
    for i, (row, label) in enumerate(zip(x, y, strict=True)):
        if metric == "cosine":
            s = gallery @ row / np.linalg.norm(gallery, axis=1) / np.linalg.norm(row)
        else:
            s = -np.linalg.norm(gallery - row, axis=1)
        best = [s[of == k].max() for k in range(6)]
        assert met.own[i] == pytest.approx(best[label])
        assert met.others[i] == pytest.approx(np.delete(best, label))
        assert met.stranger[i] == pytest.approx(s[of != label].max())


def test_a_picture_does_not_find_itself_and_a_product_that_is_not_there_is_left_out(crowd):
    x, y, gallery, of = crowd
    met = openset.meet(x, y)
    assert (met.own < 1 - 1e-9).all()
    lone = openset.meet(np.vstack([x, [[9, 9, 9, 9]]]), np.append(y, 7))
    assert len(lone.own) == len(x)  # the lone one has nothing to be found
    assert lone.others.shape == (30, 6)
    few = openset.meet(x, y, gallery[of < 4], of[of < 4])
    assert set(few.product) == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="expected queries of two products or more"):
        openset.meet(x, y, gallery[of < 1], of[of < 1])


def test_fewer_products_are_the_mean_over_all_draws_of_them(crowd):
    x, y, gallery, of = crowd
    met = openset.meet(x, y, gallery, of)
    found = openset.by_size(met, [2, 3, 4, 6], 0.2).set_index("products")
    t = dict(zip(met.product, openset.cuts(met, 0.2), strict=True))
    for n in (2, 3, 4, 6):
        hits = []
        for some in combinations(range(6), n):
            part = of_products(met, np.array(some))
            cut = np.array([t[k] for k in part.product])
            first = part.own > part.stranger
            known = part.own > cut
            hits.append([first.mean(), (part.stranger > cut).mean(), (known & first).mean()])
        expected = np.mean(hits, axis=0)
        assert found.loc[n, ["recall_at_1", "strangers", "right"]].tolist() == pytest.approx(
            expected.tolist()
        )
    assert not found["model"].any()


def test_of_products_is_what_a_smaller_gallery_meets(crowd):
    x, y, gallery, of = crowd
    some = np.array([1, 3, 4])
    asked, sold = np.isin(y, some), np.isin(of, some)
    smaller = openset.meet(x[asked], y[asked], gallery[sold], of[sold])
    for a, b in zip(of_products(openset.meet(x, y, gallery, of), some), smaller, strict=True):
        np.testing.assert_allclose(a, b)


def test_each_product_counts_the_same(crowd):
    x, y, gallery, of = crowd
    often = np.concatenate([np.arange(30), np.repeat(np.arange(5), 9)])  # the first one's, tenfold
    once, more = (openset.meet(x[rows], y[rows], gallery, of) for rows in (np.arange(30), often))
    sizes = [3, 6, 50]
    for column in ("recall_at_1", "strangers", "right", "model"):
        a, b = (openset.by_size(met, sizes, 0.2)[column] for met in (once, more))
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_thresholds_are_chosen_on_the_other_half(crowd):
    x, y, gallery, of = crowd
    met = openset.meet(x, y, gallery, of)
    cut = openset.cuts(met, 0.2)
    even = met.product % 2 == 0
    for half in (even, ~even):
        assert set(cut[half]) == {openset.threshold(met.stranger[~half], 0.2, met.weights[~half])}
        assert (met.stranger[~half] > cut[half][0]).mean() <= 0.2


def test_beyond_what_is_there_the_model_is_right_where_it_holds():
    """Chances p = Φ(μ + σz), of which a gallery of 40 shows k of 39, and 2,000 the mean power."""
    rng = np.random.default_rng(0)
    p = stats.norm.cdf(-2 + rng.normal(size=20_000))
    k, w = rng.binomial(39, p), np.full(20_000, 1 / 20_000)
    n = np.array([39, 99, 1999])
    found = openset.none_of(k, 39, n, w)
    np.testing.assert_allclose(found, [((1 - p) ** m).mean() for m in n], atol=0.01)


@pytest.mark.parametrize("k, expected", [(np.zeros(50, int), 1), (np.full(50, 19), 0)])
def test_where_all_are_right_or_none_is_the_model_says_so(k, expected):
    found = openset.none_of(k, 19, np.array([19, 499]), np.full(50, 0.02))
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_as_many_further_products_keep_within_the_spread():
    rng, within, sizes = np.random.default_rng(0), 0, (12, 20)  # products, strangers of each
    product = np.repeat(np.arange(12), 20)
    for _ in range(100):
        chose, asked = (
            (rng.normal(size=(12, 1)) + rng.normal(size=sizes)).ravel() for _ in range(2)
        )
        low, high = openset.spread(chose, product, 0.1)
        within += low <= (asked > openset.threshold(chose, 0.1)).mean() <= high
    assert within >= 85
