"""What lesson 16 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import figures, statistics
from dmlkit.figures import globes
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: A sample's angle to its proxy in the pictures, and their places on the sphere.
THETA = 40.0
PROXY = globes.place(0, 0)
OTHERS = np.stack([globes.place(65, 200), globes.place(70, 345), globes.place(85, 60)])
SAMPLE = globes.place(THETA, 90)
CIRCLE = globes.place(THETA, np.linspace(0, 360, 200))
#: The color of an arrangement: all points in one place, at random places, at the corners.
INKS = {"together": figures.WRONG, "random": "0.45", "corners": figures.RIGHT}


def _globe(axes: Axes, view: Array, title: str, up: float = 0.16) -> None:
    """The sphere with its proxies, the sample and the circle of places as near as it."""
    globes.globe(axes, view, np.stack([PROXY, *OTHERS]), title)
    globes.line(axes, view, CIRCLE, color="0.25", lw=1.3)
    globes.mark(axes, view, PROXY, r"$\hat p$", up, **globes.PROXY)
    for k, q in enumerate(OTHERS):
        globes.mark(axes, view, q, rf"$\hat q_{k + 1}$", -up if k == 2 else up, **globes.OTHER)
    globes.mark(axes, view, SAMPLE, "$x$", -up, **globes.SAMPLE)


def sphere() -> Figure:
    """The plane of a proxy and a sample, and the circle of places as near as the sample."""
    fig, (flat, ball) = plt.subplots(1, 2, figsize=(6.5, 3.3))
    view = globes.camera(globes.place(42, 75), PROXY)
    _globe(ball, view, "all places as near as the sample")
    center = np.cos(np.radians(THETA)) * PROXY  # of the circle
    globes.line(ball, view, np.stack([center, SAMPLE]), color=figures.RIGHT, lw=1.8)
    globes.mark(ball, view, (center + SAMPLE) / 2, "    $r$", 0.03, ms=0)
    t = np.radians(np.linspace(-25, 115, 200))
    flat.plot(np.sin(t), np.cos(t), color="0.6", lw=1.2)
    a, b = np.sin(np.radians(THETA)), np.cos(np.radians(THETA))
    for start, end, ink in (
        ((0, 0), (0, 1), "0.6"),
        ((0, 0), (0, b), "black"),
        ((0, 0), (a, b), figures.RIGHT),
        ((0, b), (a, b), figures.RIGHT),
    ):
        style = {"arrowstyle": "-|>", "color": ink, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        flat.annotate("", end, start, arrowprops=style | {"mutation_scale": 13})
    arc = np.radians(np.linspace(0, THETA, 40))
    flat.plot(0.3 * np.sin(arc), 0.3 * np.cos(arc), color="0.3", lw=1.2)
    for at, text in {
        (0.14, 0.38): r"$\theta$",
        (-0.2, 0.45): r"$\cos\theta\,\hat p$",
        (0.3, 0.83): "$r$",
        (0.75, 0.8): "$x$",
        (0, 1.1): r"$\hat p$",
        (0.44, 0.38): "1",
        (-0.06, -0.06): "0",
    }.items():
        flat.text(*at, text, ha="center", va="center", fontsize=12)
    flat.plot(0, 1, "*", color="black", ms=12)
    flat.plot(a, b, "o", color=figures.RIGHT, ms=9)
    flat.set(xlim=(-0.5, 1.05), ylim=(-0.15, 1.2), aspect="equal")
    flat.set_axis_off()
    flat.set_title(r"$x = \cos\theta\,\hat p + r$", fontweight="bold")
    return fig


def _seen_from_proxy(n_aug: int) -> Array:
    """Sample and points as the proxy sees them, at radius 1: -> (n_aug + 1, 3)."""
    d = max(n_aug, 2) + 1
    pole, ahead = torch.eye(d, dtype=torch.float64)[[-1, 0]]
    x = 0.5 * pole + math.sin(math.pi / 3) * ahead  # 60 degrees away
    both = torch.cat([x[None], spherical.expand(x[None], pole[None], n_aug)[0]])[:, :-1]
    up, right, near = F.pad(both, (0, 4 - d)).numpy().T / math.sin(math.pi / 3)
    return np.stack([right, up, near], axis=1)


def corners() -> tuple[Figure, dict[str, Any]]:
    """Sample and one, two or three points, as their proxy sees them."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.75))
    titles = {1: "one: a line\n(needs d ≥ 2)", 2: "two: a triangle\n(needs d ≥ 3)"}
    titles |= {3: "three: a tetrahedron\n(needs d ≥ 4)"}
    sides: dict[str, Any] = {}
    turn = np.linspace(0, 2 * np.pi, 200)
    for axes, (n, title) in zip(panels, titles.items(), strict=True):
        seen, view = _seen_from_proxy(n), np.eye(3)
        if n == 3:
            view = globes.camera(np.array([0.4, 0.25, 0.9]), view[1])
            globes.globe(axes, view, np.eye(3)[:1])
        axes.plot(np.cos(turn), np.sin(turn), color="0.4", lw=1.2)
        for i, j in zip(*np.triu_indices(n + 1, 1), strict=True):
            globes.line(axes, view, seen[[i, j]], color=figures.WRONG, lw=1.5)
        globes.mark(axes, view, 0 * PROXY, r"       $\hat p$", 0.16, **globes.PROXY)
        for k, point in enumerate(seen):
            x, y, _ = view @ point
            away = 0.24 / max(np.hypot(x, y), 0.3)
            style: dict[str, Any] = dict(globes.POINT if k else globes.SAMPLE)
            globes.mark(axes, view, point, **style)
            name = f"$z_{k}$" if k else "$x$"
            axes.text(x + away * x, y + away * y, name, ha="center", va="center", fontsize=11)
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
        axes.set_title(title, fontweight="bold")
        axes.set_axis_off()
        sides[f"{n} points"] = np.linalg.norm(seen[:, None] - seen, axis=2)[0, 1:]
    return fig, sides


