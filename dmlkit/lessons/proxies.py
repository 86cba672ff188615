"""What lesson 08 draws."""

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

#: Of ten characters.
INKS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#d55e00", "#4d4d4d", "#8a8a2b", "#7a4a2a", "#c0304a"),
)
#: Of the scales 1, 4 and 64.
SCALES = ("#0072b2", "#e69f00", "#d55e00")


def _circle(images: Tensor, y: Tensor, steps: int, alpha: float) -> tuple[Tensor, Tensor]:
    """Directions of images and proxies after a training at one scale, for the first picture."""
    torch.manual_seed(0)
    model = models.ConvNet(dim=2)
    loss = losses.build("normalized_softmax", num_classes=10, dim=2, temperature=1 / alpha)
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
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "lw": 0}
    order = torch.atan2(p[:, 1], p[:, 0]).argsort().argsort()  # around the circle
    for k, ((a, b), ink) in enumerate(zip(0.98 * p.numpy(), INKS, strict=True)):
        arrow = {"arrowstyle": "-|>", "color": ink, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (a, b), (0, 0), arrowprops=arrow)
        at = (0.34, 0.5, 0.66, 0.82)[int(order[k]) % 4]  # numbers of neighbors do not meet
        axes.text(at * a, at * b, f"{k + 1}", fontsize=7, ha="center", va="center", bbox=box)
    axes.set(xlim=(-1.24, 1.24), ylim=(-1.24, 1.24), aspect="equal")
    axes.set_axis_off()


def first(images: Tensor, y: Tensor, steps: int) -> Figure:
    """The circle on which networks of two outputs put ten characters, at three scales."""
    fig = plt.figure(figsize=(6.5, 3.1))
    for place, alpha in enumerate((1, 8, 64)):
        disc = fig.add_axes((place / 3, 0.25, 1 / 3, 0.7))
        _disc(disc, *_placed(images, y, steps, alpha))
        disc.set_title(f"α = {alpha}", fontsize=10, weight="bold", pad=2)
    shelf = fig.add_axes((0, 0, 1, 0.25))
    shelf.set(xlim=(-0.5, 9.5), ylim=(0, 1))
    shelf.set_axis_off()
    for k in range(10):
        drawing = images[int((y == k).nonzero()[0, 0])][0].numpy()
        photo = OffsetImage(drawing, zoom=0.8, cmap="gray_r")
        frame: dict[str, Any] = {"pad": 0.12, "bboxprops": {"edgecolor": INKS[k], "lw": 2.5}}
        shelf.add_artist(AnnotationBbox(photo, (k, 0.6), **frame))
        shelf.text(k, 0.16, f"{k + 1}", ha="center", va="center", fontsize=8)
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
        title="the hardest quarter\nhas of all force", loc="upper left", bbox_to_anchor=(1, 1)
    )
    return fig, {"share": share}


def search(
    tried: Mapping[str, Sequence[float]],
    rates: Sequence[float],
    share: Mapping[str, float],
    label: str = "α = {}",
    said: tuple[str, str] = ("force on the\nhardest quarter", " %"),
    span: tuple[float, float] = (25, 75),
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, (settings, rates), as a heat map.

    Beside it each setting's ``share`` at its best rate, with what is ``said`` of it and its unit.
    ``span`` are the values of the palest and of the darkest blue.
    """
    table = np.array([*tried.values()])
    fig, axes = plt.subplots(figsize=(6.5, 0.7 + 0.3 * len(tried)))
    axes.imshow(table, cmap="Blues", vmin=span[0], vmax=max(span[1], table.max()), aspect="auto")
    for row, line in enumerate(table):
        for column, value in enumerate(line):
            top = column == line.argmax()
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9,
                      weight="bold" if top else "normal")  # fmt: skip
            if top:
                box: Any = {"fill": False, "ec": figures.WRONG, "lw": 2}
                axes.add_patch(Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, **box))
    for row, name in enumerate(tried):
        side = f"{share[name]:.0f}{said[1]}"
        axes.text(len(rates) + 0.1, row, side, ha="center", va="center")
    axes.text(len(rates) + 0.1, -0.75, said[0], ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates])
    axes.set_yticks(range(len(tried)), [label.format(name) for name in tried])
    axes.set(xlim=(-0.5, len(rates) + 0.7), xlabel="learning rate")
    axes.xaxis.set_label_coords(0.4, -0.12)
    axes.grid(False)
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.set_title("Recall@1 on validation characters (%)", loc="left", fontsize=10, weight="bold",
                   pad=8)  # fmt: skip
    tops = {name: {"best": max(line), "share": share[name]} for name, line in tried.items()}
    return fig, {"validation": figures.example(tops)}


def answer(
    found: Mapping[str, np.ndarray],
    floors: Mapping[str, np.ndarray],
    gain: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Differences of Recall@1 with 95 % intervals, the rule's two first; beside it the levels.

    ``found`` has Recall@1 by scale, ``floors`` that of what needs no training, ``gain``
    differences by name; all (networks,).
    """
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.8, 3.3), width_ratios=(1.5, 1), layout="constrained"
    )
    ink = figures.look("normalized_softmax").color
    box = {"boxstyle": "round,pad=0.1", "fc": "white", "lw": 0}
    rows = {}
    for place, (name, values) in enumerate(gain.items()):
        each = rows[name] = row(values)
        big = place < 2
        left.plot([each["low"], each["high"]], 2 * [place], color=ink, lw=5 if big else 2,
                  solid_capstyle="butt", alpha=0.55 if big else 1)  # fmt: skip
        left.plot(each["mean"], place, "o", color=ink, ms=11 if big else 6)
        left.text(each["mean"], place - (0.2 if big else 0.14),
                  f"{each['mean']:+.1f}".replace("-", "−"), ha="center", va="bottom", color=ink,
                  fontsize=15 if big else 9, weight="bold" if big else "normal",
                  bbox=box)  # fmt: skip
    left.axvline(0, color="0.3", lw=1, zorder=0)
    left.set_yticks(range(len(gain)), [*gain])
    for text in left.get_yticklabels()[:2]:
        text.set_fontweight("bold")
    left.margins(x=0.12)
    left.set(ylim=(len(gain) - 0.6, -0.65), xlabel="difference in Recall@1 (points)")
    left.grid(False, axis="y")
    levels = {name: float(each.mean()) for name, each in floors.items()}
    floor = figures.sweep(right, found, levels, ink)["floor"]
    right.set(ylim=(0, 1.2 * max(map(np.max, found.values()))), ylabel="Recall@1 (%)")
    right.set_xlabel("scale α")
    for text in right.texts[-len(floors) :]:  # the names of floors, within the panel
        text.set(x=-0.5, ha="left", va="bottom")
    return fig, {"gain": rows, "floor": floor}


def row(values: np.ndarray) -> dict[str, Any]:
    """The values with their mean and its 95 % interval."""
    return figures.differences(Figure().subplots(), {"x": values})["x"]
