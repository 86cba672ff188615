"""Neighbors and scores against hand-worked cases, loops in float64, and the reference library."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.metrics import average_precision_score
from torch._subclasses.fake_tensor import FakeTensorMode

from dmlkit import arrays, embedding_geometry, retrieval, verification
from dmlkit import neighbors as exact
from dmlkit.losses.hyperbolic import exponential_map, poincare_distances
from dmlkit.retrieval import (
    by_query,
    evaluate,
    map_at_r,
    nearest_neighbors,
    nmi,
    r_precision,
    recall_at_k,
)

LINE = np.array([[0.0], [1.0], [3.0], [7.0]])
HELD = {"gallery": LINE + 0, "gallery_labels": [0, 1, 0, 1]}


def clusters(classes=6, per_class=5, d=4, spread=1.0, seed=0):
    """Overlapping classes of unequal size, shuffled: (N, d) float64, (N,) int64."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), per_class + np.arange(classes) % 3))
    centers = rng.normal(size=(classes, d))
    return centers[labels] + spread * rng.normal(size=(len(labels), d)), labels


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def ranking(query, gallery, own=None):
    """Indices of the gallery by (float32 squared distance, index), without the query itself."""
    squared = ((gallery - query) ** 2).sum(axis=1).astype(np.float32)
    return sorted((j for j in range(len(gallery)) if j != own), key=lambda j: (squared[j], j))


def loop_scores(x, labels, gallery=None, gallery_labels=None, ks=(1, 2, 4)):
    """Every score as its definition reads, one query at a time, in Python's float64."""
    recall, precision, average = {k: [] for k in ks}, [], []
    for q, label in enumerate(labels):
        if gallery is None:
            order, found = ranking(x[q], x, own=q), labels
        else:
            order, found = ranking(x[q], gallery), gallery_labels
        hits = [found[j] == label for j in order]
        for k in ks:
            recall[k].append(any(hits[:k]))
        R = sum(hits)
        if R:
            precision.append(sum(hits[:R]) / R)
            average.append(sum(sum(hits[:i]) / i for i in range(1, R + 1) if hits[i - 1]) / R)
    scores = {f"recall_at_{k}": np.mean(recall[k]) for k in ks}
    return scores | {"r_precision": np.mean(precision), "map_at_r": np.mean(average)}


BY_QUERY = (
    "recall_at_3", "precision_at_3", "cmc_at_3",
    "map", "map_at_3", "r_precision", "map_at_r",
)  # fmt: skip


def loop_by_query(x, labels, gallery, gallery_labels, own, cameras):
    """The scores ``BY_QUERY`` of each query, as their definitions read."""
    rows = []
    for q, label in enumerate(labels):
        order = ranking(x[q], gallery, own=own[q])
        if cameras:
            theirs = zip(gallery_labels, cameras[1], strict=True)
            junk = [pair == (label, cameras[0][q]) for pair in theirs]
            order = [j for j in order if not junk[j]]
        hits = np.array([gallery_labels[j] == label for j in order], dtype=float)
        P, R = hits.cumsum() / np.arange(1, len(hits) + 1), int(hits.sum())
        row = [hits[:3].any(), hits[:3].sum() / 3, *[math.nan] * 5]
        if R:
            ap = average_precision_score(hits, -np.arange(len(hits)))
            ap3, apr = (P * hits)[:3].sum() / min(R, 3), (P * hits)[:R].mean()
            row[2:] = [hits[:3].any(), ap, ap3, hits[:R].mean(), apr]
        rows.append(row)
    return np.array(rows)


def without_nmi(scores):
    return {name: score for name, score in scores.items() if name != "nmi"}


@pytest.fixture(params=["faiss", "products"])
def route(request, monkeypatch):
    """Both routes to the neighbors: the GPU's is the same code on any device."""
    if request.param == "products":
        by_products = exact.by_products
        monkeypatch.setattr(
            exact, "by_faiss", lambda x, own, y, index, k: by_products(x, own, y, k)
        )


# Hand-worked


def test_line_by_hand():
    # Nearest first: 0 -> 1, 3, 7; 1 -> 0, 3, 7; 3 -> 1, 0, 7; 7 -> 3, 1, 0.
    indices, distances = nearest_neighbors(LINE, 3)
    np.testing.assert_array_equal(indices, [[1, 2, 3], [0, 2, 3], [1, 0, 3], [2, 1, 0]])
    np.testing.assert_array_equal(distances, [[1, 3, 7], [1, 2, 6], [2, 3, 4], [4, 6, 7]])
    # First of one's own class at rank 2, 3, 2, 2.
    assert recall_at_k(LINE, np.array([0, 1, 0, 1]), (1, 2, 3)) == {1: 0, 2: 0.75, 3: 1}


