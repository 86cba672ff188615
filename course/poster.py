"""The poster of all losses: equation, year, force and cost of each, drawn from the package itself.

``python -m course.poster`` writes docs/poster.svg.

Equation and year are those of the table of losses. The force is measured, by autograd, on the loss
that ``losses.build`` gives: see ``forces``. The cost is that of ``benchmarks/RESULTS.md``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from course.results import RESULTS, section
from dmlkit import ROOT, figures, losses
from dmlkit.losses.forces import axes, build_at, turning_force
from dmlkit.losses.table import Entry

#: Angles of the sample, in degrees: none of them is a place where a loss has a kink.
ANGLES = np.arange(1.3, 90, 2.6)
#: Norm of all embeddings; losses that normalize do not feel it.
NORM = 3.0
_DIM, _DRAWS, _COLUMNS = 24, 8, 5
#: Of the equations.
SYMBOLS = (
    r"$s$ cosine, $D$ distance, $f$ raw embedding, $a$ anchor, $p$ positive, $n$ negative, "
    "\n"
    r"$y$ own class, $z$ any class, $\theta$ angle to a proxy, $\sigma$ temperature, $\alpha$ "
    r"scale, $m$ margin, $[\,\cdot\,]_+=\max(\cdot,\,0)$, sig sigmoid, LSE log-sum-exp. "
    "Means over anchors are left out."
)
_HOW = (
    "A sample is turned from its class (0°) to another one (90°): how strongly does the loss draw "
    "it back? Below 0 it drives the sample on. Computed by autograd at the default settings; each "
    "curve is scaled by its largest force.\n"
    r"$\times$: time of forward and backward over that of contrastive (512 embeddings of 128 "
    f"dimensions, 1,000 proxies, two cores).  {SYMBOLS}"
)
# Losses that look at the first two images of a class alone, and those that draw at random.
_OF_TWO = {"n_pairs", "n_pairs_normalized", "symmetrical_synthesis"}
_RANDOM = {"triplet_distance", "margin", "spherical_expansion"}
# SphereFace's annealing starts beside the plain softmax: here it is at its end.
_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {"sphereface": {"lambda_max": 5.0}}

_TINTS = {
    "pairs": "#cfe3f5", "ranking": "#fbe3c0", "groups": "#d5ecd9", "proxies": "#f3d6e4",
    "memory": "#e0dcf2", "ensembles": "#efe6b8", "hyperbolic": "#d2eef0", "synthesis": "#f5d5cb",
    "sizes": "#e3e3e3",
}  # fmt: skip


def forces(name: str) -> np.ndarray:
    """Force of a loss on one sample, towards its class, at each of ``ANGLES``; largest size 1.

    The classes have their centers at 0° and 90°, with four samples each (two, for losses that take
    no more) at 6 to 13° around them, and proxies there. One sample of the first class is turned
    from 1° to 89°, and its force is minus the gradient along the circle; above 0 it draws the
    sample to its class. All norms are 3; random losses are the mean of 8 draws.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        loss, at = _built(name)
        batch, labels = _batch(at, 2 if name in _OF_TWO else 4)
        found = np.zeros(len(ANGLES))
        for i, angle in enumerate(ANGLES):
            draws = []
            for draw in range(_DRAWS if name in _RANDOM else 1):
                torch.default_generator.manual_seed(draw)  # on the CPU alone: quick
                draws.append(turning_force(loss, batch, labels, 1, at[0], at[1], angle))
            found[i] = np.mean(draws)
    return np.round(found / np.abs(found).max(), 4) + 0.0


def _built(name: str) -> tuple[nn.Module, Tensor]:
    """A loss for two classes, and four orthonormal axes (4, d), the first two those of classes."""
    if name == "meta_class":  # its proxies are the axes themselves
        loss = losses.build(name, num_classes=4, dim=4).double()
        of_class: Any = loss.meta_classes
        return loss, axes(4, 4)[of_class]
    at = axes(4, _DIM)
    return build_at(name, at[:2], **_ARGUMENTS.get(name, {})), at


def _batch(at: Tensor, per_class: int) -> tuple[Tensor, Tensor]:
    """Samples around the centers of two classes, of which the second is to be turned; labels."""
    turns = torch.deg2rad(torch.tensor([6.0, 13.0, 8.0, 11.0], dtype=torch.float64))[:per_class]
    sides = (at[2], at[3], -at[2], -at[3])
    rows = [
        NORM * (turn.cos() * center + turn.sin() * side)
        for center in at[:2]
        for turn, side in zip(turns, sides, strict=False)
    ]
    return torch.stack(rows), torch.arange(2).repeat_interleave(per_class)


