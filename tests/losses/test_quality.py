"""AdaFace and MagFace: plain loops, the losses that they turn into, and what the norm does."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from dmlkit import losses
from dmlkit.losses import AdaFaceLoss, ArcFaceLoss, CosFaceLoss, MagFaceLoss
from dmlkit.losses.spherical import SphericalExpansion
from tests.losses.oracles import assert_same_in_both, batch, golden, wide_batch

C, DIM = 6, 8
F64 = torch.float64
ROWS, LABELS = golden()


def on_axes(loss):
    loss = loss.double()
    loss.proxies.data = torch.eye(*loss.proxies.shape, dtype=F64)
    return loss


def spread_batch(generator: torch.Generator, proxies: Tensor) -> tuple[Tensor, Tensor]:
    """Angles to the own proxy evenly over (0, π), norms from 0.5 to 6."""
    n = torch.linspace(0.5, 6, 24, dtype=F64)
    return wide_batch(generator, proxies, n[torch.randperm(24, generator=generator)])


def softmax_loop(x, y, p, target, scale):
    """Mean cross-entropy, term by term: scale·target(i, θ_y) is the own class's logit."""
    total = 0.0
    for i in range(len(x)):
        cosine = [(x[i] @ w) / (x[i].norm() * w.norm()) for w in p]
        logits = [scale * (target(i, c.acos()) if z == y[i] else c) for z, c in enumerate(cosine)]
        total = total - (logits[y[i]].exp() / torch.stack(logits).exp().sum()).log()
    return total / len(x)


# ------------------------------------------------------------------------------ AdaFace


def adaface_loop(x, y, p, mean, deviation, m=0.4, h=0.333, scale=64.0):
    n = [min(max(float(row.detach().norm()), 1e-3), 100) for row in x]
    z = [min(max(h * (length - mean) / (deviation + 1e-3), -1), 1) for length in n]

    def target(i, theta):
        return (theta - m * z[i]).clamp(0, math.pi).cos() - m * (1 + z[i])

    return softmax_loop(x, y, p, target, scale)


def moments(x):
    n = x.detach().norm(dim=1).clamp(1e-3, 100)
    return float(n.mean()), float(((n - n.mean()).square().sum() / (len(n) - 1)).sqrt())


@pytest.mark.parametrize("scale", [64.0, 4.0])
@pytest.mark.parametrize("h", [0.333, 3.0])  # of which the second meets the clip of z at ±1
def test_adaface_equals_the_loop(h, scale, generator):
    loss = AdaFaceLoss(C, DIM, concentration=h, scale=scale).double().eval()
    oracle = lambda x, y, p: adaface_loop(x, y, p, *moments(x), h=h, scale=scale)  # noqa: E731
    assert_same_in_both(loss, oracle, *spread_batch(generator, loss.proxies))
    assert not loss.started, "evaluation leaves the averages alone"


def test_the_batch_of_the_loop_meets_every_clip_of_adaface(generator):
    """Else the comparison above would say nothing of them."""
    loss = AdaFaceLoss(C, DIM, concentration=3.0).double()
    x, y = spread_batch(generator, loss.proxies)
    mean, deviation = moments(x)
    z = (3 * (x.norm(dim=1) - mean) / (deviation + 1e-3)).clamp(-1, 1)
    turned = F.cosine_similarity(x, loss.proxies[y]).acos() - 0.4 * z
    for some in (z == 1, z == -1, z.abs() < 1, turned < 0, turned > math.pi):
        assert some.any()


def test_adaface_takes_a_norm_above_100_for_100(generator):
    x, y = batch(generator, C)
    scores = []
    for longest in (100.0, 1e4):
        lengths = torch.linspace(20, 90, len(x), dtype=F64)
        lengths[3] = longest
        torch.manual_seed(0)
        scores.append(AdaFaceLoss(C, DIM).double()(lengths[:, None] * F.normalize(x, dim=1), y))
    torch.testing.assert_close(*scores, rtol=1e-12, atol=0)


