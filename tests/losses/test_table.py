"""The table of losses: a stranger's loss enters it, and what it says of each loss is true."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from dmlkit import losses
from dmlkit.losses import table


class Squares(nn.Module):
    """A loss of someone else, with an argument that is tuned and one that its name fixes."""

    def __init__(self, weight: float = 1.0, power: float = 2.0) -> None:
        super().__init__()
        self.weight, self.power = weight, power

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.weight * (embeddings.abs() ** self.power).mean()


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Registered during one test, and gone after it."""
    with monkeypatch.context() as patch:
        patch.setattr(table, "ENTRIES", dict(table.ENTRIES))
        table.register("cubes", "pairs", {"weight": ("log", 0.1, 10.0)}, power=3.0)(Squares)
        yield "cubes"
    assert "cubes" not in losses.names()


def test_a_new_loss_is_listed_and_built(stranger):
    assert stranger in losses.names()
    assert losses.entry(stranger).family == "pairs"
    assert losses.names().index(stranger) < losses.names().index("prototypical"), "by family"
    loss = losses.build(stranger, num_classes=3, dim=2, weight=5.0)
    assert loss(torch.full((2, 2), 2.0), torch.tensor([0, 1])) == 40


def test_a_name_is_given_once(stranger):
    with pytest.raises(ValueError, match="there is a loss 'cubes' already"):
        table.register("cubes", "pairs")(Squares)


TUNED = [entry.name for entry in losses.entries() if entry.space]


@pytest.mark.parametrize("name", TUNED)
def test_what_is_tuned_is_an_argument_and_its_range_can_be_built(name):
    found = losses.entry(name)
    assert set(found.space) <= set(losses.signature(name))
    for argument, (scale, low, high) in found.space.items():
        assert scale in ("log", "linear")
        assert (0 if scale == "log" else -float("inf")) < low < high
        for value in (low, high):
            losses.build(name, num_classes=5, dim=16, **{argument: value})


def test_unknown_names_and_arguments_are_refused():
    with pytest.raises(ValueError, match="unknown loss 'nothing'"):
        losses.build("nothing")
    with pytest.raises(ValueError, match="'dreml' is no loss of one embedding"):
        losses.entry("dreml")
    with pytest.raises(ValueError, match=r"'mic' .* two heads"):
        losses.entry("mic")
    with pytest.raises(ValueError, match="'margin' needs num_classes"):
        losses.build("margin")
    with pytest.raises(TypeError, match="not slope"):
        losses.build("contrastive", slope=1)
    with pytest.raises(TypeError, match="wraps no other loss"):
        losses.build("contrastive", loss="angular")


def test_the_loss_that_is_wrapped_may_have_another_size_than_the_wrapper():
    inner = {"loss": "normalized_softmax", "loss_args": {"dim": 4}}
    loss = losses.build("multi_scale", num_classes=5, dim=8, parts=2, **inner)
    assert [p.shape for p in loss.parameters()] == [(5, 4)] * 2
