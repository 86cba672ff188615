"""What a reader moves: an explorable is a module ``NAME.js`` that draws, ``NAME.py`` that computes.

Lessons show one by ``dmlkit.figures.explore``, the site in place of the still picture. README.md
says how to write one.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from dmlkit import losses

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Slider:
    """A number that a reader sets, as the lesson writes it."""

    label: str
    low: float
    high: float
    value: float
    log: bool = False
    step: float = 0.0
    setting: str = ""  # of dmlkit's loss, where it is one
    inner: Callable[[Tensor], Tensor] = torch.clone  # what dmlkit is given

    def describe(self) -> dict[str, Any]:
        """What the browser needs to know."""
        return {key: getattr(self, key) for key in ("label", "low", "high", "value", "log", "step")}


@dataclass(frozen=True)
class Choice:
    """One entry of the menu, what to try with it, and its sliders."""

    name: str
    title: str
    question: str
    sliders: tuple[Slider, ...] = ()
    start: tuple[tuple[float, ...], ...] = ()  # where this entry has places of its own

    def loss(self, numbers: Tensor, num_classes: int, dim: int = 2) -> nn.Module:
        """dmlkit's loss of this name with these numbers, which may be inputs of a graph."""
        loss = losses.build(self.name, num_classes=num_classes, dim=dim)
        for slider, number in zip(self.sliders, numbers, strict=True):
            object.__setattr__(loss, slider.setting, slider.inner(number))
        return loss


#: From a choice, its numbers (K,) and points (N, 1) or (N, 2) to what is drawn and shown.
Formula = Callable[[Choice, Tensor, Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Explorable:
    """All of an explorable but its drawing, which is the module beside it."""

    figure: str  # the still picture in whose place it stands
    alt: str
    discover: str  # what is there to find: hidden until asked for
    choices: tuple[Choice, ...]
    points: Callable[[], list[dict[str, str]]]  # name; label, src, kind
    start: tuple[tuple[float, ...], ...]  # one or two numbers for each point
    formula: Formula
    readouts: Mapping[str, str]  # label of each number of the answer that is always shown
    menu: str = "Loss"
    data: Callable[[], dict[str, Any]] = field(default=dict)  # what else the drawing needs

    def describe(self) -> dict[str, Any]:
        """What the browser needs to know, and what does not change while a reader drags."""
        own = {key: getattr(self, key) for key in ("alt", "discover", "readouts", "menu")}
        choices = [
            {key: getattr(choice, key) for key in ("name", "title", "question")}
            | {"sliders": [slider.describe() for slider in choice.sliders]}
            | {"start": choice.start or self.start}
            for choice in self.choices
        ]
        return {**own, "choices": choices, "points": self.points(), "data": self.data()}

    def choice(self, name: str) -> Choice:
        """An entry of the menu by its name."""
        return next(choice for choice in self.choices if choice.name == name)

    def answer(
        self, name: str, numbers: Sequence[float], points: Sequence[Sequence[float]]
    ) -> dict[str, Any]:
        """What the browser is told: the formula's numbers, in float64, as lists."""
        given = (torch.tensor(part, dtype=torch.float64) for part in (numbers, points))
        found = self.formula(self.choice(name), *given)
        return {key: tensor.tolist() for key, tensor in found.items()}

    def begin(self, name: str = "") -> tuple[str, list[float], list[list[float]]]:
        """The question that an entry of the menu begins with; without its name, the first one's."""
        choice = self.choice(name) if name else self.choices[0]
        numbers = [slider.value for slider in choice.sliders]
        return choice.name, numbers, [list(point) for point in choice.start or self.start]


def names() -> list[str]:
    """Every explorable: whatever has a module and a Python file of one name in this folder.

    >>> "springs" in names()
    True
    """
    return sorted(path.stem for path in HERE.glob("*.js") if path.with_suffix(".py").exists())


@cache
def load(name: str) -> Explorable:
    """An explorable by its name.

    Raises ValueError for a name that is not there.
    """
    if name not in names():
        raise ValueError(f"expected one of {', '.join(names())}, got {name!r}")
    found: Explorable = import_module(f"course.explorables.{name}").EXPLORABLE
    return found


@cache
def of_figures() -> dict[str, str]:
    """The explorable that stands in the place of a still picture, by the picture's name."""
    return {load(name).figure: name for name in names()}


# --- What explorables share -----------------------------------------------------------------------


def on_circle(degrees: Tensor) -> Tensor:
    """Points (N, 2) of the unit circle at angles (N, 1) in degrees.

    >>> on_circle(torch.tensor([[0.0], [60.0]]))
    tensor([[1.0000, 0.0000],
            [0.5000, 0.8660]])
    """
    turn = degrees.deg2rad()
    return torch.cat([turn.cos(), turn.sin()], dim=1)


def turning(points: Tensor, forces: Tensor) -> Tensor:
    """The part of forces (N, 2) that turns unit points (N, 2) counterclockwise: (N,)."""
    return points[:, 0] * forces[:, 1] - points[:, 1] * forces[:, 0]


def ink(image: Tensor) -> str:
    """A glyph (1, 32, 32) of 0 to 255 as a data URL: its ink alone, in the middle, as a mask."""
    gray = image.float() / 255
    drawn = (2.2 * gray - 0.5).clamp(0, 1) * (F.avg_pool2d(gray, 3, 1, 1) > 0.25)  # no specks
    box = [(part.amin() + part.amax() + 1) // 2 for part in drawn[0].nonzero().T]
    mask = (255 * drawn[0].roll([16 - int(middle) for middle in box], [0, 1])).round().byte()
    file = io.BytesIO()
    layers = np.dstack([np.zeros_like(mask.numpy()), mask.numpy()])
    Image.fromarray(layers, "LA").save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
