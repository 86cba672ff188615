"""What lesson 08 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from torch import Tensor

from dmlkit import figures, losses, models

#: Of six characters.
INKS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#4d4d4d")
#: Of the scales 1, 4 and 64.
SCALES = ("#0072b2", "#e69f00", "#d55e00")
#: What the names of the longer trainings' differences end with.
LATE = ", 600 steps"


def _circle(images: Tensor, y: Tensor, steps: int, alpha: float) -> tuple[Tensor, Tensor]:
    """Directions of images and proxies after a training at one scale, for the first picture."""
    torch.manual_seed(0)
    model = models.ConvNet(dim=2)
    loss = losses.build("normalized_softmax", num_classes=len(INKS), dim=2, temperature=1 / alpha)
    groups: list[dict[str, Any]] = [
        {"params": model.parameters()},
        {"params": loss.parameters(), "lr": 0.05},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.005)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    for _ in range(steps):
        i = torch.randint(len(y), (32,))
        optimizer.zero_grad()
        loss(model(images[i]), y[i]).backward()
        optimizer.step()
        decay.step()
    with torch.no_grad():
        return F.normalize(model.eval()(images)), F.normalize(loss.get_parameter("proxies"))


def _placed(images: Tensor, y: Tensor, steps: int, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """What a disc shows: directions of images, their labels, proxies."""
    x, p = _circle(images, y, steps, alpha)
    return x, y, p


def _disc(axes: Axes, x: Tensor, y: Tensor, p: Tensor) -> None:
    """The disc by nearest proxy, proxies as arrows, images as dots outside of the circle."""
    u, v = np.meshgrid(*2 * [np.linspace(-1, 1, 401)])
    radius = np.maximum(np.hypot(u, v), 1e-9)
    winner = (np.stack([u, v], axis=-1) @ p.numpy().T).argmax(axis=-1)
    paint = 1 - 0.3 * (1 - np.array([*map(to_rgb, INKS)])[winner])
    paint[radius > 0.985] = 1
    axes.imshow(paint, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear")
    off = 1.04 + 0.17 * (torch.arange(len(x)) * 0.618 % 1)[:, None]  # dots do not hide dots
    across, up = (off * x).T
    axes.scatter(across, up, s=3, c=np.array(INKS)[y], lw=0)
    for (a, b), ink in zip(0.98 * p.numpy(), INKS, strict=True):
        arrow = {"arrowstyle": "-|>", "color": ink, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (a, b), (0, 0), arrowprops=arrow)
    turns = torch.atan2(p[:, 1], p[:, 0]).numpy()
    for k, (turn, place) in enumerate(zip(turns, _apart(turns, math.radians(17)), strict=True)):
        ends = np.array([[math.cos(turn), math.sin(turn)], [math.cos(place), math.sin(place)]])
        axes.plot(*(ends * [[1.0], [1.32]]).T, color=INKS[k], lw=0.7)
        across, up = (float(each) for each in 1.42 * ends[1])
        axes.text(across, up, f"{k + 1}", fontsize=9, ha="center", va="center", color=INKS[k],
                  weight="bold")  # fmt: skip
    axes.set(xlim=(-1.52, 1.52), ylim=(-1.52, 1.52), aspect="equal")
    axes.set_axis_off()


def _apart(turns: np.ndarray, least: float) -> np.ndarray:
    """Angles near these, in radians, of which no two are nearer than the least."""
    places = turns.astype(float).copy()
    for _ in range(200):
        order = places.argsort()
        sorted_ = places[order]
        gap = np.diff(np.append(sorted_, sorted_[0] + 2 * math.pi))
        push = np.maximum(least - gap, 0) / 2
        sorted_ += np.roll(push, 1) - push
        places[order] = sorted_
    return places


def first(images: Tensor, y: Tensor, steps: int, scales: Sequence[int]) -> Figure:
    """The circle on which networks of two outputs put six characters, at some scales."""
    fig, n = plt.figure(figsize=(6.5, 3.1), layout="none"), len(scales)
    for place, alpha in enumerate(scales):
        disc = fig.add_axes((place / n, 0.25, 1 / n, 0.7))
        _disc(disc, *_placed(images, y, steps, alpha))
        disc.set_title(f"α = {alpha}", fontsize=10, weight="bold", pad=2)
    shelf = fig.add_axes((0, 0, 1, 0.25))
    shelf.set(xlim=(-1.7, 6.7), ylim=(0, 1))
    shelf.set_axis_off()
    for k, ink in enumerate(INKS):
        drawing = images[int((y == k).nonzero()[0, 0])][0].numpy()
        photo = OffsetImage(drawing, zoom=0.8, cmap="gray_r")
        frame: dict[str, Any] = {"pad": 0.12, "bboxprops": {"edgecolor": ink, "lw": 2.5}}
        shelf.add_artist(AnnotationBbox(photo, (k, 0.6), **frame))
        shelf.text(k, 0.16, f"{k + 1}", ha="center", va="center", fontsize=9, color=ink,
                   weight="bold")  # fmt: skip
    return fig


def forces(
    pull: Callable[[float], tuple[Tensor, float]], z: Tensor
) -> tuple[Figure, dict[str, Any]]:
    """The force on an image along the circle, over its angle to the own proxy, at three scales."""
    fig, axes = plt.subplots(figsize=(6.5, 2.6))
    angle = torch.linspace(-90, 90, 361).double()
    rad = angle.deg2rad()[:, None] - torch.tensor([0.0, 120, 240]).double().deg2rad()
    own = torch.tensor([1.0, 0, 0]).double()
    share = {}
    for alpha, ink in zip((1, 4, 64), SCALES, strict=True):
        force, share[f"{alpha}"] = pull(alpha)
        wanted = own - (alpha * rad.cos()).softmax(dim=1)
        axes.plot(angle, (wanted * rad.sin()).sum(dim=1).abs(), color=ink, lw=1.5)
        label = f"α = {alpha}: {100 * share[f'{alpha}']:.0f} %"
        axes.plot(35 * z, force[:20], "o", color=ink, ms=5, mew=0, label=label)
    for border in (-60, 60):
        axes.axvline(border, color="0.5", ls=":", lw=1.2, zorder=0)
        axes.text(border, 1.84, "border", fontsize=8, color="0.35", ha="center")
    axes.set(xlim=(-90, 90), ylim=(-0.06, 1.8), xticks=range(-90, 91, 30))
    axes.set(xlabel="angle of an image to its own proxy (degrees)", ylabel="force over α")
    axes.legend(
        title="share of all force on\nthe hardest quarter", loc="upper left", bbox_to_anchor=(1, 1)
    )
    return fig, {"share": share}


def ceilings(ceiling: Callable[[Any, int], Any]) -> tuple[Figure, dict[str, Any]]:
    """The largest possible probability of the own class, over the scale, for numbers of classes."""
    fig, axes = plt.subplots(figsize=(6.5, 2.7))
    alpha, at = np.geomspace(1, 64, 400), (1, 2, 4, 8, 18, 64)
    drawn = {}
    for C, ink, side, x, y in (
        (3, "0.45", "left", 1.35, 0.7),
        (100, figures.RIGHT, "right", 4.7, 0.63),
        (10_000, "0.45", "left", 10, 0.4),
    ):
        axes.plot(alpha, ceiling(alpha, C), color=ink, lw=2.4 if C == 100 else 1.6)
        drawn[f"{C}"] = {f"{each}": float(ceiling(each, C)) for each in at}
        axes.text(x, y, f"{C:,} classes", color=ink, ha=side, fontsize=9, weight="bold")
    for each in (2, 4, 8, 18):
        top = drawn["100"][f"{each}"]
        axes.plot(each, top, "o", ms=7, color=figures.RIGHT)
        axes.annotate(f"{top:.2f}", (each, top), (-3, 6), textcoords="offset points", ha="right",
                      color=figures.RIGHT, fontsize=9)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(at, [f"{each}" for each in at])
    axes.minorticks_off()
    axes.set(xlim=(1, 64), ylim=(0, 1.17), yticks=(0, 0.5, 1), xlabel="scale α")
    axes.set_ylabel("largest possible $P_y$")
    axes.grid(False, axis="x")
    axes.set_title("More classes need a larger scale", loc="left", fontsize=10, weight="bold")
    return fig, {"ceiling": figures.example(drawn)}


def search(
    tried: Mapping[str, Sequence[float]], rates: Sequence[float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by scale, (scales, rates), as a heat map."""
    table = np.array([*tried.values()])
    fig, axes = plt.subplots(figsize=(5.5, 0.7 + 0.3 * len(tried)))
    axes.imshow(table, cmap="Blues", vmin=25, vmax=75, aspect="auto")
    for place, line in enumerate(table):
        for column, value in enumerate(line):
            top = column == line.argmax()
            axes.text(column, place, f"{value:.0f}", ha="center", va="center", fontsize=9,
                      weight="bold" if top else "normal")  # fmt: skip
            if top:
                box: Any = {"fill": False, "ec": figures.WRONG, "lw": 2}
                axes.add_patch(Rectangle((column - 0.47, place - 0.44), 0.94, 0.88, **box))
    axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates])
    axes.set_yticks(range(len(tried)), [f"α = {name}" for name in tried])
    axes.set(xlabel="learning rate")
    axes.grid(False)
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.set_title("Recall@1 on validation characters (%)", loc="left", fontsize=10, weight="bold",
                   pad=8)  # fmt: skip
    return fig, {"validation": figures.example({name: max(line) for name, line in tried.items()})}


