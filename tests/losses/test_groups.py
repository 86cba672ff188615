"""Losses of groups against plain loops, the library, and an exhaustive search over clusterings."""

from collections import Counter
from functools import partial
from itertools import combinations
from math import log, sqrt

import pytest
import torch
from pytorch_metric_learning import distances
from pytorch_metric_learning import losses as pml
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from dmlkit.losses import groups
from tests.losses.oracles import assert_same, batch, unit


def support_and_queries(y: Tensor) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Row numbers by class: the first half, rounded up, and the rest; no class of one row."""
    rows = {c: [i for i in range(len(y)) if y[i] == c] for c in y.tolist()}
    rows = {c: r for c, r in rows.items() if len(r) > 1}
    return (
        {c: r[: (len(r) + 1) // 2] for c, r in rows.items()},
        {c: r[(len(r) + 1) // 2 :] for c, r in rows.items()},
    )


def prototypical_loop(x: Tensor, y: Tensor, episodes: int = 1) -> Tensor:
    terms = []
    for x_e, y_e in zip(x.chunk(episodes), y.chunk(episodes), strict=True):
        support, queries = support_and_queries(y_e)
        mu = {c: x_e[r].mean(dim=0) for c, r in support.items()}
        for c, rows in queries.items():
            for i in rows:
                e = {k: torch.exp(-(x_e[i] - m).square().sum()) for k, m in mu.items()}
                terms.append(-torch.log(e[c] / sum(e.values())))
    return torch.stack(terms).mean()


def test_prototypical_equals_the_library_on_12_way_episodes(generator):
    x, y = batch(generator, classes=12, per_class=10)
    theirs = pml.NCALoss(distance=distances.LpDistance(normalize_embeddings=False, power=2))

    def oracle(z):
        support, queries = support_and_queries(y)
        q = [i for rows in queries.values() for i in rows]
        mu = torch.stack([z[rows].mean(dim=0) for rows in support.values()])
        return theirs(z[q], y[q], ref_emb=mu, ref_labels=torch.tensor(list(support)))

    assert_same(lambda z: groups.PrototypicalLoss()(z, y), oracle, x)


@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_prototypical_equals_the_loop_on_uneven_classes(generator, episodes):
    x, _ = batch(generator, classes=9, per_class=4)
    y = torch.randint(5, (36,), generator=generator)
    y[7] = y[20] = 99  # alone in its episode, or a class of two
    ours = groups.PrototypicalLoss(episodes)
    assert_same(lambda z: ours(z, y), lambda z: prototypical_loop(z, y, episodes), x)


@pytest.mark.parametrize("ways", [2, 3, 4, 50])
def test_prototypical_takes_the_first_ways_classes_of_each_episode(generator, ways):
    x = torch.randn(24, 5, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 7, 8, 8, 8, 9, 9, 5, 5, 6, 6, 6, 6])
    kept = [0, 1, 3, 4][:ways] + [5, 6, 8, 9][:ways]  # 2 and 7 have a single row
    y_kept = torch.where(torch.isin(y, torch.tensor(kept)), y, -1 - torch.arange(24))
    oracle = partial(prototypical_loop, y=y_kept, episodes=2)
    assert_same(lambda z: groups.PrototypicalLoss(2, ways)(z, y), oracle, x)


def test_prototypical_keeps_episodes_apart(generator):
    x, y = batch(generator, classes=4, per_class=4)
    alone = groups.PrototypicalLoss()
    both = groups.PrototypicalLoss(episodes=2)(torch.cat([x, x + 0.3]), torch.cat([y, y]))
    torch.testing.assert_close(both, alone(x, y))


def test_prototypical_is_precise_far_from_the_origin(generator):
    x, y = batch(generator)
    loss = groups.PrototypicalLoss()
    far = loss((x + 1000).float(), y)
    torch.testing.assert_close(
        far.double(), loss((x + 1000).float().double(), y), rtol=1e-5, atol=0
    )


def test_prototypical_refuses_parts_that_are_not_equal(generator):
    x, y = batch(generator)
    with pytest.raises(ValueError, match="24 does not divide into 5"):
        groups.PrototypicalLoss(episodes=5)(x, y)


def small_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Twelve points of three or four overlapping classes: embeddings, classes, distances."""
    generator = torch.Generator().manual_seed(seed)
    x, y = batch(generator, classes=3 + seed % 2, per_class=4 - seed % 2, dim=3)
    u = unit(x)
    return x, y, (u[:, None] - u[None, :]).norm(dim=2)


def entropy(groups_of_points: list) -> float:
    n = len(groups_of_points)
    return -sum(c / n * log(c / n) for c in Counter(groups_of_points).values())