@pytest.mark.parametrize(
    "correct, expected_r_precision, expected_map",
    [([1], 0.1, 0.1), ([1, 10], 0.2, 0.12), ([1, 2], 0.2, 0.2), (range(1, 11), 1.0, 1.0)],
)
def test_the_reality_checks_four_retrievals(correct, expected_r_precision, expected_map):
    """Musgrave et al. (2020): ten relevant items, those at these ranks in the top ten."""
    ranks = np.arange(1, 31)
    relevant = np.isin(ranks, correct) | (ranks > 20 + len(correct))
    assert relevant.sum() == 10
    sets = (np.zeros((1, 1)), np.array([1]), ranks[:, None], relevant.astype(np.int64))
    assert recall_at_k(sets[0], sets[1], (1,), *sets[2:]) == {1: 1.0}
    assert r_precision(*sets) == pytest.approx(expected_r_precision)
    assert map_at_r(*sets) == pytest.approx(expected_map)


def test_cosine_by_hand():
    x = np.array([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [3.0, 3.0]])
    indices, cosines = nearest_neighbors(x, 3, metric="cosine")
    np.testing.assert_array_equal(indices[0], [3, 1, 2])
    np.testing.assert_allclose(cosines[0], [math.sqrt(0.5), 0, -1], atol=1e-7)
    indices, distances = nearest_neighbors(x, 3)  # as given: the lengths count
    np.testing.assert_array_equal(indices[0], [2, 3, 1])
    np.testing.assert_allclose(distances[0], [3, math.sqrt(10), math.sqrt(29)], rtol=1e-7)


def test_hamming_by_hand():
    x = np.array([[1.0, 2.0, -1.0], [3.0, -1.0, -1.0], [0.0, -9.0, 4.0], [5.0, 1.0, -2.0]])
    indices, bits = nearest_neighbors(x, 3, metric="hamming")  # 110, 100, 001, 110
    np.testing.assert_array_equal(indices, [[3, 1, 2], [0, 3, 2], [1, 0, 3], [0, 1, 2]])
    np.testing.assert_array_equal(bits, [[0, 1, 3], [1, 1, 2], [2, 3, 3], [0, 1, 3]])


def test_poincare_by_hand():
    x = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, -2.0], [-1.0, 0.0]])
    metric = {"name": "poincare", "c": 1.0, "clip": 1.5}
    indices, distances = nearest_neighbors(x, 3, metric=metric)
    np.testing.assert_array_equal(indices[0], [1, 3, 2])
    np.testing.assert_allclose(distances[0], [1, 2, 3], rtol=1e-6)  # 2‖u‖ from the origin
    np.testing.assert_allclose(distances[3, indices[3] == 1], [3], rtol=1e-6)  # along a line


# Oracles


def test_points_beyond_the_clip_are_one_point_of_the_ball():
    indices, distances = nearest_neighbors(LINE, 2, metric={"name": "poincare", "clip": 0.5})
    np.testing.assert_array_equal(indices, [[1, 2], [2, 3], [1, 3], [1, 2]])
    np.testing.assert_array_equal(distances[1:], 0)


@pytest.mark.parametrize("d", [3, 64, 300])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_hamming_equals_counting_differing_signs(d, with_gallery, monkeypatch):
    x, labels = clusters(d=d, seed=1)
    y, y_labels = clusters(d=d, seed=2) if with_gallery else (None, None)
    signs = (x > 0).astype(float), None if y is None else (y > 0).astype(float)
    sets = {"gallery": y, "gallery_labels": y_labels, "ks": (1, 2, 4)}
    found = evaluate(x, labels, metric="hamming", **sets)
    assert without_nmi(found) == pytest.approx(loop_scores(signs[0], labels, signs[1], y_labels))
    by_bits = nearest_neighbors(x, 5, y, metric="hamming")
    codes = torch.from_numpy(signs[0] if y is None else signs[1]).float()
    products = exact.by_products
    monkeypatch.setattr(exact, "by_bits", lambda x, own, index, k: products(x, own, codes, k))
    by_products = nearest_neighbors(x, 5, y, metric="hamming")
    np.testing.assert_array_equal(by_bits, by_products)


