"""SEC, heated-up softmax and SEE: every identity, Algorithm 1 as printed, and the norms' theory."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.sphere import alpha, gram_schmidt
from dmlkit import losses
from dmlkit.losses import NormalizedSoftmaxLoss
from dmlkit.losses.spherical import (
    HeatedUpSoftmaxLoss,
    SphericalConstraint,
    SphericalExpansion,
    expand,
    random_rows,
    simplex,
)
from tests.losses.oracles import assert_same, batch
from tests.losses.test_centers import recursion

F64 = torch.float64


def unit(*shape, generator, dtype=F64):
    return F.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def gradient(function, x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(function(x), x)[0]


# ------------------------------------------------------------------ SEC


@pytest.mark.parametrize("target", ["mean", "ema"])
def test_constraint_at_momentum_1_is_the_variance_of_the_norms(target, generator):
    constraint = SphericalConstraint(weight=0.7, target=target, momentum=1.0).double()
    for _ in range(2):  # the second batch must forget the first
        x, _ = batch(generator)
        n = x.norm(dim=1)
        close(constraint(x), 0.7 * n.var(unbiased=False))
        f = gradient(constraint, x)
        close(f, 2 * 0.7 / len(x) * ((n - n.mean()) / n)[:, None] * x)


def test_detaching_the_mean_norm_changes_nothing(generator):
    x, _ = batch(generator)
    assert_same(
        SphericalConstraint(weight=0.7),
        lambda f: 0.7 * (f.norm(dim=1) - f.norm(dim=1).mean().detach()).square().mean(),
        x,
    )


@pytest.mark.parametrize("name", ["triplet_semihard", "normalized_softmax"])
def test_constraint_pulls_at_right_angles_to_an_angular_loss(name, generator):
    x, y = batch(generator)
    loss = losses.build(name, num_classes=6, dim=8).double()
    angular = gradient(lambda f: loss(f, y), x)
    radial = gradient(SphericalConstraint(), x)
    assert (angular.norm(dim=1) > 1e-3).any()
    assert (radial.norm(dim=1) > 1e-3).any()
    close((angular * radial).sum(dim=1), torch.zeros(len(x), dtype=F64))
    both = gradient(lambda f: loss(f, y) + SphericalConstraint()(f, y), x)
    close(both, angular + radial)


@pytest.mark.parametrize("target", [0.0, 2, 2.5])
def test_constraint_to_a_fixed_norm(target, generator):
    x, _ = batch(generator)
    assert_same(
        SphericalConstraint(weight=0.3, target=target),
        lambda f: sum(0.3 * (row.norm() - target) ** 2 for row in f) / len(f),
        x,
    )


@pytest.mark.parametrize("target", ["mean", 2.5])
def test_a_relative_constraint_is_one_of_shares(target, generator):
    def each(f):
        mu = sum(row.norm() for row in f) / len(f) if target == "mean" else target
        return sum(0.3 * (row.norm() / mu - 1) ** 2 for row in f) / len(f)

    x, _ = batch(generator)
    constraint = SphericalConstraint(weight=0.3, target=target, relative=True)
    assert_same(constraint, each, x)
    if target == "mean":  # the scale is free, so that nothing pulls all norms one way
        close(constraint(10 * x.double()), constraint(x.double()))
        close((gradient(constraint, x) * x).sum(), torch.zeros((), dtype=F64))


def test_moving_average_follows_its_recursion_and_rests_in_evaluation(generator):
    constraint = SphericalConstraint(target="ema", momentum=0.3).double()
    first, _ = batch(generator)
    constraint.eval()
    close(constraint(first), first.norm(dim=1).var(unbiased=False))  # nothing is known yet
    constraint.train()
    mu = None
    for _ in range(4):
        x, _ = batch(generator)
        n = x.norm(dim=1)
        mu = n.mean() if mu is None else 0.7 * mu + 0.3 * n.mean()
        f = x.clone().requires_grad_()
        penalty = constraint(f)
        close(penalty, ((n - mu) ** 2).mean())
        close(torch.autograd.grad(penalty, f)[0], 2 / len(x) * ((n - mu) / n)[:, None] * x)
    constraint.eval()
    for _ in range(2):
        close(constraint(x), ((n - mu) ** 2).mean())
        close(gradient(constraint, x), 2 / len(x) * ((n - mu) / n)[:, None] * x)


def test_moving_average_resumes_from_its_state(generator):
    batches = [batch(generator)[0] for _ in range(6)]
    whole, before, after = (SphericalConstraint(target="ema", momentum=0.1) for _ in range(3))
    expected = [whole(x) for x in batches]
    for x in batches[:3]:
        before(x)
    after.load_state_dict(before.state_dict())
    assert [after(x) for x in batches[3:]] == expected[3:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_constraint_is_finite_where_a_norm_is_0_or_large(dtype):
    x = torch.tensor([[0.0, 0.0], [6e4, 1.0], [1e-6, 0.0]], dtype=dtype, requires_grad=True)
    penalty = SphericalConstraint()(x)
    penalty.backward()
    assert penalty.dtype == torch.float32
    assert penalty.isfinite()
    assert x.grad.isfinite().all()
    assert (x.grad[0] == 0).all()


@pytest.mark.parametrize("target", ["mean", "ema", 0.0, 2.0])
def test_constraint_is_not_silent_about_a_row_that_is_too_large(target):
    """In float32 the square of 1e30 is infinite."""
    for bad in (math.nan, math.inf, 1e30):
        x = torch.randn(4, 3)
        x[2] = bad
        assert not SphericalConstraint(target=target)(x).isfinite()


def test_constraint_refuses_what_is_not_a_batch():
    with pytest.raises(ValueError, match=r"\(B, d\), .* but are \(4,\)"):
        SphericalConstraint()(torch.ones(4))


# ------------------------------------------------------------------ heated-up softmax


def test_heated_up_softmax_is_normalized_softmax_at_two_temperatures(generator):
    x, y = batch(generator)
    loss = HeatedUpSoftmaxLoss(6, 8, alpha=12.3, final_alpha=3.1, switch_at=2).double()
    for a in (12.3, 12.3, 3.1, 3.1):
        oracle = NormalizedSoftmaxLoss(6, 8, temperature=1 / a).double()
        oracle.proxies = loss.proxies
        loss.eval()  # which does not count
        assert_same(partial(loss, labels=y), partial(oracle, labels=y), x)
        loss.train()
        ours, theirs = loss(x, y), oracle(x, y)
        close(ours, theirs)
        close(*(torch.autograd.grad(value, loss.proxies)[0] for value in (ours, theirs)))


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
def test_heated_up_softmax_takes_embeddings_of_another_precision(dtype, generator):
    x, y = batch(generator)
    loss = HeatedUpSoftmaxLoss(6, 8)
    value = loss(x.to(dtype), y)
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert value.item() == pytest.approx(loss.double()(x, y).item(), rel=0.05)


def test_heated_up_softmax_resumes_before_its_switch(generator):
    x, y = batch(generator)
    before, after = (HeatedUpSoftmaxLoss(6, 8, switch_at=3).double() for _ in range(2))
    for _ in range(2):
        before(x, y)
    after.load_state_dict(before.state_dict())
    third, fourth = before(x, y), before(x, y)
    assert third != fourth
    assert (after(x, y), after(x, y)) == (third, fourth)


def test_heated_up_softmax_without_a_switch_stays_at_its_alpha(generator):
    x, y = batch(generator)
    loss = HeatedUpSoftmaxLoss(6, 8).double()
    assert len({loss(x, y).item() for _ in range(5)}) == 1


def test_a_large_alpha_leaves_the_easy_samples_almost_without_gradient():
    easy, hard = torch.tensor([[0.1, 1.0]], dtype=F64), torch.tensor([[1.0, 0.2]], dtype=F64)
    shares = []
    for a in (4.0, 16.0):
        loss = HeatedUpSoftmaxLoss(2, 2, alpha=a).double()
        loss.proxies.data.copy_(torch.eye(2))

        angular = partial(loss, labels=torch.tensor([1]))
        size = [gradient(angular, x).norm().item() for x in (easy, hard)]
        shares.append(size[0] / size[1])
    assert shares[1] < 1e-4 < 1e-2 < shares[0]


# ------------------------------------------------------------------ the simplex of SEE


def test_simplex_is_the_recursion_of_algorithm_1_without_its_last_column():
    for n in range(1, 129):  # Pang's, quicker to compute, differs in the last entry alone
        printed = alpha(n, F64) if n < 10 else recursion(n + 1, np.float64)
        close(simplex(n, like=printed), printed[:, :n])


@pytest.mark.parametrize("dtype, tolerance", [(F64, 1e-12), (torch.float32, 1e-5)])
def test_simplex_inner_products_and_sum(dtype, tolerance):
    for n in range(1, 129):
        mu = simplex(n, like=torch.empty(0, dtype=dtype))
        gram = (1 + 1 / n) * torch.eye(n + 1, dtype=dtype) - 1 / n
        assert (mu @ mu.T - gram).abs().max() < tolerance
        assert mu.sum(dim=0).abs().max() < tolerance


# ------------------------------------------------------------------ expand


@pytest.mark.parametrize("randomized", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [(F64, 1e-12), (torch.float32, 1e-5)])
def test_identities_of_the_expansion_for_every_n(dtype, tolerance, randomized, generator):
    for n in range(1, 129):
        for d in (n + 1, n + 9):  # n <= d - 1 is feasible, its bound included
            z, w = (unit(3, d, generator=generator, dtype=dtype) for _ in range(2))
            points = expand(3 * z, w / 5, n, generator if randomized else None)
            assert points.shape == (3, n, d)
            assert points.dtype == dtype
            everyone = torch.cat([z[:, None], points], dim=1)  # (3, n+1, d)
            cosine = (z * w).sum(dim=1)
            center = cosine[:, None] * w
            r = everyone - center[:, None]
            square = (z - center).square().sum(dim=1)[:, None, None]  # ‖r‖²
            eye = torch.eye(n + 1, dtype=dtype)
            apart = (everyone[:, None] - everyone[:, :2, None]).square().sum(dim=3)
            residuals = {
                "⟨μ_i, μ_j⟩ = −1/n": r @ r.mT - square * ((1 + 1 / n) * eye - 1 / n),
                "as near to the proxy": everyone @ w[:, :, None] - cosine[:, None, None],
                "on the unit sphere": points.norm(dim=2) - 1,
                "Σμ = 0": everyone.mean(dim=1) - center,
                "2‖r‖²(1 + 1/n) apart": apart - 2 * square * (1 + 1 / n) * (1 - eye[:2]),
            }
            worst = {name: residual.abs().max().item() for name, residual in residuals.items()}
            assert max(worst.values()) < tolerance, (n, d, worst)


@pytest.mark.parametrize("n, d", [(1, 3), (2, 4), (3, 5), (8, 20), (16, 64), (40, 128)])
def test_expansion_is_algorithm_1_up_to_an_orthogonal_map(n, d, generator):
    a = alpha(n, F64).nan_to_num(0)  # its last entry is √0, whatever the sign of the rounding
    for z, w in zip(unit(4, d, generator=generator), unit(4, d, generator=generator), strict=True):
        printed = torch.cat([torch.stack([w, z]), gram_schmidt(z, w, a, generator)])
        ours = torch.cat([torch.stack([w, z]), expand(z[None], w[None], n)[0]])
        close(ours @ ours.T, printed @ printed.T)  # equal Gram matrices: one map takes all to all


def test_expansion_of_one_point_is_the_reflection_of_the_sample_about_its_proxy(generator):
    z, w = unit(5, 7, generator=generator), unit(5, 7, generator=generator)
    close(expand(z, w, 1)[:, 0], 2 * (z * w).sum(dim=1, keepdim=True) * w - z)


@pytest.mark.parametrize("directions", ["simplex", "rotated", "random"])
@pytest.mark.parametrize("n, d", [(1, 2), (1, 3), (2, 3), (3, 6)])
def test_gradient_of_the_expansion(directions, n, d, generator):
    z = torch.randn(4, d, dtype=F64, generator=generator)
    w = torch.randn(4, d, dtype=F64, generator=generator)
    w[0], w[1], w[2] = torch.eye(d)[0], -2 * torch.eye(d)[0], torch.eye(d)[1]  # signs of the frame

    def points(z, w):
        drawn = torch.Generator().manual_seed(5)
        fixed = directions == "simplex"
        return expand(z, w, n, None if fixed else drawn, directions=directions)

    assert torch.autograd.gradcheck(points, (z.requires_grad_(), w.requires_grad_()))


@pytest.mark.parametrize("directions", ["simplex", "rotated", "random"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n, d", [(1, 2), (2, 3), (8, 64)])
def test_a_sample_on_its_proxy_is_repeated(n, d, dtype, directions, generator):
    w = torch.randn(6, d, dtype=dtype, generator=generator)
    w[0] = torch.eye(d)[0]
    scale = torch.tensor([1, -1, 1e6, 1e-6, -3, 0], dtype=dtype)[:, None]
    z, w = (scale * w).requires_grad_(), w.requires_grad_()
    points = expand(z, w, n, directions=directions)
    close(points, F.normalize(z, eps=1e-30)[:, None].expand(-1, n, -1), 4 * torch.finfo(dtype).eps)
    (points * torch.randn(points.shape, dtype=dtype, generator=generator)).sum().backward()
    assert z.grad.isfinite().all()
    assert w.grad.isfinite().all()


@pytest.mark.parametrize("directions", ["simplex", "rotated", "random"])
def test_expansion_is_finite_for_extreme_rows(directions):
    rows = torch.tensor([[0.0, 0, 0], [1e6, 1e6, 0], [1e-6, 0, 0], [1e-30, 0, 0], [1, 1e-8, 0]])
    z = rows.repeat_interleave(5, dim=0).requires_grad_()
    w = rows.repeat(5, 1).requires_grad_()
    points = expand(z, w, 2, directions=directions)
    points.square().sum().backward()
    assert points.isfinite().all()
    assert z.grad.isfinite().all()
    assert w.grad.isfinite().all()


def test_without_directions_see_weighs_the_nearest_samples_more(generator):
    x, y = batch(generator)
    inner = NormalizedSoftmaxLoss(6, x.shape[1]).double()
    how = {"weight": 0.7, "start_rate": 0.5, "end_rate": 0.5, "steps": 0, "directions": "none"}
    see = SphericalExpansion(inner, points=3, **how)
    to_proxy = (F.normalize(x.detach()) * F.normalize(inner.proxies[y].detach())).sum(dim=1)
    near = to_proxy.topk(round(len(x) / 2)).indices
    expected = lambda f: inner(f, y) + 0.7 * inner(f[near], y[near])  # noqa: E731
    assert_same(lambda f: see(f, y), expected, x)


def test_random_directions_keep_the_norms_and_lie_nearer_than_a_simplex(generator):
    n, d = 8, 64
    z, w = unit(200, d, generator=generator), unit(200, d, generator=generator)
    points = expand(z, w, n, generator, directions="random")
    cosine = (z * w).sum(dim=1, keepdim=True)
    close(points.norm(dim=2), torch.ones(200, n, dtype=F64))
    close((points * w[:, None]).sum(dim=2), cosine.expand(-1, n))
    mu = (points - (cosine * w)[:, None]) / (1 - cosine**2).sqrt()[:, :, None]
    inner = (mu @ mu.mT)[:, ~torch.eye(n, dtype=torch.bool)]
    # independent directions in d − 1 dimensions: mean 0 and variance 1/(d − 1), not −1/n and 0
    assert abs(inner.mean()) < 4 / math.sqrt(inner.numel() / 2 * (d - 1))
    assert abs(inner.var() * (d - 1) - 1) < 0.1


def test_a_generator_turns_the_simplex_evenly_about_proxy_and_sample(generator):
    z, w = unit(1, 5, generator=generator), unit(1, 5, generator=generator)
    assert (expand(z, w, 2) == expand(z, w, 2)).all()
    again = [expand(z, w, 2, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert (again[0] == again[1]).all()
    named = expand(z, w, 2, torch.Generator().manual_seed(1), directions="rotated")
    assert (again[0] == named).all()
    r = z - (z * w).sum() * w
    across = torch.stack([expand(z, w, 2, generator)[0, 0] for _ in range(500)])
    across = F.normalize(across - (z * w).sum() * w + r / 2)  # (500, 5), orthogonal to w and r
    assert across.mean(dim=0).norm() < 4 / math.sqrt(500)
    plane = torch.eye(5, dtype=F64) - w.T @ w - r.T @ r / (r @ r.T)
    assert (across.T @ across / 500 - plane / 3).abs().max() < 4 / math.sqrt(500)


def test_random_frames_are_orthonormal_and_prefer_no_direction(generator):
    like = torch.empty(0, dtype=F64)
    rows = torch.stack([random_rows(2, 4, like, generator) for _ in range(500)])  # (500, 2, 4)
    close(rows @ rows.mT, torch.eye(2, dtype=F64).expand(500, 2, 2))
    assert rows.mean(dim=0).abs().max() < 4 / math.sqrt(500 * 4)  # without signs, far from 0


def test_a_generator_turns_each_sample_of_a_batch_differently(generator):
    z, w = unit(400, 64, generator=generator), unit(400, 64, generator=generator)
    center = (z * w).sum(dim=1, keepdim=True) * w
    across = expand(z, w, 3, generator) - center[:, None] + (z - center)[:, None] / 3
    across = F.normalize(across, dim=2)  # orthogonal to w and r of its sample
    assert across.mean(dim=0).norm(dim=1).max() < 2 / math.sqrt(400)
    fixed = F.normalize(expand(z, w, 3) - center[:, None] + (z - center)[:, None] / 3, dim=2)
    assert fixed.mean(dim=0).norm(dim=1).min() > 0.9  # which is why a fixed frame is not enough


@pytest.mark.parametrize("n", [0, 4, 9])
def test_expansion_names_n_and_the_bound(n):
    with pytest.raises(ValueError, match=f"points must be a number from 1 to 3, but is {n}"):
        expand(torch.ones(2, 4), torch.ones(2, 4), n)


@pytest.mark.parametrize("directions", ["simplex", "rotated", "random"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_expanded_in_float32(dtype, directions, generator):
    z, w = (unit(4, 8, generator=generator).to(dtype) for _ in range(2))
    halves, floats = (
        expand(z.to(t), w.to(t), 3, torch.Generator().manual_seed(1), directions=directions)
        for t in (dtype, torch.float32)
    )
    assert halves.dtype == torch.float32
    assert torch.equal(halves, floats)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_expansion_and_constraint_refuse_what_is_not_floating_point(dtype):
    x = torch.ones(2, 4, dtype=dtype)
    with pytest.raises(TypeError, match=f"floating point, but are {dtype}"):
        expand(x, x, 2)
    with pytest.raises(TypeError, match=f"floating point, but are {dtype}"):
        SphericalConstraint()(x)


def test_expansion_names_what_else_is_wrong():
    with pytest.raises(ValueError, match=r"\(2, 4\) and \(3, 4\)"):
        expand(torch.ones(2, 4), torch.ones(3, 4), 2)
    with pytest.raises(ValueError, match="simplex, rotated, random, none, but is 'cube'"):
        expand(torch.ones(2, 4), torch.ones(2, 4), 2, directions="cube")


# ------------------------------------------------------------------ SEE around a loss


class Recorder(nn.Module):
    """A proxy loss that remembers the batches it was given."""

    def __init__(self, num_classes, dim):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(num_classes, dim, dtype=F64))
        self.batches = []

    def forward(self, embeddings, labels):
        self.batches.append((embeddings, labels))
        return (F.normalize(embeddings) * self.proxies[labels]).sum()


def proxy_losses():
    """Every loss of the table that owns proxies (C, d)."""
    for entry in losses.entries():
        name = entry.name
        loss = losses.build(name, num_classes=6, dim=12)
        proxies = dict(loss.named_parameters(recurse=False)).get("proxies")
        if proxies is not None and proxies.ndim == 2:
            yield name


def test_objective_is_the_loss_and_lambda_times_the_loss_on_every_point(generator):
    x, y = batch(generator)
    inner = NormalizedSoftmaxLoss(6, 8).double()
    see = SphericalExpansion(inner, points=3, weight=0.7, directions="simplex")

    def oracle(f):
        total = inner(f, y)
        for z, label in zip(f, y, strict=True):
            for point in expand(z[None], inner.proxies[label][None], 3)[0]:
                total = total + 0.7 * inner(point[None], label[None]) / (3 * len(f))
        return total

    assert_same(lambda f: see(f, y), oracle, x)
    values = see(x, y), oracle(x)
    close(*(torch.autograd.grad(value, inner.proxies)[0] for value in values), 1e-10)


def test_detached_points_reach_the_proxies_alone(generator):
    x, y = batch(generator)
    x.requires_grad_()
    inner = NormalizedSoftmaxLoss(6, 8).double()

    def gradients(loss):
        return torch.autograd.grad(loss(x, y), (x, inner.proxies))

    real = gradients(inner)
    expansion = partial(SphericalExpansion, inner, points=3, weight=1.0, directions="simplex")
    detached, felt = (gradients(expansion(detach=detach)) for detach in (True, False))

    assert (detached[0] == real[0]).all()
    assert (felt[0] - real[0]).abs().max() > 1e-3
    points = expand(x, inner.proxies[y], 3).detach().flatten(0, 1)
    synthetic = torch.autograd.grad(inner(points, y.repeat_interleave(3)), inner.proxies)[0]
    close(detached[1], real[1] + synthetic)
    assert (felt[1] - detached[1]).abs().max() > 1e-3  # points move with their proxies


@pytest.mark.parametrize("name", tuple(proxy_losses()))
@pytest.mark.parametrize("detach", [True, False])
def test_expansion_goes_around_every_proxy_loss(name, detach, generator):
    torch.manual_seed(0)
    see = SphericalExpansion(losses.build(name, 6, 12), points=3, detach=detach).double()
    x, y = batch(generator, dim=12)
    x[:6] = see.loss.proxies.detach()[y[:6]]  # r = 0
    x[6] = 0
    x.requires_grad_()
    value = see(x, y)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert see.loss.proxies.grad.isfinite().all()
    assert see.loss.proxies.grad.abs().max() > 0


def test_objective_is_continuous_where_a_sample_meets_its_proxy(generator):
    inner = NormalizedSoftmaxLoss(6, 8).double()
    see = SphericalExpansion(inner, points=3, weight=1.0, directions="simplex")
    y = torch.arange(6)
    on = inner.proxies.detach().clone()
    near = on + 1e-9 * torch.randn(6, 8, dtype=F64, generator=generator)
    close(see(on, y), 2 * inner(on, y))
    close(see(near, y), see(on, y), 1e-6)


def test_curriculum_expands_the_nearest_samples_at_a_rate_rising_by_half_a_cosine(generator):
    x, y = batch(generator)  # 24 samples
    see = SphericalExpansion(Recorder(6, 8), points=2, start_rate=0.1, end_rate=0.6, steps=5)
    cosine = F.cosine_similarity(x, see.loss.proxies[y])
    for step in range(8):
        see.loss.batches.clear()
        see(x, y)
        (real, _), (points, labels) = see.loss.batches
        assert real is x
        rate = 0.1 + 0.5 * (1 - math.cos(math.pi * min(step, 5) / 5)) / 2
        nearest = cosine.argsort(descending=True)[: round(24 * rate)]
        assert (labels == y[nearest].repeat_interleave(2)).all()
        kept = F.cosine_similarity(points, see.loss.proxies[labels])
        close(kept, cosine[nearest].repeat_interleave(2))
        close(points.norm(dim=1), x[nearest].norm(dim=1).repeat_interleave(2))


def test_curriculum_that_starts_at_0_begins_with_the_loss_alone(generator):
    x, y = batch(generator)
    see = SphericalExpansion(Recorder(6, 8), points=2, steps=4)
    see.eval()
    for _ in range(9):
        assert see(x, y) == see.loss(x, y)  # evaluation does not count
    see.train()
    assert see(x, y) == see.loss(x, y)
    assert see(x, y) != see.loss(x, y)
    constant = SphericalExpansion(Recorder(6, 8), points=2, steps=0)
    constant(x, y)
    assert len(constant.loss.batches[1][0]) == 2 * round(24 * 0.4)


def test_expansion_resumes_from_its_state(generator, tmp_path):
    x, y = batch(generator)

    def make():
        return SphericalExpansion(NormalizedSoftmaxLoss(6, 8), 3, steps=6).double()

    def values(see, steps):
        return [(torch.manual_seed(step), see(x, y))[1] for step in steps]

    whole, before, after = make(), make(), make()
    before.load_state_dict(whole.state_dict())
    expected = values(whole, range(6))
    assert values(before, range(3)) == expected[:3]
    torch.save(before.state_dict(), tmp_path / "state.pt")
    after.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert values(after, range(3, 6)) == expected[3:]
    assert len(set(expected)) == 6


def test_expansion_is_made_from_json_literals():
    arguments = {"loss": "normalized_softmax", "loss_args": {"temperature": 0.3}, "points": 2}
    see = losses.build("spherical_expansion", num_classes=6, dim=8, **arguments)
    assert isinstance(see.loss, NormalizedSoftmaxLoss)
    assert see.loss.temperature == 0.3
    assert [name for name, _ in see.named_parameters()] == ["loss.proxies"]


def test_expansion_refuses_a_loss_without_a_proxy_for_each_class():
    with pytest.raises(TypeError, match=r"proxies \(C, d\), but is ContrastiveLoss\(\)"):
        losses.build("spherical_expansion", num_classes=6, dim=8, loss="contrastive")
    with pytest.raises(TypeError, match="but is 'normalized_softmax'"):
        SphericalExpansion("normalized_softmax")
    inner = Recorder(6, 8)
    inner.proxies = nn.Parameter(torch.zeros(6, 2, 8))
    with pytest.raises(TypeError, match=r"but is Recorder\(\)"):
        SphericalExpansion(inner)


@pytest.mark.parametrize("label", [-1, 6])
def test_expansion_refuses_a_label_without_a_proxy(label):
    see = SphericalExpansion(Recorder(6, 8), points=2)  # whose loss would not notice −1
    with pytest.raises(ValueError, match=rf"labels must be .* num_classes is 6, .*{label}"):
        see(torch.randn(2, 8, dtype=F64), torch.tensor([0, label]))


def test_expansion_can_be_called_with_other_proxies(generator):
    """As a function of its parameters, which is how torch.func sees a module."""
    x, y = batch(generator)
    see, other = (
        SphericalExpansion(NormalizedSoftmaxLoss(6, 8), 3, directions="simplex").double()
        for _ in range(2)
    )
    parameters = {name: p.detach() for name, p in other.named_parameters()}
    close(torch.func.functional_call(see, parameters, (x, y)), other(x, y))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("rate", [0.0, 0.4, 1.0])
def test_expansion_of_a_batch_with_a_bad_row_is_not_finite(bad, rate, generator):
    x, y = batch(generator)
    inner, rates = NormalizedSoftmaxLoss(6, 8).double(), {"start_rate": rate, "end_rate": rate}
    x[3] = bad
    assert not SphericalExpansion(inner, 3, **rates, steps=1)(x, y).isfinite()


# ------------------------------------------------------------------ torch.compile


@pytest.mark.parametrize(
    "make",
    [
        SphericalConstraint,
        lambda: SphericalConstraint(target="ema", momentum=0.2),
        lambda: HeatedUpSoftmaxLoss(6, 8, switch_at=1),
        lambda: SphericalExpansion(NormalizedSoftmaxLoss(6, 8), 3),
        lambda: SphericalExpansion(NormalizedSoftmaxLoss(6, 8), 3, directions="random"),
    ],
)
def test_whole_graph_is_traced(make, generator):
    torch.compiler.reset()
    x, y = batch(generator)
    eager, compiled = make().double(), make().double()
    compiled.load_state_dict(eager.state_dict())
    traced = torch.compile(compiled, backend="eager", fullgraph=True)
    for step in range(3):
        values = [(torch.manual_seed(step), f(x[step:], y[step:]))[1] for f in (eager, traced)]
        close(values[0], values[1])
    for name, state in eager.state_dict().items():
        close(state, compiled.state_dict()[name])


# torch.compile meets this warning wherever a graph resumes, and hides it unless it is an error.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_curriculum_is_compiled_with_a_break(generator):
    torch.compiler.reset()
    x, y = batch(generator)
    eager, compiled = (
        SphericalExpansion(NormalizedSoftmaxLoss(6, 8), 3, steps=5).double() for _ in range(2)
    )
    compiled.load_state_dict(eager.state_dict())
    traced = torch.compile(compiled, backend="eager")
    for step in range(7):
        values = [(torch.manual_seed(step), f(x, y))[1] for f in (eager, traced)]
        close(values[0], values[1])


# ------------------------------------------------------------------ norms and angular losses


OPTIMIZERS = {  # with the slope of their turns against the norm, and how they take 100 times a loss
    "SGD": (lambda p: torch.optim.SGD(p, lr=1e-7), -2, 100),
    "heavy ball": (lambda p: torch.optim.SGD(p, lr=1e-7, momentum=0.9), -2, 100),
    "Nesterov": (lambda p: torch.optim.SGD(p, lr=1e-7, momentum=0.9, nesterov=True), -2, 100),
    "Adam": (lambda p: torch.optim.Adam(p, lr=1e-7, eps=1e-20), -1, 1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_free_embeddings_turn_by_the_laws_of_lesson_09(name, generator):
    """There SGD's single step is checked exactly, and that the gradient is across and G/n long."""
    make, slope, louder = OPTIMIZERS[name]
    loss = NormalizedSoftmaxLoss(6, 8, temperature=0.3).double()
    x, y = batch(generator)
    x = F.normalize(x)

    def turns(start, times=1, make=make):
        f = nn.Parameter(start.clone())
        optimizer = make([f])
        for _ in range(10):
            optimizer.zero_grad()
            (times * loss(f, y)).backward()
            optimizer.step()
        f = f.detach()
        along = (f * x).sum(dim=1, keepdim=True)
        return f.norm(dim=1), torch.atan2((f - along * x).norm(dim=1), along[:, 0])

    n = torch.logspace(-1, 1, 9, dtype=F64)
    angles = torch.stack([turns(m * x)[1] for m in n])  # (9, B)
    slopes = np.polyfit(n.log().numpy(), angles.log().numpy(), 1)[0]  # (B,)
    np.testing.assert_allclose(slopes, slope, atol=1e-3)
    close(turns(x, 100)[1], louder * turns(x)[1], 1e-4)
    if name == "Adam":
        assert (turns(x, make=lambda p: torch.optim.Adam(p, lr=1e-3))[0] < 1 - 1e-4).any()
