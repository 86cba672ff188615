"""Alignment, uniformity, effective rank and hubs against plain loops and known shapes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import skew

from dmlkit import embedding_geometry
from dmlkit.embedding_geometry import alignment, effective_rank, hubness, uniformity

G, OF_G = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]), np.array([0, 0, 1, 1])


def cloud(seed=0, n=40, d=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 0.5, rng.integers(0, 8, n)


def squared(x, i, j):
    """‖x_i/‖x_i‖ − x_j/‖x_j‖‖², number by number."""
    a, b = ([v / math.sqrt(sum(w * w for w in x[k])) for v in x[k]] for k in (i, j))
    return sum((p - q) ** 2 for p, q in zip(a, b, strict=True))


def couples(n):
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def test_golden_numbers():
    assert alignment(G, OF_G) == pytest.approx(1.4, abs=1e-12)
    assert uniformity(G) == pytest.approx(-2.163035, abs=1e-6)
    assert effective_rank(G) == pytest.approx(1.976473, abs=1e-6)
    assert effective_rank([[3.0, 0.0], [0.0, 1.0]]) == pytest.approx(1.755, abs=5e-4)


@pytest.mark.parametrize("t", [2.0, 0.5, 30.0])
def test_alignment_and_uniformity_are_those_of_loops(t, monkeypatch):
    x, labels = cloud()
    own = [squared(x, i, j) for i, j in couples(len(x)) if labels[i] == labels[j]]
    assert alignment(x, labels) == pytest.approx(np.mean(own), abs=1e-12)
    terms = [math.exp(-t * squared(x, i, j)) for i, j in couples(len(x))]
    expected = math.log(math.fsum(terms) / len(terms))
    assert uniformity(x, t) == pytest.approx(expected, abs=1e-12)
    monkeypatch.setattr(embedding_geometry, "BLOCK_ENTRIES", 100)
    assert uniformity(x, t) == pytest.approx(expected, abs=1e-12)


def test_known_shapes():
    assert uniformity(np.eye(7)) == pytest.approx(-4)
    assert uniformity([[2.0, 0.0], [-3.0, 0.0]]) == pytest.approx(-8)
    assert uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert alignment([[2.0, 0.0], [-3.0, 0.0]], [4, 4]) == pytest.approx(4)
    assert alignment(np.ones((5, 3)), [1, 1, 1, 2, 2]) == pytest.approx(0, abs=1e-12)
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    # From the eigenvalues of XᵀX, whose rounding √ would make larger, it would be 1.000003.
    line = np.outer(np.arange(1, 9), np.arange(1, 65)) / 7
    assert effective_rank(line) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("centered", [False, True])
def test_effective_rank_is_the_entropy_of_singular_values(centered):
    x, _ = cloud()
    y = x - x.mean(axis=0) if centered else x
    sigma = np.sqrt(np.linalg.eigvalsh(y.T @ y))  # another route
    p = [s / sum(sigma) for s in sigma]
    expected = math.exp(-sum(q * math.log(q) for q in p))
    assert effective_rank(x, centered) == pytest.approx(expected, abs=1e-9)
    assert effective_rank(1e200 * x, centered) == pytest.approx(expected, abs=1e-9)
    assert effective_rank(x + 100) < 1.5 < 4 < effective_rank(x + 100, centered=True)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 4, 10])
def test_hubness_is_that_of_a_loop(metric, k):
    x, _ = cloud()
    y = x / np.linalg.norm(x, axis=1, keepdims=True) if metric == "cosine" else x
    counts = [0] * len(y)
    for i in range(len(y)):
        away = sorted((((y[i] - y[j]) ** 2).sum(), j) for j in range(len(y)) if j != i)
        for _, j in away[:k]:
            counts[j] += 1
    found = hubness(x, k, metric)
    assert found["skewness"] == pytest.approx(skew(counts), abs=1e-12)
    assert found["anti_hubs"] == counts.count(0) / len(counts)
    moved = sum(max(0, n - k) for n in counts)  # what the rich have above their share
    assert found["robin_hood"] == pytest.approx(moved / sum(counts), abs=1e-12)


def test_hubness_without_hubs_and_with_one():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert hubness(corners, 2) == {"skewness": 0.0, "anti_hubs": 0.0, "robin_hood": 0.0}
    star = hubness(np.vstack([np.zeros(9), np.eye(9)]), 1)
    assert star["anti_hubs"] == 0.8  # a ray's neighbor is the center; the center's the first ray
    assert hubness(torch.from_numpy(corners), 2) == hubness(corners, 2)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(0, 2**16))
def test_order_rotation_and_scale_change_nothing(seed):
    x, labels = cloud(seed)
    rng = np.random.default_rng(seed)
    order, (q, _) = rng.permutation(len(x)), np.linalg.qr(rng.normal(size=(5, 5)))
    y, of_y = 3 * x[order] @ q, 90 - labels[order]
    assert alignment(y, of_y) == pytest.approx(alignment(x, labels))
    assert uniformity(torch.from_numpy(y)) == pytest.approx(uniformity(x))
    for centered in (False, True):
        assert effective_rank(y, centered) == pytest.approx(effective_rank(x, centered))
    assert hubness(y, 3) == pytest.approx(hubness(x, 3))


@pytest.mark.parametrize(
    "measure, message",
    [
        (lambda: alignment(G, [0, 1, 2, 3]), "labels: expected two rows of one class"),
        (lambda: alignment(G, [0, 1, 1]), r"labels: expected int64 of shape \(4,\)"),
        (lambda: alignment(G, [0.0, 0.0, 1.0, 1.0]), "labels: .* got torch.float64"),
        (lambda: alignment(0 * G, OF_G), "is zero and has no cosine"),
        (lambda: uniformity(G[:1]), "embeddings: expected two or more rows"),
        (lambda: uniformity(G, t=math.nan), "t must be a number from"),
        (lambda: effective_rank(0 * G), "embeddings: expected a row that is not zero"),
        (lambda: effective_rank(np.full((4, 3), 0.1), centered=True), "expected rows that differ"),
        (lambda: hubness(G, 4), "k: expected 1 to 3"),
        (lambda: alignment(np.nan * G, OF_G), "not finite"),
        (lambda: uniformity(np.nan * G), "not finite"),
        (lambda: effective_rank(np.nan * G), "not finite"),
        (lambda: hubness(np.nan * G, 1), "not finite"),
    ],
)
def test_what_says_nothing_is_refused(measure, message):
    with pytest.raises(ValueError, match=message):
        measure()
