"""What lesson 02 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from dmlkit import data, figures

#: The six images of the first picture, and where they lie on the circle (degrees).
NAMES = ("R₁", "R₂", "K₁", "K₂", "8₁", "8₂")
TURN = (65.0, 350.0, 15.0, 190.0, 255.0, 318.0)
_ANCHOR = 2  # K₁, whose pushes are drawn strong
_PUSHERS = (0, 1, 5)  # R₁, R₂ and 8₂ may push it
_SHOWN_AT = (65.0, 344.0, 22.0, 190.0, 255.0, 308.0)  # where the images stand, apart


def toy() -> Tensor:
    """Six points on a circle, pair after pair: (6, 2)."""
    turn = torch.tensor(TURN, dtype=torch.float64).deg2rad()
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def circles(x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """The springs of six images for each loss: points (6, 2), and w (6, 6) of each loss.

    Lines are as wide as a spring turns its ends; bars share out what pushes K₁, by its direction.
    """
    glyphs, sines = data.load("glyphs", "train"), (1 - (x @ x.T) ** 2).clamp_min(0).sqrt()
    shown = [np.flatnonzero(glyphs.labels == label)[k] for label in (140, 122, 65) for k in (0, 1)]
    size: dict[str, Any] = {"figsize": (figures.WIDTH, 3.7), "height_ratios": (3.2, 1)}
    fig, panels = plt.subplots(2, len(weights), **size)
    drawn: dict[str, Any] = {}
    for k, ((top, low), (name, w)) in enumerate(zip(panels.T, weights.items(), strict=True)):
        turns = w * sines
        push = turns[_ANCHOR].clamp_min(0)
        share = 100 * push / push.sum()
        top.add_patch(Circle((0, 0), 1, fill=False, color="0.8", zorder=0))
        part = turns.abs() / turns.abs().triu().sum()
        for i, j in zip(*np.triu_indices(len(x), 1), strict=True):
            if part[i, j] > 0.002:
                ink = figures.RIGHT if turns[i, j] < 0 else figures.WRONG
                strong = _ANCHOR in (i, j) and turns[i, j] > 0
                look: dict[str, Any] = {"solid_capstyle": "butt", "zorder": 1 + strong}
                look |= {"lw": max(0.8, 12 * float(part[i, j])), "alpha": 1 if strong else 0.4}
                top.plot(*x[[i, j]].T, color=ink, **look)
        for turn, image_of, named in zip(_SHOWN_AT, shown, NAMES, strict=True):
            spot = np.array([np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))])
            gray = glyphs.images[image_of].float() / 255
            dark = F.avg_pool2d(gray, 3, 1, 1) > 0.25  # no specks
            alpha = (2.2 * gray - 0.5).clamp(0, 1) * dark
            image = OffsetImage(np.dstack([*np.zeros((3, 32, 32)), alpha[0].numpy()]), zoom=0.7)
            top.add_artist(AnnotationBbox(image, tuple(1.34 * spot), frameon=False))
            top.text(*(1.78 * spot), named, fontsize=9, ha="center", va="center", color="0.25")
        top.plot(*x.T, "o", color="0.15", ms=5, zorder=3)
        top.plot(*x[1::2].T, "o", mfc="white", mec="0.15", ms=5, zorder=4)
        top.set(xlim=(-1.75, 1.75), ylim=(-1.85, 1.85), aspect="equal", frame_on=False)
        figures.bare(top)
        top.set_title(name, fontweight="bold", fontsize=10)
        along = [-1 if other == 0 else 1 for other in _PUSHERS]  # R₁ lies ahead of K₁
        values = [sign * float(share[other]) for sign, other in zip(along, _PUSHERS, strict=True)]
        low.barh(range(3), values, color=figures.WRONG, height=0.6)
        low.axvline(0, color="0.3", lw=1)
        low.set(xlim=(-105, 105), ylim=(2.5, -0.5), yticks=range(3))
        low.set_yticklabels([NAMES[other] for other in _PUSHERS] if k == 0 else [])
        low.set_xticks([-100, -50, 0, 50, 100], ["100", "50", "0", "50", "100"])
        low.grid(False, axis="y")
        drawn[name] = {"w": w, "turned": turns.abs(), "share": share}
    fig.supxlabel("clockwise   ←   share of the push on K₁ (%)   →   counterclockwise", fontsize=9)
    return fig, drawn


def search(
    found: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[Figure, dict[str, Any]]:
    """Two maps over scale and rate: Recall@1 of validation characters, share of the nearest.

    ``found`` has for "recall" and "share" the trainings of each "scale, rate".
    """
    scales, rates = (
        [*dict.fromkeys(key.split(", ")[k] for key in found["recall"])] for k in (0, 1)
    )
    titles = {"recall": "Recall@1, validation (%)", "share": "share of the nearest (%)"}
    fig, panels = plt.subplots(1, 2, figsize=(figures.WIDTH, 2.7), sharey=True)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        table = np.array([[np.mean(found[name][f"{a}, {r}"]) for r in rates] for a in scales])
        cut = (table.min() + table.max()) / 2
        axes.imshow(table, cmap="Blues", aspect="auto", vmin=table.min() - 5)
        for (row, column), value in np.ndenumerate(table):
            framed = name == "recall" and value == table[row].max()
            ink: dict[str, Any] = {"color": "white" if value > cut else "0.15"}
            ink |= {"ha": "center", "va": "center", "fontsize": 9.5}
            axes.text(column, row, f"{value:.0f}", fontweight="bold" if framed else "normal", **ink)
            if framed:
                box: dict[str, Any] = {"fill": False, "ec": figures.WRONG, "lw": 2}
                axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, **box))
        axes.set(xticks=range(len(rates)), xticklabels=rates, xlabel="learning rate")
        axes.set(yticks=range(len(scales)), yticklabels=scales)
        axes.grid(False)
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
    panels[0].set_ylabel("scale α")
    drawn = {part: {k: figures.sample(v) for k, v in found[part].items()} for part in titles}
    return fig, drawn


def best(found: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[float, float]:
    """The rate of each scale whose trainings found most, by "scale, rate"."""
    mean: dict[tuple[float, float], float] = {}
    for name, values in found["recall"].items():
        scale, rate = map(float, name.split(", "))
        mean[scale, rate] = float(np.mean(values))
    scales = dict.fromkeys(scale for scale, _ in mean)
    return {a: max((m, rate) for (of, rate), m in mean.items() if of == a)[1] for a in scales}


#: What the verdict compares: two scales, by what, after how many steps.
COMPARED = (
    ("16 → 64", 16, 64, "share", 960), ("formula alone,\n16 → 64", 16, 64, "formula", 960),
    ("unseen,\n16 → 64", 16, 64, "unseen", 960), ("240 steps,\n16 → 64", 16, 64, "share", 240),
    ("4 → 16", 4, 16, "share", 960),
)  # fmt: skip
_INKS = {240: figures.RIGHT, 960: figures.WRONG}  # of each length of training
Found = Mapping[str, Mapping[str, Sequence[float]]]


def answer(kept: Found, mine: Found, steps: int, raw: float) -> tuple[Figure, dict[str, Any]]:
    """The share of the nearest, its lead and Recall@1 over α, and what changes of α bring.

    ``kept`` and ``mine``, the reader's own of ``steps``, have for "what, steps" the repetitions
    of each scale; ``raw`` is the Recall@1 of raw pixels.
    """
    fig, panels = plt.subplots(2, 2, figsize=(figures.WIDTH, 6.0), width_ratios=(1.25, 1))
    (share, lead), (gain, recall) = panels
    drawn: dict[str, Any] = {"raw pixels": raw}
    titles = {"share": ("Trained long, α decides", "share of the nearest (%)")}
    titles |= {"lead": ("240 steps: nearly 1/α", "lead of the nearest (cosine)")}
    titles |= {"recall": ("Low at small α", "Recall@1, unseen (%)")}
    for axes, (what, (title, unit)) in zip((share, lead, recall), titles.items(), strict=True):
        for n, color in _INKS.items():
            drawn[f"{what}, {n}"] = _over(axes, kept[f"{what}, {n}"], color=color)
            for a, values in mine.get(f"{what}, {n * steps // 240}", {}).items():
                axes.plot(float(a), np.mean(values), "x", color="0.1", ms=5, zorder=4)
        figures.letter(axes, title)
        axes.set_ylabel(unit)
    for n, color in _INKS.items():
        _over(share, kept[f"formula, {n}"], color=color, ls=":", marker="", lw=1.3)
    middle, law = np.mean(kept["lead, 240"]["16"]), np.array([4.0, 64.0])
    lead.plot(law, middle * 16 / law, color="0.4", ls=":", lw=1.4, zorder=0)
    lead.set(yscale="log", yticks=(0.02, 0.05, 0.1, 0.2))
    lead.set(yticklabels=("0.02", "0.05", "0.1", "0.2"), ylim=(0.015, 0.4))
    lead.minorticks_off()
    lead.text(5, middle * 16 / 5, " ∝ 1/α", color="0.3", fontsize=9, ha="left", va="bottom")
    share.set(ylim=(0, 100))
    for name, at, y, color in (
        ("dotted: the\nformula alone", 13, 82, "0.35"),
        ("960 steps", 34, 22, _INKS[960]),
        ("240 steps", 7, 44, _INKS[240]),
    ):
        share.text(at, y, name, color=color, fontsize=9, ha="right", va="center")
    recall.axhline(raw, color="0.5", ls=":", lw=1.2)
    recall.text(64, raw - 0.5, "raw pixels", color="0.35", fontsize=8, ha="right", va="top")
    drawn["gain"] = _compared(gain, kept)
    for n in _INKS:
        formula = kept[f"formula, {n}"].items()
        drawn[f"formula, {n}"] = {a: figures.sample(values) for a, values in formula}
    return fig, drawn


def _compared(axes: Axes, kept: Found) -> dict[str, Any]:
    """What two scales differ by, and the rule's ten points."""

    def change(a: int, b: int, what: str, n: int) -> np.ndarray:
        return np.subtract(kept[f"{what}, {n}"][f"{b}"], kept[f"{what}, {n}"][f"{a}"])

    axes.axvline(10, color="0.5", ls=":", lw=1.2, zorder=0)
    rows = {name: change(a, b, what, n) for name, a, b, what, n in COMPARED}
    found = figures.gains(axes, rows, "points of the share").values()
    figures.letter(axes, "What a four times larger α adds")
    named = zip(COMPARED, found, strict=True)
    drawn = {f"{what}, {n}, {a} to {b}": of for (_, a, b, what, n), of in named}
    for what, n, a, b in (("share", 240, 4, 16), ("unseen", 240, 16, 64), ("recall", 960, 16, 64)):
        drawn[f"{what}, {n}, {a} to {b}"] = figures.summary(change(a, b, what, n))
    return drawn


def _over(axes: Axes, rows: Mapping[str, Sequence[float]], **style: Any) -> dict[str, Any]:
    """A curve over α, of the repetitions of each scale."""
    scales = [float(a) for a in rows]
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16, 32, 64]
    axes.set(xlabel="α", xticks=ticks, xticklabels=ticks)
    return figures.curve(axes, scales, np.transpose([*rows.values()]), "", **style)
