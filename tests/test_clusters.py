"""NMI and AMI against faiss's k-means with scikit-learn's scores, and points that are classes."""

import faiss
import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from dmlkit.retrieval import ami, nmi
from tests.test_retrieval import clusters


def test_nmi_is_deterministic_and_fits_its_extremes(capfd):
    x, labels = clusters(classes=10, per_class=10, spread=0.7)
    assert nmi(x, labels, seed=3) == nmi(x, labels, seed=3)
    assert len({nmi(x, labels, seed=seed) for seed in range(4)}) > 1
    assert nmi(x, np.arange(len(x))) == 1  # as many clusters as points
    assert nmi(x, labels, seed=3) == pytest.approx(nmi(x + 1e4, labels + 7, seed=3))
    assert capfd.readouterr().err == ""  # where faiss writes its warnings


@pytest.mark.parametrize(
    "score, reference", [(nmi, normalized_mutual_info_score), (ami, adjusted_mutual_info_score)]
)
def test_clusters_are_of_twenty_iterations(score, reference):
    """Of noise, whose clusters have not settled by then."""
    x = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
    labels = np.arange(3000) % 60

    def theirs(iterations):
        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": 3000}
        kmeans = faiss.Kmeans(16, 60, niter=iterations, seed=5, **limits)
        kmeans.train(x)
        return reference(labels, kmeans.index.search(x, 1)[1][:, 0])

    ours = score(x, labels, seed=5)
    assert ours == pytest.approx(theirs(20), abs=1e-9)
    assert ours != pytest.approx(theirs(19), abs=1e-9)
    assert ours != pytest.approx(theirs(21), abs=1e-9)


@pytest.mark.parametrize("score", [nmi, ami])
@pytest.mark.parametrize("arguments", [{"n_init": 10}, {"init": "k-means++"}])
def test_classes_that_are_points_score_one_with_restarts_or_kmeans_plus_plus(score, arguments):
    labels = np.repeat(np.arange(12), 5)
    x = np.random.default_rng(0).normal(size=(12, 8))[labels]
    assert 0.85 < score(x, labels) < 0.99  # one random start leaves a class in two clusters
    assert score(x, labels, **arguments) == pytest.approx(1, abs=1e-12)


def test_chance_has_an_ami_of_nothing():
    x, labels = np.random.default_rng(0).normal(size=(400, 4)), np.arange(400) % 100
    assert abs(ami(x, labels)) < 0.05
    assert nmi(x, labels) > 0.6


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"n_init": 0}, "n_init must be a whole number from 1, but is 0"),
        ({"init": "pca"}, "init must be one of random, k-means\\+\\+, but is 'pca'"),
    ],
)
def test_starts_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        nmi(np.eye(4), np.array([0, 0, 1, 1]), **arguments)