def test_packed_bits_are_bits():
    bits = np.random.default_rng(0).integers(0, 2, size=(60, 40), dtype=np.uint8)
    packed, expected = np.packbits(bits, axis=1), nearest_neighbors(bits - 0.5, 9, metric="hamming")
    for codes in (bits, packed, torch.from_numpy(packed)):
        for a, b in zip(nearest_neighbors(codes, 9, metric="hamming"), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    for kind in (np.int8, np.int64):  # of which bits are nobody's guess
        with pytest.raises(
            ValueError, match="hamming compares bits: expected packed ones as uint8"
        ):
            nearest_neighbors(packed.astype(kind), 9, metric="hamming")
    signs = bits.astype(np.int8) * 2 - 1
    np.testing.assert_array_equal(nearest_neighbors(signs, 9, metric="hamming"), expected)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("size", [1e8, 1e25, -1e25])
@pytest.mark.parametrize("place", ["one set", "gallery", "query"])
def test_one_enormous_row_harms_no_other(size, place):
    x = np.random.default_rng(8).normal(size=(300, 8)).astype(np.float32)
    expected = nearest_neighbors(x, 5)
    more = np.vstack([x, np.full((1, 8), size, np.float32)])
    if place == "one set":
        found = nearest_neighbors(more, 5)
        np.testing.assert_allclose(found[1][-1], abs(size) * 8**0.5, rtol=1e-6)
    elif place == "gallery":
        found = nearest_neighbors(x, 5, more, own=np.arange(300))
    else:
        found = nearest_neighbors(more, 5, x, own=[*range(300), -1])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a[:300], b)
    assert evaluate(more, [*range(150)] * 2 + [999])["recall_at_1"] == pytest.approx(
        evaluate(x, [*range(150)] * 2)["recall_at_1"] * 300 / 301
    )


def test_a_row_beside_which_float32_holds_no_distance_is_named():
    x = np.random.default_rng(8).normal(size=(300, 8))
    x[7] = 1e30
    with pytest.raises(ValueError, match=r"one is as large as 1e\+30 \(row 7\?\)"):
        nearest_neighbors(x, 5)
    x[7] = 0
    assert nearest_neighbors(x * 1e200, 5)[0].tolist() == nearest_neighbors(x, 5)[0].tolist()


@pytest.mark.parametrize("c", [0.1, 1.0])
def test_poincare_equals_the_losss_own_distance(c):
    x, _ = clusters(classes=12, d=3, spread=2.0)
    points = exponential_map(torch.from_numpy(x), c, clip=2.3)
    D = poincare_distances(points, points, c).fill_diagonal_(torch.inf)
    metric = {"name": "poincare", "c": c}
    indices, distances = nearest_neighbors(x, len(x) - 1, metric=metric)
    expected = D.sort(dim=1).values[:, :-1].numpy()
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(D.numpy(), indices, 1), expected, rtol=1e-5)
    assert (nearest_neighbors(x, 5)[0] != indices[:, :5]).any()  # not the Euclidean order
    if c == 0.1:
        assert evaluate(x, np.arange(len(x)) % 3, metric="poincare") == evaluate(
            x, np.arange(len(x)) % 3, metric=metric
        )