def answer(
    found: Mapping[int, np.ndarray],
    late: Mapping[int, np.ndarray],
    floors: Mapping[str, np.ndarray],
    gain: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 over the scale, and differences with 95 % intervals.

    ``found`` has Recall@1 by scale, ``late`` that after more steps, ``floors`` that of what needs
    no training, ``gain`` differences by name; all (networks,).
    """
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.8, 3.6), width_ratios=(1, 1.25), layout="constrained"
    )
    ink = figures.RIGHT
    for by, color, style, said in (
        (late, "0.45", "--", "600 steps"),
        (found, ink, "-", "150 steps"),
    ):
        for alpha, values in by.items():
            left.plot([alpha] * len(values), values, "o", color=color, alpha=0.3, ms=4, mew=0)
        means = [values.mean() for values in by.values()]
        left.plot([*by], means, "o", ls=style, color=color, lw=2, ms=6, label=said)
    for name, each in floors.items():
        left.axhline(each.mean(), color="0.6", lw=1.4, ls=":", zorder=0)
        left.text(1.6, each.mean() + 0.8, name, color="0.35", va="bottom", fontsize=8)
    left.set_xscale("log")
    left.set_xticks([*found], [f"{alpha}" for alpha in found])
    left.minorticks_off()
    left.set(xlim=(1.5, 90), ylim=(0, 80), xlabel="scale α", ylabel="Recall@1 (%)")
    left.legend(loc="lower right", bbox_to_anchor=(1, 0.12), frameon=False, fontsize=8)
    left.grid(False, axis="x")
    shown = [f"{pair}{when}" for pair in ("8 − 2", "18 − 8", "18 − 2") for when in (LATE, "")]
    figures.gains(right, {f"α = {name}".replace(", ", ",\n"): gain[name] for name in shown})
    rows = {name: figures.summary(values) for name, values in gain.items()}
    kept = {f"{alpha}": figures.sample(each) for alpha, each in found.items()}
    after = {f"{alpha}": figures.sample(each) for alpha, each in late.items()}
    floor = {name: float(each.mean()) for name, each in floors.items()}
    return fig, {"gain": rows, "found": kept, "late": after, "floor": figures.example(floor)}


def shares(watched: Mapping[int, Sequence[np.ndarray]]) -> tuple[Figure, dict[str, Any]]:
    """The images on the wrong side and their share of the force, by training step.

    ``watched`` has, in percent, the share of the force and that of the images, for each scale and
    network: (steps, 2).
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharex=True, layout="constrained")
    inks = dict(
        zip(watched, ("0.65", "0.35", "#8fbbda", figures.RIGHT, figures.WRONG), strict=True)
    )
    curves = {alpha: np.mean([*each], axis=0) for alpha, each in watched.items()}  # (steps, 2)
    steps = len(next(iter(curves.values())))
    width = min(10, steps)
    at = np.arange(steps // width) * width + width / 2
    titles = {1: "images on the wrong side (%)", 0: "their share of all force (%)"}
    for axes, (place, title) in zip(panels, titles.items(), strict=True):
        for alpha, curve in curves.items():
            mean = curve[: steps // width * width, place].reshape(-1, width).mean(axis=1)
            axes.plot(at, mean, color=inks[alpha], lw=2, label=f"α = {alpha}")
        axes.set(xlabel="step", ylim=(0, 103), xlim=(0, steps))
        axes.set_title(title, weight="bold", loc="left", fontsize=10)
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    last = {alpha: np.array([w[-steps // 3 :].mean(axis=0) for w in each])
            for alpha, each in watched.items()}  # fmt: skip
    return fig, {
        "force": {f"{alpha}": figures.sample(each[:, 0]) for alpha, each in last.items()},
        "wrong": {f"{alpha}": figures.sample(each[:, 1]) for alpha, each in last.items()},
    }
