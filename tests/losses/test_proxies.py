"""Proxy losses against plain loops from the formulas, and against the library."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.regularizers import SparseCentersRegularizer
from torch import Tensor, nn
from torch.func import functional_call

from dmlkit.losses import proxies
from tests.losses.oracles import assert_same, assert_same_in_both, batch, wide_batch

C, DIM, K = 6, 8, 3

OURS: dict[str, Callable[..., nn.Module]] = {
    "proxy_triplet": proxies.ProxyTripletLoss,
    "proxy_nca": proxies.ProxyNCALoss,
    "proxy_nca_pp": proxies.ProxyNCAPlusPlusLoss,
    "normalized_softmax": proxies.NormalizedSoftmaxLoss,
    "cosface": proxies.CosFaceLoss,
    "arcface": proxies.ArcFaceLoss,
    "sphereface": lambda C, d: proxies.SphereFaceLoss(C, d, anneal=False),
    "sphereface annealed": lambda C, d: proxies.SphereFaceLoss(C, d).eval(),
    "proxy_anchor": proxies.ProxyAnchorLoss,
    "soft_triple": lambda C, d: proxies.SoftTripleLoss(C, d, centers=K),
}
EVERY = pytest.mark.parametrize("name", OURS)


@pytest.fixture(autouse=True)
def _same_proxies_every_time() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def make(name: str, classes: int = C, dim: int = DIM) -> nn.Module:
    return OURS[name](classes, dim).double()


# ------------------------------------------------------------------------------ plain loops


def cos(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


def squared_distance(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    return (scale * a / a.norm() - scale * b / b.norm()).square().sum()


def mean(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).mean()


def softmax_loss(logits: list[Tensor], y: Tensor) -> Tensor:
    return -(logits[y].exp() / torch.stack(logits).exp().sum()).log()


def proxy_triplet_loop(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    return mean(
        [
            (squared_distance(x[i], p[y[i]]) - squared_distance(x[i], p[z]) + 1).relu()
            for i in range(len(x))
            for z in range(C)
            if z != y[i]
        ]
    )


def proxy_nca_loop(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    terms = []
    for i in range(len(x)):
        D2 = [squared_distance(x[i], p[z], scale=3) for z in range(C)]
        others = torch.stack([(-D2[z]).exp() for z in range(C) if z != y[i]]).sum()
        terms.append(-((-D2[y[i]]).exp() / others).log())
    return mean(terms)


def proxy_nca_pp_loop(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    rows = [[-9 * squared_distance(a, b) for b in p] for a in x]
    return mean([softmax_loss(row, c) for row, c in zip(rows, y, strict=True)])


def classifier_loop(target: Callable, logit: Callable) -> Callable:
    """Cross-entropy of logits: ``target`` of the own class, ``logit`` of all others."""

    def loop(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        rows = [
            [(target if z == y[i] else logit)(x[i], p[z]) for z in range(C)] for i in range(len(x))
        ]
        return mean([softmax_loss(row, c) for row, c in zip(rows, y, strict=True)])

    return loop


def arcface_target(x: Tensor, p: Tensor) -> Tensor:
    theta, m = cos(x, p).acos(), 0.5
    return 64 * ((theta + m).cos() if theta <= math.pi - m else theta.cos() - m * math.sin(m))


def sphereface_target(weight: float) -> Callable:
    def target(x: Tensor, p: Tensor) -> Tensor:
        theta, m = cos(x, p).acos(), 4
        k = next(k for k in range(m) if k * math.pi / m <= theta <= (k + 1) * math.pi / m)
        psi = (-1) ** k * (m * theta).cos() - 2 * k
        return x.norm() * (weight * theta.cos() + psi) / (weight + 1)

    return target


def proxy_anchor_loop(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    alpha, delta = 32, 0.1
    pull, push = [], []
    for c in range(C):
        positive = [(-alpha * (cos(x[i], p[c]) - delta)).exp() for i in range(len(x)) if y[i] == c]
        negative = [(alpha * (cos(x[i], p[c]) + delta)).exp() for i in range(len(x)) if y[i] != c]
        if positive:
            pull.append((1 + torch.stack(positive).sum()).log())
        if negative:
            push.append((1 + torch.stack(negative).sum()).log())
    return sum(pull) / len(pull) + sum(push) / C


def soft_triple_loop(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    scale, gamma, delta, tau = 20, 0.1, 0.01, 0.2
    terms = []
    for i in range(len(x)):
        S = []
        for c in range(C):
            s = torch.stack([cos(x[i], w[c, k]) for k in range(K)])
            S.append((torch.softmax(s / gamma, dim=0) * s).sum())
        terms.append(
            softmax_loss([scale * (S[c] - delta * int(c == y[i])) for c in range(C)], y[i])
        )
    pairs = [(c, j, k) for c in range(C) for j in range(K) for k in range(j + 1, K)]
    spread = sum(squared_distance(w[c, j], w[c, k]).sqrt() for c, j, k in pairs)
    return mean(terms) + tau * spread / (C * K * (K - 1))


LOOPS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "proxy_triplet": proxy_triplet_loop,
    "proxy_nca": proxy_nca_loop,
    "proxy_nca_pp": proxy_nca_pp_loop,
    "normalized_softmax": classifier_loop(*[lambda x, p: cos(x, p) / 0.05] * 2),
    "cosface": classifier_loop(lambda x, p: 64 * (cos(x, p) - 0.35), lambda x, p: 64 * cos(x, p)),
    "arcface": classifier_loop(arcface_target, lambda x, p: 64 * cos(x, p)),
    "sphereface": classifier_loop(sphereface_target(0), lambda x, p: x.norm() * cos(x, p)),
    "sphereface annealed": classifier_loop(
        sphereface_target(1000), lambda x, p: x.norm() * cos(x, p)
    ),
    "proxy_anchor": proxy_anchor_loop,
    "soft_triple": soft_triple_loop,
}


@EVERY
def test_equals_the_loop(name, generator):
    ours = make(name)
    assert_same_in_both(ours, LOOPS[name], *wide_batch(generator, ours.proxies))


@EVERY
def test_equals_the_loop_when_most_classes_are_not_in_the_batch(name, generator):
    ours = make(name)
    x, y = batch(generator, classes=2)
    assert_same_in_both(ours, LOOPS[name], x, y)


# ------------------------------------------------------------------------------ the library


def soft_triple_of_the_library() -> nn.Module:
    spread = SparseCentersRegularizer(C, K)
    return pml.SoftTripleLoss(
        C, DIM, centers_per_class=K, weight_regularizer=spread, weight_reg_weight=0.2
    )


THEIRS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "proxy_nca_pp": (lambda: pml.ProxyNCALoss(C, DIM, softmax_scale=9), "proxies"),
    "normalized_softmax": (lambda: pml.NormalizedSoftmaxLoss(C, DIM, temperature=0.05), "W"),
    "cosface": (lambda: pml.CosFaceLoss(C, DIM, margin=0.35, scale=64), "W"),
    "arcface": (lambda: pml.ArcFaceLoss(C, DIM, margin=math.degrees(0.5), scale=64), "W"),
    "sphereface": (lambda: pml.SphereFaceLoss(C, DIM, margin=4, scale=1), "W"),
    "proxy_anchor": (lambda: pml.ProxyAnchorLoss(C, DIM, margin=0.1, alpha=32), "proxies"),
    "soft_triple": (soft_triple_of_the_library, "fc"),
}


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # of the library's own
@pytest.mark.parametrize("name", THEIRS)
def test_equals_the_library(name, generator):
    ours, theirs = make(name), THEIRS[name][0]().double()
    x, y = wide_batch(generator, ours.proxies)
    weight = THEIRS[name][1]

    def oracle(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        columns = p.flatten(0, -2)
        return functional_call(
            theirs, {weight: columns if weight == "proxies" else columns.T}, (x, y)
        )

    assert_same_in_both(ours, oracle, x, y)


def test_proxy_nca_is_not_the_librarys_softmax(generator):
    """The library's class of this name has the own proxy in the sum, so it is Proxy-NCA++."""
    ours = make("proxy_nca")
    ours.proxies.data = 3 * torch.eye(C, DIM, dtype=torch.float64)
    x, y = ours.proxies.detach(), torch.arange(C)
    assert ours(x, y).item() == pytest.approx(math.log(C - 1) - 18)  # below any softmax's 0


