"""What lesson 03 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from dmlkit import figures

INK = {"hard": figures.WRONG, "semi-hard": figures.RIGHT, "easy": "0.5"}
PAYS, PAYS_NOT = figures.WRONG, "0.15"
_APART = 0.18  # images nearer than this are dots


def annuli(
    squared: Mapping[str, Tensor], negative: Tensor, batch: Tensor, images: Tensor
) -> tuple[Figure, dict[str, Any]]:
    """The first image of a batch and its negatives at their true distances, by network."""
    fig, panels = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.9))
    numbers: dict[str, Any] = {}
    mate = 1  # the second image of the first character is the positive
    for axes, (when, D2) in zip(panels, squared.items(), strict=True):
        order = D2[negative].argsort()
        others, shown = D2[negative][order], batch[negative][order]
        edges = [D2[mate].item(), D2[mate].item() + 0.2]
        kinds = [("hard", "semi-hard", "easy")[i] for i in np.digitize(others, edges)]
        for radius, color in ((edges[1] ** 0.5, "#e4eff8"), (edges[0] ** 0.5, "#fdf0e6")):
            axes.add_patch(Circle((0, 0), radius, color=color, lw=0))
        axes.set_axis_off()
        places = _spaced(np.concatenate([D2[mate : mate + 1], others]).clip(0) ** 0.5)
        gaps = np.linalg.norm(places[1:, None] - places[None], axis=2)
        gaps[np.arange(len(gaps)), np.arange(len(gaps)) + 1] = np.inf  # of each to itself
        for i, place, name, gap in zip(shown, places[1:], kinds, gaps.min(axis=1), strict=True):
            if gap > _APART:
                _stamp(axes, images[i], place, INK[name])
            else:  # images would overlap
                axes.plot(*place, "o", color=INK[name], ms=3.8, mew=0, zorder=3)
        corner = float(places[0][0]) - 0.17, float(places[0][1]) - 0.17
        axes.add_patch(Rectangle(corner, 0.34, 0.34, fc="white", ec="black", lw=1.2, zorder=4))
        for i, place in ((batch[0], np.zeros(2)), (batch[mate], places[0])):
            _stamp(axes, images[i], place, "black", 0.16, zorder=5)
        count = {name: kinds.count(name) for name in INK}
        teach = count["hard"] + count["semi-hard"]
        axes.set_title(f"{when}: {teach} of 124 teach", fontweight="bold")
        for k, (name, color) in enumerate(INK.items()):
            said = f"{count[name]} {name}"
            axes.text((-1.6, -0.55, 0.95)[k], -2.3, said, color=color, fontsize=9.5)
        axes.set(xlim=(-2.1, 2.1), ylim=(-2.35, 2.05), aspect="equal")
        numbers[when] = figures.example(count | {"D2_ap": D2[mate], "D2_an": D2[negative]})
    return fig, numbers


def _stamp(
    axes: Axes, image: Tensor, place: np.ndarray, color: str, r: float = 0.14, zorder: float = 3
) -> None:
    """One character in a color, without its background, at a place."""
    ink = np.empty((32, 32, 4))
    ink[..., :3] = to_rgb(color)
    ink[..., 3] = ((image[0].numpy() - 0.25) / 0.35).clip(0, 1)
    x, y = place
    axes.imshow(ink, extent=(x - r, x + r, y - r, y + r), zorder=zorder)


def _spaced(distances: np.ndarray) -> np.ndarray:
    """Places (N, 2) at these distances from 0, turned so that they keep off each other."""
    places = [np.zeros(2)]
    around = np.deg2rad(np.arange(0, 360, 4))
    for D in distances:
        free = np.stack([D * np.cos(around), D * np.sin(around)], axis=1)  # (90, 2)
        gaps = np.linalg.norm(free[:, None] - np.array(places), axis=2)
        gaps[:, 1:2] -= 0.16  # the first, the positive, has a frame
        places.append(free[gaps.min(axis=1).argmax()])
    return np.array(places[1:])


def teach(shares: Mapping[str, Sequence[float]]) -> Figure:
    """The share (%) of each rule's triplets that teach, before and after training."""
    fig, axes = plt.subplots(figsize=(5.4, 1.9))
    for row, (name, (before, after)) in enumerate(shares.items()):
        ink = INK.get(name, "0.4")
        axes.barh(row - 0.19, before, 0.34, color=ink, alpha=0.35)
        axes.barh(row + 0.19, after, 0.34, color=ink)
        for value, at, when in ((before, row - 0.19, "before"), (after, row + 0.19, "after")):
            said = f"{value:.0f} % {when}"
            axes.text(value + 1, at, said, va="center", fontsize=9, color=ink)
    axes.set_yticks(range(len(shares)), [*shares])
    axes.set(ylim=(len(shares) - 0.5, -0.5), xlim=(0, 125), xticks=[0, 50, 100])
    axes.set_xlabel("triplets that teach (%)")
    axes.grid(False)
    return fig


#: Each repetition holds out an eighth of the characters, and two share most of the others.
OVERLAP = 1 / 8
#: Of each form: name below its column, ink.
COLUMNS = {
    "semi-hard": ("semi-hard", figures.RIGHT),
    "hard": ("hard\nfades", PAYS),
    "hard ÷ √c": ("hard\n÷ √c\nstays", PAYS),
    "relative · c": ("relative\n· c\nfades", PAYS_NOT),
    "relative · √c": ("relative\n· √c\nstays", PAYS_NOT),
}
#: Name of each line on the right, and where it stands, in points above the line's end.
_LINES = {"semi-hard": 0, "hard": 0, "hard ÷ √c": 0, "relative · c": -3, "relative · √c": 3}


