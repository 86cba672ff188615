"""How much of the classes k-means finds again: NMI, AMI."""

from operator import index
from typing import Literal, get_args

import faiss
import numpy as np
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from dmlkit.arrays import Array, as_labels
from dmlkit.checks import check_choice, check_count
from dmlkit.neighbors import Metric, prepare

Init = Literal["random", "k-means++"]


def nmi(
    embeddings: Array,
    labels: Array,
    seed: int = 0,
    metric: Metric = "euclidean",
    n_init: int = 1,
    init: Init = "random",
) -> float:
    """NMI: how much of the classes a k-means clustering of the embeddings finds again.

    NMI = 2 I(clusters; classes) / (H(clusters) + H(classes)), k-means with as many clusters as
    there are classes, 20 iterations from a random start that ``seed`` fixes. In 0..1. Bits, and
    points of the Poincaré ball, are clustered by their Euclidean distances.
    Embeddings (N, d), labels (N,); one-image classes are welcome.

    One random start is the field's number: faiss's, in papers' code and pytorch-metric-learning. It
    ends in a local optimum, so that classes that are points score some 0.95. ``n_init`` starts, of
    which the tightest clusters are kept, or ``init="k-means++"``, which starts from points that are
    far apart, come nearer to 1: say so beside the number, and compare only like with like.

    Source: Manning et al., Introduction to Information Retrieval (2008), Section 16.3; Arthur and
    Vassilvitskii, k-means++: The Advantages of Careful Seeding (2007).

    >>> nmi(np.array([[0.0], [0.1], [5.0], [5.1]]), np.array([3, 3, 8, 8]))
    1.0
    """
    y, found = _classes_and_clusters(embeddings, labels, seed, metric, n_init, init)
    return float(normalized_mutual_info_score(y, found))


def ami(
    embeddings: Array,
    labels: Array,
    seed: int = 0,
    metric: Metric = "euclidean",
    n_init: int = 1,
    init: Init = "random",
) -> float:
    """AMI: the mutual information of k-means clusters and classes, less what chance gives.

    AMI = (I − E[I]) / ((H(clusters) + H(classes)) / 2 − E[I]), E over shuffled labels, of the
    clusters of ``nmi``, whose arguments it has. 1 at most, 0 on average by chance, where NMI rises
    with the number of classes.

    Source: Vinh, Epps and Bailey, Information Theoretic Measures for Clusterings Comparison (2010).

    >>> round(ami(np.array([[0.0], [5.1], [5.0], [0.1]]), np.array([3, 3, 8, 8])), 3)
    -0.5
    """
    y, found = _classes_and_clusters(embeddings, labels, seed, metric, n_init, init)
    return float(adjusted_mutual_info_score(y, found))


def _classes_and_clusters(
    embeddings: Array, labels: Array, seed: int, metric: Metric, n_init: int, init: Init
) -> tuple[np.ndarray, np.ndarray]:
    """Classes (N,), and as many k-means clusters (N,)."""
    check_count(n_init=n_init)
    check_choice(get_args(Init), init=init)
    points = prepare(embeddings, None, metric).x
    x, y = points.cpu().numpy(), as_labels(labels, points).cpu().numpy()
    careful = {"init_method": faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS}
    kmeans = faiss.Kmeans(
        x.shape[1],
        len(np.unique(y)),
        niter=20,
        nredo=index(n_init),
        seed=index(seed),
        min_points_per_centroid=1,  # else faiss complains of small classes on stderr
        max_points_per_centroid=len(x),  # else faiss trains on a sample
        **(careful if init == "k-means++" else {}),
    )
    kmeans.train(x)
    _, clusters = kmeans.index.search(x, 1)
    return y, clusters[:, 0]