def augmented_score(D: Tensor, y: Tensor, S: list[int], gamma: float) -> float:
    """F(X, S) + γ(1 − NMI(g(S), Y)) from its definition."""
    near = [min((d[j], j) for j in S) for d in D.tolist()]
    classes, g = y.tolist(), [j for _, j in near]
    information = entropy(classes) + entropy(g) - entropy(list(zip(g, classes, strict=True)))
    nmi = information / sqrt(entropy(classes) * entropy(g)) if len(set(g)) > 1 else 0
    return -sum(d for d, _ in near) + gamma * (1 - nmi)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 10.0])
def test_greedy_takes_the_best_point_each_time(gamma):
    for seed in range(4):
        _, y, D = small_batch(seed)
        S = groups.find_medoids(D, y, gamma, pam_steps=0).tolist()
        assert len(set(S)) == len(S) == len(y.unique())  # |S| = |Y|
        for k in range(len(S)):
            options = [
                augmented_score(D, y, [*S[:k], j], gamma) for j in range(12) if j not in S[:k]
            ]
            assert augmented_score(D, y, S[: k + 1], gamma) == pytest.approx(max(options), abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 10.0])
def test_pam_ends_where_no_swap_within_a_cluster_helps(gamma):
    for seed in range(4):
        _, y, D = small_batch(seed)
        S = groups.find_medoids(D, y, gamma, pam_steps=50).tolist()
        score = augmented_score(D, y, S, gamma)
        g = D[:, S].argmin(dim=1)
        for k in range(len(S)):
            for j in (g == k).nonzero()[:, 0].tolist():
                swapped = [*S[:k], j, *S[k + 1 :]]
                assert augmented_score(D, y, swapped, gamma) <= score + 1e-9


def test_search_against_the_exhaustive_one():
    """Greedy finds the optimum in part of the cases, PAM in no fewer, and never does worse."""
    optimal = {"greedy": 0, "pam": 0}
    for seed in range(20):
        _, y, D = small_batch(seed)
        best = max(augmented_score(D, y, list(S), 1.0) for S in combinations(range(12), max(y) + 1))
        greedy, pam = (
            augmented_score(D, y, groups.find_medoids(D, y, 1.0, steps).tolist(), 1.0)
            for steps in (0, 5)
        )
        assert greedy - 1e-9 <= pam <= best + 1e-9
        optimal["greedy"] += greedy > best - 1e-9
        optimal["pam"] += pam > best - 1e-9
    assert 1 <= optimal["greedy"] < 20
    assert optimal["greedy"] <= optimal["pam"]


@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_clustering_loss_equals_the_loop(gamma):
    for seed in range(3):
        x, y, D = small_batch(seed)
        S = groups.find_medoids(D, y, gamma, pam_steps=5).tolist()
        nmi_part = augmented_score(D, y, S, gamma) + sum(D[i, S].min().item() for i in range(12))

        def oracle(z, y=y, S=S, nmi_part=nmi_part):
            u = unit(z)

            def cost(points, medoids):
                D = [
                    [(u[i] - u[j]).norm() if i != j else u.new_zeros(()) for j in medoids]
                    for i in points
                ]
                return torch.stack([torch.stack(row).min() for row in D]).sum()

            own = [[i for i in range(12) if y[i] == c] for c in range(max(y) + 1)]
            best = torch.stack([torch.stack([cost(k, [j]) for j in k]).min() for k in own]).sum()
            return (-cost(range(12), S) + nmi_part + best).relu()

        ours = groups.StructuredClusteringLoss(gamma=gamma)
        assert_same(lambda z, ours=ours, y=y: ours(z, y), oracle, x)


def test_clustering_loss_is_zero_for_a_perfect_clustering():
    x = torch.eye(4, dtype=torch.float64).repeat_interleave(3, dim=0).requires_grad_()
    value = groups.StructuredClusteringLoss()(x, torch.arange(4).repeat_interleave(3))
    value.backward()
    assert value == 0
    assert x.grad is not None


def test_mutual_information_equals_scikit_learn(generator):
    for _ in range(5):
        g, y = (torch.randint(n, (30,), generator=generator) for n in (4, 5))
        moved = torch.rand(6, 30, generator=generator) < torch.linspace(0, 1, 6)[:, None]
        expected = [
            normalized_mutual_info_score(y, torch.where(m, 4, g), average_method="geometric")
            for m in moved
        ]
        torch.testing.assert_close(
            groups.nmi(g, y, moved), torch.tensor(expected, dtype=torch.float64)
        )


def test_mutual_information_of_single_groups():
    one, two, nobody = torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([[False, False]])
    assert groups.nmi(one, one, nobody) == 1
    assert groups.nmi(one, two, nobody) == groups.nmi(two, one, nobody) == 0


def test_gradients(generator):
    x, y = batch(generator, classes=3, per_class=4, dim=3)
    for loss in (groups.PrototypicalLoss(2), groups.StructuredClusteringLoss()):
        assert torch.autograd.gradcheck(lambda z, f=loss: f(z, y), x.requires_grad_())
        assert torch.autograd.gradgradcheck(lambda z, f=loss: f(z, y), x)
