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
from torch import Tensor, nn

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


def circles(
    trained: Mapping[float, tuple[nn.Module, Tensor]], images: Tensor, y: Tensor
) -> tuple[Figure, dict[str, Any]]:
    """The same images and first weights, trained at three scales; angles to the own proxy."""
    fig, panels = plt.subplots(1, len(trained), figsize=(6.5, 2.65))
    drawn: dict[str, Any] = {}
    for axes, (alpha, (model, proxies)) in zip(panels, trained.items(), strict=True):
        with torch.no_grad():
            x, p = F.normalize(model(images)), F.normalize(proxies)
        _disc(axes, x, y, p)
        cosine = x @ p.T
        own = cosine.gather(1, y[:, None])[:, 0]
        angle = own.clamp(-1, 1).arccos().rad2deg().median().item()
        right = 100 * (cosine.argmax(dim=1) == y).float().mean().item()
        sure = 100 * (alpha * cosine).softmax(dim=1).gather(1, y[:, None]).mean().item()
        drawn[f"{alpha:g}"] = figures.example({"angle": angle, "right": right, "P": sure})
        axes.set_title(f"trained at α = {alpha:g}", fontsize=10, weight="bold")
        axes.text(
            0, -1.3, f"{right:.0f} % on their side\n{angle:.0f}° from the own proxy (median)\n"
            f"mean P {sure:.0f} %", ha="center", va="top", fontsize=8,
        )  # fmt: skip
    return fig, drawn


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
    """Recall@1 over the scale for heads and whole networks, with floors, and the difference asked.

    ``found`` has by kind and scale (seeds, folds), ``floors`` by kind (folds,), the one to which
    the lines of folds are moved first; ``before`` are networks of an earlier run, (folds,).
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.9), width_ratios=(1.4, 1))
    ink = figures.look("normalized_softmax").color
    heads = {"head": "a head on frozen features", "whole": "a whole network from nothing"}
    drawn: dict[str, Any] = {"recall": {}, "asked": {}, "floor": {}}
    at = {1: 0, 2: 1, 4: 2, 8: 3, 16: 3.9, 18: 4.1, 32: 5, 64: 6}
    for axes, (kind, by_scale) in zip(panels, found.items(), strict=True):
        mean = {alpha: each.mean(axis=0) for alpha, each in by_scale.items()}  # (folds,)
        floor = next(iter(floors[kind].values()))
        shift = floor.mean() - floor
        places = [at[int(alpha)] for alpha in mean]
        moved = np.array([each + shift for each in mean.values()])
        axes.plot(places, moved, "o-", color=ink, lw=0.8, ms=3, alpha=0.45)
        centers = [each.mean() for each in mean.values()]
        axes.plot(places, centers, "o-", color=ink, lw=2.4, ms=5.5, zorder=4)
        for name, each in floors[kind].items():
            axes.axhline(each.mean(), color="0.45", ls=":", lw=1.4, zorder=0)
            x, up = (2.9, 3) if kind == "head" or name == "untrained" else (2.5, -11)
            side = "center"
            axes.annotate(
                name, (x, each.mean()), (0, up), textcoords="offset points", fontsize=8,
                color="0.3", ha=side,
            )  # fmt: skip
        drawn["floor"][kind] = {n: figures.example(e.mean()) for n, e in floors[kind].items()}
        if kind == "whole":
            axes.plot(
                [at[int(a)] for a in before], [each.mean() for each in before.values()],
                "D--", color="0.5", mfc="white", lw=1.2, ms=5, zorder=3,
            )  # fmt: skip
        drawn["above floor"] = drawn.get("above floor", {}) | {
            kind: {
                f"{a:g}": figures.differences(_spare(), {"x": each - floor})["x"]
                for a, each in mean.items()
            }
        }
        drawn["recall"][kind] = {f"{a:g}": figures.sample(each) for a, each in mean.items()}
        drawn["asked"][kind] = {
            f"18 − {a}": figures.differences(_spare(), {"x": mean[18] - mean[a]})["x"]
            for a in (2, 64)
            if a in mean
        }
        for place, center in zip(places, centers, strict=True):
            low = kind == "whole"
            axes.annotate(
                f"{center:.1f}", (place, center), (0, -26 if low else 7), fontsize=8, weight="bold",
                textcoords="offset points", ha="center", va="top" if low else "bottom",
                bbox={"fc": "white", "lw": 0, "pad": 0.6, "alpha": 0.85}, zorder=6,
            )  # fmt: skip
        asked = drawn["asked"][kind]["18 − 2"]
        said = [f"{asked[key]:.1f}".replace("-", "−") for key in ("mean", "low", "high")]
        axes.set_title(
            f"{heads[kind]}\n18 minus 2: {said[0]} [{said[1]}, {said[2]}]", fontsize=10, loc="left"
        )
        axes.set_xticks([0, 1, 2, 3, 4, 5, 6], ["1", "2", "4", "8", "18", "32", "64"])
        axes.set(xlim=(-0.5, 6.5), xlabel="scale α")
        if kind == "whole":
            axes.set_ylim(bottom=15)
        axes.grid(False, axis="x")
        for alpha in (2, 18):
            axes.axvspan(at[alpha] - 0.25, at[alpha] + 0.25, color="0.9", lw=0, zorder=-1)
    panels[0].set_ylabel("Recall@1, unseen products (%)")
    lead = before["16"] - before["1"]
    drawn["before"] = {"16 − 1": figures.differences(_spare(), {"x": lead})["x"]}
    return fig, drawn


def search(tried: Mapping[float, np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of heads on validation products by scale, each fold at its best rate."""
    fig, axes = plt.subplots(figsize=(5.6, 2.3))
    best = {f"{alpha:g}": each.max(axis=0) for alpha, each in tried.items()}  # (folds,)
    drawn = figures.sweep(axes, best, {}, figures.look("normalized_softmax").color, "", 1)
    axes.set(xlabel="scale α", ylabel="Recall@1, validation (%)")
    return fig, drawn


def _spare() -> Axes:
    """Axes of no figure that stays: for a summary that nothing draws."""
    fig = Figure()
    return fig.subplots()
