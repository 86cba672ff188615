"""The table of losses: a stranger's loss enters it, and what it says of each loss is true."""

import inspect
import sys
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from dmlkit import losses
from dmlkit.losses import table


class Squares(nn.Module):
    """A loss of someone else, with an argument that is tuned and one that its name fixes."""

    space: ClassVar = {"weight": ("log", 0.1, 10.0)}

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
        table.register("cubes", "pairs", "cubes of all", 2026, "$f^3$", power=3.0)(Squares)
        yield "cubes"
    assert "cubes" not in losses.names()


def test_a_new_loss_is_listed_and_built(stranger):
    assert stranger in losses.names()
    found = losses.entry(stranger)
    assert (found.family, found.title, found.year) == ("pairs", "cubes of all", 2026)
    assert found.space == Squares.space
    assert losses.names().index(stranger) < losses.names().index("prototypical"), "by family"
    loss = losses.build(stranger, num_classes=3, dim=2, weight=5.0)
    assert loss(torch.full((2, 2), 2.0), torch.tensor([0, 1])) == 40


def test_a_name_is_given_once(stranger):
    with pytest.raises(ValueError, match="there is a loss 'cubes' already"):
        table.register("cubes", "pairs")(Squares)


def test_every_loss_has_a_title_a_year_and_an_equation():
    found = losses.entries()
    assert len({entry.title for entry in found}) == len(found)
    assert not [entry.title for entry in found if "_" in entry.title]
    assert all(1990 < entry.year < 2100 and entry.equation for entry in found)


class Summed(losses.PairLoss):
    """A loss of a stranger whose settings are fields: nothing but them says what is tuned."""

    weight: float = losses.setting(default=1.0, low=0, high=9, tune=("log", 0.1, 9.0))
    shift: float = 0.0

    def of(self, pairs: losses.Pairs) -> Tensor:
        return self.weight * (pairs.cosines() + self.shift).sum()


def test_what_is_tuned_is_declared_with_the_setting(monkeypatch):
    monkeypatch.setattr(table, "ENTRIES", dict(table.ENTRIES))
    table.register("summed", "pairs")(Summed)
    table.register("sum_alone", "pairs", tuned=False)(Summed)
    assert losses.entry("summed").space == {"weight": ("log", 0.1, 9.0)}
    assert losses.entry("sum_alone").space is None
    assert [p.default for p in losses.signature("summed").values()] == [1.0, 0.0]
    with pytest.raises(ValueError, match="weight must be a finite number from 0 to 9, but is 10"):
        losses.build("summed", weight=10)


class Drifting(losses.EmbeddingLoss):
    """A loss of a stranger who writes an ``__init__``, and says which type a buffer has."""

    center: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.ones(dim))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings - self.center).square().mean()


def test_a_loss_may_have_an_init_of_its_own():
    assert list(inspect.signature(Drifting).parameters) == ["dim"]
    assert Drifting(2)(torch.zeros(3, 2), torch.arange(3)) == 1


def test_what_is_tuned_is_an_argument_and_its_range_can_be_built():
    for entry in losses.entries():
        for argument, (scale, low, high) in (entry.space or {}).items():
            assert scale in ("log", "linear")
            assert (0 if scale == "log" else -float("inf")) < low < high
            for value in (low, high):
                losses.build(entry.name, num_classes=5, dim=16, **{argument: value})


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


OWN = """
import torch
from torch import nn


class Pull(nn.Module):
    space = {"weight": ("log", 0.1, 10.0)}

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = weight

    def forward(self, embeddings, labels):
        same = labels[:, None] == labels
        return self.weight * ((embeddings @ embeddings.T) * same).mean()


class Push(Pull):
    family = "groups"
    space = {"weight": ("linear", 1.0, 2.0)}

    def __init__(self, num_classes, embedding_size, **kwargs):
        super().__init__(**kwargs)
        self.centers = nn.Parameter(torch.zeros(num_classes, embedding_size))


class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A file of losses in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mylosses.py"
    path.write_text(OWN)
    return path


def test_a_class_in_a_file_is_a_loss_like_any_other(own):
    name = "mylosses.py:Pull"
    found = losses.entry(name)
    assert (found.family, dict(found.space)) == ("pairs", {"weight": ("log", 0.1, 10.0)})
    assert list(losses.signature(name)) == ["weight"]
    x, y = torch.ones(2, 3), torch.tensor([0, 1])
    assert losses.build(name, num_classes=2, dim=3, weight=4.0)(x, y) == 4 * 3 / 2
    assert losses.build(f"{own}:Pull")(x, y) == 3 / 2
    assert name not in losses.names()
    assert str(own.parent) not in sys.path  # for longer than it takes


POSTPONED = """
from __future__ import annotations

from dmlkit.losses import EmbeddingLoss, setting


class Pull(EmbeddingLoss):
    weight: float = setting(default=1.0, low=0, tune=("linear", 0.5, 2.0))
    most: int | None = setting(default=None, low=1)

    def equation(self, embeddings, labels):
        return self.weight * embeddings.square().mean()
