"""What proxies answer, weights and margins of classes, several centers: identities and loops."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import losses
from dmlkit.losses.proxies import ProxyLoss, SoftmaxLoss
from tests.losses.oracles import assert_same, batch, unit
from tests.losses.test_contract import ARGS

MADE = {
    e.name: losses.build(e.name, num_classes=6, dim=8, **ARGS.get(e.name, {}))
    for e in losses.entries()
}
PROXIES = [name for name, loss in MADE.items() if isinstance(loss, ProxyLoss)]
SOFTMAX = [name for name, loss in MADE.items() if isinstance(loss, SoftmaxLoss)]


def make(name: str, **args: object) -> SoftmaxLoss:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return losses.build(name, num_classes=6, dim=8, **args).double()  # type: ignore


@pytest.mark.parametrize("name", PROXIES)
def test_a_sample_on_its_proxy_is_of_that_class(name):
    loss = make(name)
    proxies = loss.proxies.detach() if loss.proxies.ndim == 2 else loss.proxies[:, 0].detach()
    assert loss.logits(3 * proxies).shape == (6, 6)
    assert loss.predict(3 * proxies).tolist() == list(range(6))


@pytest.mark.parametrize("name", ["normalized_softmax", "proxy_nca_pp", "heated_up_softmax"])
def test_without_a_margin_the_loss_is_the_cross_entropy_of_its_logits(name, generator):
    x, y = batch(generator)
    loss = make(name)
    expected = F.cross_entropy(loss.logits(x), y)
    torch.testing.assert_close(loss(x, y), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", SOFTMAX)
def test_weights_of_classes_weigh_their_samples(name, generator):
    """The weighted mean of what single samples give, each class by itself."""
    x, y = batch(generator)
    w = [0.5, 1.0, 2.0, 0.0, 1.5, 3.0]
    plain, equal = make(name), make(name, class_weights=[2.0] * 6)
    torch.testing.assert_close(equal(x, y), plain(x, y))
    if name in ("adaface", "magface", "soft_triple", "sphereface"):
        return  # a state, or a term besides the samples
    weighed = make(name, class_weights=w)

    def loop(z: Tensor) -> Tensor:
        each = torch.stack([make(name)(row[None], k[None]) for row, k in zip(z, y, strict=True)])
        own = torch.tensor([w[k] for k in y.tolist()], dtype=torch.float64)
        return (own * each).sum() / own.sum()

    assert_same(lambda z: weighed(z, y), loop, x)


def arcface(cosines: Tensor, y: Tensor, margins: list[float]) -> Tensor:
    """From the cosines (B, C), sample by sample."""
    terms = []
    for row, k in zip(cosines, y.tolist(), strict=True):
        m, theta = margins[k], row[k].acos()
        target = (theta + m).cos() if theta <= math.pi - m else row[k] - m * math.sin(m)
        logits = 64 * torch.where(torch.arange(6) == k, target, row)
        terms.append(F.cross_entropy(logits, torch.tensor(k)))
    return torch.stack(terms).mean()


def test_arcface_with_sizes_has_a_margin_for_each_class(generator):
    x, y = batch(generator)
    sizes = [16, 1, 81, 16, 1, 256]
    ours = make("arcface", class_sizes=sizes)
    margins, p = ours.margin_of_class.tolist(), unit(ours.proxies.detach())
    assert margins == pytest.approx([0.5 * n**-0.25 for n in sizes], rel=1e-6)  # kept as float32
    assert_same(lambda z: ours(z, y), lambda z: arcface(unit(z) @ p.T, y, margins), x)
    equal = make("arcface", class_sizes=[7] * 6)
    torch.testing.assert_close(equal(x, y), make("arcface")(x, y))


def test_of_several_centers_the_nearest_counts(generator):
    x, y = batch(generator)
    ours = make("subcenter_arcface")
    p = unit(ours.proxies.detach())  # (6, 3, 8)
    oracle = lambda z: arcface(torch.einsum("bd,ckd->bck", unit(z), p).amax(2), y, [0.5] * 6)  # noqa: E731
    assert_same(lambda z: ours(z, y), oracle, x)
    one, plain = make("subcenter_arcface", centers=1), make("arcface")
    plain.proxies.data.copy_(one.proxies[:, 0].data)
    torch.testing.assert_close(one(x, y), plain(x, y))


def test_weights_and_sizes_are_one_for_each_class():
    with pytest.raises(ValueError, match="class_weights must be 6"):
        make("cosface", class_weights=[1.0])
    for wrong in ([math.nan] + [1.0] * 5, [math.inf] + [1.0] * 5, [-1.0] + [1.0] * 5, [0.0] * 6):
        with pytest.raises(ValueError, match="class_weights must be 6 finite numbers from 0"):
            make("cosface", class_weights=wrong)
    for wrong in ([0] * 6, [1] * 5, [math.nan] + [1] * 5, [math.inf] + [1] * 5):
        with pytest.raises(ValueError, match="class_sizes must be 6"):
            make("arcface", class_sizes=wrong)
    for values in (np.ones(6), torch.ones(6)):
        assert make("cosface", class_weights=values).weight_of_class.tolist() == [1.0] * 6


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_batch_of_a_class_that_weighs_nothing_is_zero_with_a_gradient(name, generator):
    x, _ = batch(generator)
    x.requires_grad_()
    loss = make(name, class_weights=[0.0, *[1.0] * 5])
    value = loss(x, torch.zeros(len(x), dtype=torch.int64))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    if name not in ("magface", "soft_triple"):  # which have a term besides the samples
        assert value == 0
        assert not x.grad.any()