@pytest.mark.parametrize(
    "metric, message",
    [
        ("manhattan", "expected one of euclidean, cosine, hamming, poincare, got 'manhattan'"),
        ({"name": "poincare", "c": 0.0}, "c must be above 0, but is 0.0"),
        ({"name": "poincare", "clip": -0.5}, "clip must be above 0, but is -0.5"),
    ],
)
def test_metrics_refused(metric, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbors(LINE, 1, metric=metric)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("offset", [0.0, 1e4], ids=["centered", "far"])
@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_neighbors_equal_a_float64_loop(offset, scale):
    rng = np.random.default_rng(0)
    x = ((rng.normal(size=(150, 8)) + offset) * scale).astype(np.float32)
    indices, distances = nearest_neighbors(x, 20)
    exact = x.astype(np.float64) / scale
    for q, found in enumerate(indices):
        np.testing.assert_array_equal(found, ranking(exact[q], exact, own=q)[:20])
    expected = np.linalg.norm(exact[:, None] - exact[indices], axis=2)
    np.testing.assert_allclose(distances / scale, expected, rtol=2e-7)


@pytest.mark.usefixtures("route")
def test_neighbors_closer_than_float32_products_can_tell():
    """Two tight groups, far apart: in float32 products, which faiss uses, each is one point."""
    rng = np.random.default_rng(6)
    x = 1e-3 * rng.normal(size=(2200, 64)) + np.repeat([[0.0], [100.0]], 1100, axis=0)
    x = x.astype(np.float32).astype(np.float64)
    indices, _ = nearest_neighbors(x, 5)  # faiss subtracts below 128,000 numbers
    for q in range(0, len(x), 100):
        np.testing.assert_array_equal(indices[q], ranking(x[q], x, own=q)[:5])


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("step, copies", [(2.0**-2, 2), (2.0**-24, 1)], ids=["far", "one ulp"])
def test_ties_that_products_round_apart_stand_in_the_order_of_their_index(step, copies):
    """One coordinate is off by the same step, another one in each row."""
    rng = np.random.default_rng(9)
    rest = rng.integers(-(2**24), 2**24, size=(3000, 256)) / 2**24  # faiss multiplies matrices
    point = rng.integers(2**23, 3 * 2**22, size=(1, 256)) / 2**24
    x = rng.permutation(np.vstack([rest, *copies * [point], point + step * np.eye(256)]))
    indices, _ = nearest_neighbors(x, 5)
    for q in (x == point).all(axis=1).nonzero()[0]:
        np.testing.assert_array_equal(indices[q], ranking(x[q], x, own=q)[:5])


@pytest.mark.usefixtures("route")
def test_a_gallery_far_from_the_origin():
    rng = np.random.default_rng(10)
    x, y = ((rng.normal(size=(n, 8)) + 1e4).astype(np.float32) for n in (40, 150))
    indices, _ = nearest_neighbors(x, 20, gallery=y)
    for query, found in zip(x, indices, strict=True):
        expected = ranking(query.astype(np.float64), y.astype(np.float64))[:20]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_faiss_alone_decides_ordinary_rows(offset, monkeypatch):
    monkeypatch.setattr(exact, "by_products", None)  # exact too, but slower
    x = np.random.default_rng(7).normal(size=(3000, 16)).astype(np.float32) + np.float32(offset)
    for k in (1, 20, 200):
        assert nearest_neighbors(x, k)[0].shape == (3000, k)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("own_gallery", [True, False])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scores_equal_loops(own_gallery, metric):
    x, labels = clusters(classes=12, per_class=7, seed=1)
    x, labels = np.vstack([x, x[:3] + 1]), np.append(labels, [90, 91, 92])  # three lone queries
    y, gallery_labels = (None, None) if own_gallery else clusters(classes=12, seed=2)
    seen = [x, y] if metric == "euclidean" else [z if z is None else unit(z) for z in (x, y)]
    expected = loop_scores(seen[0], labels, seen[1], gallery_labels)
    found = evaluate(x, labels, y, gallery_labels, ks=(1, 2, 4), metric=metric)
    assert without_nmi(found) == pytest.approx(expected, abs=1e-12)
    sets = (x, labels, y, gallery_labels)
    assert r_precision(*sets, metric=metric) == found["r_precision"]
    assert map_at_r(*sets, metric=metric) == found["map_at_r"]
    recalls = recall_at_k(x, labels, (1, 2, 4), y, gallery_labels, metric)
    assert recalls == {k: found[f"recall_at_{k}"] for k in (1, 2, 4)}


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("metric", ["euclidean", "hamming"])  # whose bits have many ties
@pytest.mark.parametrize("case", ["alone", "gallery", "own", "cameras", "cameras alone"])
def test_scores_by_query_equal_loops(case, metric):
    x, labels = clusters(classes=9, per_class=4, seed=1)
    x, labels = np.vstack([x, x[:2] + 1]), np.append(labels, [90, 91])  # two lone queries
    y, of_y, own, cameras = x, labels, np.arange(len(x)), None
    if case in ("gallery", "cameras"):
        (y, of_y), own = clusters(classes=9, seed=2), np.full(len(x), -1)
    if case == "own":  # some of the queries, somewhere in the gallery
        y, of_y = np.vstack([y, clusters()[0]]), np.append(of_y, clusters()[1])
        own[::3] = -1
    if "cameras" in case:
        seen = np.random.default_rng(3).integers(0, 2, size=(2, 60))
        cameras = seen[0, : len(x)], seen[int(case == "cameras"), : len(y)]
    given = {} if "alone" in case else {"gallery": y, "gallery_labels": of_y}
    given |= {"own": own} if case == "own" else {}
    found = by_query(x, labels, BY_QUERY, metric=metric, cameras=cameras, **given)
    z, w = (x, y) if metric == "euclidean" else (np.float64(x > 0), np.float64(y > 0))
    expected = loop_by_query(z, labels, w, of_y, own, cameras)
    assert (list(found.index), list(found)) == (list(labels), list(BY_QUERY))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if not cameras:
        scores = evaluate(x, labels, ks=[3], metric=metric, **given)
        assert found[["recall_at_3", "r_precision", "map_at_r"]].mean().tolist() == pytest.approx(
            list(without_nmi(scores).values()), abs=1e-12
        )


def test_items_of_the_querys_class_and_camera_are_passed_over():
    gallery, of_gallery = [[1.0], [2.0], [3.0], [4.0], [5.0]], [0, 0, 0, 1, 0]
    sets = {"gallery": gallery, "gallery_labels": of_gallery, "cameras": ([7], [7, 7, 7, 7, 8])}
    found = by_query([[0.0]], [0], ["cmc_at_1", "cmc_at_2", "precision_at_2"], **sets)
    assert found.to_numpy().tolist() == [[0.0, 1.0, 0.5]]


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "poincare"])
def test_a_gallery_that_holds_the_queries_scores_as_none_does(metric):
    x, labels = clusters(classes=8, seed=5)
    some, shuffle = np.arange(0, len(x), 2), np.random.default_rng(0).permutation(len(x))
    own = np.argsort(shuffle)[some]
    sets = {"gallery": x[shuffle], "gallery_labels": labels[shuffle], "metric": metric}
    assert recall_at_k(x[some], labels[some], [1], **sets) == {1: 1.0}  # a gallery as it is
    expected = by_query(x, labels, metric=metric).iloc[some].mean()
    assert expected["recall_at_1"] < 0.9
    arguments = (x[some], labels[some])
    assert recall_at_k(*arguments, [1], **sets, own=own)[1] == expected["recall_at_1"]
    assert r_precision(*arguments, **sets, own=own) == pytest.approx(expected["r_precision"])
    assert map_at_r(*arguments, **sets, own=own) == pytest.approx(expected["map_at_r"])
    indices, _ = nearest_neighbors(x[some], len(x) - 1, x[shuffle], metric, own)
    assert not (indices == own[:, None]).any()


