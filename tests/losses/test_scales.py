"""The loss at several scales is the loop over its parts."""

import itertools

import pytest
import torch
from torch import nn

from dmlkit import losses
from dmlkit.losses import MarginLoss, MultiScaleLoss, RankedListLoss
from tests.losses.oracles import assert_same, batch


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


def test_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="embeddings have 2 dimensions, which are not 3 parts"):
        MultiScaleLoss(RankedListLoss())(torch.zeros(2, 2), torch.tensor([0, 1]))
