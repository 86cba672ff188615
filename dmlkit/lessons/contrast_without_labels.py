"""What lesson 27 draws, and measures without teaching it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from dmlkit import data, figures
from dmlkit.data.images import ImageSet
from dmlkit.data.pictures import color_histogram
from dmlkit.statistics import interval

PARTS = 4  # of the characters, with none in common
COLOR, SHAPE = torch.tensor([[-1.5, -0.5, 0.5, 1.5], [0.5, -1.5, 1.5, -0.5]])
FIRST, SECOND = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
#: What needs no training.
FREE = ("color histogram", "raw pixels", "raw gray pixels", "untrained")


class Part(NamedTuple):
    """Characters to train on, without labels, and other characters to search among."""

    x: Tensor  # (N, 3, 32, 32), from 0 to 1
    test: Tensor  # (M, 3, 32, 32)
    y: np.ndarray  # (M,): the characters
    ink: Tensor  # (M, 3): red, green and blue of each image's ink


def painted(gray: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Gray images (N, 1, H, W), each in an ink of its own; and the inks (N, 3)."""
    ink = 0.2 + 0.8 * torch.rand(len(gray), 3, generator=torch.Generator().manual_seed(seed))
    return gray.float() / 255 * ink[:, :, None, None], ink


def parts(where: str, split: str = "test") -> tuple[list[Part], dict[str, ImageSet]]:
    """Four parts, which have no character in common; and the data that they are of."""
    sets = {name: data.load("glyphs", name) for name in ("train", split)}
    (x, _), (test, ink) = (painted(of.images[:], k) for k, of in enumerate(sets.values()))
    own, y = (np.asarray(of.labels) for of in sets.values())
    return [
        Part(
            x[own % PARTS == r].to(where),
            test[y % PARTS == r].to(where),
            y[y % PARTS == r],
            ink[y % PARTS == r],
        )
        for r in range(PARTS)
    ], {"glyphs": sets[split]}


@torch.no_grad()
def embed(network: nn.Module, pictures: Tensor) -> Tensor:
    """Embeddings of length 1: (N, d)."""
    network.eval()
    return torch.cat([F.normalize(network(part)).cpu() for part in pictures.split(1000)])


def hue(ink: Tensor) -> Tensor:
    """The shares of red, green and blue in an ink: what a change of brightness leaves alone."""
    return ink / ink.sum(dim=1, keepdim=True)


def hue_apart(z: Tensor, part: Part) -> float:
    """The distance in hue from image to nearest image, over that of two images drawn at random."""
    colors = hue(part.ink)
    nearest = (z @ z.T).fill_diagonal_(-torch.inf).argmax(dim=1)
    apart = (colors - colors[nearest]).norm(dim=1).mean() / torch.pdist(colors).mean()
    return float(apart)


def untrained(part: Part, network: nn.Module) -> Tensor:
    """Embeddings of a network whose weights never moved; BatchNorm has seen batches."""
    batches = (part.x[rows] for rows in torch.randperm(len(part.x))[:1280].split(64))
    torch.optim.swa_utils.update_bn(batches, network)
    return embed(network, part.test)


def free(part: Part) -> dict[str, Tensor]:
    """Vectors of length 1 that no network makes."""
    x = part.test.cpu()
    pixels = {"raw pixels": x.flatten(1), "raw gray pixels": F.normalize(x.mean(dim=1).flatten(1))}
    centered = {name: F.normalize(each - each.mean(dim=0)) for name, each in pixels.items()}
    return {"color histogram": F.normalize(color_histogram(x))} | centered


def toy_loss(weights: Tensor, change: float) -> Tensor:
    """NT-Xent of the network of two weights, τ = 0.5: (N, 2) -> (N,)."""
    color = torch.cat([COLOR + change * FIRST, COLOR - change * FIRST])  # (8,)
    shape = torch.cat([SHAPE + 0.3 * SECOND, SHAPE - 0.3 * SECOND])
    angle = weights @ torch.stack([color, shape])  # (N, 8)
    s = (angle[:, :, None] - angle[:, None, :]).cos() / 0.5  # (N, 8, 8)
    s = s.masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    return -s.log_softmax(dim=2)[:, torch.arange(8), torch.arange(8).roll(4)].mean(dim=1)