def test_the_whole_ranking_is_scored_in_blocks(monkeypatch):
    x, labels = clusters(classes=20, seed=4)
    whole = by_query(x, labels, ["map", "cmc_at_50"])
    monkeypatch.setattr(exact, "BLOCK_ENTRIES", 3 * len(x))
    sizes, by_rows = [], exact.by_rows
    monkeypatch.setattr(
        exact, "by_rows", lambda x, *a, **k: sizes.append(len(x)) or by_rows(x, *a, **k)
    )
    pd.testing.assert_frame_equal(by_query(x, labels, ["map", "cmc_at_50"]), whole)
    assert max(sizes) == 3


def test_equals_pytorch_metric_learning():
    """Its lone queries are left out of precision at 1 too, so this set has none."""
    x, labels = clusters(classes=30, per_class=6, d=16, seed=3)
    x = unit(x).astype(np.float32)
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "NMI")
    calculator = AccuracyCalculator(include=include, device=torch.device("cpu"))
    theirs = calculator.get_accuracy(torch.from_numpy(x), torch.from_numpy(labels))
    ours = evaluate(x, labels, seed=1234)  # the seed of faiss's own default
    assert ours["recall_at_1"] == pytest.approx(theirs["precision_at_1"])
    assert ours["r_precision"] == pytest.approx(theirs["r_precision"])
    assert ours["map_at_r"] == pytest.approx(theirs["mean_average_precision_at_r"])
    assert ours["nmi"] == pytest.approx(theirs["NMI"])


def test_blocks_change_nothing(monkeypatch):
    x, labels = clusters(classes=20, seed=4)
    whole, near = evaluate(x, labels), nearest_neighbors(x, 7)
    monkeypatch.setattr(exact, "BLOCK_ENTRIES", 64)
    assert evaluate(x, labels) == whole
    for a, b in zip(nearest_neighbors(x, 7), near, strict=True):
        np.testing.assert_array_equal(a, b)


def test_evaluate_searches_once(monkeypatch):
    calls, search = [], exact.search_blocks
    monkeypatch.setattr(
        retrieval, "search_blocks", lambda *a, **k: calls.append(a[1]) or search(*a, **k)
    )
    x, labels = clusters(per_class=9)
    evaluate(x, labels, ks=(1, 4))
    assert calls == [10]  # R = 10 in the largest class is more than K = 4
    recall_at_k(x, labels, (1, 4))
    assert calls == [10, 4]  # for which nothing beyond K is looked for


# Rules


@pytest.mark.usefixtures("route")
def test_ties_stand_in_the_order_of_their_index():
    rng = np.random.default_rng(5)
    grid = rng.integers(0, 4, size=(300, 3)).astype(np.float32)  # 64 places: copies, many ties
    indices, _ = nearest_neighbors(grid, 10)
    for q, found in enumerate(indices):
        np.testing.assert_array_equal(found, ranking(grid[q], grid, own=q)[:10])
    copies = rng.normal(size=(7, 64))[rng.integers(0, 7, size=2101)]  # 300 of each
    indices, _ = nearest_neighbors(copies, 5)
    for q in range(0, len(copies), 50):
        np.testing.assert_array_equal(indices[q], ranking(copies[q], copies, own=q)[:5])


@pytest.mark.usefixtures("route")
def test_a_collapsed_embedding_scores_at_chance():
    labels = np.repeat(np.arange(50), 6)
    x = np.full((300, 8), 0.3, dtype=np.float32)
    indices, distances = nearest_neighbors(x, 3)
    np.testing.assert_array_equal(
        indices[:5], [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]]
    )
    assert not distances.any()
    scores = evaluate(x, labels, ks=(1, 6))
    assert scores["recall_at_1"] == pytest.approx(6 / 300)  # the first class alone is found
    assert scores["recall_at_6"] == pytest.approx(6 / 300)
    assert scores["nmi"] == 0


