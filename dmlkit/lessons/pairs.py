"""What lesson 02 draws."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Circle
from torch import Tensor

from dmlkit import data, figures

#: The six images of the first picture, and where they lie on the circle (degrees).
NAMES = ("R₁", "R₂", "K₁", "K₂", "8₁", "8₂")
TURN = (65.0, 350.0, 15.0, 190.0, 255.0, 318.0)


def toy() -> Tensor:
    """Six points on a circle, pair after pair: (6, 2)."""
    turn = torch.tensor(TURN, dtype=torch.float64).deg2rad()
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def circles(x: Tensor, weights: Mapping[float, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """The springs of six images at each scale: points (6, 2), and w (6, 6) of each scale."""
    glyphs, sines = data.load("glyphs", "train"), (1 - (x @ x.T) ** 2).clamp_min(0).sqrt()
    shown = [np.flatnonzero(glyphs.labels == label)[k] for label in (140, 122, 65) for k in (0, 1)]
    fig, panels = plt.subplots(1, len(weights), figsize=(figures.WIDTH, 3.5))
    drawn: dict[str, Any] = {}
    for axes, (alpha, w) in zip(panels, weights.items(), strict=True):
        turns, force = w * sines, -w @ x
        along = force - (force * x).sum(dim=1, keepdim=True) * x  # what turns a point: (6, 2)
        _springs(axes, x, turns)
        arrows = 0.62 * along / along.norm(dim=1).max()
        for spot, arrow, k, name in zip(x, arrows, shown, NAMES, strict=True):
            ink = {"color": "0.15", "lw": 1.5, "arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0}
            if arrow.norm() > 0.08:
                axes.annotate("", (spot + arrow).tolist(), spot.tolist(), arrowprops=ink)
            image = OffsetImage(1 - glyphs.images[k, 0].numpy() / 255, cmap="gray", zoom=0.85)
            axes.add_artist(AnnotationBbox(image, (1.33 * spot).tolist(), frameon=False))
            at = 1.33 * spot + spot.new([0.25, 0.1] if spot[0] > -0.5 else [-0.08, 0.26])
            axes.text(*at.tolist(), name, fontsize=8.5, color="0.35")
        axes.plot(*x[1::2].T, "o", mfc="white", mec="0.15", ms=5.5, zorder=4)
        axes.set(xlim=(-1.6, 1.62), ylim=(-1.55, 1.5), aspect="equal", frame_on=False)
        figures.bare(axes)
        axes.set_title(f"scale α = {alpha:g}", fontweight="bold", fontsize=10)
        drawn[f"{alpha:g}"] = {"w": w, "turned": turns.abs(), "force": along}
    return fig, drawn


def _springs(axes: Axes, x: Tensor, turns: Tensor) -> None:
    """Chords between points on a circle: blue pulls, orange pushes; as wide as they turn."""
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.8", zorder=0))
    for i, j in zip(*np.triu_indices(len(x), 1), strict=True):
        part = float(turns[i, j] / turns.abs().max().clamp_min(1e-9))
        if abs(part) > 0.004:
            ink: dict[str, Any] = {"color": figures.RIGHT if part < 0 else figures.WRONG}
            axes.plot(*x[[i, j]].T, lw=max(0.6, 6 * abs(part)), alpha=0.85, zorder=1, **ink)
    axes.plot(*x.T, "o", color="0.15", ms=5, zorder=3)


def answer(
    share: Mapping[str, Sequence[float]],
    fixed: Mapping[str, Sequence[float]],
    courses: Mapping[str, np.ndarray],
    steps: int,
) -> tuple[Figure, dict[str, Any]]:
    """The nearest's share of the push: by the scale, and by the step where the scale is turned.

    ``courses`` has the share in each step of training by split, (4, S): before the turn, and after
    it at 100 ("up"), still at 16 ("kept"), and from 100 at 16 ("down").
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.5), width_ratios=(1, 1.25))
    purple, places = figures.look("n_pairs_normalized").color, range(len(share))
    even = {"all alike": 100 / 31}
    drawn: dict[str, Any] = {"trained": figures.sweep(left, share, {}, purple)}
    left.plot(places, [np.mean(v) for v in fixed.values()], "s--", color="0.5", ms=5, zorder=1)
    left.text(1.95, 71, "dial turned,\nnothing trained", color="0.4", fontsize=8.5, ha="right")
    left.text(2.5, 11, "trained at this scale", color=purple, fontsize=8.5, ha="center")
    left.set(xlabel="scale α", ylabel="share of the nearest (%)", ylim=(0, 100))
    left.set_title("at each scale", fontweight="bold", loc="left")
    looks = {
        "before": (purple, "-"), "kept": (purple, "--"),
        "down": (figures.RIGHT, "-"), "up": (figures.WRONG, "-"),
    }  # fmt: skip
    for name, (ink, line) in looks.items():
        first = 1 if name == "before" else steps + 1
        at = np.arange(first, first + courses[name].shape[1])
        style: dict[str, Any] = {"color": ink, "ls": line, "marker": "", "lw": 1.8}
        before = len(right.collections)
        drawn[name] = figures.curve(right, at, courses[name], name, **style)
        for band in right.collections[before:]:
            band.set_alpha(0.13)
    right.axvline(steps + 0.5, color="0.3", lw=1)
    right.text(steps - 1, 95, "here α is turned", ha="right", va="center", fontsize=8.5)
    right.text(steps + 5, 71, "from 16 to 100", color=figures.WRONG, fontsize=8.5)
    right.text(steps + 22, 46, "left at 16", color=purple, fontsize=8.5)
    right.text(steps + 28, 10, "from 100 to 16", color=figures.RIGHT, fontsize=8.5)
    for axes in (left, right):
        axes.axhline(even["all alike"], color="0.5", ls=":", lw=1.4, zorder=0)
    right.text(2 * steps, 4.5, "all 31 alike", fontsize=8, color="0.35", ha="right")
    right.set(xlabel="step of training", ylim=(0, 100), yticklabels=[])
    right.set_title("turned while it trains", fontweight="bold", loc="left")
    drawn["even"] = even["all alike"]
    drawn["fixed"] = {name: figures.sample(values) for name, values in fixed.items()}
    return fig, drawn


