"""Prefixes and parts against explicit sums, and what may and may not go inside them."""

import copy
import itertools
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dmlkit import losses
from dmlkit.losses import (
    CrossBatchMemory,
    EmbeddingLoss,
    MarginLoss,
    MatryoshkaLoss,
    MultiScaleLoss,
    Pairs,
    RankedListLoss,
    SupConLoss,
)
from dmlkit.losses.contract import state
from dmlkit.losses.spherical import SphericalExpansion, expand
from tests.losses.oracles import assert_same, batch

CLASSES, DIM = 6, 8
SIZES = [2, 5, 8]


def make(name: str, **args: object) -> nn.Module:
    torch.manual_seed(0)
    return losses.build(name, num_classes=CLASSES, dim=DIM, **args).double()


def narrow(name: str, full: nn.Module, m: int, **args: object) -> nn.Module:
    """The loss built for m dimensions, with the first m of the full one's proxies."""
    loss = losses.build(name, num_classes=CLASSES, dim=m, **args).double()
    state = full.state_dict()
    if "proxies" in state:
        state["proxies"] = state["proxies"][..., :m]
    loss.load_state_dict(state)
    return loss


WHOLE = ["supcon", "n_pairs", "contrastive", "multi_similarity", "hyperbolic", "prototypical"]
PROXIES = ["proxy_anchor", "proxy_nca_pp", "normalized_softmax", "arcface", "soft_triple"]
SCHEDULES = ["sphereface", "heated_up_softmax"]


@pytest.mark.parametrize("name", WHOLE + PROXIES + SCHEDULES)
def test_is_the_sum_of_losses_built_for_each_size(generator, name):
    """With proxies cut: values, and gradients of embeddings and of proxies."""
    x, y = batch(generator)
    inner = make(name)
    ours = MatryoshkaLoss(inner, DIM, SIZES, weights=[1.0, 0.5, 2.0])
    parts = [narrow(name, inner, m) for m in SIZES]

    def oracle(z: Tensor) -> Tensor:
        first, second, third = (
            part(z[:, :m].contiguous(), y) for m, part in zip(SIZES, parts, strict=True)
        )
        return first + 0.5 * second + 2 * third

    assert_same(lambda z: ours(z, y), oracle, x, tolerance=1e-9)
    if "proxies" not in dict(inner.named_parameters()):
        return
    before = torch.autograd.grad(ours(x, y), inner.proxies)[0]
    fresh = make(name)
    ours = MatryoshkaLoss(fresh, DIM, SIZES, weights=[1.0, 0.5, 2.0])
    parts = [narrow(name, fresh, m) for m in SIZES]
    actual = torch.autograd.grad(ours(x, y), fresh.proxies)[0]
    oracle(x).backward()
    expected = torch.zeros_like(actual)
    for m, part in zip(SIZES, parts, strict=True):
        expected[..., :m] += part.proxies.grad
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    assert before.isfinite().all()


@pytest.mark.parametrize("name", ["supcon", "proxy_anchor", "sphereface"])
def test_the_full_size_alone_is_the_loss_itself(generator, name):
    x, y = batch(generator)
    ours, plain = MatryoshkaLoss(make(name), DIM, [DIM]), make(name)
    assert_same(lambda z: ours(z, y), lambda z: plain(z, y), x)


def test_the_mean_is_the_sum_over_the_weights(generator):
    x, y = batch(generator)
    inner = SupConLoss()
    plain = MatryoshkaLoss(inner, DIM, SIZES)(x, y)
    torch.testing.assert_close(MatryoshkaLoss(inner, DIM, SIZES, reduction="mean")(x, y), plain / 3)
    weighted = {"sizes": SIZES, "weights": [1.0, 1.0, 4.0]}
    torch.testing.assert_close(
        MatryoshkaLoss(inner, DIM, **weighted, reduction="mean")(x, y),
        MatryoshkaLoss(inner, DIM, **weighted)(x, y) / 6,
    )


def test_sizes_may_be_one_or_numpys():
    assert MatryoshkaLoss(SupConLoss(), 8, 8, 0.5).terms == [(8, 0.5)]
    for sizes in ([np.int64(4), np.int32(8)], np.array([4, 8]), (4, 8)):
        assert MatryoshkaLoss(SupConLoss(), 8, sizes, np.array([1.0, 2.0])).terms == [
            (4, 1),
            (8, 2),
        ]


@pytest.mark.parametrize(
    "dim, sizes",
    [(4, [4]), (8, [8]), (9, [8, 9]), (64, [8, 16, 32, 64]), (100, [8, 16, 32, 64, 100])],
)
def test_default_sizes_are_powers_of_two_from_8(dim, sizes):
    assert MatryoshkaLoss(SupConLoss(), dim).sizes == sizes


