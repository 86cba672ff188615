"""What lesson 02 draws."""

import copy
from collections.abc import Callable, Mapping, Sequence
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
from dmlkit.data.batches import PK

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
    size: dict[str, Any] = {"figsize": (figures.WIDTH, 3.6), "height_ratios": (2.9, 1)}
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
            image = OffsetImage(np.dstack([*np.zeros((3, 32, 32)), alpha[0].numpy()]), zoom=0.75)
            top.add_artist(AnnotationBbox(image, tuple(1.42 * spot), frameon=False))
            top.text(*(2.0 * spot), named, fontsize=9, ha="center", va="center", color="0.25")
        top.plot(*x.T, "o", color="0.15", ms=5, zorder=3)
        top.plot(*x[1::2].T, "o", mfc="white", mec="0.15", ms=5, zorder=4)
        top.set(xlim=(-2.25, 2.25), ylim=(-2.15, 2.1), aspect="equal", frame_on=False)
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


#: Scales and rates that are searched together.
SCALES, RATES = (1.0, 4.0, 16.0, 64.0, 256.0), (0.0005, 0.0015, 0.005, 0.015, 0.05)
GRID = tuple((a, rate) for a in SCALES for rate in RATES)


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


#: The switches of the verdict, and the color of each scale.
SWITCHED = ("4 to 16", "16 to 4", "16 to 64", "64 to 16")
_INKS = {4: figures.RIGHT, 16: "0.35", 64: figures.WRONG}


def leads(cosines: Tensor) -> float:
    """How much nearer the nearest negative is than the next, in cosines (S, P, P): the mean."""
    two = ~torch.eye(cosines.shape[-1], dtype=torch.bool, device=cosines.device)
    s = cosines[:, two].reshape(*cosines.shape[:2], -1).topk(2).values
    return float((s[..., 0] - s[..., 1]).mean())


def verdict(
    first: Mapping[int, np.ndarray],
    shares: Mapping[tuple[int, int], np.ndarray],
    lead: Mapping[tuple[int, int], Sequence[float]],
    last: int,
) -> tuple[Figure, dict[str, Any]]:
    """The nearest's share by step, before (R, S) and after the switch (R, S): a line for each.

    A panel for each first scale; a color is the scale of the step.
    """
    fig, panels = plt.subplots(1, 3, figsize=(8.4, 3.7), sharey=True, layout="constrained")
    for axes, (old, before) in zip(panels, first.items(), strict=True):
        steps = before.shape[1]
        _thin(axes, range(steps), before, old)
        for (begun, to), after in shares.items():
            if begun == old:
                stay = shares[old, old][:, :1]  # the jump begins where the copy left alone is
                at = [steps, *range(steps, 2 * steps)]
                _thin(axes, at, np.concatenate([stay, after], axis=1), to)
                end = float(after[:, -last:].mean())
                axes.plot([2 * steps - last, 2 * steps], [end] * 2, color=_INKS[to], lw=4)
        ends = {to: float(s[:, -last:].mean()) for (a, to), s in shares.items() if a == old}
        high = -9.0
        for to in sorted(ends, key=ends.__getitem__):  # names from below, none on another
            high = max(high + 5.5, ends[to])
            axes.text(2 * steps + 4, high, f"α = {to}: {ends[to]:.0f}", color=_INKS[to],
                      va="center", fontsize=9, fontweight="bold")  # fmt: skip
        axes.axvline(steps, color="0.5", lw=1, ls=":", zorder=0)
        axes.axhline(100 / 31, color="0.5", ls=":", lw=1.2, zorder=0)
        axes.set(xlim=(0, 2.75 * steps), ylim=(0, 82), xlabel="step")
        axes.set_xticks([0, steps, 2 * steps], ["0", f"switch\nat {steps}", f"{2 * steps}"])
        axes.grid(False, axis="x")
        axes.set_title(f"begun at α = {old}", fontweight="bold", loc="left", fontsize=10.5)
    panels[0].set_ylabel("share of the nearest (%)")
    drawn: dict[str, Any] = {"at once": {}, "end": {}}
    for name in SWITCHED:
        old, to = map(int, name.split(" to "))
        change = shares[old, to] - shares[old, old]
        drawn["at once"][name] = figures.summary(change[:, 0])
        drawn["end"][name] = figures.summary(change[:, -last:].mean(axis=1))
    drawn["lead"] = {f"{a} to {b}": figures.sample(v) for (a, b), v in lead.items()}
    return fig, drawn


