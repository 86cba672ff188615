"""Losses of whole groups: a class is its prototype, or a batch is a clustering to be found."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import EmbeddingLoss, setting
from dmlkit.losses.table import register


@register(
    "prototypical", "groups", "prototypical", 2017,
    r"$-\log\,\mathrm{softmax}_k(-\|f-\mu_k\|^2)_y$",
)  # fmt: skip
class PrototypicalLoss(EmbeddingLoss):
    """Classify every query by its distances to the prototypes of its episode's classes.

    L = mean over queries q of −log softmax_k(−‖q − μ_k‖²)_y, with μ_k the mean of the support of
    class k. In the batch, the first half of a class's rows (rounded up) is its support and the
    rest are its queries; a class with a single row does not count. Embeddings are not normalized.
    With several ``episodes``, the batch is that many consecutive equal parts, and a query sees the
    classes of its own part only: the first ``ways`` of them by label, or all.

    Source: Snell, Swersky and Zemel 2017, "Prototypical Networks for Few-shot Learning",
    equations 1 and 2.

    >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [3.0, 0.0]])
    >>> PrototypicalLoss()(x, torch.tensor([5, 5, 6, 6]))  # mean of log(1 + e⁻³), log(1 + e⁻⁹)
    tensor(0.0244)
    """

    episodes: int = setting(default=1, low=1)
    ways: int | None = setting(default=None, low=1)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        (B, d), E = embeddings.shape, self.episodes
        if B % E:
            raise ValueError(f"a batch of {B} does not divide into {E} equal episodes")
        Q = max(B // E // 2, 1)  # no more queries are there, and no more classes have one
        K = min(self.ways or Q, Q)
        k, q, y = split_episodes(labels.view(E, B // E), K, Q)  # (E, B/E), (E, Q), (E, Q)
        episode = torch.arange(E, device=labels.device)[:, None]  # (E, 1)
        slot = (k + episode * (K + 1)).flatten()  # (B,)
        query = (q + episode * (B // E)).flatten()  # (EQ,)

        x = embeddings - embeddings.detach().mean(dim=0)  # precise far from the origin
        n = x.new_zeros(E * (K + 1)).index_add(0, slot, x.new_ones(B))  # (E(K+1),)
        mu = x.new_zeros(E * (K + 1), d).index_add(0, slot, x) / n.clamp_min(1)[:, None]
        n, mu = n.view(E, K + 1)[:, :K], mu.view(E, K + 1, d)[:, :K]  # slot K was for the others
        # −‖q − μ‖² + ‖q‖², where the softmax ignores ‖q‖²; an empty slot must not count
        empty = F.pad(n[:, 1:] == 0, (1, 0))  # (E, K): where there is one class, slot 0 has it
        offset = (-mu.square().sum(dim=2)).masked_fill(empty, -torch.inf)  # (E, K)
        x = x.index_select(0, query).view(E, Q, d)
        logits = torch.baddbmm(offset[:, None], x, mu.mT, alpha=2).flatten(0, 1)  # (EQ, K)
        total = F.cross_entropy(logits, y.flatten(), ignore_index=-1, reduction="sum")
        return total / (y >= 0).sum().clamp_min(1)


def split_episodes(labels: Tensor, ways: int, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which rows of each episode are support, and which are queries: labels (E, b) -> indices.

    Returns the class of each support row, 0, 1, …, and ``ways`` for all other rows, (E, b); the
    queries' rows (E, queries), padded with any other rows; their classes, padded with −1.

    >>> split_episodes(torch.tensor([[7, 3, 7, 3, 5]]), ways=2, queries=2)
    (tensor([[1, 0, 2, 2, 2]]), tensor([[3, 2]]), tensor([[0, 1]]))
    """
    y, order = labels.sort(dim=1, stable=True)  # class by class, in the batch's order
    begins = torch.ones_like(F.pad(y, (0, 1)), dtype=torch.bool)  # (E, b + 1)
    begins[:, 1:-1] = y[:, 1:] != y[:, :-1]
    first, alone = begins[:, :-1], begins[:, :-1] & begins[:, 1:]  # (E, b)
    k = torch.where(alone, ways, (first & ~alone).cumsum(dim=1) - 1).clamp_max(ways)
    place = torch.arange(y.shape[1], device=y.device)
    rank = place - torch.where(first, place, 0).cummax(dim=1).values  # within the class
    size = torch.zeros_like(begins, dtype=k.dtype).scatter_add_(1, k, torch.ones_like(k))
    support = 2 * rank < size.gather(1, k)
    query = ~support & (k < ways)
    support_class = torch.empty_like(k).scatter_(1, order, torch.where(support, k, ways))
    chosen = query.int().argsort(dim=1, descending=True, stable=True)[:, :queries]
    return support_class, order.gather(1, chosen), torch.where(query, k, -1).gather(1, chosen)