# ------------------------------------------------------------------------------ identities


def test_proxy_nca_pp_is_normalized_softmax_at_half_the_temperature(generator):
    ours = make("proxy_nca_pp")
    x, y = batch(generator, C)
    other = make("normalized_softmax")
    other.temperature = ours.temperature / 2
    assert_same_in_both(ours, lambda x, y, p: functional_call(other, {"proxies": p}, (x, y)), x, y)


@pytest.mark.parametrize(
    ("family", "args"),
    [
        (proxies.CosFaceLoss, {}),
        (proxies.ArcFaceLoss, {}),
        (proxies.SoftTripleLoss, {"centers": 1}),
    ],
)
def test_without_its_margin_equals_normalized_softmax(family, args, generator):
    loss = family(C, DIM, margin=0, scale=20, **args).double()
    x, y = batch(generator, C)
    softmax = make("normalized_softmax")

    def oracle(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return functional_call(softmax, {"proxies": p.flatten(0, -2)}, (x, y))

    assert_same_in_both(loss, oracle, x, y)


def test_sphereface_of_margin_1_is_softmax_on_unit_weights(generator):
    loss = proxies.SphereFaceLoss(C, DIM, margin=1, anneal=False).double()
    x, y = wide_batch(generator, loss.proxies)
    assert_same_in_both(loss, lambda x, y, p: F.cross_entropy(x @ F.normalize(p, dim=1).T, y), x, y)


@EVERY
def test_gradcheck(name, generator):
    loss = make(name, classes=3, dim=4)
    x, y = batch(generator, classes=3, per_class=2, dim=4)
    y[y == 2] = 1  # a class without samples
    torch.autograd.gradcheck(
        lambda x, p: functional_call(loss, {"proxies": p}, (x, y)),
        (x.requires_grad_(), loss.proxies),
    )


# ------------------------------------------------------------------------------ hard places


@EVERY
def test_one_class_alone_gives_no_loss_between_classes(name):
    loss = make(name, classes=1)
    x = torch.randn(4, DIM, dtype=torch.float64, requires_grad=True)
    value = loss(x, torch.zeros(4, dtype=torch.int64))
    value.backward()
    if name not in ("proxy_anchor", "soft_triple"):  # which also pull to a proxy, merge centers
        assert value == 0
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()


@EVERY
def test_holds_nothing_larger_than_similarities_and_proxies(name):
    """SoftTriple's spread takes (C, K, K), where the library's mask is (CK, CK)."""
    classes, B = 500, 20
    loss = make(name, classes)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()), lambda _: None
    ):
        loss(torch.randn(B, DIM, dtype=torch.float64), torch.arange(B))
    assert max(sizes) <= loss.proxies[..., 0].numel() * max(B, DIM)


