"""Cross-batch memory against the library, the authors' procedure, and its own saved state."""

import copy
import math

import pytest
import torch
from pytorch_metric_learning import distances, miners
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit import losses
from dmlkit.losses import CircleLoss, SupConLoss
from dmlkit.losses.contract import PairLoss, Pairs
from dmlkit.losses.hyperbolic import HyperbolicLoss
from dmlkit.losses.memory import CrossBatchMemory
from dmlkit.losses.pairs import (
    ContrastiveLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    RankedListLoss,
    TripletLoss,
)
from dmlkit.losses.proxies import NormalizedSoftmaxLoss
from tests.losses.oracles import assert_same, batch
from tests.losses.test_contract import ARGS


def batches(generator: torch.Generator, count: int) -> list[tuple[Tensor, Tensor]]:
    return [batch(generator, classes=4, per_class=3, dim=5) for _ in range(count)]


@pytest.mark.parametrize(
    ("ours", "theirs", "miner"),
    [
        (ContrastiveLoss(), pml.ContrastiveLoss(pos_margin=0, neg_margin=0.5), None),
        (HyperbolicLoss(c=0.0), pml.NTXentLoss(temperature=0.2), None),
        (
            TripletLoss(mining="all"),
            pml.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=2)),
            None,
        ),
        (
            MultiSimilarityLoss(),
            pml.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
            miners.MultiSimilarityMiner(0.1),
        ),
    ],
)
@pytest.mark.parametrize("size", [12, 30, 100])
def test_memory_term_equals_the_library(generator, ours, theirs, miner, size):
    """Over six batches of 12: while it fills, when it wraps around, and never full."""
    memory = CrossBatchMemory(ours, dim=5, size=size, weight=0.7).double()
    library = pml.CrossBatchMemory(theirs, embedding_size=5, memory_size=size, miner=miner)
    for x, y in batches(generator, 6):
        assert_same(
            lambda z, y=y: memory(z, y),
            lambda z, y=y: ours(z, y) + 0.7 * library(z, y),
            x,
        )


PAIR_LOSSES = [
    ContrastiveLoss(),
    CircleLoss(),
    SupConLoss(),
    SupConLoss(side="in"),
    HyperbolicLoss(),
    LiftedStructureLoss(),
    MultiSimilarityLoss(),
    RankedListLoss(),
    *(TripletLoss(mining=mining) for mining in ("semihard", "hard", "all")),
]


@pytest.mark.parametrize("loss", PAIR_LOSSES, ids=lambda loss: type(loss).__name__)
def test_what_the_masks_leave_out_is_not_seen(generator, loss):
    """Against a copy of the batch, shuffled among strangers, the loss is that of the batch."""
    x, y = batch(generator, classes=4, per_class=3, dim=5)
    strangers = 5 * torch.randn(7, 5, generator=generator, dtype=torch.float64)
    order = torch.randperm(19, generator=generator)
    others = torch.cat([x, strangers])[order]
    same = torch.nn.functional.pad(y[:, None] == y, (0, 7))[:, order]
    known = (order < 12).expand(12, 19)
    positive = same & ~(order == torch.arange(12)[:, None])
    assert_same(
        lambda z: loss.of(Pairs(z, others, y, positive, ~same & known)),
        lambda z: loss.of(Pairs(z, x, y, positive[:, order.argsort()[:12]], y[:, None] != y)),
        x,
    )
    value = loss.of(Pairs(x, others, y, positive, ~same & known))
    torch.testing.assert_close(value, loss(x, y))


@pytest.mark.parametrize("name", ["margin", "triplet_distance"])
def test_losses_that_draw_meet_the_memory_too(generator, name):
    memory = losses.build("xbm", num_classes=4, dim=5, loss=name, size=30).double()
    for x, y in batches(generator, 3):
        z = x.requires_grad_()
        memory(z, y % 4).backward()
        assert z.grad.isfinite().all()
        assert z.grad.abs().sum() > 0


class PublishedContrastive(PairLoss):
    """The contrastive loss of the XBM paper, on cosines: (1/B) Σ_i (Σ⁺ (1 − s) + Σ⁻ s [s > λ])."""

    def of(self, pairs):
        s = torch.nn.functional.normalize(pairs.x) @ torch.nn.functional.normalize(pairs.y).T
        return ((1 - s) * pairs.positive + s * (pairs.negative & (s > 0.5))).sum() / len(s)


def test_equals_the_authors_procedure(generator):
    """Enqueue, then batch loss + w · memory loss; pairs at cosine 1, its own copies, left out."""
    ours = CrossBatchMemory(PublishedContrastive(), dim=5, size=24, weight=0.5).double()
    queue: list[tuple[Tensor, int]] = []

    def criterion(u, y, reference):
        total = u.new_zeros(())
        for i in range(len(u)):
            for r, label in reference:
                s = u[i] @ r
                if label == y[i] and s < 1 - 1e-5:
                    total = total + 1 - s
                if label != y[i] and s > 0.5:
                    total = total + s
        return total / len(u)

    for x, y in batches(generator, 4):
        unit = torch.nn.functional.normalize(x)
        queue = [*queue, *zip(unit, y.tolist(), strict=True)][-24:]

        def oracle(z, y=y, queue=queue):
            u = torch.nn.functional.normalize(z)
            own = list(zip(u, y.tolist(), strict=True))
            return criterion(u, y, own) + 0.5 * criterion(u, y, queue)

        assert_same(lambda z, y=y: ours(z, y), oracle, x)


