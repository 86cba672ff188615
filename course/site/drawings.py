"""What the site draws of a loss, as SVG in the colors of its style sheet."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy import stats

from course import poster
from dmlkit.losses.forces import axes, build_at, value_and_forces

#: Room for the eight points of SEE; three parts and any prefix hold the plane.
_DIM = 12
#: Degrees of six points on the circle, two of each class.
_BATCH = np.array([0.0, 50.0, 110.0, 160.0, 230.0, 300.0])
#: Of a row of evidence, in pixels, and points behind the best at its left end.
_LEFT, _WIDE, _ROW, _FAR = 225, 310, 44, 12


def field(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Six points of three classes on the circle, and the force of a loss on each: (6, 2) both."""
    plane = axes(2, _DIM)  # (2, d)

    def on_circle(degrees: np.ndarray) -> torch.Tensor:
        turn = torch.deg2rad(torch.as_tensor(degrees))
        return torch.stack([turn.cos(), turn.sin()], dim=1) @ plane  # (n, d)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = build_at(name, on_circle(_BATCH.reshape(3, 2).mean(axis=1)))
        points = on_circle(_BATCH)
        force = value_and_forces(loss, points, torch.arange(3).repeat_interleave(2))[1]
    return (points @ plane.T).numpy(), (force @ plane.T).numpy()


def springs(name: str) -> str:
    """A loss on six points of three classes: the force on each."""
    points, force = field(name)
    force = 0.6 * force / max(1e-12, np.linalg.norm(force, axis=1).max())
    shapes = (
        '<circle r=".1"/>', '<path d="M-.09-.09h.18v.18h-.18z"/>', '<path d="M0-.12.11.08h-.22z"/>'
    )  # fmt: skip
    parts = []
    for i, ((x, y), (u, v)) in enumerate(zip(points, force, strict=True)):
        if np.hypot(u, v) > 0.02:
            line = f'x1="{x:.3f}" y1="{-y:.3f}" x2="{x + u:.3f}" y2="{-y - v:.3f}"'
            parts.append(f'<line {line} marker-end="url(#tip)"/>')
        place = f'class="{"abc"[i // 2]}" transform="translate({x:.3f} {-y:.3f})"'
        parts.append(f"<g {place}>{shapes[i // 2]}</g>")
    return (
        '<svg class="springs" viewBox="-1.7 -1.7 3.4 3.4" role="img" aria-label="Six points of '
        'three classes on a circle, and an arrow at each"><defs><marker id="tip" viewBox="0 0 10 '
        '10" refX="7" refY="5" markerWidth="4.5" markerHeight="4.5" orient="auto"><path d="M0 0 10 '
        f'5 0 10z"/></marker></defs><circle class="ring" r="1"/>{"".join(parts)}</svg>'
    )


@cache
def curve(name: str) -> str:
    """The force that turns a sample back to its class against its angle, without words."""
    force = poster.forces(name)
    tall = 42 / (1 - min(0, force.min()))
    x, y = poster.ANGLES / 90 * 100, 3 + tall * (1 - force)
    line = " ".join(f"{a:.0f} {b:.1f}" for a, b in zip(x, y, strict=True))
    return (
        '<svg class="curve" viewBox="0 0 100 48" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="zero" d="M0 {3 + tall:.1f}H100"/><path class="line" d="M{line}"/></svg>'
    )


def evidence(name: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A loss in every condition that has it: points behind the best, with 95 % intervals.

    ``results`` are those of ``atlas.results``. Every other loss is a gray tick; what lies farther
    behind than the axis reaches stands at its end.
    """
    there = {condition: each for condition, each in results.items() if name in each}
    end = _ROW * len(there) + 8
    ticks = [
        f'<path class="grid" d="M{_at(points):.0f} 4V{end}"/>'
        f'<text class="tick" x="{_at(points):.0f}" y="{end + 16}">'
        f"{f'−{points}' if points else 'best'}</text>"
        for points in range(0, _FAR + 1, 3)
    ]
    rows = [
        _row(_ROW * (i + 0.5) + 6, condition, each, name)
        for i, (condition, each) in enumerate(there.items())
    ]
    said = "; ".join(
        f"{condition}: {100 * each[name]['behind']:.1f} points behind the best"
        for condition, each in there.items()
    )
    return (
        f'<svg class="evidence" viewBox="0 0 660 {end + 42}" role="img" aria-label="{said}.">'
        f'{"".join([*ticks, *rows])}<text class="tick" x="{_LEFT + _WIDE / 2}" y="{end + 36}">'
        "points of Recall@1 behind the best loss</text></svg>"
    )


def _at(points: float) -> float:
    """Where so many points behind the best lie."""
    return _LEFT + _WIDE * float(np.clip(1 - points / _FAR, 0, 1.18))


def _row(y: float, condition: str, all_of_it: Mapping[str, Mapping[str, Any]], name: str) -> str:
    def parts() -> Iterator[str]:
        own = all_of_it[name]
        for other, row in all_of_it.items():
            if other != name:
                x = _at(100 * row["behind"])
                yield f'<path class="other" d="M{x:.1f} {y - 7:.0f}v14"/>'
        reach = own["error"] * stats.t.ppf(0.975, own["df"])
        low, high = (_at(100 * (own["behind"] + sign * reach)) for sign in (1, -1))
        yield f'<path class="own" d="M{low:.1f} {y:.0f}H{high:.1f}"/>'
        yield f'<circle class="own" cx="{_at(100 * own["behind"]):.1f}" cy="{y:.0f}" r="6"/>'
        yield f'<text x="0" y="{y + 5:.0f}">{condition}</text>'
        yield f'<text class="score" x="660" y="{y + 5:.0f}">{100 * own["mean"]:.1f} %</text>'

    return "".join(parts())


def dots(counts: Mapping[str, int]) -> str:
    """How many tests found what was claimed, or did not, or could not tell: a dot for each."""
    words = {
        "found": "found a narrower form of what was claimed",
        "ruled out": "does not hold",
        "open": "could not tell",
    }
    lines = [
        f'<li class="{key.replace(" ", "-")}"><b>{counts[key]}</b> {said}'
        f'<span aria-hidden="true">{"<i></i>" * counts[key]}</span></li>'
        for key, said in words.items()
    ]
    return f'<ul class="dots">{"".join(lines)}</ul>'