def costs() -> dict[str, float]:
    """Time of a loss, forward and backward, over that of contrastive, from the benchmarks' table.

    A loss that is not in the table has none.
    """
    rows = {row["what"]: row for row in section(RESULTS.read_text(), "losses")}
    unit = float(rows["contrastive, B = 512, d = 128"]["ours_ms"])
    return {
        entry.name: float(rows[key]["ours_ms"]) / unit
        for entry in losses.entries()
        if (key := f"{entry.name}, B = 512, d = 128") in rows
    }


def draw() -> Figure:
    """A card for every loss that is studied."""
    entries, cost = [entry for entry in losses.entries() if entry.studied], costs()
    rows = -(-len(entries) // _COLUMNS)
    with plt.rc_context({"figure.constrained_layout.use": False}):  # cards have fixed places
        fig = plt.figure(figsize=(11.7, 1.0 + 1.74 * rows))
    fig.patch.set_facecolor("white")
    top = 1 - 1.0 / fig.get_figheight()
    _write_head(fig, entries, top)
    for i, entry in enumerate(entries):
        row, column = divmod(i, _COLUMNS)
        box = (0.008 + 0.197 * column, top - (row + 1) * top / rows, 0.192, 0.965 * top / rows)
        _draw_card(fig, box, entry, forces(entry.name), cost.get(entry.name))
    return fig


def _write_head(fig: Figure, entries: Sequence[Entry], top: float) -> None:
    inch = 1 / fig.get_figheight()
    title = f"{len(entries)} losses, and the force of each"
    fig.text(0.01, 1 - 0.22 * inch, title, size=14, weight="bold", va="center")
    families = list(dict.fromkeys(entry.family for entry in entries))
    for i, family in enumerate(families):
        x, y = 0.992 - 0.066 * (len(families) - i), 1 - 0.31 * inch
        tint = _TINTS.get(family, "0.9")
        fig.add_artist(Rectangle((x, y), 0.063, 0.18 * inch, fc=tint, ec="0.6", lw=0.5))
        fig.text(x + 0.0315, y + 0.09 * inch, family, size=7, ha="center", va="center")
    fig.text(0.01, top + 0.27 * inch, _HOW, size=7, va="center", linespacing=1.5)


def _draw_card(
    fig: Figure, box: tuple[float, float, float, float], entry: Entry, force: np.ndarray,
    cost: float | None,
) -> None:  # fmt: skip
    x, y, w, h = box
    tint = _TINTS.get(entry.family, "0.9")
    fig.add_artist(Rectangle((x, y), w, h, fc="none", ec="0.7", lw=0.6))
    fig.add_artist(Rectangle((x, y + 0.87 * h), w, 0.13 * h, fc=tint, ec="0.7", lw=0.6))
    fig.text(x + 0.004, y + 0.935 * h, entry.title, size=8, weight="bold", va="center")
    fig.text(x + w - 0.004, y + 0.935 * h, str(entry.year), size=7.5, va="center", ha="right")
    lines = entry.equation.split("\n")
    for i, line in enumerate(lines):
        at = y + (0.735 + 0.13 * ((len(lines) - 1) / 2 - i)) * h
        fig.text(x + w / 2, at, line, size=7.2, va="center", ha="center")
    color = figures.look(entry.name).color
    axes = fig.add_axes((x + 0.022, y + 0.12 * h, w - 0.034, 0.42 * h))
    axes.axhline(0, color="0.6", lw=0.6)
    axes.plot(ANGLES, force, color=color, lw=1.5)
    axes.fill_between(ANGLES, force, 0, color=color, alpha=0.12, lw=0)
    axes.set(xlim=(0, 90), ylim=(min(-0.08, 1.08 * force.min()), max(0.08, 1.12 * force.max())))
    axes.set_xticks([0, 30, 60, 90], ["0°", "30°", "60°", "90°"], fontsize=6)
    axes.set_yticks([0], ["0"], fontsize=6)
    axes.tick_params(length=2, pad=1.5)
    axes.grid(False)
    if cost is not None:
        said = f"× {cost:.2g}" if cost < 10 else f"× {cost:.0f}"
        fig.text(x + w - 0.012, y + 0.58 * h, said, size=6.5, ha="right", va="center", color="0.25")


if __name__ == "__main__":
    draw().savefig(ROOT / "docs" / "poster.svg", metadata={"Date": None})