@register(
    "structured_clustering", "groups", "structured clustering", 2017,
    r"$[\max_S\{F(S)+\gamma(1-\mathrm{NMI})\}-\tilde F]_+$",
    "F: facility location",
)  # fmt: skip
class StructuredClusteringLoss(EmbeddingLoss):
    """Make the true clustering score higher than every other, by a margin of how wrong that is.

    L = [max over |S| = |Y| of (F(X, S) + γ(1 − NMI(g(S), Y))) − F̃(X)]₊ with the facility location
    score F(X, S) = −Σ_i min_{j∈S} D_ij and its oracle F̃(X) = Σ_k max_{j∈k} (−Σ_{i∈k} D_ij); S are
    medoids, |Y| is the number of classes in the batch, g assigns each point to its nearest medoid,
    NMI divides by the geometric mean of the entropies, D is the distance on the unit sphere.

    The maximum is sought greedily, then by ``pam_steps`` rounds in which each medoid may be swapped
    for a member of its cluster; the search carries no gradient.

    Source: Song, Jegelka, Rathod and Murphy 2017, "Deep Metric Learning via Facility Location".

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> StructuredClusteringLoss()(x, torch.tensor([5, 5, 6, 6]))  # 0 + 1 − (−2√2)
    tensor(3.8284)
    """

    gamma: float = setting(default=1.0, low=0, tune=("log", 0.1, 10.0))
    pam_steps: int = setting(default=5, low=0)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        D = geometry.distances(geometry.normalize(embeddings))  # (B, B)
        with torch.no_grad():
            y = labels.unique(return_inverse=True)[1]  # (B,), 0..|Y|-1
            S = find_medoids(D, y, self.gamma, self.pam_steps)  # (|Y|,)
            g = D[:, S].argmin(dim=1)  # (B,)
            same = y[:, None] == y  # (B, B)
            agreement = nmi(g, y, moved=torch.zeros_like(same[:1])).squeeze()
            cost = torch.where(same, D, 0).sum(dim=0)  # (B,): Σ_{i∈k} D_ij, were j the medoid
            own = torch.where(same, cost, torch.inf).argmin(dim=1)  # (B,): the best of i's class
        score = -D.gather(1, S[g][:, None]).sum()  # F(X, S)
        oracle = -D.gather(1, own[:, None]).sum()  # F̃(X)
        return (score + self.gamma * (1 - agreement).to(D.dtype) - oracle).relu()


def find_medoids(D: Tensor, y: Tensor, gamma: float, pam_steps: int) -> Tensor:
    """Medoids S that make F(X, S) + γ(1 − NMI(g(S), Y)) large: greedy choice, then PAM swaps.

    Distances (B, B) and classes 0..|Y|−1 (B,) -> indices (|Y|,).
    """
    classes = int(y.max()) + 1
    S = y.new_zeros(0)
    for _ in range(classes):  # add the point that gains most
        score = _scores_with(D, D[:, S], y, gamma).index_fill(0, S, -torch.inf)
        S = torch.cat([S, score.argmax()[None]])
    for _ in range(pam_steps):
        before = S.clone()
        clusters = D[:, S].argmin(dim=1)  # (B,)
        clusters[S] = torch.arange(classes, device=S.device)  # even where two medoids coincide
        for k in range(classes):  # swap the medoid of cluster k for its best member
            members = (clusters == k).nonzero().squeeze(1)
            without_k = D[:, S].index_fill(1, S.new_tensor([k]), torch.inf)  # (B, |Y|)
            S[k] = members[_scores_with(D[members], without_k, y, gamma).argmax()]
        if torch.equal(S, before):
            break
    return S


def _scores_with(candidates: Tensor, medoids: Tensor, y: Tensor, gamma: float) -> Tensor:
    """F + γ(1 − NMI) after adding each candidate to the medoids: (M, B), (B, K) -> (M,)."""
    nobody = medoids.new_full((len(y), 1), torch.inf)  # so that K may be 0
    nearest, g = torch.cat([medoids, nobody], dim=1).min(dim=1)  # (B,), (B,)
    moved = candidates < nearest  # (M, B): who goes over to the candidate
    score = -torch.minimum(candidates, nearest).sum(dim=1)  # (M,): F(X, S)
    return score + gamma * (1 - nmi(g, y, moved).to(score.dtype))


def nmi(g: Tensor, y: Tensor, moved: Tensor) -> Tensor:
    """Normalized mutual information of clusters and classes, I(g, Y) / √(H(g) H(Y)).

    Clusters (B,) and classes (B,), integers from 0, and for each of M candidates the points that
    leave their cluster for a new one, (M, B) bool -> (M,). Where neither grouping has any entropy
    they agree: 1.
    """
    clusters, classes = g.max() + 1, y.max() + 1
    cells, cell = (g * classes + y).unique(return_inverse=True)  # the (cluster, class) in use
    H_y = _entropy(y[None])  # (1,)
    H_g = _entropy(torch.where(moved, clusters, g))  # (M,)
    information = H_y + H_g - _entropy(torch.where(moved, len(cells) + y, cell))
    split = torch.minimum(H_y, H_g) > 1e-9  # else rounding error of a single group
    both_whole = (torch.maximum(H_y, H_g) <= 1e-9).to(H_g)
    return torch.where(split, information / torch.where(split, H_y * H_g, 1).sqrt(), both_whole)


def _entropy(groups: Tensor) -> Tensor:
    """H = log B − Σ n log n / B in nats, n the sizes of the groups in a row: (M, B) -> (M,)."""
    B = groups.shape[1]
    dtype = geometry.float64_of(groups.device)
    n = torch.zeros(len(groups), int(groups.max()) + 1, dtype=dtype, device=groups.device)
    n.scatter_add_(1, groups, n.new_ones(1, 1).expand_as(groups))
    return math.log(B) - torch.xlogy(n, n).sum(dim=1) / B
