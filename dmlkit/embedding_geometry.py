"""How embeddings fill their space: alignment, uniformity, effective rank, hubs.

All of it in float64. Alignment and uniformity project embeddings onto the unit sphere first.
"""

import math

import numpy as np
import torch

from dmlkit.arrays import Array, as_labels
from dmlkit.checks import check_range
from dmlkit.neighbors import BLOCK_ENTRIES, Metric, as_matrix
from dmlkit.retrieval import nearest_neighbors


def alignment(embeddings: Array, labels: Array) -> float:
    """Mean squared distance of two images of one class, on the unit sphere.

    L = Σ_c Σ_{i<j in c} ‖x_i − x_j‖² / Σ_c n_c (n_c − 1) / 2, from class means alone: the inner sum
    is n_c Σ_i ‖x_i − x̄_c‖². In 0..4, 0 where every class is a point. Embeddings (N, d), labels (N,)
    integers. Raises ValueError unless two of these agree.

    Source: Wang and Isola 2020, "Understanding Contrastive Representation Learning through
    Alignment and Uniformity on the Hypersphere", equation 3, with exponent 2.

    >>> alignment([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [0, 0, 1])
    2.0
    """
    x = as_matrix(embeddings, "embeddings", "cosine")
    _, of_x, n = as_labels(labels, x).unique(return_inverse=True, return_counts=True)
    if n.max() < 2:
        raise ValueError("labels: expected two rows of one class, got labels that all differ")
    means = x.new_zeros(len(n), x.shape[1]).index_add_(0, of_x, x) / n[:, None]  # (C, d)
    spread = (x - means[of_x]).square().sum(dim=1)  # (N,)
    return ((n[of_x] * spread).sum() / (n * (n - 1) / 2).sum()).item()


def uniformity(embeddings: Array, t: float = 2.0) -> float:
    """How evenly embeddings cover the unit sphere: the lower, the more evenly.

    U = log mean_{i<j} exp(−t ‖x_i − x_j‖²), in −4t..0: 0 where all are one point. Embeddings
    (N, d), in blocks. Raises ValueError for a single row, or t outside 0..100.

    Source: Wang and Isola 2020 (see ``alignment``), equation 4; pairs i = j are left out.

    >>> round(uniformity([[1.0, 0.0], [0.0, 1.0]]), 12)  # ‖x_i − x_j‖² = 2
    -4.0
    """
    x = as_matrix(embeddings, "embeddings", "cosine")
    if len(x) < 2:
        raise ValueError("embeddings: expected two or more rows, got one")
    check_range(0, 100, t=t)  # e^−400 is still a float64
    total, size = 0.0, max(1, BLOCK_ENTRIES // len(x))
    for start in range(0, len(x), size):
        S = x[start : start + size] @ x[start:].T  # (b, m) cosines; ‖x_i − x_j‖² = 2 − 2s
        terms = S.sub_(1).clamp_(max=0).mul_(2 * t).exp_().triu_(diagonal=1)
        total += terms.sum().item()
    return math.log(total / (len(x) * (len(x) - 1) / 2))


def effective_rank(embeddings: Array, centered: bool = False) -> float:
    """How many dimensions embeddings use: e to the entropy of their normalized singular values.

    exp(−Σ_i p_i log p_i), p_i = σ_i / Σ_j σ_j, σ the singular values of the (N, d) matrix as it is
    given: neither projected onto the sphere nor, unless ``centered``, centered, so that a mean that
    all embeddings share takes a large part of it. In 1..min(N, d): N should be much larger than d.
    Raises ValueError where all singular values are 0.

    Source: Roy and Vetterli 2007, "The Effective Rank". RankMe (Garrido et al. 2023) is this with
    1e-7 added to every p_i; of eigenvalues σ² instead, it would be another number.

    >>> round(effective_rank([[3.0, 0.0], [0.0, 1.0]]), 3)
    1.755
    """
    x = as_matrix(embeddings, "embeddings", "euclidean")
    largest = x.abs().max()
    x = x / torch.where(largest == 0, 1, largest)  # no square overflows
    if centered:
        x = x - x.mean(dim=0)
    sigma = torch.linalg.svdvals(x)
    if sigma[0] <= x.shape[1] * torch.finfo(x.dtype).eps:
        what = "rows that differ" if centered else "a row that is not zero"
        raise ValueError(f"embeddings: expected {what}, got none")
    return torch.special.entr(sigma / sigma.sum()).sum().exp().item()


def hubness(embeddings: Array, k: int = 10, metric: Metric = "euclidean") -> dict[str, float]:
    """How unevenly the k nearest neighbors of all points fall on them.

    N_k(j) is how many points have j among their k nearest, itself left out; its mean is k. Keys:
    ``skewness``, mean (N_k − k)³ / SD³ (0 where all N_k are k); ``anti_hubs``, the share with
    N_k = 0; ``robin_hood``, ½ Σ_j |N_k(j) − k| / (N k), the share of neighborships that evenness
    would move. Equal distances are decided by index: shuffle what holds duplicates. Compare only
    at equal N and k.

    Source: Radovanović et al. 2010, "Hubs in Space"; Feldbauer et al. 2018, "Fast approximate
    hubness reduction" (the Robin Hood index).

    >>> found = hubness(np.array([[0.0, 0.0], [1.0, 0.0], [-1.5, 0.0], [0.0, 2.0]]), k=1)
    >>> {name: round(value, 3) for name, value in found.items()}  # N_1 = 3, 1, 0, 0
    {'skewness': 0.816, 'anti_hubs': 0.5, 'robin_hood': 0.5}
    """
    indices, _ = nearest_neighbors(embeddings, k, metric=metric)
    counts = np.bincount(torch.as_tensor(indices).cpu().numpy().ravel(), minlength=len(indices))
    away = (counts - k).astype(np.float64)
    spread = np.sqrt(np.mean(away**2))
    return {
        "skewness": float(np.mean(away**3) / spread**3) if spread else 0.0,
        "anti_hubs": float(np.mean(counts == 0)),
        "robin_hood": float(np.abs(away).sum() / (2 * len(counts) * k)),
    }