def _pushes(way: str, count: int, alpha: float, turns: int) -> Array:
    """Mean push of ``count`` points on the nearest of 199 proxies in 8 dimensions: -> (turns,)."""
    own = F.normalize(torch.randn(8, generator=torch.Generator().manual_seed(3)).double(), dim=0)
    generator = torch.Generator().manual_seed(4)
    q = F.normalize(torch.randn(199, 8, generator=generator).double(), dim=1)
    near = q[(q @ own).argmax()]
    r = torch.randn(8, generator=generator).double()
    r = F.normalize(r - (r @ own) * own, dim=0)
    x = math.cos(math.radians(THETA)) * own + math.sin(math.radians(THETA)) * r
    torch.manual_seed(5)
    few = 1 if way == "together" else count  # the mean over points in one place is that of one
    if way == "corners":  # a batch has one turn
        each = [
            spherical.expand(x[None], own[None], few, directions="rotated") for _ in range(turns)
        ]
        z = torch.cat(each)
    else:
        z = spherical.expand(x.repeat(turns, 1), own.repeat(turns, 1), few, directions="random")
    share = torch.softmax(alpha * z @ torch.cat([own[None], q]).T, dim=2)
    share = share[..., 1 + int((q @ own).argmax())]
    c = near @ own
    along = (z @ own - c * (z @ near)) / (1 - c**2).sqrt()  # away from the own proxy: the push
    return np.asarray((alpha * share * along).mean(dim=1))


def spacing(alpha: float, turns: int) -> tuple[Figure, dict[str, Any]]:
    """Seven points together, at random places and at corners: the push of each turn, and so far."""
    fig, panels = plt.subplots(
        3, 2, figsize=(6.5, 4.0), sharex="col", sharey="col", width_ratios=(1.25, 1)
    )
    titles = {"together": "together", "random": "random places", "corners": "at the corners"}
    drawn: dict[str, Any] = {}
    pushes = {way: _pushes(way, 7, alpha, turns) for way in titles}
    typical = pushes["random"].mean()
    pushes = {way: 100 * each / typical for way, each in pushes.items()}
    edges = np.linspace(0, max(each.max() for each in pushes.values()), 60)
    for (left, right), (way, each) in zip(panels, pushes.items(), strict=True):
        drawn[way] = {"mean": float(each.mean()), "spread": float(each.std())}
        left.hist(each, edges, weights=np.full(turns, 100 / turns), color=INKS[way])
        left.axvline(each.mean(), color="black", lw=2)
        said = f"{titles[way]}\nmean {each.mean():.0f}\nspread {each.std():.0f}"
        left.text(0.98, 0.93, said, transform=left.transAxes, ha="right", va="top", fontsize=10)
        right.plot(1 + np.arange(turns), np.cumsum(each) / (1 + np.arange(turns)), color=INKS[way])
        right.axhline(100, color="black", lw=0.8, ls=":")
        right.set(xscale="log", ylim=(0, 220))
    panels[0, 0].set_title("each turn", fontweight="bold", loc="left")
    panels[0, 1].set_title("mean of all turns so far", fontweight="bold", loc="left")
    panels[1, 0].set_ylabel("turns (%)")
    panels[2, 0].set_xlabel("push of seven points (random: 100 in the mean)")
    panels[2, 1].set_xlabel("turns")
    return fig, drawn