def test_order_of_sizes_does_not_count(generator):
    x, y = batch(generator)
    up, down = (MatryoshkaLoss(make("sphereface"), DIM, s) for s in (SIZES, SIZES[::-1]))
    for _ in range(2):
        torch.testing.assert_close(up(x, y), down(x, y))


# State


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_counts_batches_not_sizes(generator, name):
    """Three batches are three steps, and at each all sizes are at the same step."""
    args = {"switch_at": 2} if name == "heated_up_softmax" else {}
    inner = make(name, **args)
    ours = MatryoshkaLoss(inner, DIM, SIZES)
    parts = [narrow(name, inner, m, **args) for m in SIZES]
    for step in range(1, 4):
        x, y = batch(generator)
        expected = sum(part(x[:, :m], y) for m, part in zip(SIZES, parts, strict=True))
        torch.testing.assert_close(ours(x, y), expected)
        assert inner.step == step
    ours.eval()(x, y)
    assert inner.step == 3


def test_a_schedule_that_counts_in_place_counts_batches(generator):
    class Counting(EmbeddingLoss):
        step: Tensor = state()

        def setup(self) -> None:
            self.register_buffer("step", torch.zeros((), dtype=torch.int64))

        def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            self.step += 1
            return self.step * embeddings.sum()

    loss = MatryoshkaLoss(Counting(), DIM, SIZES)
    x, y = batch(generator)
    for step in (1, 2):
        torch.testing.assert_close(loss(x, y), step * sum(x[:, :m].sum() for m in SIZES))


def test_one_set_of_proxies_is_learned_and_saved(generator):
    loss = make("matryoshka", loss="proxy_anchor", sizes=SIZES)
    assert [(n, p.shape) for n, p in loss.named_parameters()] == [("loss.proxies", (CLASSES, DIM))]
    assert loss.proxies is loss.loss.proxies
    assert isinstance(loss.proxies, nn.Parameter)
    loss(*batch(generator)).backward()
    assert isinstance(loss.loss.proxies, nn.Parameter), "the cut ones are gone"
    assert loss.proxies.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["proxy_anchor", "sphereface"])
def test_with_proxies_and_counts_it_compiles_as_one_graph(generator, name):
    torch.compiler.reset()
    loss = make("matryoshka", loss=name, sizes=SIZES)
    x, y = batch(generator)
    compiled = torch.compile(copy.deepcopy(loss), backend="eager", fullgraph=True)
    assert_same(lambda z: compiled(z, y), lambda z: copy.deepcopy(loss)(z, y), x)


def test_parameters_that_are_not_by_dimension_serve_all_sizes(generator):
    loss = MatryoshkaLoss(losses.build("margin", num_classes=CLASSES), DIM, SIZES).double()
    x, y = batch(generator)
    loss(x.requires_grad_(), y).backward()
    assert loss.loss.beta.grad.abs().sum() > 0
    assert x.grad.isfinite().all()
    assert not hasattr(loss, "proxies")


# With a memory


@pytest.mark.parametrize("name", ["contrastive", "supcon", "triplet_all"])
def test_a_memory_keeps_full_vectors_and_compares_prefixes(generator, name):
    """Equal to a memory for each size, over batches that fill one and write over the oldest."""
    one = CrossBatchMemory(MatryoshkaLoss(make(name), DIM, SIZES), DIM, size=40).double()
    each = [CrossBatchMemory(make(name), m, size=40).double() for m in SIZES]
    for _ in range(3):
        x, y = batch(generator)
        assert_same(
            lambda z, y=y: copy.deepcopy(one)(z, y),
            lambda z, y=y: sum(
                copy.deepcopy(memory)(z[:, :m], y) for m, memory in zip(SIZES, each, strict=True)
            ),
            x,
        )
        for m, memory in zip(SIZES, each, strict=True):
            memory(x[:, :m], y)
        one(x, y)
    assert one.queue.shape == (40, DIM)


def test_of_proxies_it_meets_no_memory(generator):
    memory = CrossBatchMemory(MatryoshkaLoss(make("proxy_anchor"), DIM), DIM).double()
    with pytest.raises(TypeError, match=r"must be a PairLoss, .* but is ProxyAnchorLoss"):
        memory(*batch(generator))