@EVERY
def test_half_precision_proxies_and_embeddings_mix(name, generator):
    loss = make(name)
    x, y = batch(generator, C)
    expected = loss(x, y).item()
    assert deepcopy(loss).bfloat16()(x, y).dtype == torch.float64
    assert deepcopy(loss).float()(x.bfloat16(), y).item() == pytest.approx(expected, rel=0.05)


@EVERY
def test_a_label_without_a_proxy_is_refused_in_a_compiled_step(name):
    torch.compiler.reset()
    compiled = torch.compile(make(name), backend="eager", fullgraph=True)
    x = torch.randn(2, DIM, dtype=torch.float64)
    assert compiled(x, torch.tensor([0, 1])).isfinite()
    with pytest.raises(RuntimeError, match=f"labels must be .* num_classes is {C}"):
        compiled(x, torch.tensor([0, -100]))


@EVERY
def test_gradients_by_functions_are_those_of_autograd(name, generator):
    loss = make(name)
    x, y = batch(generator, C)
    x.requires_grad_()
    torch.testing.assert_close(
        torch.func.grad(loss)(x, y), torch.autograd.grad(loss(x, y), x)[0], rtol=1e-12, atol=1e-12
    )


# ------------------------------------------------------------------------------ single losses


def test_arcface_meets_both_branches(generator):
    """Else the comparisons above would say nothing on θ_y > π − m."""
    loss = make("arcface")
    x, y = wide_batch(generator, loss.proxies)
    theta = F.cosine_similarity(x, loss.proxies[y]).acos()
    assert (theta > math.pi - 0.5).any()
    assert (theta < math.pi - 0.5).any()


