"""What lesson 08 draws."""

import itertools
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
from torch import Tensor

from dmlkit import figures, losses, models

#: Of six characters.
INKS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#4d4d4d")
#: Of the scales 1, 4 and 64.
SCALES = ("#0072b2", "#e69f00", "#d55e00")
#: Lengths of training, in steps, with their colors: the one that the title asks about first.
LENGTHS = {"600": figures.RIGHT, "150": "0.4"}


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
    for alpha, ink in zip((1, 2, 18), SCALES, strict=True):
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


def best(tried: Mapping[str, Mapping[str, float]]) -> dict[int, float]:
    """The learning rate with the highest Recall@1 on validation characters, for each scale."""
    return {int(alpha): float(max(row, key=row.__getitem__)) for alpha, row in tried.items()}


def chosen(tried: Mapping[str, Mapping[str, float]]) -> int:
    """The scale that finds most on validation characters, each scale at its best rate."""
    return int(max(tried, key=lambda alpha: max(tried[alpha].values())))


def search(tried: Mapping[str, Mapping[str, Mapping[str, float]]]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters over the learning rate: {steps: {scale: {rate: score}}}."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.9), sharey=True, layout="constrained")
    inks = plt.get_cmap("viridis_r")(np.linspace(0.12, 1, len(tried["150"])))
    rates = sorted({float(rate) for at in tried.values() for row in at.values() for rate in row})
    for axes, length in zip(panels, ("150", "600"), strict=True):
        for (alpha, row), ink in zip(tried[length].items(), inks, strict=True):
            axes.plot([*map(float, row)], [*row.values()], "o-", ms=3.5, lw=1.3, color=ink,
                      label=f"α = {alpha}")  # fmt: skip
            top = max(row, key=row.__getitem__)
            axes.plot(float(top), row[top], "o", ms=8, mew=1.6, mfc="none", mec=ink)
        axes.set_xscale("log")
        axes.set_xticks(rates, [f"{1000 * rate:g}" for rate in rates])
        axes.minorticks_off()
        axes.set(xlabel="learning rate × 1,000")
        axes.set_title(f"{length} steps", loc="left", fontsize=10, weight="bold")
    panels[0].set(ylabel="Recall@1, validation (%)")
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    tops = {at: {alpha: max(row.values()) for alpha, row in rows.items()}
            for at, rows in tried.items()}  # fmt: skip
    return fig, {"validation": figures.example(tops)}


def answer(
    kept: Mapping[str, Any],
    mine: Mapping[int, np.ndarray],
    law: Callable[[float], float],
    top: int,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 over the scale after both lengths above the law, and the differences that answer.

    ``kept`` has Recall@1 by steps and scale, (networks, trainings), and that of raw ``pixels``,
    ``mine`` this page's by scale; ``law`` is the ceiling, ``top`` the scale of validation.
    """
    pixels = kept["pixels"]
    found = {at: {int(alpha): each.mean(axis=1) for alpha, each in kept[at].items()}
             for at in LENGTHS}  # fmt: skip
    fig = plt.figure(figsize=(6.8, 4.4), layout="constrained")
    grid = fig.add_gridspec(2, 2, width_ratios=(1.25, 1), height_ratios=(2.4, 1))
    levels, right = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[:, 1])
    _levels(levels, found, pixels, mine)
    _law(below := fig.add_subplot(grid[1, 0], sharex=levels), [*found["150"]], law)
    for axes, each in itertools.product((levels, below), (2, 18)):
        axes.grid(False, axis="x")
        axes.axvline(each, color="0.5", ls="--", lw=1.1, zorder=0)
    gain = {
        "18 − 2, 600 steps": found["600"][18] - found["600"][2],
        f"{top} − 2, 600 steps": found["600"][top] - found["600"][2],
        "18 − 2, 150 steps": found["150"][18] - found["150"][2],
    }
    figures.gains(right, {name.replace(", ", ",\n"): each for name, each in gain.items()})
    right.set_title("600 steps: 18 finds more than 2", loc="left", fontsize=10, weight="bold")
    gain["longer"] = gain["18 − 2, 600 steps"] - gain["18 − 2, 150 steps"]
    for at, a, b in ((150, 8, 2), (150, 18, 8), (600, 18, 8), (600, 8, 4), (600, 2, 1)):
        gain[f"{a} − {b}, {at} steps"] = found[f"{at}"][a] - found[f"{at}"][b]
    level = {at: {f"{a}": figures.summary(each) for a, each in rows.items()}
             for at, rows in found.items()}  # fmt: skip
    return fig, {
        "gain": {name: figures.summary(each) for name, each in gain.items()},
        "level": level,
        "here": figures.example(float((mine[18] - mine[2]).mean())),
        "ceiling": figures.example({f"{alpha}": law(alpha) for alpha in found["150"]}),
        "pull": figures.example({f"{alpha}": alpha * (1 - law(alpha)) for alpha in found["150"]}),
        "pixels": figures.sample(pixels),
    }


def _levels(
    axes: Axes,
    found: Mapping[str, Mapping[int, np.ndarray]],
    pixels: np.ndarray,
    mine: Mapping[int, np.ndarray],
) -> None:
    """Recall@1 over the scale, a curve for each length of training, and this page's trainings."""
    for (at, ink), shift in zip(LENGTHS.items(), (1.03, 1 / 1.03), strict=True):
        rows = {alpha * shift: figures.summary(each) for alpha, each in found[at].items()}
        means = np.array([row["mean"] for row in rows.values()])
        ends = np.array([[row["low"], row["high"]] for row in rows.values()]).T
        axes.errorbar([*rows], means, abs(ends - means), color=ink, marker="o", ms=5, lw=2,
                      elinewidth=1.2)  # fmt: skip
        axes.annotate(f"{at} steps", ([*rows][-1], means[-1]), (9, 0), color=ink, fontsize=9,
                      weight="bold", textcoords="offset points", va="center")  # fmt: skip
    here = [each.mean() for each in mine.values()]
    axes.plot([*mine], here, "x", color=figures.WRONG, ms=7, mew=2, zorder=4)
    axes.annotate("this page", (min(mine), here[0]), (-7, 3), color=figures.WRONG, fontsize=9,
                  textcoords="offset points", va="bottom", ha="right")  # fmt: skip
    axes.axhline(pixels.mean(), color="0.5", ls=":", lw=1.4)
    axes.text(34, pixels.mean(), "raw pixels", fontsize=8, color="0.35", va="bottom", ha="right")
    axes.set(ylabel="Recall@1 (%)")
    axes.set_title("A large scale needs longer", loc="left", fontsize=10, weight="bold")
    axes.tick_params(labelbottom=False)


def _law(axes: Axes, scales: Sequence[int], law: Callable[[float], float]) -> None:
    """The largest probability of the own class over the scale; the claim's scales are marked."""
    alpha = np.geomspace(min(scales), max(scales), 200)
    axes.plot(alpha, [law(each) for each in alpha], color="0.4", lw=1.6)
    axes.plot(scales, [law(each) for each in scales], "o", color="0.4", ms=4)
    for each, right, up in ((2, -4, 5), (8, -6, -3), (18, -3, -13)):
        axes.annotate(f"{law(each):.2f}", (each, law(each)), (right, up), fontsize=8, ha="right",
                      textcoords="offset points", color="0.3")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(scales, [f"{each}" for each in scales])
    axes.minorticks_off()
    axes.set(xlim=(0.85, 38), ylim=(-0.05, 1.1), yticks=(0, 1), xlabel="scale α")
    axes.set_ylabel("ceiling of $P_y$")