def _thin(axes: Axes, steps: Sequence[int], shares: np.ndarray, scale: int) -> None:
    """A thin line for each network (R, S), and their mean."""
    axes.plot(steps, shares.T, color=_INKS[scale], lw=0.6, alpha=0.35)
    axes.plot(steps, shares.mean(axis=0), color=_INKS[scale], lw=1.8)


#: The verdict's picture in words.
VERDICT_ALT = (
    "Three panels by the first scale, 4, 16 and 64: the share of the nearest negative in each of "
    "120 steps, a thin line for each network. At step 60 copies jump as their scale is switched. "
    "The switches between 4 and 16 last; after the switch from 16 to 64 the share falls back "
    "within the 60 steps to that of the copy left alone."
)


def history(ends: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """How much the last shares of networks differ that came to a scale in different ways."""
    asked = (
        ("64 to 64", "16 to 16"), ("64 to 16", "16 to 16"),
        ("16 to 64", "64 to 64"), ("4 to 16", "16 to 16"),
    )  # fmt: skip
    return {
        f"{a} minus {b}": figures.summary(ends[f"{a} end"] - ends[f"{b} end"]) for a, b in asked
    }


def unseen(
    networks: Mapping[Any, Any],
    test: data.ImageSet,
    switches: Sequence[tuple[int, int]],
    share: Callable[[Tensor, float], float],
) -> dict[str, list[float]]:
    """How each switch changes the share of the nearest in ten batches of unseen characters."""
    seeds = list(dict.fromkeys(seed for seed, *_ in networks))

    def of(seed: int, old: int, to: int) -> float:
        model, _ = networks[seed, old, to]
        device = next(model.parameters()).device
        batches, found = PK(test.labels, 32, 2, seed), []
        model = copy.deepcopy(model).train()  # as it is pushed: BatchNorm of the batch
        for step in range(10):
            with torch.no_grad():
                x = F.normalize(model(test.images[batches(step)].to(device) / 255))
            found.append(share((x @ x.T)[0::2, 1::2], to))
        return float(np.mean(found))

    return {
        f"{old} to {to}": [of(k, old, to) - of(k, old, old) for k in seeds]
        for old, to in switches
        if old != to
    }


def ranks(cosines: Mapping[float, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """Who gets the push, by rank: with cosines (P, P) of the networks trained at some scales."""
    fig, panels = plt.subplots(1, 3, figsize=(figures.WIDTH, 2.1), sharey=True)
    purple = figures.look("n_pairs_normalized").color
    shown = (
        (16.0, 16.0, "trained at 16, α = 16", purple),
        (16.0, 64.0, "the same, α = 64", "0.5"),
        (64.0, 64.0, "trained at 64, α = 64", purple),
    )
    for axes, (trained, alpha, said, ink) in zip(panels, shown, strict=True):
        s = _negatives(cosines[trained])
        push = (alpha * s).softmax(dim=1) * (1 - s**2).clamp_min(0).sqrt()
        high = 100 * (push / push.sum(dim=1, keepdim=True)).mean(dim=0)
        axes.bar(range(1, len(high) + 1), high.cpu(), color=ink, width=0.8)
        axes.axhline(100 / len(high), color="0.5", ls=":", lw=1.4)
        axes.set(xlabel="negatives, nearest first", ylim=(0, 100), xticks=(1, 10, 20, 30))
        axes.grid(False, axis="x")
        axes.set_title(said, fontweight="bold", loc="left", fontsize=9.5)
    panels[0].set_ylabel("share of the push (%)")
    kept = {
        f"{a:g}": figures.example([[round(v, 3) for v in row] for row in _negatives(s).tolist()])
        for a, s in cosines.items()
    }
    return fig, {"negatives": kept}


def _negatives(s: Tensor) -> Tensor:
    """The cosines of each anchor's negatives, the nearest first: (P, P) -> (P, P − 1)."""
    two = ~torch.eye(len(s), dtype=torch.bool, device=s.device)
    return s[two].reshape(len(s), -1).sort(dim=1, descending=True).values