def noise(
    loss: Callable[[Tensor, Tensor, Tensor, str], Tensor],
    ways: Sequence[str],
    head: nn.Module,
    proxies: Tensor,
    X: Tensor,
    alpha: float,
    batch: int,
    turns: int,
) -> dict[str, float]:
    """Noise of the points' gradient at unit proxies by their turns, and the corners' shift.

    In percent of the noise by drawing batches of X (C, m, f). The shift is how far the mean of
    corners is from that of random places: from two halves of the turns, so that noise is not in it.
    """
    q = F.normalize(proxies).detach().requires_grad_()
    own: list[Tensor] = []
    pushes: dict[str, list[Tensor]] = {way: [] for way in ways}
    for _ in range(12):
        y, i = torch.randint(len(X), (batch,)), torch.randint(X.shape[1], (batch,))
        x, unit = F.normalize(head(X[y, i])).detach(), F.normalize(q)
        real = F.cross_entropy(alpha * x @ unit.T, y)
        own += torch.autograd.grad(real, q, retain_graph=True)
        for way in ways:
            terms = [loss(x, y, unit, way) for _ in range(turns)]
            each = [torch.autograd.grad(term, q, retain_graph=True)[0] for term in terms]
            pushes[way].append(torch.stack(each))  # (turns, C, d)
    whole = torch.stack(own).var(dim=0).sum().sqrt()
    found = {way: torch.stack([p.var(dim=0).sum() for p in pushes[way]]).mean().sqrt()
             for way in ways}  # fmt: skip
    apart = torch.cat(pushes["corners"]) - torch.cat(pushes["random"])
    both = (apart[::2].mean(dim=0) * apart[1::2].mean(dim=0)).sum()
    found["shift"] = both.clamp(min=0).sqrt()
    return {name: 100 * (each / whole).item() for name, each in found.items()}


def _interval(values: Array) -> dict[str, Any]:
    """A sample with its mean and 99 % interval."""
    mean, low, high, _ = (float(v) for v in statistics.interval(values, level=0.99))
    return figures.sample(values, mean=mean, low=low, high=high)