def test_sphereface_falls_monotonically_and_without_a_jump():
    loss = proxies.SphereFaceLoss(2, 2, anneal=False).double()
    cosine = torch.linspace(0, math.pi, 2001, dtype=torch.float64).cos().requires_grad_()
    psi = loss.psi(cosine)
    step = psi.diff()
    assert step.max() <= 1e-12
    assert step.min() > -4 * math.pi / 2000 - 1e-12  # |dψ/dθ| ≤ m
    assert psi[0] == 1
    assert psi[-1].item() == pytest.approx(1 - 2 * 4)
    slope = torch.autograd.grad(psi.sum(), cosine)[0]
    assert slope.isfinite().all()
    assert slope[0].item() == pytest.approx(16)  # m², the limit of m·sin(mθ)/sin θ
    beyond = loss.psi(torch.tensor([1 + 1e-15, -1 - 1e-15], dtype=torch.float64))  # by rounding
    torch.testing.assert_close(beyond, psi[[0, -1]].detach())


def test_sphereface_anneals_with_the_batches_it_trained_on(generator):
    loss = make("sphereface annealed").train()
    x, y = wide_batch(generator, loss.proxies)
    for step in (1, 2, 3):
        weight = 1000 / (1 + 0.12 * step)
        oracle = classifier_loop(sphereface_target(weight), lambda x, p: x.norm() * cos(x, p))
        torch.testing.assert_close(loss(x, y), oracle(x, y, loss.proxies), rtol=1e-10, atol=0)
    loss.step.fill_(10_000)
    oracle = classifier_loop(sphereface_target(5), lambda x, p: x.norm() * cos(x, p))
    torch.testing.assert_close(loss(x, y), oracle(x, y, loss.proxies), rtol=1e-10, atol=0)


def test_sphereface_does_not_count_what_it_only_evaluates(generator):
    loss = make("sphereface annealed")  # in evaluation mode
    x, y = wide_batch(generator, loss.proxies)
    assert loss(x, y) == loss(x, y)
    assert loss.step == 0


def test_sphereface_anneals_alike_when_compiled(generator):
    """Counting in place, autograd's compiler recomputes λ from the step after: other gradients."""
    loss = make("sphereface annealed").train()
    x, y = wide_batch(generator, loss.proxies)
    compiled = torch.compile(deepcopy(loss), backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert_same(lambda z: compiled(z, y), lambda z: loss(z, y), x)
    assert compiled.state_dict()["_orig_mod.step"] == 2


def test_soft_triple_lets_equal_centers_stay_together(generator):
    """The slope of √ at 0 is infinite; merged centers must stay where they are, not turn NaN."""
    loss = make("soft_triple")
    loss.proxies.data = loss.proxies.data[:, :1].repeat(1, K, 1)
    x, y = batch(generator, C)
    loss(x, y).backward()
    first = loss.proxies.grad[:, :1]
    torch.testing.assert_close(loss.proxies.grad, first.expand_as(loss.proxies))
