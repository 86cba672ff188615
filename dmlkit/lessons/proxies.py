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
from torch import Tensor

from dmlkit import data, figures, losses, models

#: Of ten products.
INKS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#d55e00", "#8f6bb3", "#8a8a2b", "#7a4a2a", "#c0304a"),
)
#: Of the scales 1, 4 or 8, and 64.
SCALES = ("#0072b2", "#e69f00", "#d55e00")


def ten_products(train: data.ImageSet) -> tuple[Tensor, Tensor, list[str]]:
    """The products with most photographs: 40 images of each, labels 0 to 9, names."""
    ten = np.argsort(-np.bincount(train.labels), kind="stable")[:10]
    rows = np.concatenate([np.flatnonzero(train.labels == k)[:40] for k in ten])
    names = [train.class_names[k].replace("-", "\n", 1) for k in ten]
    return train.images[torch.from_numpy(rows)], torch.arange(10).repeat_interleave(40), names


def _circle(images: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Directions of images and proxies after a training at scale 1, for the first picture."""
    torch.manual_seed(0)
    model = models.ConvNet(dim=2, channels=3)
    loss = losses.build("normalized_softmax", num_classes=10, dim=2, temperature=1)
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
    axes.scatter(across, up, s=4, c=np.array(INKS)[y], lw=0)
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "lw": 0}
    for k, ((a, b), ink) in enumerate(zip(0.98 * p.numpy(), INKS, strict=True)):
        arrow = {"arrowstyle": "-|>", "color": ink, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (a, b), (0, 0), arrowprops=arrow)
        at = 0.4 + 0.05 * k  # numbers of arrows that are close do not meet
        axes.text(at * a, at * b, f"{k + 1}", fontsize=7, ha="center", va="center", bbox=box)
    axes.set(xlim=(-1.24, 1.24), ylim=(-1.24, 1.24), aspect="equal")
    axes.set_axis_off()


def first(images: Tensor, y: Tensor, names: Sequence[str], steps: int) -> Figure:
    """Ten products, and the circle on which a network of two outputs puts them."""
    fig = plt.figure(figsize=(6.5, 3.1))
    parts: Any = fig.subfigures(1, 2, width_ratios=(1, 1.15))
    left, right = parts
    _disc(left.add_axes((0, 0, 1, 1)), *_with(_circle(images, y, steps), y))
    shelf = right.add_axes((0, 0, 1, 1))
    shelf.set(xlim=(-0.5, 4.5), ylim=(0, 2.05))
    shelf.set_axis_off()
    for k, name in enumerate(names):
        at, low = k % 5, 1 - k // 5
        photo = OffsetImage(images[40 * k].permute(1, 2, 0).numpy(), zoom=1.15)
        frame: dict[str, Any] = {"pad": 0.12, "bboxprops": {"edgecolor": INKS[k], "lw": 3}}
        shelf.add_artist(AnnotationBbox(photo, (at, low + 0.72), **frame))
        shelf.text(at, low + 0.43, f"{k + 1}\n{name}", ha="center", va="top", fontsize=7)
    return fig


def _with(pair: tuple[Tensor, Tensor], y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return pair[0], y, pair[1]


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


def answer(
    found: Mapping[str, Mapping[float, np.ndarray]],
    floors: Mapping[str, Mapping[str, np.ndarray]],
    before: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Heads above untouched features over the scale, their angles, and differences of scales.

    ``found`` has by kind and scale Recall@1 and degrees to the own proxy, (seeds, folds, 2),
    ``floors`` by kind (folds,); ``before`` are networks of an earlier run, (folds,).
    """
    fig = plt.figure(figsize=(6.5, 4.3))
    grid = fig.add_gridspec(2, 2, width_ratios=(1.25, 1), height_ratios=(2.4, 1))
    top, side = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[:, 1])
    low = fig.add_subplot(grid[1, 0], sharex=top)
    ink = figures.look("normalized_softmax").color
    mean = {
        kind: {a: each[..., 0].mean(axis=0) for a, each in by_scale.items()}
        for kind, by_scale in found.items()
    }  # (folds,)
    first = {kind: next(iter(each.values())) for kind, each in floors.items()}
    above = {
        kind: {f"{a:g}": _row(each - first[kind]) for a, each in by_scale.items()}
        for kind, by_scale in mean.items()
    }
    angle = {
        kind: {f"{a:g}": figures.sample(each[..., 1].mean(axis=0)) for a, each in by_scale.items()}
        for kind, by_scale in found.items()
    }
    head = mean["head"]
    lines = {
        ("head", "18 − 2"): head[18] - head[2],
        ("whole", "18 − 2"): mean["whole"][18] - mean["whole"][2],
        ("before", "16 − 1"): before["16"] - before["1"],
        **{("head", f"8 − {a}"): head[8] - head[a] for a in (1, 2, 18)},
        ("head", "18 − 64"): head[18] - head[64],
    }
    rows = {key: _row(each) for key, each in lines.items()}
    at = np.arange(len(head))
    top.plot(at, [each - first["head"] for each in head.values()], "o-", color=ink, lw=0.8, ms=2.5,
             alpha=0.4)  # fmt: skip
    top.plot(at, [each["mean"] for each in above["head"].values()], "o-", color=ink, lw=2.2, ms=5)
    for place, each in zip(at, above["head"].values(), strict=True):
        top.plot([place, place], [each["low"], each["high"]], color=ink, lw=2.2)
        top.annotate(
            f"{each['mean']:+.1f}".replace("-", "−"), (place, each["high"]), (0, 4), fontsize=8,
            textcoords="offset points", ha="center", weight="bold",
        )  # fmt: skip
    top.axhline(0, color="0.3", lw=1, zorder=0)
    top.set_title("heads minus untouched features", loc="left", fontsize=10, weight="bold")
    top.set_ylabel("Recall@1 (points)")
    top.tick_params(labelbottom=False)
    degrees = [each[..., 1].mean() for each in found["head"].values()]
    low.plot(at, degrees, "o-", color="0.35", lw=1.6, ms=4)
    for place, each in zip(at, degrees, strict=True):
        low.annotate(f"{each:.0f}°", (place, each), (0, 5), fontsize=8, color="0.3", ha="center",
                     textcoords="offset points")  # fmt: skip
    low.set_xticks(at, [f"{a:g}" for a in head])
    low.set(xlim=(-0.4, len(at) - 0.6), ylim=(0, 1.45 * max(degrees)), xlabel="scale α of heads")
    low.set_title("a training image to its own proxy (median)", loc="left", fontsize=9)
    for axes in (top, low):
        axes.grid(False, axis="x")
    said = {"head": "heads", "whole": "whole", "before": "earlier, whole"}
    places = [0, 1, 2, 3.6, 4.6, 5.6, 6.6]
    for spot, ((kind, _), each) in zip(places, rows.items(), strict=True):
        color = "0.45" if kind == "before" else ink
        side.plot([each["low"], each["high"]], [spot, spot], color=color, lw=2)
        face = "white" if kind == "before" else color
        side.plot(each["mean"], spot, "D" if kind == "before" else "o", color=color, mfc=face)
        side.text(each["mean"], spot - 0.24, f"{each['mean']:+.1f}".replace("-", "−"), fontsize=8,
                  ha="center", color=color)  # fmt: skip
    side.set_yticks(places, [f"{said[kind]}\n{name}" for kind, name in rows], fontsize=8)
    side.axvline(0, color="0.3", lw=1, zorder=0)
    side.axvline(10, color=figures.WRONG, ls="--", lw=1.4, zorder=0)
    side.text(9.7, 2.95, "the claim's 10", color=figures.WRONG, fontsize=8, ha="right")
    lowest = min(each["low"] for each in rows.values())
    side.set(ylim=(7.1, -0.7), xlim=(min(-8.0, lowest - 0.5), 11.5), xlabel="points of Recall@1")
    side.set_title("one scale minus another", loc="left", fontsize=10, weight="bold")
    side.grid(False, axis="y")
    asked: dict[str, Any] = {kind: {} for kind in mean}
    for (kind, name), each in rows.items():
        asked.setdefault(kind, {})[name] = each
    earlier = asked.pop("before")
    return fig, {
        "recall": {
            kind: {f"{a:g}": figures.sample(each) for a, each in by_scale.items()}
            for kind, by_scale in mean.items()
        },
        "asked": asked, "before": earlier, "above floor": above, "angle": angle,
        "floor": {
            kind: {name: figures.example(each.mean()) for name, each in by_name.items()}
            for kind, by_name in floors.items()
        },
    }  # fmt: skip


def _row(values: np.ndarray) -> dict[str, Any]:
    """The values with their mean and its 95 % interval."""
    return figures.differences(Figure().subplots(), {"x": values})["x"]


def search(tried: Mapping[float, np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of heads on validation products by scale, each fold at its best rate."""
    fig, axes = plt.subplots(figsize=(5.6, 2.3))
    best = {f"{alpha:g}": each.max(axis=0) for alpha, each in tried.items()}  # (folds,)
    drawn = figures.sweep(axes, best, {}, figures.look("normalized_softmax").color, "", 1)
    axes.set(xlabel="scale α", ylabel="Recall@1, validation (%)")
    return fig, drawn