def answer(
    scores: Mapping[int, Mapping[tuple[str, str], Sequence[float]]],
    noise: Mapping[int, Mapping[tuple[str, str], Sequence[float]]],
    pixels: float,
) -> tuple[Figure, dict[str, Any]]:
    """The points' noise and Recall@1 by arrangement, weight and dimensions; with the numbers."""
    wide = [len(each) for each in noise.values()]
    fig, panels = plt.subplots(
        3, 2, figsize=(6.5, 6.6), width_ratios=wide, height_ratios=(0.9, 1.3, 0.9), sharex="col"
    )
    drawn: dict[str, Any] = {"raw pixels": figures.example(pixels)}
    most = max(np.max(each) for found in noise.values() for each in found.values())
    every = [
        np.array(each) - np.array(found["none", "0"])
        for found in scores.values() for each in found.values()
    ]  # fmt: skip
    ends = np.min(every) - 1.6, np.max(every) + 1.2
    for column, (d, found) in enumerate(scores.items()):
        top, low, last = panels[:, column]
        none = np.array(found["none", "0"])
        keys = [*noise[d]]  # (way, form)
        inks = [INKS[way] for way, _ in keys]
        heights = [np.mean(noise[d][key]) for key in keys]
        top.bar(range(len(keys)), heights, 0.7, color=inks)
        top.axhline(100, color="0.4", ls=":", lw=1.2)
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        for at, (height, key) in enumerate(zip(heights, keys, strict=True)):
            top.plot([at] * len(noise[d][key]), noise[d][key], ".", color="black", ms=3, alpha=0.6)
            said = f"{height:.0f}" if height >= 1 else f"{height:.1f}"
            above = max(noise[d][key]) + 0.03 * most
            top.text(at, above, said, ha="center", va="bottom", fontsize=8.5, bbox=ground)
        top.set(ylim=(0, 1.2 * most), xlim=(-0.6, len(keys) - 0.4))
        top.grid(False, axis="x")
        top.set_title(f"{d} dimensions", fontweight="bold", loc="left")
        gains = {key: np.array(found[key]) - none for key in keys}
        named = {f"{way}, {form}": each for (way, form), each in gains.items()}
        kept = figures.sweep(low, named, {}, unit="", digits=1)["scores"]
        for at, ink in enumerate(inks):
            for line in low.lines[2 * at : 2 * at + 2]:
                line.set_color(ink)
        for text, ink in zip(low.texts, inks, strict=True):  # in one line, off the dots
            text.set(position=(0, 0), va="center", fontsize=8.5, color=ink)
            text.xy = (text.xy[0], ends[1] - 0.45)
        low.axhline(0, color="black", lw=1)
        low.set(ylim=ends, xlim=(-0.6, len(keys) - 0.4))
        forms = [*dict.fromkeys(form for _, form in keys)]
        n = min(8, d - 1)
        names = {"code": "λ = 0.2", "sum": f"λ = {0.2 * n:.1f}", "paper": "1.4, attached"}
        for at, form in enumerate(forms):
            gap = _interval(gains["random", form] - gains["together", form])
            ends_ = [[gap["mean"] - gap["low"]], [gap["high"] - gap["mean"]]]
            last.errorbar([3 * at + 1], [gap["mean"]], ends_, fmt="o", color="black", lw=2, ms=6)
            said = f"{gap['mean']:.1f}".replace("-", "−")
            last.text(3 * at + 1.2, gap["high"], said, va="center", fontsize=9)
        last.axhline(0, color="black", lw=1)
        last.grid(False, axis="x")
        last.set(ylim=(-2.4, 3.4), xlim=(-0.6, len(keys) - 0.4))
        last.set_xticks(np.arange(len(forms)) * 3 + 1, [names[form] for form in forms])
        for edge in range(1, len(forms)):
            for axes in (top, low, last):
                axes.axvline(3 * edge - 0.5, color="0.8", lw=1)
        said = f"no points: {none.mean():.1f} %\nraw pixels: {pixels:.1f} %"
        low.text(0.03, 0.03, said, transform=low.transAxes, fontsize=9, va="bottom", bbox=ground)
        drawn[f"d = {d}"] = {
            "none": figures.sample(none),
            "minus none": kept,
            "noise": {f"{w}, {f}": figures.sample(v) for (w, f), v in noise[d].items()},
            "corners − together": {
                f: _interval(gains["corners", f] - gains["together", f]) for f in forms
            },
            "random − together": {
                f: _interval(gains["random", f] - gains["together", f]) for f in forms
            },
            "together − none": {f: _interval(gains["together", f]) for f in forms},
            "random − none": {f: _interval(gains["random", f]) for f in forms},
            "corners − random": {
                f: _interval(gains["corners", f] - gains["random", f]) for f in forms
            },
            "corners − none": {f: _interval(gains["corners", f]) for f in forms},
            "taken off, corners for together": {
                f: figures.sample(
                    100
                    * (
                        1
                        - np.hypot(100, noise[d]["corners", f])
                        / np.hypot(100, noise[d]["together", f])
                    )
                )
                for f in forms
            },
        }
    panels[0, 0].set_ylabel("noise of the points\n(that of batches: 100)")
    panels[1, 0].set_ylabel("Recall@1\nminus no points")
    panels[2, 0].set_ylabel("random places\nminus one place")
    words = {"together": "all in one place", "random": "random places", "corners": "corners"}
    keys_ = [Line2D([], [], color=INKS[w], lw=6, label=name) for w, name in words.items()]
    fig.legend(handles=keys_, loc="outside lower center", ncols=3, frameon=False)
    return fig, drawn