@pytest.mark.usefixtures("route")
def test_a_copy_of_the_query_counts_and_the_query_does_not():
    x = np.array([[0.0, 1], [5, 5], [0, 1], [9, 0]])
    indices, distances = nearest_neighbors(x, 1)
    np.testing.assert_array_equal(indices[:, 0], [2, 0, 0, 1])
    assert distances[0, 0] == 0
    assert recall_at_k(x, np.array([4, 4, 7, 7]), (1,)) == {1: 0.25}  # the copy is of another class
    indices, _ = nearest_neighbors(x, 2, gallery=x)  # a gallery is taken as it is
    np.testing.assert_array_equal(indices[:, 0], [0, 1, 0, 3])


def test_a_query_without_relevant_item_misses_and_is_left_out():
    x, labels = LINE, np.array([0, 0, 5, 6])
    assert recall_at_k(x, labels, (1, 3, 4)) == {1: 0.5, 3: 0.5, 4: 0.5}
    assert r_precision(x, labels) == 1
    assert map_at_r(x, labels) == 1


@pytest.mark.parametrize(
    "offset, dtype",
    [
        *((offset, np.int64) for offset in (2**24, 2**62, -(2**63))),
        *((2**bits - 2, f"uint{bits}") for bits in (8, 16, 32, 64)),
    ],
)
def test_labels_are_compared_as_integers(offset, dtype):
    labels = np.array([offset, offset + 1] * 2, dtype)  # float32, or float64, would merge them
    assert recall_at_k(LINE, labels, (1, 2, 3)) == {1: 0, 2: 0.75, 3: 1}
    assert r_precision(LINE, labels) == 0
    assert nmi(np.array([[0.0], [0.1], [9.0], [9.1]]), labels[[0, 2, 1, 3]]) == 1


def test_k_beyond_the_gallery():
    labels = np.array([0, 1, 0, 1])
    assert recall_at_k(LINE, labels, np.array([3, 4])) == {3: 1, 4: 1}
    assert nearest_neighbors(LINE, np.int64(3))[0].shape == (4, 3)
    assert recall_at_k(LINE, labels, (3, 4, 1000)) == {3: 1, 4: 1, 1000: 1}
    assert nearest_neighbors(LINE, 3)[0].shape == (4, 3)
    assert nearest_neighbors(LINE, 4, gallery=LINE)[0].shape == (4, 4)
    for k in (4, 0):
        with pytest.raises(ValueError, match=rf"k: expected 1 to 3, .* got {k}"):
            nearest_neighbors(LINE, k)


def test_the_kind_of_the_queries_comes_back():
    for kind in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
        indices, distances = nearest_neighbors(torch.tensor(LINE, dtype=kind), 2)
        assert (indices.dtype, distances.dtype) == (torch.int64, torch.float32)
        assert indices.tolist() == [[1, 2], [0, 2], [1, 0], [2, 1]]
    leaf = torch.tensor(LINE, requires_grad=True)
    assert not nearest_neighbors(leaf, 1)[1].requires_grad
    frozen = np.asfortranarray(LINE[::-1])
    frozen.setflags(write=False)
    indices, distances = nearest_neighbors(frozen, 1, gallery=torch.tensor(LINE))
    assert isinstance(indices, np.ndarray)
    assert indices.tolist() == [[3], [2], [1], [0]]
    assert recall_at_k(leaf, torch.tensor([0, 1, 0, 1], dtype=torch.int32), [2]) == {2: 0.75}


def test_what_is_on_a_device_without_float64_is_compared_on_the_cpu():
    with FakeTensorMode():  # as no Apple GPU is here: tensors without values
        x = torch.empty(4, 2, device="mps")
        assert arrays.as_tensor(x, "x").device.type == "cpu"
        assert arrays.as_tensor(torch.empty(4, 2, device="cuda"), "x").device.type == "cuda"


NAMES = np.array(["owl", "bee", "ant", "cat", "elk", "dog"])  # in no order


@pytest.mark.parametrize("form", ["array", "list", "object", "pandas", "category", "mixed"])
def test_names_are_labels(form):
    """Codes of names alone, set by set, would differ: a gallery has other classes first."""
    make = {
        "array": lambda y: NAMES[y],
        "list": lambda y: NAMES[y].tolist(),
        "object": lambda y: NAMES[y].astype(object),
        "pandas": lambda y: pd.Series(NAMES[y], index=y[::-1]),
        "category": lambda y: pd.Series(NAMES[y]).astype("category"),
        "mixed": lambda y: NAMES[y] if len(y) < 20 else pd.Series(NAMES[y]),
    }[form]
    x, y = clusters()
    here, there = (x[:15], y[:15]), (x[15:], y[15:])
    numbers = evaluate(*here, *there)
    named = evaluate(here[0], make(here[1]), there[0], make(there[1]))
    assert named == pytest.approx(numbers, rel=1e-12)  # NMI adds classes in another order
    assert (
        verification.verification(x, make(y), 0.1).eer == verification.verification(x, y, 0.1).eer
    )
    assert nmi(x, make(y)) == pytest.approx(nmi(x, y), rel=1e-12)
    alignment = embedding_geometry.alignment
    assert alignment(x, make(y)) == pytest.approx(alignment(x, y), rel=1e-12)
    seen = np.arange(len(y)) % 3
    found = by_query(x, make(y), cameras=(make(seen), make(seen)))
    np.testing.assert_array_equal(found, by_query(x, y, cameras=(seen, seen)))
    assert found.index.tolist() == NAMES[y].tolist()