def views(part: Part, kinds: Mapping[str, Callable[[Tensor], Tensor]]) -> Figure:
    """Two drawings of one character and one of another, beside two views of each kind."""
    x = part.test[[0, 1, 40]].cpu()
    torch.manual_seed(2)
    seen = [x, *(kind(x) for kind in kinds.values() for _ in range(2))]
    fig, panels = plt.subplots(
        3, 13, figsize=(6.5, 2.35), width_ratios=[1, *[0.35, 1, 1] * len(kinds)]
    )
    shown = [0, *(1 + 3 * (k // 2) + 1 + k % 2 for k in range(2 * len(kinds)))]
    for line, said, row in zip(
        panels, ("a character", "the same", "another"), range(3), strict=True
    ):
        for axes in line:
            axes.set_axis_off()
        for place, each in zip(shown, seen, strict=True):
            line[place].set_axis_on()
            line[place].imshow(each[row].permute(1, 2, 0).clamp(0, 1).numpy())
            figures.bare(line[place])
        line[0].set_ylabel(said, fontsize=9)
    panels[0, 0].set_title("image", fontsize=9.5, weight="bold")
    for k, name in enumerate(kinds):
        panels[0, 2 + 3 * k].set_title(name, fontsize=9.5, weight="bold", loc="left")
    return fig


def landscape() -> tuple[Figure, dict[str, Tensor], Tensor]:
    """The toy's loss over its two weights, the lowest places, and all places."""
    ticks = torch.linspace(-1.8, 1.8, 145)
    grid = torch.cartesian_prod(ticks, ticks)  # color's weight first
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.3), sharey=True)
    lowest = {}
    for axes, (title, change) in zip(
        panels, {"color kept": 0.0, "color changed": 0.6}.items(), strict=True
    ):
        value = toy_loss(grid, change).view(145, 145)
        levels = np.arange(0.4, 2.81, 0.2)
        shade = axes.contourf(ticks, ticks, value.T, levels, cmap="Blues_r", extend="both")
        axes.contour(ticks, ticks, value.T, levels, colors="white", linewidths=0.5)
        best = grid[value.flatten().argmin()]
        best = best * (best[best.abs().argmax()]).sign()  # both signs are as good
        lowest[title] = best
        star = {"ms": 13, "mfc": figures.WRONG, "mec": "white", "clip_on": False, "ls": ""}
        axes.plot([best[0], -best[0]], [best[1], -best[1]], "*", **star)
        axes.plot(0, 0, "o", ms=7, mfc="white", mec="black")
        axes.set(aspect="equal", xlabel="weight of color", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.set_title(title, fontweight="bold", loc="left")
        axes.grid(False)
    panels[0].set_ylabel("weight of shape")
    fig.colorbar(shade, ax=panels, shrink=0.8, label="loss")
    return fig, lowest, grid


def flip(grid: Tensor) -> tuple[Figure, Tensor, float]:
    """The toy's best weights by the change of color, and the change at which they turn."""
    strengths = torch.linspace(0, 0.6, 61)
    at = torch.stack([grid[toy_loss(grid, float(c)).argmin()].abs() for c in strengths])  # (61, 2)
    turn_at = float(strengths[int((at[:, 1] > at[:, 0]).int().argmax())])
    fig, axes = plt.subplots(figsize=(6.5, 2.2))
    for k, (name, ink) in enumerate({"color": figures.WRONG, "shape": figures.RIGHT}.items()):
        axes.plot(strengths, at[:, k], ".-", ms=4, color=ink)
        axes.text(0.02 + 0.5 * k, 1.65 - 0.27 * k, name, color=ink, weight="bold")
    axes.axvline(0.3, color="0.5", ls=":", lw=1.2)
    axes.text(0.308, 0.6, "views change shape\nby so much", fontsize=9, color="0.35")
    axes.set(xlabel="change of color by the views", ylabel="best weight", ylim=(-0.1, 1.9))
    axes.set_title("in the toy, what views change less gets the weight", weight="bold", loc="left")
    return fig, at, turn_at


def grid_map(
    found: Mapping[str, Mapping[str, float]], rates: Sequence[float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters, by the views (rows) and the rate (columns)."""
    table = np.array([[found[kind][f"{rate:g}"] for rate in rates] for kind in found])
    fig, axes = plt.subplots(figsize=(6.5, 0.34 * len(table) + 0.75))
    axes.imshow(table, cmap="Blues", aspect="auto", vmin=0, vmax=1.25 * table.max())
    for (row, place), value in np.ndenumerate(table):
        best = bool(value == table[row].max())
        ink = "white" if value > 0.75 * table.max() else "black"
        axes.text(place, row, f"{value:.0f}" + " ★" * best, ha="center", va="center", color=ink,
                  weight="bold" if best else None)  # fmt: skip
    axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axes.set_yticks(range(len(table)), list(found))
    axes.set_xlabel("learning rate")
    axes.grid(False)
    return fig, {"Recall@1": {kind: dict(each) for kind, each in found.items()}}


def curves(
    losses: Mapping[str, Sequence[Sequence[float]]], guessing: float
) -> tuple[Figure, dict[str, Any]]:
    """The loss of each kind of views by steps, the mean of all parts; and that of a guess."""
    fig, axes = plt.subplots(figsize=(6.5, 2.5))
    drawn: dict[str, Any] = {}
    steps, ends = len(next(iter(losses.values()))[0]), {}
    width = min(15, steps)
    for name, runs in losses.items():
        smooth = np.convolve(np.mean(runs, axis=0), np.ones(width) / width, mode="valid")
        axes.plot(np.arange(width, steps + 1), smooth, color=_INKS[name], lw=1.8)
        drawn[name] = figures.sample([float(np.mean(run[-width:])) for run in runs])
        ends[name] = smooth[-1]
    height = -1.0
    for name in sorted(ends, key=lambda each: ends[each]):
        height = max(ends[name], height + 0.36)  # no name on another
        axes.text(steps * 1.01, height, name, color=_INKS[name], weight="bold", va="center")
    axes.axhline(guessing, color="0.4", ls=":", lw=1.2)
    axes.text(steps, guessing + 0.08, "guessing", ha="right", va="bottom", fontsize=9)
    axes.set(xlabel="steps", ylabel="loss", xlim=(0, steps * 1.2), ylim=(0, guessing + 0.6))
    return fig, drawn


#: A color for each kind of views.
_INKS = {
    "crops alone": figures.WRONG, "dimmed": "#a05a00", "recolored": figures.RIGHT, "gray": "0.4"
}  # fmt: skip


def found(part: Part, seen: Mapping[str, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """The three nearest of four queries, by two networks.

    Queries stand at the quantiles 1/8, 3/8, 5/8 and 7/8 of the first network's distance in hue from
    query to nearest image, so that nobody picks them.
    """
    first = next(iter(seen.values()))
    colors = hue(part.ink)
    nearest = (first @ first.T).fill_diagonal_(-torch.inf).argmax(dim=1)
    order = (colors - colors[nearest]).norm(dim=1).argsort()
    queries = [int(order[int(len(order) * (2 * k + 1) / 8)]) for k in range(4)]
    fig, panels = plt.subplots(
        4, 9, figsize=(6.5, 3.2), width_ratios=[1, 0.3, 1, 1, 1, 0.3, 1, 1, 1]
    )
    hits = dict.fromkeys(seen, 0)
    for line, query in zip(panels, queries, strict=True):
        line[0].imshow(part.test[query].cpu().permute(1, 2, 0).numpy())
        figures.bare(line[0])
        for gap in (1, 5):
            line[gap].set_axis_off()
        for start, (name, z) in zip((2, 6), seen.items(), strict=True):
            near = (z @ z[query]).index_fill(0, torch.tensor(query), -9).topk(3).indices
            for axes, row in zip(line[start : start + 3], near.tolist(), strict=True):
                axes.imshow(part.test[row].cpu().permute(1, 2, 0).numpy())
                figures.bare(axes)
                right = part.y[row] == part.y[query]
                hits[name] += int(right)
                look: dict[str, Any] = {"linestyle": "-" if right else (0, (2, 1.2))}
                look |= {"color": figures.RIGHT if right else figures.WRONG, "linewidth": 2.5}
                for spine in axes.spines.values():
                    spine.set(visible=True, capstyle="butt", **look)
    for place, words in zip((0, 3, 7), ("query", *seen), strict=True):
        panels[0, place].set_title(words, fontsize=9.5, fontweight="bold")
    return fig, {name: figures.example(count) for name, count in hits.items()}


def decide(
    scores: Mapping[str, Sequence[Mapping[str, float]]], key: str = "Recall@1"
) -> tuple[Figure, dict[str, Any]]:
    """What each change of the views adds to crops alone, with 95 % intervals over the parts."""
    rows = {"recolored": "each color channel changed\n(recolored)",
            "dimmed": "twin: all channels changed\nalike (dimmed)",
            "gray": "positive control:\nno color at all (gray)"}  # fmt: skip
    table = {name: np.array([each[key] for each in scores[name]]) for name in scores}
    fig, axes = plt.subplots(figsize=(6.5, 2.5))
    drawn: dict[str, Any] = {"scores": {n: figures.sample(each) for n, each in table.items()}}
    for place, name in enumerate(rows):
        minus = table[name] - table["crops alone"]
        mean, low, high, _ = interval(minus)
        drawn[name] = figures.sample(minus)
        color, main = _INKS[name], name == "recolored"
        axes.plot(minus, [place] * len(minus), "o", color=color, alpha=0.45, ms=5, mew=0)
        if np.isfinite(low):
            axes.plot([low, high], [place, place], color=color, lw=5 if main else 2)
        axes.plot(mean, place, "D", color=color, ms=10 if main else 6, zorder=4)
        text = f"{mean:+.0f}".replace("-", "−") + (
            f"  [{low:.0f}, {high:.0f}]".replace("-", "−") if np.isfinite(low) else ""
        )
        axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center",
                  color=color, weight="bold", fontsize=13 if main else 10)  # fmt: skip
    minus = table["recolored"] - table["dimmed"]
    drawn["recolored minus dimmed"] = figures.sample(minus)
    drawn["free"] = {name: figures.example(float(table[name].mean())) for name in FREE}
    for name in (*FREE, "recolored, g(h)"):
        drawn[f"recolored minus {name}"] = figures.sample(table["recolored"] - table[name])
    drawn["hue"] = {
        name: figures.sample([each["hue"] for each in of])
        for name, of in scores.items()
        if name not in FREE
    }
    axes.axvline(0, color="0.3", lw=1.2)
    axes.set_yticks(range(3), list(rows.values()))
    axes.set(ylim=(2.6, -0.6), xlabel="points of Recall@1 above crops alone")
    axes.grid(False, axis="y")
    return fig, drawn