@pytest.mark.parametrize("norm, other", [(1.0, ArcFaceLoss), (30.0, CosFaceLoss)])
def test_adaface_is_arcface_for_short_rows_and_cosface_at_the_average(norm, other, generator):
    """A first batch sets μ to 30 and σ near 30; of the second, all rows have the same norm."""
    m = 0.4
    loss = AdaFaceLoss(C, DIM, margin=m, concentration=2.0, momentum=0.0).double()
    x, y = batch(generator, C)
    x = F.normalize(x, dim=1)
    loss(torch.tensor([1.0, 59.0], dtype=F64).repeat(len(x) // 2)[:, None] * x, y)
    other = other(C, DIM, margin=m, scale=loss.scale).double()
    cosine = F.cosine_similarity(x, loss.proxies[y])
    x = x * torch.where(cosine > -math.cos(m), 1, -1)[:, None]  # where ArcFace has no branch
    loss.eval()

    def oracle(x, y, p):
        return functional_call(other, {"proxies": p}, (x, y))

    assert_same_in_both(loss, oracle, norm * x, y, 1e-12)


def test_adaface_turns_back_and_takes_off_twice_the_margin_for_long_rows():
    """z = 1: cos(θ − m) − 2m, a constant within θ < m, where only the other classes act."""
    loss = on_axes(AdaFaceLoss(2, 2, concentration=1e6, scale=1.0, momentum=0.0))
    loss(ROWS[:2] * torch.tensor([[1.0], [3.0]]), LABELS[:2])  # μ = 2
    for theta, target in ((0.3, 1 - 0.8), (1.0, math.cos(0.6) - 0.8)):
        x = 3 * torch.tensor([[math.cos(theta), math.sin(theta)]], dtype=F64)
        logits = torch.tensor([[target, math.sin(theta)]], dtype=F64)
        expected = F.cross_entropy(logits, torch.tensor([0]))
        torch.testing.assert_close(loss(x, torch.tensor([0])), expected, rtol=1e-12, atol=0)


def test_adaface_gives_the_norm_no_gradient(generator):
    loss = AdaFaceLoss(C, DIM).double()
    x, y = spread_batch(generator, loss.proxies)
    x.requires_grad_()
    gradient = torch.autograd.grad(loss(x, y), x)[0]
    radial = (gradient * x).sum(dim=1)
    torch.testing.assert_close(radial, torch.zeros(len(x), dtype=F64), rtol=0, atol=1e-12)
    assert gradient.norm(dim=1).min() > 0


def test_averages_of_adaface_follow_their_recursion_and_rest_in_evaluation(generator):
    rho = 0.3
    loss = AdaFaceLoss(C, DIM, momentum=rho, scale=64.0).double()
    x, y = spread_batch(generator, loss.proxies)
    mean, deviation = moments(x)
    for step in range(4):
        x = x * 1.5
        now = moments(x)
        if step == 0:
            mean, deviation = now
        else:
            mean = (1 - rho) * mean + rho * now[0]
            deviation = (1 - rho) * deviation + rho * now[1]
        expected = adaface_loop(x, y, loss.proxies, mean, deviation)
        torch.testing.assert_close(loss(x, y), expected, rtol=1e-10, atol=0)
        loss.eval()
        torch.testing.assert_close(loss(x, y), expected, rtol=1e-10, atol=0)
        assert loss(9 * x, y) != expected
        loss.train()


def test_adaface_of_one_sample_has_the_margin_of_the_average():
    """A single sample has no standard deviation; unbiased, it would be NaN."""
    x, y = ROWS[1:2], LABELS[1:2]
    loss, other = (on_axes(f(2, 2, margin=0.4, scale=16.0)) for f in (AdaFaceLoss, CosFaceLoss))
    torch.testing.assert_close(loss(x, y), other(x, y), rtol=1e-12, atol=0)


# ------------------------------------------------------------------------------ MagFace


def magface_loop(easy_margin, scale=64.0, l=1.0, u=4.0, weight=5.0):  # noqa: E741
    def loop(x, y, p):
        a = [row.norm().clamp(l, u) for row in x]

        def target(i, theta):
            m = 0.45 + (1.0 - 0.45) * (a[i] - l) / (u - l)
            if easy_margin:
                return (theta + m).cos() if theta < math.pi / 2 else theta.cos()
            return (theta + m).cos() if theta <= math.pi - m else theta.cos() - m * m.sin()

        g = sum(1 / length + length / u**2 for length in a) / len(a)
        return softmax_loop(x, y, p, target, scale) + weight * g

    return loop


@pytest.mark.parametrize("scale", [64.0, 4.0])
@pytest.mark.parametrize("easy_margin", [True, False])
def test_magface_equals_the_loop(easy_margin, scale, generator):
    """Norms from 0.5 to 6 lie below, within and above 1 ... 4, angles on all branches."""
    loss = MagFaceLoss(C, DIM, upper_norm=4.0, scale=scale, easy_margin=easy_margin).double()
    x, y = spread_batch(generator, loss.proxies)
    assert_same_in_both(loss, magface_loop(easy_margin, scale), x, y)


def test_magface_of_one_margin_is_arcface(generator):
    loss = MagFaceLoss(
        C, DIM, lower_margin=0.5, upper_margin=0.5, norm_weight=0, easy_margin=False
    ).double()
    x, y = spread_batch(generator, loss.proxies)
    arcface = ArcFaceLoss(C, DIM, margin=0.5, scale=loss.scale).double()

    def oracle(x, y, p):
        return functional_call(arcface, {"proxies": p}, (x, y))

    assert_same_in_both(loss, oracle, x, y, 1e-12)


def radial(loss, x, y):
    x = x.detach().clone().requires_grad_()
    gradient = torch.autograd.grad(loss(x, y), x)[0]
    return len(x) * (gradient * F.normalize(x.detach(), dim=1)).sum(dim=1)


def test_magface_leaves_norms_outside_its_range_alone(generator):
    loss = MagFaceLoss(C, DIM, 10.0, 110.0, 0.45, 0.8, norm_weight=35.0).double()
    x, y = spread_batch(generator, loss.proxies)  # all norms are below 10
    assert radial(loss, x, y).abs().max() < 1e-9
    loss.lower_norm, loss.upper_norm = 0.4, 7.0
    assert radial(loss, x, y).abs().min() > 1e-3


@pytest.mark.parametrize("args", [(1.0, 51.0, 0.45, 1.0), (10.0, 110.0, 0.45, 0.8)])
def test_from_its_bound_on_the_regularizer_wins_at_the_lowest_norm(args, generator):
    l, u, low, high = args  # noqa: E741
    bound = 64 * (high - low) / (u - l) * l**2 * u**2 / (u**2 - l**2)
    assert bound == pytest.approx({51.0: 0.70, 110.0: 22.59}[u], abs=5e-3)
    loss = MagFaceLoss(C, DIM, *args, scale=64.0).double()
    x, y = spread_batch(generator, loss.proxies)
    x = F.normalize(x, dim=1) * l * (1 + 1e-9)
    loss.norm_weight = bound
    assert (radial(loss, x, y) < 1e-6).all()  # every sample is asked to grow
    loss.norm_weight = bound / 4
    assert (radial(loss, x, y) > 0).any()  # some would rather shrink their margin


def test_magface_rewards_a_long_easy_sample(generator):
    """On its proxy a sample pays little for its margin, and nothing moves it past u."""
    loss = on_axes(MagFaceLoss(C, DIM))
    y = torch.arange(C)
    x = torch.eye(C, DIM, dtype=F64)
    assert (radial(loss, 2 * x, y) < 0).all()
    assert (radial(loss, 20 * x, y) < 0).all()
    assert (radial(loss, 60 * x, y) == 0).all()


# ------------------------------------------------------------------------------ both


@pytest.mark.parametrize("name", ["adaface", "magface"])
def test_gradcheck(name, generator):
    loss = losses.build(name, num_classes=3, dim=4, scale=8.0).double().eval()
    x, y = batch(generator, classes=3, per_class=2, dim=4)
    torch.autograd.gradcheck(
        lambda p: functional_call(loss, {"proxies": p}, (x, y)), (loss.proxies,)
    )
    if name == "magface":  # AdaFace's norm counts, and has no gradient
        torch.autograd.gradcheck(lambda f: loss(f, y), (x.requires_grad_(),))


@pytest.mark.parametrize("name", ["adaface", "magface"])
def test_one_class_alone_gives_no_loss_between_classes(name):
    args = {"norm_weight": 0} if name == "magface" else {}
    loss = losses.build(name, num_classes=1, dim=DIM, **args)
    assert loss(torch.randn(4, DIM), torch.zeros(4, dtype=torch.int64)) == 0


@pytest.mark.parametrize("name", ["adaface", "magface", "sphereface"])
def test_points_of_an_expansion_have_the_norm_of_their_sample(name, generator):
    """At weight 1 and a single sample on its proxy, which is repeated, the loss is met twice.

    On the proxy the sine of the angle is the root of a rounding error (1e-16): 1e-8, not 0.
    """
    inner = losses.build(name, num_classes=C, dim=DIM).double().eval()
    x, y = 3 * F.normalize(inner.proxies.detach()[2:3], dim=1), torch.tensor([2])
    see = SphericalExpansion(inner, points=3, weight=1.0)
    torch.testing.assert_close(see(x, y), 2 * inner(x, y), rtol=1e-6, atol=0)
