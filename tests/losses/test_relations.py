"""Pairs without classes: masks, several labels a sample, references; against classes and loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry, losses
from dmlkit.losses.contract import PairLoss
from tests.losses.oracles import assert_same, batch
from tests.losses.test_contract import ARGS

PAIRS = [
    entry.name
    for entry in losses.entries()
    if isinstance(
        losses.build(entry.name, num_classes=6, dim=8, **ARGS.get(entry.name, {})), PairLoss
    )
]


def make(name: str) -> PairLoss:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return losses.build(name, num_classes=6, dim=8, **ARGS.get(name, {})).double()  # type: ignore[return-value]


def value(loss: PairLoss, *args: Tensor, **pairs: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # some losses draw
        return loss(*args, **pairs)


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "margin"])
def test_masks_and_one_label_of_many_are_as_classes(name, generator):
    x, y = batch(generator)
    expected = value(make(name), x, y)
    same, different = geometry.same_label(y), geometry.different_label(y)
    tags = F.one_hot(y, 6).bool()
    for found in (
        value(make(name), x, positive=same, negative=different),
        value(make(name), x, positive=y[:, None] == y),  # a sample is no pair with itself
        value(make(name), x, tags),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_radius_for_each_class_needs_classes(generator):
    x, y = batch(generator)
    with pytest.raises(ValueError, match="needs labels"):
        make("margin")(x, positive=y[:, None] == y)


def test_samples_that_share_one_of_several_labels_are_positive(generator):
    x, _ = batch(generator)
    tags = torch.rand(len(x), 3, generator=generator) < 0.3

    def loop(z: Tensor) -> Tensor:
        z = F.normalize(z)
        sums: dict[bool, list[Tensor]] = {True: [], False: []}
        for i in range(len(z)):
            for j in range(len(z)):
                if i != j:
                    shared = bool((tags[i] & tags[j]).any())
                    D = (z[i] - z[j]).norm()
                    term = D if shared else 1.3 - D
                    if term > 0:
                        sums[shared].append(term)
        return torch.stack(sums[True]).mean() + torch.stack(sums[False]).mean()

    assert_same(lambda z: losses.ContrastiveLoss(negative_margin=1.3)(z, tags), loop, x)


def test_two_views_of_an_image_are_classified_among_all(generator):
    """SupCon of rows with references row by row is the InfoNCE of two views."""
    x, z = (torch.randn(9, 5, generator=generator, dtype=torch.float64) for _ in range(2))

    def loop(rows: Tensor) -> Tensor:
        logits = F.normalize(rows) @ F.normalize(z).T / 0.1
        return F.cross_entropy(logits, torch.arange(9))

    assert_same(lambda rows: losses.SupConLoss()(rows, references=z), loop, x)


@pytest.mark.parametrize("name", ["contrastive", "triplet_all", "multi_similarity", "smooth_ap"])
def test_references_with_labels_are_a_gallery(name, generator):
    """Of the batch and itself as references only the pairs with oneself are new: equal copies."""
    x, y = batch(generator)
    z = x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
    same = y[:, None] == y
    expected = value(make(name), x, references=z, positive=same, negative=~same)
    torch.testing.assert_close(value(make(name), x, y, z, y), expected, rtol=0, atol=0)


def test_masks_of_another_shape_and_no_pairs_at_all_are_refused(generator):
    x, y = batch(generator)
    loss = losses.SupConLoss()
    with pytest.raises(ValueError, match=r"must be \(24, 24\)"):
        loss(x, positive=torch.ones(24, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="pairs need labels"):
        loss(x)
    with pytest.raises(ValueError, match="several labels a sample are for losses of pairs"):
        losses.build("proxy_anchor", num_classes=6, dim=8)(x.float(), F.one_hot(y, 6).bool())


def test_a_memory_keeps_several_labels_and_references(generator):
    x, y = batch(generator)
    inner = losses.ContrastiveLoss()
    by_class = losses.CrossBatchMemory(inner, dim=8, size=100).double()
    by_tags = losses.CrossBatchMemory(inner, dim=8, size=100, num_labels=6).double()
    views = losses.CrossBatchMemory(inner, dim=8, size=100).double()
    for _ in range(3):
        z = x + torch.randn(x.shape, generator=generator, dtype=x.dtype)
        expected = by_class(z, y)
        torch.testing.assert_close(by_tags(z, F.one_hot(y, 6).bool()), expected)
        found = views(x, y, z)
        known = views.queue[: views.filled]
        pairs = inner(x, y, z, y) + inner(x, y, known, views.queue_labels[: views.filled])
        torch.testing.assert_close(found, pairs)
    torch.testing.assert_close(views.queue, by_class.queue)
    with pytest.raises(ValueError, match="build it with dim=7"):
        views(x[:, :7], y, x[:, :7])


def test_a_memory_that_is_filled_in_parts_is_the_one_filled_at_once(generator):
    x, y = batch(generator)
    whole, parts = (losses.CrossBatchMemory(losses.ContrastiveLoss(), 8, 40) for _ in range(2))
    whole.remember(x, y)
    for rows in (slice(0, 5), slice(5, 24)):
        parts.remember(x[rows], y[rows])
    for name in ("queue", "queue_labels", "position", "filled"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