@pytest.mark.parametrize(
    "labels, got",
    [
        (None, r"NoneType \(None\) in shape \(\)"),
        ([None, "a", "b", "b"], r"NoneType \(None\), str \('b'\)"),
        (["a", math.nan, "b", "b"], r"float \(nan\)"),
        ([b"a", b"a", b"b", b"b"], r"bytes \(b'b'\)"),
        ([1, "1", 2, 2], r"int \(2\), str \('1'\)"),
    ],
)
def test_labels_that_are_neither_names_nor_numbers_are_refused(labels, got):
    for call in (recall_at_k, nmi, verification.verification):
        with pytest.raises(ValueError, match=f"labels: expected whole numbers, or names.* {got}"):
            call(LINE + 1, labels)


def test_names_on_one_side_alone_are_refused():
    with pytest.raises(ValueError, match="labels and gallery_labels: expected names in both or"):
        recall_at_k(LINE, list("abab"), gallery=LINE + 0, gallery_labels=[0, 1, 0, 1])
    with pytest.raises(ValueError, match="own: expected an array of numbers"):
        recall_at_k(LINE, [0, 1, 0, 1], **HELD, own=list("0123"))


def test_arrays_as_tables_and_files_have_them():
    x, y = clusters()
    expected = recall_at_k(x, y)
    table = pd.DataFrame({"embedding": list(x), "label": y})
    assert recall_at_k(table["embedding"], table["label"]) == expected
    assert recall_at_k(x.astype(">f8"), y.astype(">i4")) == expected
    assert recall_at_k(x.astype(object), y.astype(object)) == expected
    for bad in (None, [[1.0, 2.0], [1.0]], [["a"], ["b"]], pd.Series([[1.0], None])):
        with pytest.raises(ValueError, match="embeddings: expected an array of numbers, got"):
            recall_at_k(bad, [0, 0])


def test_one_is_a_list_of_one():
    x, y = clusters()
    assert recall_at_k(x, y, ks=1) == recall_at_k(x, y, ks=[1]) == recall_at_k(x, y, np.int8(1))
    assert evaluate(x, y, ks=2) == evaluate(x, y, ks=(2,))
    pd.testing.assert_frame_equal(by_query(x, y, "map"), by_query(x, y, ["map"]))


# Bad input


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_embeddings_that_are_not_finite_are_refused(bad):
    x, labels = clusters()
    x[[4, 11], 2] = bad
    message = r"{}: row 4 is not finite"
    for call in (evaluate, recall_at_k, r_precision, map_at_r, nmi):
        with pytest.raises(ValueError, match=message.format("embeddings")):
            call(x, labels)
    with pytest.raises(ValueError, match=message.format("embeddings")):
        nearest_neighbors(x, 1)
    with pytest.raises(ValueError, match=message.format("gallery")):
        r_precision(x[:4], labels[:4], x, labels)


