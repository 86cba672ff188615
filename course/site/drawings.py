"""Small drawings as SVG inside a page: their colors follow the page's, light or dark."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dmlkit import losses

WIDTH, HEIGHT = 340, 240
_DIM = 12  # room for the eight points of SEE; three parts and any prefix hold the plane
_DEGREES = np.arange(2, 180, 4)
_BATCH = (0.0, 50.0, 110.0, 160.0, 230.0, 300.0)  # degrees of six points, two of each class


def svg(body: str, title: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    """A drawing with its words for those who do not see it."""
    return (
        f'<svg class="drawing" role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><title>{escape(title)}</title>{body}</svg>'
    )


# --- Forces ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forces:
    """What a loss at its defaults does to points of a circle, by autograd."""

    angles: np.ndarray  # degrees between a point and its class: (A,)
    turning: np.ndarray  # force that turns it back to its class: (A,)
    batch: np.ndarray  # six points (6, 2)
    arrows: np.ndarray  # minus the gradient at each (6, 2)


def _plane(angles: Sequence[float]) -> Tensor:
    """Points of a circle, in a plane that all prefixes and parts of the vector share: (n, d)."""
    turn = torch.deg2rad(torch.tensor(angles, dtype=torch.float64))
    axes = torch.eye(2, dtype=torch.float64).repeat(1, _DIM // 2) / math.sqrt(_DIM / 2)
    return torch.stack([turn.cos(), turn.sin()], dim=1) @ axes


def _built(name: str, centers: Tensor) -> nn.Module:
    """The loss at its defaults; where it has proxies, they lie at the centers of the classes."""
    torch.manual_seed(0)
    loss = losses.build(name, num_classes=len(centers), dim=_DIM).double()
    for key, weights in loss.named_parameters():
        if key.endswith("proxies") and weights.shape[-1] == _DIM:
            places = centers.reshape(len(centers), *[1] * (weights.dim() - 2), _DIM)
            weights.data.copy_(places.expand_as(weights))
    return loss


def _pull(name: str, points: Sequence[float], centers: Sequence[float], each: int) -> Tensor:
    """Minus the gradient of a fresh loss at points of a circle, in its plane: (n, 2)."""
    with torch.random.fork_rng(devices=[]):
        loss = _built(name, _plane(centers))
        x = _plane(points).requires_grad_()
        labels = torch.arange(len(centers)).repeat_interleave(each)
        (gradient,) = torch.autograd.grad(loss(x, labels), x)
    return -gradient @ _plane([0.0, 90.0]).T


@cache
def forces(name: str) -> Forces:
    """The forces of a registered loss.

    One point of a class turns from its fellow, at 0°, to the two points of another class, at 170°
    and 190°; the turning force is positive towards its own class.
    """
    turning = []
    for angle in map(float, _DEGREES):
        turn = math.radians(angle)
        back = torch.tensor([math.sin(turn), -math.cos(turn)], dtype=torch.float64)
        pull = _pull(name, [0.0, angle, 170.0, 190.0], [0.0, 180.0], 2)[1]
        turning.append(float(pull @ back))
    centers = [(a + b) / 2 for a, b in zip(_BATCH[::2], _BATCH[1::2], strict=True)]
    batch = np.radians(_BATCH)
    return Forces(
        _DEGREES,
        np.array(turning),
        np.stack([np.cos(batch), np.sin(batch)], axis=1),
        _pull(name, _BATCH, centers, 2).numpy(),
    )


def weight_curve(name: str) -> str:
    """The turning force against the angle between a point and its class."""
    found = forces(name)
    low, high = min(0.0, found.turning.min()), max(1e-9, found.turning.max())
    x = 46 + found.angles / 180 * (WIDTH - 62)
    y = 200 - (found.turning - low) / (high - low) * 180
    zero = 200 + low / (high - low) * 180
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    ticks = "".join(
        f'<text x="{46 + d / 180 * (WIDTH - 62):.0f}" y="218" text-anchor="middle">{d}°</text>'
        for d in (0, 60, 120, 180)
    )
    bounds = {24.0: f"{high:.2g}"} | ({204.0: f"{low:.2g}"} if low < -0.05 * high else {})
    sides = "".join(
        f'<text x="40" y="{y:.0f}" text-anchor="end">{t}</text>' for y, t in bounds.items()
    )
    body = (
        f'<line class="axis" x1="46" x2="{WIDTH - 16}" y1="{zero:.1f}" y2="{zero:.1f}"/>'
        f'<line class="axis" x1="46" x2="46" y1="20" y2="200"/>'
        f'<text x="40" y="{zero + 4:.0f}" text-anchor="end">0</text>{sides}{ticks}'
        f'<polyline class="curve" points="{line}"/>'
        f'<text x="{46 + (WIDTH - 62) / 2:.0f}" y="236" text-anchor="middle">'
        "angle to its own class</text>"
    )
    where = found.angles[found.turning.argmax()]
    return svg(body, f"Turning force of {name} by angle: largest, {high:.3g}, at {where} degrees")


def force_field(name: str) -> str:
    """Six points of three classes on the circle, with the force on each."""
    found, center, radius = forces(name), np.array([WIDTH / 2, HEIGHT / 2]), 72
    longest = max(1e-12, np.linalg.norm(found.arrows, axis=1).max())
    begin = center + radius * found.batch * [1, -1]
    end = begin + 44 * found.arrows / longest * [1, -1]
    body = f'<circle class="axis" cx="{center[0]}" cy="{center[1]}" r="{radius}"/>'
    for i, ((x, y), (u, v)) in enumerate(zip(begin, end, strict=True)):
        body += _arrow(x, y, u, v) + _point(i // 2, x, y)
    return svg(
        body, f"Forces of {name} on six points of three classes; the longest is {longest:.3g}"
    )


def _point(kind: int, x: float, y: float) -> str:
    """A circle, a square or a triangle: the class is seen without color."""
    if kind == 0:
        return f'<circle class="c0" cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
    if kind == 1:
        return f'<rect class="c1" x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12"/>'
    return f'<path class="c2" d="M{x:.1f} {y - 8:.1f}l8 14h-16z"/>'


def _arrow(x: float, y: float, u: float, v: float) -> str:
    length = math.hypot(u - x, v - y)
    if length < 1:
        return ""
    a, b = (u - x) / length * 5, (v - y) / length * 5
    head = f"{u:.1f},{v:.1f} {u - 2 * a + b:.1f},{v - 2 * b - a:.1f} {u - 2 * a - b:.1f},"
    head += f"{v - 2 * b + a:.1f}"
    line = f'<line class="force" x1="{x:.1f}" y1="{y:.1f}" x2="{u - a:.1f}" y2="{v - b:.1f}"/>'
    return f'{line}<polygon class="head" points="{head}"/>'


# --- Intervals ------------------------------------------------------------------------------------


def span(parts: pd.DataFrame) -> tuple[float, float]:
    """The ends of the axis of a forest plot: all intervals, and 0."""
    low, high = min(0.0, parts["low"].min()), max(0.0, parts["high"].max())
    room = 0.04 * ((high - low) or 1.0)
    return low - room, high + room


def bar(low: float, mean: float, high: float, ends: tuple[float, float], margin: float) -> str:
    """One row of a forest plot, without words, as wide as its place: these stand beside it."""

    def at(value: float) -> float:
        return round(100 * (min(max(value, ends[0]), ends[1]) - ends[0]) / (ends[1] - ends[0]), 2)

    left, right = at(-margin), at(margin)
    lines = f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="0" y2="20"/>'
    lines += f'<line class="interval" x1="{at(low)}" x2="{at(high)}" y1="10" y2="10"/>'
    lines += f'<line class="mean" x1="{at(mean)}" x2="{at(mean)}" y1="4" y2="16"/>'
    return (
        '<svg class="bar" aria-hidden="true" viewBox="0 0 100 20" preserveAspectRatio="none">'
        f'<rect class="margin" x="{left}" width="{right - left:.2f}" y="0" height="20"/>'
        f"{lines}</svg>"
    )


# --- The course -----------------------------------------------------------------------------------


def course_map(titles: Mapping[str, str], needs: Mapping[str, Sequence[str]]) -> str:
    """Notebooks one below the other, with an arc from each to those that build on it."""
    numbers, step = list(titles), 22
    row = {number: 16 + step * i for i, number in enumerate(numbers)}
    body = ""
    for number in numbers:
        body += f'<text x="92" y="{row[number] + 4}">{number} {escape(titles[number])}</text>'
        body += f'<circle class="c0" cx="80" cy="{row[number]}" r="4"/>'
        for before in needs[number]:
            a, b = row[before], row[number]
            bend = 80 - min(76, 10 + (b - a) * 0.25)
            body += f'<path class="arc" d="M76 {a}C{bend:.0f} {a} {bend:.0f} {b} 76 {b}"/>'
    words = "; ".join(f"{n} needs {', '.join(needs[n]) or 'nothing'}" for n in numbers)
    return svg(body, f"What needs what: {words}", 400, step * len(numbers) + 12)
