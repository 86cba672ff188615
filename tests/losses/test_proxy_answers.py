"""What proxies answer, weights and margins of classes, several centers: identities and loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import losses
from dmlkit.losses.proxies import ProxyLoss, SoftmaxLoss
from tests.losses.oracles import assert_same, batch
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
    plain, equal, weighed = make(name), make(name, class_weights=[2.0] * 6), None
    torch.testing.assert_close(equal(x, y), plain(x, y))
    if name in ("adaface", "magface", "soft_triple", "sphereface"):
        return  # a state, or a term besides the samples
    weighed = make(name, class_weights=w)

    def loop(z: Tensor) -> Tensor:
        each = torch.stack([make(name)(row[None], k[None]) for row, k in zip(z, y, strict=True)])
        own = torch.tensor([w[k] for k in y.tolist()], dtype=torch.float64)
        return (own * each).sum() / own.sum()

    assert_same(lambda z: weighed(z, y), loop, x)


def test_arcface_with_sizes_has_a_margin_for_each_class(generator):
    x, y = batch(generator)
    sizes = [16, 1, 81, 16, 1, 256]
    p = F.normalize(make("arcface").proxies.detach())
    margins = make("arcface", class_sizes=sizes).margin_of_class.tolist()
    assert margins == pytest.approx([0.5 * n**-0.25 for n in sizes], rel=1e-6)  # kept as float32

    def loop(z: Tensor) -> Tensor:
        terms = []
        for row, k in zip(F.normalize(z), y.tolist(), strict=True):
            m, cosines = margins[k], row @ p.T
            theta = cosines[k].acos()
            target = (theta + m).cos() if theta <= math.pi - m else cosines[k] - m * math.sin(m)
            logits = torch.where(torch.arange(6) == k, target, cosines)
            terms.append(F.cross_entropy(64 * logits, torch.tensor(k)))
        return torch.stack(terms).mean()

    assert_same(lambda z: make("arcface", class_sizes=sizes)(z, y), loop, x)
    equal = make("arcface", class_sizes=[7] * 6)
    torch.testing.assert_close(equal(x, y), make("arcface")(x, y))


def test_of_several_centers_the_nearest_counts(generator):
    x, y = batch(generator)
    p = F.normalize(make("subcenter_arcface").proxies.detach(), dim=2)  # (6, 3, 8)

    def loop(z: Tensor) -> Tensor:
        terms = []
        for row, k in zip(F.normalize(z), y.tolist(), strict=True):
            cosines = torch.stack([torch.stack([row @ c for c in centers]).max() for centers in p])
            theta = cosines[k].acos()
            far = cosines[k] - 0.5 * math.sin(0.5)
            target = (theta + 0.5).cos() if theta <= math.pi - 0.5 else far
            logits = torch.where(torch.arange(6) == k, target, cosines)
            terms.append(F.cross_entropy(64 * logits, torch.tensor(k)))
        return torch.stack(terms).mean()

    assert_same(lambda z: make("subcenter_arcface")(z, y), loop, x)
    one, plain = make("subcenter_arcface", centers=1), make("arcface")
    plain.proxies.data.copy_(one.proxies[:, 0].data)
    torch.testing.assert_close(one(x, y), plain(x, y))


def test_weights_and_sizes_are_one_for_each_class():
    with pytest.raises(ValueError, match="class_weights must be 6"):
        make("cosface", class_weights=[1.0])
    with pytest.raises(ValueError, match="class_sizes must be 6"):
        make("arcface", class_sizes=[0] * 6)