@pytest.mark.parametrize(
    "labels, got",
    [
        (np.zeros(4), r"torch.float64 of shape \(4,\)"),
        (np.zeros((4, 1), dtype=np.int64), r"torch.int64 of shape \(4, 1\)"),
        (np.zeros(3, dtype=np.int64), r"torch.int64 of shape \(3,\)"),
        (np.zeros(4, dtype=bool), r"torch.bool of shape \(4,\)"),
    ],
)
def test_labels_of_the_wrong_shape_or_dtype_are_refused(labels, got):
    for call in (evaluate, recall_at_k, r_precision, map_at_r, nmi):
        with pytest.raises(
            ValueError, match=r"labels: expected int64 of shape \(4,\), .* got " + got
        ):
            call(LINE, labels)
    with pytest.raises(ValueError, match="gallery_labels: expected int64"):
        evaluate(LINE, np.zeros(4, dtype=np.int64), LINE.copy(), labels)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"embeddings": np.zeros((0, 2)), "labels": []}, r"embeddings: .* got .* \(0, 2\)"),
        ({"embeddings": np.zeros((4, 0))}, r"embeddings: .* got .* \(4, 0\)"),
        ({"embeddings": np.zeros(4)}, r"embeddings: .* shape \(items, dimensions\)"),
        ({"embeddings": LINE + 1j}, r"embeddings: expected real numbers"),
        ({"embeddings": LINE[:1], "labels": [1]}, "labels: expected .* a relevant item"),
        ({"gallery": LINE.copy()}, "gallery and gallery_labels: expected both"),
        ({"gallery_labels": np.arange(4)}, "gallery and gallery_labels: expected both"),
        ({"gallery": np.zeros((0, 1)), "gallery_labels": []}, r"gallery: .* got .* \(0, 1\)"),
        (
            {"gallery": np.ones((4, 3)), "gallery_labels": [0] * 4},
            "gallery: .* columns .* 1, got 3",
        ),
        ({"gallery": LINE + 1, "gallery_labels": [5] * 4}, "labels: expected .* a relevant item"),
        ({"labels": [0, 1, 2, 3]}, "labels: expected .* a relevant item"),
        ({"gallery": LINE, "gallery_labels": [0] * 4}, "gallery: these are the queries, .* own"),
        ({"own": [0, 1, 2, 3]}, "own: expected a gallery; without one"),
        ({**HELD, "own": [0, 1, 2]}, r"own: expected int64 of shape \(4,\)"),
        ({**HELD, "own": [0, 1, 2, 4]}, "own: expected gallery rows to 3, or -1, got 0 to 4"),
        ({**HELD, "own": [0, 1, 2, -2]}, "own: .* or -1, got -2 to 2"),
        ({**HELD, "own": [0, 0, 2, 3]}, "own: expected the query's label, 1, in row 0 .* got 0"),
        ({"ks": ()}, "ks: expected one or more"),
        ({"ks": (0, 1)}, "ks: expected one or more"),
        ({"metric": "manhattan"}, "metric: .* got 'manhattan'"),
        ({"metric": "cosine"}, "row 0 is zero and has no cosine"),
    ],
)
def test_bad_input_is_named(arguments, message):
    defaults = {"embeddings": LINE, "labels": [0, 1, 0, 1]}
    arguments = defaults | arguments
    for name in {"labels", "gallery_labels", "own"} & set(arguments):
        arguments[name] = np.array(arguments[name], dtype=np.int64)
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments)


@pytest.mark.parametrize("name", ["map_at_0", "recall", "ndcg_at_5"])
def test_unknown_scores_are_named(name):
    with pytest.raises(ValueError, match=f"scores: .* map, .* cmc_at_K, got '{name}'"):
        by_query(LINE, [0, 1, 0, 1], [name])


# Properties

sets = st.builds(
    clusters,
    classes=st.integers(2, 5),
    per_class=st.integers(2, 4),
    d=st.integers(1, 6),
    spread=st.floats(0.1, 2),
    seed=st.integers(0, 10**6),
)


def separated(x):
    """Whether no rounding of float32 can swap two neighbors of a query."""
    distances = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)
    return np.diff(distances, axis=1).min() > 1e-5 * distances.max()


quick = settings(max_examples=settings.default.max_examples // 4)


@quick
@given(sets, st.integers(0, 10**6))
def test_order_names_rotation_and_length_do_not_matter(data, seed):
    x, labels = data
    assume(separated(x) and (x.shape[1] == 1 or separated(unit(x))))
    rng = np.random.default_rng(seed)
    scores = without_nmi(evaluate(x, labels))
    order = rng.permutation(len(x))
    assert without_nmi(evaluate(x[order], labels[order])) == pytest.approx(scores)
    names = rng.choice(2**62, size=labels.max() + 1, replace=False)
    assert without_nmi(evaluate(x, names[labels])) == scores
    rotation, _ = np.linalg.qr(rng.normal(size=(x.shape[1], x.shape[1])))
    assert without_nmi(evaluate(x @ rotation, labels)) == pytest.approx(scores)
    if x.shape[1] > 1:  # on a line every direction is tied
        cosine = without_nmi(evaluate(x, labels, metric="cosine"))
        assert without_nmi(evaluate(unit(x), labels)) == pytest.approx(cosine)
        lengths = rng.uniform(0.1, 10, size=(len(x), 1))
        assert without_nmi(evaluate(x * lengths, labels, metric="cosine")) == pytest.approx(cosine)


@quick
@given(sets)
def test_scores_are_fractions_and_recall_rises_with_k(data):
    x, labels = data
    scores = evaluate(x, labels, ks=range(1, len(x)))
    recalls = [scores[f"recall_at_{k}"] for k in range(1, len(x))]
    assert recalls == sorted(recalls)
    assert recalls[-1] == 1
    assert 0 <= scores["map_at_r"] <= scores["r_precision"] <= 1
    assert 0 <= scores["nmi"] <= 1 + 1e-12


@quick
@given(st.integers(2, 8), st.integers(2, 6), st.integers(0, 10**6))
def test_separated_classes_score_one(classes, per_class, seed):
    x, labels = clusters(classes, per_class, d=classes, spread=1e-3, seed=seed)
    x += 10 * np.eye(classes)[labels]
    scores = without_nmi(evaluate(x, labels))
    assert set(scores.values()) == {1.0}