def samples(
    cosines: Mapping[tuple[int, float | str], Tensor],
    courses: Mapping[str, np.ndarray],
    share: Mapping[str, np.ndarray],
    jump: np.ndarray,
    left: np.ndarray,
    by_split: Callable[[np.ndarray], np.ndarray],
) -> dict[str, Any]:
    """What the page says in numbers: the turn, the rise with the scale, and α times the spread."""
    order, last = list(dict.fromkeys(seed for seed, _ in cosines)), slice(-10, None)

    def spread(key: float | str, alpha: float, at: slice) -> np.ndarray:
        s = torch.stack([cosines[seed, key][at] for seed in order])  # (R, S, P, P)
        two = ~torch.eye(s.shape[-1], dtype=torch.bool, device=s.device)
        own = s[:, :, two].unflatten(2, (len(two), -1)).std(dim=3)  # of each anchor: (R, S, P)
        return by_split(alpha * own.mean(dim=(1, 2)).cpu().numpy())

    scales = [key for _, key in cosines if isinstance(key, float)]
    found = {
        "rise": {
            f"{b} minus {a}": share[b] - share[a] for a, b in zip(share, [*share][1:], strict=False)
        },
        "turn": {
            "jump": jump,
            "left": left,
            "left of it": 100 * left / jump,
            "early": by_split((courses["up"] - courses["kept"])[:, 5:20].mean(axis=1)),
            "down left": by_split((courses["down"] - courses["kept"])[:, last].mean(axis=1)),
            "kept lowest": by_split(courses["kept"]).min(axis=1),
            "before": by_split(courses["before"][:, last].mean(axis=1)),
            "first": by_split(courses["up"][:, 0]),
            "end": by_split(courses["up"][:, last].mean(axis=1)),
            "end kept": by_split(courses["kept"][:, last].mean(axis=1)),
            "down first": by_split(courses["down"][:, 0]),
            "down end": by_split(courses["down"][:, last].mean(axis=1)),
        },
        "spread": {
            "before": spread(16.0, 16.0, last),
            "first": spread("up", 100.0, slice(0, 1)),
            "end": spread("up", 100.0, last),
            "end kept": spread("kept", 16.0, last),
        }
        | {f"trained at {a:g}": spread(a, a, last) for a in dict.fromkeys(scales)},
    }
    return {name: {k: figures.sample(v) for k, v in part.items()} for name, part in found.items()}


def ranks(cosines: Mapping[float, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """Who gets the push, by rank: with cosines (P, P) of the networks trained at some scales."""
    fig, panels = plt.subplots(1, 3, figsize=(figures.WIDTH, 2.1), sharey=True)
    purple = figures.look("n_pairs_normalized").color
    shown = (
        (16.0, 16.0, "trained at 16, α = 16", purple),
        (16.0, 100.0, "the same, α = 100", "0.5"),
        (100.0, 100.0, "trained at 100, α = 100", purple),
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