def test_state_is_saved_whole(generator):
    """A restored memory goes on where it stood: it writes over the oldest, and so its losses agree.

    The library's wrapper does not save its position: restored, it writes over the wrong places.
    """
    history = batches(generator, 7)

    def run(loss, part):
        return torch.stack([loss(x, y) for x, y in part])

    ours = [
        CrossBatchMemory(ContrastiveLoss(), dim=5, size=30, start_step=1).double() for _ in range(2)
    ]
    theirs = [
        pml.CrossBatchMemory(pml.ContrastiveLoss(0, 0.5), 5, memory_size=30) for _ in range(2)
    ]
    for pair, agree in ((ours, True), (theirs, False)):
        run(pair[0], history[:4])
        pair[1].load_state_dict({k: v.clone() for k, v in pair[0].state_dict().items()})
        unbroken, restored = run(pair[0], history[4:]), run(pair[1], history[4:])
        assert torch.equal(unbroken, restored) == agree


def test_nothing_is_remembered_before_the_start(generator):
    memory, plain = (
        CrossBatchMemory(ContrastiveLoss(), dim=5, size=30, start_step=2).double(),
        ContrastiveLoss(),
    )
    values = [(memory(x, y), plain(x, y), len(y)) for x, y in batches(generator, 4)]
    assert all(value == batch_alone for value, batch_alone, _ in values[:2])
    assert all(value > batch_alone for value, batch_alone, _ in values[2:])
    assert memory.filled == 24
    assert memory.step == 4


def test_the_memory_carries_no_gradient(generator):
    memory = CrossBatchMemory(ContrastiveLoss(), dim=5, size=30).double()
    first, second = batches(generator, 2)
    x = first[0].requires_grad_()
    memory(x, first[1])
    z = second[0].requires_grad_()
    memory(z, second[1]).backward()
    assert x.grad is None
    assert z.grad.abs().sum() > 0


def test_a_later_batch_does_not_disturb_an_earlier_backward_pass(generator):
    """Gradients of two batches at once, as with accumulated gradients, equal those one by one."""
    together, apart = CrossBatchMemory(HyperbolicLoss(), dim=5, size=20).double(), None
    apart = copy.deepcopy(together)
    xs = [(x.requires_grad_(), y) for x, y in batches(generator, 3)]
    values = [together(x, y) for x, y in xs]
    gradients = torch.autograd.grad(sum(values), [x for x, _ in xs])
    for gradient, (x, y) in zip(gradients, xs, strict=True):
        torch.testing.assert_close(gradient, torch.autograd.grad(apart(x, y), x)[0])


def test_evaluation_does_not_remember(generator):
    memory = CrossBatchMemory(ContrastiveLoss(), dim=5, size=30).double()
    first, second = batches(generator, 2)
    memory(*first)
    before = copy.deepcopy(memory.state_dict())
    memory.eval()
    assert memory(*second) > ContrastiveLoss()(*second)  # it does compare
    assert all(torch.equal(v, before[k]) for k, v in memory.state_dict().items())


def test_single_precision_memory_takes_other_precisions(generator):
    memory = CrossBatchMemory(ContrastiveLoss(), dim=5, size=30)
    for x, y in batches(generator, 2):
        for dtype in (torch.bfloat16, torch.float64):
            z = x.to(dtype).requires_grad_()
            memory(z, y).backward()
            assert z.grad.isfinite().all()
    assert memory.queue.dtype == torch.float32


@pytest.mark.parametrize("name", ["supcon", "matryoshka"])
def test_references_in_half_precision_are_computed_on_in_single(generator, name):
    args = {"dim": 8, "loss": name, "size": 48}
    half, single = (losses.build("xbm", **args, loss_args=ARGS.get(name)) for _ in range(2))
    for _ in range(2):
        (x, y), (z, _) = batch(generator), batch(generator)
        x, z = x.bfloat16(), z.bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = half(x, y, z)
        assert value.dtype == torch.float32
        assert torch.equal(value, single(x.float(), y, z.float()))


def test_refusals(generator):
    x, y = batch(generator)
    with pytest.raises(ValueError, match="batch of 24 does not fit into a memory of 20"):
        CrossBatchMemory(ContrastiveLoss(), dim=8, size=20).double()(x, y)
    with pytest.raises(TypeError, match=r"must be a PairLoss.*but is NormalizedSoftmaxLoss"):
        CrossBatchMemory(NormalizedSoftmaxLoss(6, 8), dim=8)
    for name in ("contextual", "embedding_expansion", "htl"):
        with pytest.raises(TypeError, match="must be a PairLoss"):
            losses.build("xbm", num_classes=3, dim=8, loss=name)
    with pytest.raises(TypeError, match=r"must be a PairLoss.*but is 'contrastive'"):
        CrossBatchMemory("contrastive", dim=8)


def test_a_loss_by_name_with_arguments():
    """The table makes the inner loss, and asks for no number that neither of them needs."""
    loss = losses.build("xbm", dim=8, loss="contrastive", loss_args={"negative_margin": 0.9})
    assert loss.loss.negative_margin == 0.9
    assert isinstance(losses.build("xbm", dim=8).loss, ContrastiveLoss)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_memory_with_a_bad_row_gives_no_finite_loss(generator, bad):
    class SquaredDistances(PairLoss):
        """Passes on whatever is not finite."""

        def of(self, pairs):
            return ((pairs.x[:, None] - pairs.y) ** 2).sum(dim=2)[pairs.positive].sum()

    memory = CrossBatchMemory(SquaredDistances(), dim=8).double()
    x, y = batch(generator)
    memory(x.index_fill(0, torch.tensor([3]), bad), y)
    assert not memory(x, y).isfinite()