"""


def test_settings_of_a_file_whose_hints_are_postponed_are_refused_as_well(own):
    own.write_text(POSTPONED)
    name = "mylosses.py:Pull"
    assert dict(losses.entry(name).space) == {"weight": ("linear", 0.5, 2.0)}
    assert losses.build(name, weight=3, most=None)(torch.ones(2, 3), torch.tensor([0, 1])) == 3
    with pytest.raises(ValueError, match="weight must be a finite number from 0, but is -1"):
        losses.build(name, weight=-1)
    with pytest.raises(ValueError, match="most must be a whole number from 1, but is 0"):
        losses.build(name, most=0)


def test_sizes_and_what_bases_take_reach_a_class_that_hands_them_on(own):
    assert set(losses.signature("mylosses.py:Push")) == {"num_classes", "embedding_size", "weight"}
    loss = losses.build("mylosses.py:Push", num_classes=5, dim=4, weight=2.0)
    assert loss.centers.shape == (5, 4)
    assert loss.weight == 2
    assert losses.entry("mylosses.py:Push").family == "groups"
    with pytest.raises(TypeError, match="not slope"):
        losses.build("mylosses.py:Push", num_classes=5, dim=4, slope=2.0)
    with pytest.raises(ValueError, match="needs num_classes"):
        losses.build("mylosses.py:Push", dim=4)


@pytest.mark.parametrize("name", ["CircleLoss", "CosFaceLoss", "SubCenterArcFaceLoss"])
def test_losses_of_pytorch_metric_learning_go_in_as_they_are(name):
    pml = pytest.importorskip("pytorch_metric_learning.losses")
    full = f"pytorch_metric_learning.losses:{name}"
    torch.manual_seed(0)
    ours = losses.build(full, num_classes=4, dim=8)
    torch.manual_seed(0)
    sizes = {} if name == "CircleLoss" else {"num_classes": 4, "embedding_size": 8}
    theirs = getattr(pml, name)(**sizes)
    x, y = torch.randn(12, 8), torch.arange(12) % 4
    assert ours(x, y) == theirs(x, y)
    assert losses.entry(full).family == ("proxies" if sizes else "pairs")


def test_a_file_that_was_edited_is_loaded_anew_and_else_not(own):
    before = losses.entry("mylosses.py:Pull").make
    assert losses.entry("mylosses.py:Pull").make is before
    own.write_text(OWN.replace("weight=1.0", "weight=3.0"))
    assert losses.signature("mylosses.py:Pull")["weight"].default == 3
    own.write_text("raise RuntimeError('half written')")
    with pytest.raises(ImportError, match=r"mylosses\.py fails: RuntimeError: half written"):
        losses.build("mylosses.py:Pull")


def test_what_lies_beside_the_file_is_found(own):
    (own.parent / "beside_the_losses.py").write_text("WEIGHT = 7.0\n")
    own.write_text("from beside_the_losses import WEIGHT\n" + OWN.replace("=1.0", "=WEIGHT"))
    assert losses.build("mylosses.py:Pull").weight == 7


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("nothing.py:Pull", ImportError, r"nothing\.py fails: FileNotFoundError: .*nothing\.py"),
        ("no_such_module:Pull", ImportError, "no_such_module fails: ModuleNotFoundError: .* named"),
        ("mylosses.py:Pul", ValueError, "no torch.nn.Module 'Pul'; its losses are Pull, Push"),
        ("mylosses.py:Plain", ValueError, "no torch.nn.Module 'Plain'; its losses are Pull, Push"),
        ("mylosses.py:", ValueError, r"'path/to/file\.py:Class' or 'package\.module:Class'"),
        ("my losses:Pull", ValueError, "but this is 'my losses:Pull'"),
        ("__main__:Pull", ValueError, "write the class to a file"),
    ],
)
def test_what_is_no_loss_is_refused_in_words(own, name, error, match):
    with pytest.raises(error, match=match):
        losses.build(name)


def test_a_space_of_what_the_class_does_not_take_is_refused(own):
    own.write_text(OWN.replace('{"weight": ("log"', '{"height": ("log"'))
    with pytest.raises(TypeError, match=r"space of mylosses\.py:Pull takes weight; not height"):
        losses.entry("mylosses.py:Pull")


@pytest.mark.parametrize(
    ("space", "match"),
    [
        ('{"weight": ("log", 0.0, 1.0)}', "the lowest of 'log' above 0"),
        ('{"weight": ("linear", 2.0, 1.0)}', r"must be \('log' or 'linear', lowest, highest\)"),
        ('{"weight": (0.1, 1.0)}', r"is \(0.1, 1.0\)"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(own, space, match):
    own.write_text(OWN.replace('{"weight": ("log", 0.1, 10.0)}', space))
    with pytest.raises(ValueError, match=match):
        losses.entry("mylosses.py:Pull")