def shrink(t: np.ndarray, curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """The loss of a batch with all its distances times t, by network and form."""
    fig, panels = plt.subplots(1, 2, figsize=(figures.WIDTH, 2.5), sharey=True)
    inks = INK | {"relative": PAYS_NOT}
    for axes, (when, each) in zip(panels, curves.items(), strict=True):
        for form, line in each.items():
            axes.plot(t, line, color=inks[form], lw=2.4)
            axes.plot(t[-1], line[-1], "o", color=inks[form], ms=6, clip_on=False, zorder=4)
            axes.text(1.04, line[-1], form, color=inks[form], va="center", fontsize=9.5)
        axes.plot([0, 1], [0.2, 0.2], color="0.5", ls=":", lw=1.2, zorder=0)
        axes.set(xlim=(0, 1.42), ylim=(0, 0.95), xlabel="all distances × t")
        axes.set_xticks([0, 0.5, 1], ["0\none point", "0.5", "1\nthe batch"])
        axes.set_title(when, loc="left", weight="bold", fontsize=10)
        axes.grid(False)
    panels[0].text(0.03, 0.11, "margin m", color="0.4", fontsize=9)
    panels[0].set_ylabel("loss")
    return fig


def _columns(axes: Axes, found: Mapping[str, Sequence[float]], floor: Mapping[str, float]) -> Any:
    """Recall@1 of each form, in its ink, above what needs no training."""
    drawn: dict[str, Any] = figures.sweep(axes, found, {}, "0.4", "")
    for place, form in enumerate(found):
        ink = COLUMNS[form][1]
        for mark in axes.lines[2 * place : 2 * place + 2]:
            mark.set_color(ink)
        axes.texts[place].set_color(ink)
    axes.set_xticks(range(len(found)), [COLUMNS[form][0] for form in found], fontsize=8)
    axes.set(ylim=(0, 86), ylabel="Recall@1, characters held out (%)")
    for name, value in floor.items():
        axes.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
        axes.text(-0.5, value + 1.0, name, fontsize=8, color="0.35")
    return drawn


def _gain(found: Mapping[str, Sequence[float]], plus: str, minus: str) -> dict[str, Any]:
    return figures.summary(np.subtract(found[plus], found[minus]), OVERLAP)


def answer(
    found: Mapping[str, Sequence[float]],
    spread: Mapping[str, np.ndarray],
    floor: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each form, and the mean distance in its batches (seeds, steps) by step."""
    size: dict[str, Any] = {"figsize": (figures.WIDTH, 4.0), "width_ratios": (1.5, 1)}
    fig, (left, right) = plt.subplots(1, 2, layout="constrained", **size)
    drawn = _columns(left, found, floor)
    for form, each in spread.items():
        ink, line = COLUMNS[form][1], each.mean(axis=0)
        right.plot(line, color=ink, lw=1.8)
        right.annotate(form, (len(line), line[-1]), (3, _LINES[form]), textcoords="offset points",
                       va="center", color=ink, fontsize=8.5)  # fmt: skip
    for start, end, ink, said in ((1, 2, PAYS, "shrinking pays"), (3, 4, PAYS_NOT, "pays nothing")):
        left.plot([start - 0.35, end + 0.35], [78, 78], color=ink, lw=1.5)
        left.text((start + end) / 2, 80, said, color=ink, ha="center", fontsize=9.5, weight="bold")
    left.set_xlabel("loss, and its gradient in a small cloud", fontsize=9.5)
    steps = len(next(iter(spread.values()))[0])
    right.set(yscale="log", ylim=(0.01, 2), xlim=(-2, 1.75 * steps), xlabel="step")
    right.set_xticks([0, steps // 2, steps])
    right.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    left.set_title("Where shrinking pays, hard fails", weight="bold", loc="left")
    right.set_title("mean distance", weight="bold", loc="left")
    gains = {
        "pays nothing, fades": ("relative · c", "hard"),
        "pays nothing, stays": ("relative · √c", "hard ÷ √c"),
        "stays, pays": ("hard ÷ √c", "hard"),
        "stays, pays nothing": ("relative · √c", "relative · c"),
        "relative minus semi-hard": ("relative · √c", "semi-hard"),
        "faded minus semi-hard": ("relative · c", "semi-hard"),
        "semi-hard minus hard": ("semi-hard", "hard"),
    }
    drawn["gain"] = {name: _gain(found, *pair) for name, pair in gains.items()}
    drawn["spread"] = {form: figures.summary(each[:, -1]) for form, each in spread.items()}
    return fig, drawn


def others(found: Mapping[str, Sequence[float]]) -> tuple[Figure, dict[str, Any]]:
    """Differences of the forms of More to those of the core."""
    fig, axes = plt.subplots(figsize=(5.6, 2.4), layout="constrained")
    pairs = {
        "plain D − hard": ("hard, plain D", "hard"),
        "relative · √c − relative · c": ("relative · √c", "relative · c"),
        "relative − relative · √c": ("relative", "relative · √c"),
    }
    gains = {name: np.subtract(found[plus], found[minus]) for name, (plus, minus) in pairs.items()}
    rows = {name.replace(" − ", "\n− "): each for name, each in gains.items()}
    drawn = {"gain": figures.gains(axes, rows, overlap=OVERLAP)}
    drawn["scores"] = {form: figures.sample(found[form]) for form in ("hard, plain D", "relative")}
    return fig, drawn