@pytest.mark.parametrize("through", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("name", ["supcon", "proxy_anchor"])
def test_copies_stay_what_they_are(generator, name, through: Callable[[nn.Module], nn.Module]):
    loss = make("matryoshka", loss=name, sizes=SIZES)
    again = through(loss)
    assert type(again) is type(loss)
    x, y = batch(generator)
    assert torch.equal(again(x, y), loss(x, y))


# With synthetic points


def test_synthetic_points_of_full_size_are_cut(generator):
    """SEE around it: its points, around full proxies, are given to every size."""
    inner = make("proxy_anchor")
    see = SphericalExpansion(
        MatryoshkaLoss(inner, DIM, SIZES), points=3, weight=0.5, directions="simplex"
    )
    x, y = batch(generator)
    parts = [narrow("proxy_anchor", inner, m) for m in SIZES]

    def oracle(z: Tensor) -> Tensor:
        points = expand(z, inner.proxies[y], 3).flatten(0, 1)
        again = y.repeat_interleave(3)
        return sum(
            part(z[:, :m], y) + 0.5 * part(points[:, :m], again)
            for m, part in zip(SIZES, parts, strict=True)
        )

    assert_same(lambda z: see(z, y), oracle, x, tolerance=1e-9)


# By name, and refusals


def test_by_name():
    loss = make("matryoshka", loss="proxy_anchor", sizes=[2, 8], loss_args={"alpha": 16.0})
    assert isinstance(loss.loss, losses.ProxyAnchorLoss)
    assert loss.loss.alpha == 16
    assert isinstance(make("matryoshka").loss, SupConLoss)
    nested = make("xbm", loss="matryoshka", loss_args={"loss": "supcon", "sizes": [4, 8]})
    assert isinstance(nested.loss.loss, SupConLoss)
    assert nested.loss.sizes == [4, 8]


@pytest.mark.parametrize("inner", ["xbm", "meta_class", "spherical_expansion"])
def test_refuses_a_loss_with_a_state_of_one_size(inner):
    args = {"points": 3} if inner == "spherical_expansion" else {}
    with pytest.raises(TypeError, match="loss must keep no state besides counts"):
        MatryoshkaLoss(make(inner, **args), DIM)


def test_refuses_what_does_not_fit(generator):
    x, y = batch(generator)
    with pytest.raises(TypeError, match="must not contain a MatryoshkaLoss"):
        MatryoshkaLoss(MatryoshkaLoss(SupConLoss(), DIM), DIM)
    with pytest.raises(ValueError, match=r"proxies must have dim = 9 dimensions, but are \(6, 8\)"):
        MatryoshkaLoss(make("proxy_anchor"), 9)
    every = torch.ones(len(x), len(x), dtype=torch.bool)
    with pytest.raises(ValueError, match="embeddings have 7 dimensions"):
        MatryoshkaLoss(SupConLoss(), DIM, SIZES).of(Pairs(x[:, :7], x[:, :7], y, every, every))


# Several embeddings, joined


@pytest.mark.parametrize(("dim", "ends"), [(12, [0, 4, 8, 12]), (8, [0, 3, 6, 8])])
def test_equals_the_sum_over_parts(generator, dim, ends):
    x, y = batch(generator, dim=dim)
    single = RankedListLoss()
    parts = [slice(a, b) for a, b in itertools.pairwise(ends)]
    assert_same(
        lambda z: losses.build("multi_scale")(z, y),
        lambda z: sum(single(z[:, part], y) for part in parts),
        x,
    )


def test_a_head_with_long_vectors_counts_no_more_in_training(generator):
    x, y = batch(generator, dim=12)
    longer = torch.cat([x[:, :4], 100 * x[:, 4:]], dim=1)
    loss = MultiScaleLoss(RankedListLoss())
    torch.testing.assert_close(loss(longer, y), loss(x, y))


def test_every_part_has_parameters_of_its_own(generator):
    given = MarginLoss(num_classes=6)
    loss = MultiScaleLoss(given, parts=2).double()
    first, second = loss.parameters()
    assert first is not second
    assert given.beta is not first
    x, y = batch(generator, dim=6)
    x[:, 3:] = 1.0  # nothing is far in the second part: its β has another gradient
    loss(x, y).backward()
    assert not torch.equal(first.grad, second.grad)


class Remembering(nn.Module):
    """A loss with a state: the sum of all that it has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, y):
        self.seen = self.seen + x.detach().sum()
        return x.square().mean()


def test_every_part_has_a_state_of_its_own():
    loss = MultiScaleLoss(Remembering(), parts=2)
    loss(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert [float(v) for v in loss.state_dict().values()] == [1.0, 2.0]


def test_an_embedding_with_fewer_dimensions_than_parts_is_refused():
    with pytest.raises(ValueError, match="embeddings have 2 dimensions, which are not 3 parts"):
        MultiScaleLoss(RankedListLoss())(torch.zeros(2, 2), torch.tensor([0, 1]))
