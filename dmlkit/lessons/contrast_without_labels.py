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

PARTS = 4  # of the characters, with none in common
COLOR, SHAPE = torch.tensor([[-1.5, -0.5, 0.5, 1.5], [0.5, -1.5, 1.5, -0.5]])
FIRST, SECOND = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
#: What needs no training.
FREE = ("color histogram", "raw pixels", "raw gray pixels", "untrained")


class Part(NamedTuple):
    """Images to train on, without labels, and images of other classes to search among."""

    x: Tensor  # (N, 3, 32, 32), from 0 to 1
    test: Tensor  # (M, 3, 32, 32)
    y: np.ndarray  # (M,): their classes
    ink: Tensor  # (M, 3): red, green and blue, of a character's ink or a photograph's mean
    q: np.ndarray  # rows of the test images that ask
    g: np.ndarray  # rows that they are compared with


def painted(gray: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Gray images (N, 1, H, W), each in an ink of its own; and the inks (N, 3)."""
    ink = 0.2 + 0.8 * torch.rand(len(gray), 3, generator=torch.Generator().manual_seed(seed))
    return gray.float() / 255 * ink[:, :, None, None], ink


def parts(where: str, split: str = "test") -> tuple[list[Part], dict[str, ImageSet]]:
    """Four parts, which have no character in common; and the data that they are of."""
    sets = {name: data.load("glyphs", name) for name in ("train", split)}
    (x, _), (test, ink) = (painted(of.images[:], k) for k, of in enumerate(sets.values()))
    own, y = (np.asarray(of.labels) for of in sets.values())
    found = []
    for r in range(PARTS):
        mine = y % PARTS == r
        every = np.arange(mine.sum())  # each asks all others
        of_train = x[own % PARTS == r].to(where)
        found.append(Part(of_train, test[mine].to(where), y[mine], ink[mine], every, every))
    return found, {"glyphs": sets[split]}


def groceries(where: str, split: str = "test") -> tuple[list[Part], dict[str, ImageSet]]:
    """Four folds of photographs: what asks is of another visit to the shop than what is found."""
    found, sets = [], {}
    for fold in range(PARTS):
        given: dict[str, Any] = {"fold": fold, "side": 32, "validation": split == "val"}
        train, test = (data.load("grocery64", name, **given) for name in ("train", split))
        x, pixels = (of.images[:].float() / 255 for of in (train, test))
        asks = np.asarray(test.queries)
        rows = np.flatnonzero(asks), np.flatnonzero(~asks)
        y = np.asarray(test.labels)
        found.append(Part(x.to(where), pixels.to(where), y, pixels.mean(dim=(2, 3)), *rows))
        sets["grocery64"] = test
    return found, sets


@torch.no_grad()
def embed(network: nn.Module, pictures: Tensor) -> Tensor:
    """Embeddings of length 1: (N, d)."""
    network.eval()
    return torch.cat([F.normalize(network(part)).cpu() for part in pictures.split(1000)])


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


def toy(weights: Tensor, change: float) -> tuple[Tensor, Tensor]:
    """Angles of the eight views that a network of two weights makes, and their NT-Xent, τ = 0.5.

    (N, 2) -> (N, 8) and (N, 8); views i and i + 4 are of one image.
    """
    color = torch.cat([COLOR + change * FIRST, COLOR - change * FIRST])  # (8,)
    shape = torch.cat([SHAPE + 0.3 * SECOND, SHAPE - 0.3 * SECOND])
    angle = weights @ torch.stack([color, shape])  # (N, 8)
    s = (angle[:, :, None] - angle[:, None, :]).cos() / 0.5  # (N, 8, 8)
    s = s.masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    return angle, -s.log_softmax(dim=2)[:, torch.arange(8), torch.arange(8).roll(4)]


def toy_loss(weights: Tensor, change: float) -> Tensor:
    """The mean NT-Xent of the toy's eight views: (N, 2) -> (N,)."""
    return toy(weights, change)[1].mean(dim=1)


#: Weights and change of color of the toy's printed pairs.
PAIRS = {
    "color alone, kept": ((1.0, 0.0), 0.0), "color alone, changed": ((1.0, 0.0), 0.6),
    "shape alone": ((0.0, 1.0), 0.6),
}  # fmt: skip


def four_pairs() -> tuple[str, dict[str, float]]:
    """The angles of both views of each of the toy's images with their loss; and mean losses."""
    columns, means = [], {}
    for name, (weights, change) in PAIRS.items():
        angle, loss = (each.view(2, 4).T for each in toy(torch.tensor([weights]), change))
        means[name] = loss.mean().item()
        lines = [
            f"{a:5.0f}° {b:5.0f}°  loss {c:.2f}"
            for (a, b), c in zip(angle.rad2deg().tolist(), loss.mean(dim=1), strict=True)
        ]
        columns.append([f"{name:>24}", *lines, f"mean {means[name]:.2f}"])  # fmt: skip
    first = [
        "color, shape",
        *(f"{c:4.1f}, {s:4.1f}" for c, s in zip(COLOR, SHAPE, strict=True)),
        "",
    ]
    rows = zip(first, *columns, strict=True)
    return "\n".join(
        f"{a:12}" + "".join(f"{each:>26}" for each in rest) for a, *rest in rows
    ), means


def views(part: Part, photographs: Part, kinds: Mapping[str, Callable[[Tensor], Tensor]]) -> Figure:
    """A character in two inks that differ much and a photograph, beside two views of each kind."""
    own = np.flatnonzero(part.y == part.y[0])
    hue = part.ink[own] / part.ink[own].sum(dim=1, keepdim=True)
    pair = np.unravel_index(int(torch.cdist(hue, hue).argmax()), (len(own), len(own)))
    x = torch.cat([part.test[own[list(pair)]].cpu(), photographs.test[[254]].cpu()])
    torch.manual_seed(2)
    seen = [x, *(kind(x) for kind in kinds.values() for _ in range(2))]
    fig, panels = plt.subplots(
        3, 13, figsize=(6.5, 2.35), width_ratios=[1, *[0.35, 1, 1] * len(kinds)]
    )
    shown = [0, *(1 + 3 * (k // 2) + 1 + k % 2 for k in range(2 * len(kinds)))]
    said = ("a character", "another\ndrawing", "a photograph")
    for row, (line, words) in enumerate(zip(panels, said, strict=True)):
        for axes in line:
            axes.set_axis_off()
        for place, each in zip(shown, seen, strict=True):
            line[place].set_axis_on()
            line[place].imshow(_bright(each[row], row < 2))
            figures.bare(line[place])
        line[0].set_ylabel(words, fontsize=9, rotation=0, ha="right", va="center")
    panels[0, 0].set_title("image", fontsize=9.5, weight="bold")
    for k, name in enumerate(kinds):
        panels[0, 2 + 3 * k].set_title(name, fontsize=9.5, weight="bold", loc="left")
    return fig


def _bright(x: Tensor, dark: bool) -> np.ndarray:
    """An image (3, H, W) to be shown; characters are dark, and so drawn brighter."""
    return np.asarray(x.cpu().clamp(0, 1).pow(0.6 if dark else 1).permute(1, 2, 0))


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
    worlds: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], guessing: float
) -> tuple[Figure, dict[str, Any]]:
    """The loss of each kind of views by steps, the mean of all parts; and that of a guess."""
    fig, panels = plt.subplots(1, len(worlds), figsize=(6.5, 2.7), sharey=True)
    drawn: dict[str, Any] = {}
    for axes, (world, losses) in zip(panels, worlds.items(), strict=True):
        drawn[world], ends = {}, {}
        for name, runs in losses.items():
            steps, width = len(runs[0]), min(15, len(runs[0]))
            smooth = np.convolve(np.mean(runs, axis=0), np.ones(width) / width, mode="valid")
            axes.plot(np.arange(width, steps + 1), smooth, color=_INKS[name], lw=1.8)
            drawn[world][name] = figures.sample([float(np.mean(run[-width:])) for run in runs])
            ends[name] = smooth[-1]
        height = -1.0
        for name in sorted(ends, key=lambda each: ends[each]):
            height = max(ends[name], height + 0.42)  # no name on another
            axes.text(steps * 1.02, height, name, color=_INKS[name], weight="bold", va="center",
                      fontsize=9)  # fmt: skip
        axes.axhline(guessing, color="0.4", ls=":", lw=1.2)
        axes.set(xlabel="steps", xlim=(0, steps), ylim=(0, guessing + 0.6))
        axes.set_title(world, weight="bold", loc="left")
        axes.grid(False)
    panels[0].text(0.04 * steps, guessing + 0.08, "guessing", va="bottom", fontsize=9)
    panels[0].set_ylabel("loss")
    return fig, drawn


#: A color for each kind of views.
_INKS = {
    "crops alone": figures.WRONG, "dimmed": "#a05a00", "recolored": figures.RIGHT, "gray": "0.4"
}  # fmt: skip


def found(
    worlds: Mapping[str, tuple[Part, Mapping[str, Tensor]]], many: int = 8
) -> tuple[Figure, dict[str, Any]]:
    """The nearest image of queries that were drawn at random, by two networks, in each world."""
    fig, panels = plt.subplots(
        4 * len(worlds) - 1, many, figsize=(6.5, 6.0),
        height_ratios=([1, 1, 1, 0.25] * len(worlds))[:-1],
    )  # fmt: skip
    hits: dict[str, Any] = {}
    for k, (world, (part, seen)) in enumerate(worlds.items()):
        block = panels[4 * k : 4 * k + 3]
        for axes in panels[4 * k + 3] if k + 1 < len(worlds) else ():
            axes.set_axis_off()
        asked = np.random.default_rng(0).choice(part.q, many, replace=False)
        rows = {"query": asked}
        for name, z in seen.items():
            s = z[asked] @ z[part.g].T
            s[torch.from_numpy(asked[:, None] == part.g)] = -torch.inf
            rows[name] = part.g[s.argmax(dim=1).numpy()]
        hits[world] = {}
        for line, (name, found_rows) in zip(block, rows.items(), strict=True):
            for axes, row, query in zip(line, found_rows, asked, strict=True):
                axes.imshow(_bright(part.test[row], k == 0))
                figures.bare(axes)
                if name == "query":
                    continue
                right = part.y[row] == part.y[query]
                look: dict[str, Any] = {"linestyle": "-" if right else (0, (2, 1.2))}
                look |= {"color": figures.RIGHT if right else figures.WRONG, "linewidth": 2.5}
                for spine in axes.spines.values():
                    spine.set(visible=True, capstyle="butt", **look)
            if name != "query":
                hits[world][name] = figures.example(
                    int((part.y[found_rows] == part.y[asked]).sum())
                )
            line[0].set_ylabel(name.replace(" ", "\n"), fontsize=9, rotation=0, ha="right",
                               va="center")  # fmt: skip
        block[0, 0].set_title(world, fontsize=10, fontweight="bold", loc="left")
    return fig, hits


#: Parts have no character in common; folds of groceries share most training products.
OVERLAP = {"characters": 0.0, "photographs": 1 / 4}
#: Rows of the answer, from above: kinds of views, then what needs no training.
_ROWS = ("crops alone", "dimmed", "recolored", "gray",
         "untrained", "raw pixels", "raw gray pixels", "color histogram")  # fmt: skip


def decide(
    worlds: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]], key: str = "Recall@1"
) -> tuple[Figure, dict[str, Any]]:
    """What is found in each world; below, what recolored views add."""
    fig = plt.figure(figsize=(6.5, 5.2), layout="constrained")
    grid = fig.add_gridspec(2, len(worlds), height_ratios=[1.55, 1])
    drawn: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    below = fig.add_subplot(grid[1, :])
    first = None
    for k, (world, scores) in enumerate(worlds.items()):
        table = {name: np.array([each[key] for each in of]) for name, of in scores.items()}
        drawn[world] = _differences(table, OVERLAP[world]) | {
            "hue": {name: figures.sample([each["hue"] for each in of])
                    for name, of in scores.items() if name not in FREE}
        }  # fmt: skip
        axes = fig.add_subplot(grid[0, k], sharey=first, sharex=first)
        first = first or axes
        for place, name in enumerate(_ROWS):
            if name not in table:
                axes.text(1, place, "not trained", color="0.6", fontsize=9, va="center")
                continue
            ink, mean = _INKS.get(name, "0.8"), table[name].mean()
            if name in FREE:
                ink = "0.8"
            axes.barh(place, mean, color=ink, height=0.62 if name not in FREE else 0.45)
            axes.text(mean + 1.2, place, f"{mean:.0f}", va="center", fontsize=9.5,
                      weight="normal" if name in FREE else "bold")  # fmt: skip
        axes.axhline(3.5, color="0.5", lw=0.8, ls=":")
        axes.set(xlim=(0, 70), xlabel="Recall@1 (%)", ylim=(7.6, -0.6))
        axes.set_title(world, weight="bold", loc="left")
        axes.grid(False)
        if k == 0:
            axes.set_yticks(range(len(_ROWS)), _ROWS)
        else:
            axes.tick_params(labelleft=False)
        for other in ("crops alone", "dimmed"):
            minus = table["recolored"] - table[other]
            rows[f"{world}: recolored\n− {other}"] = figures.summary(minus, OVERLAP[world])
    figures.spans(below, rows, "points of Recall@1")
    return fig, drawn


def _differences(table: Mapping[str, np.ndarray], overlap: float) -> dict[str, Any]:
    """Scores, and differences of kinds of views over the parts."""
    drawn: dict[str, Any] = {"scores": {n: figures.sample(each) for n, each in table.items()}}
    for name in ("dimmed", "recolored", "gray"):
        if name in table:
            drawn[name] = figures.summary(table[name] - table["crops alone"], overlap)
    heads = {f"{name}, g(h)": table[f"{name}, g(h)"] for name in ("crops alone", "recolored")}
    drawn["recolored minus crops alone, both g(h)"] = figures.summary(
        heads["recolored, g(h)"] - heads["crops alone, g(h)"], overlap
    )
    for name in ("crops alone", "recolored"):
        for other in ("dimmed", *FREE, f"{name}, g(h)"):
            if other in table:
                drawn[f"{name} minus {other}"] = figures.summary(
                    table[name] - table[other], overlap
                )
    drawn["crops alone minus recolored"] = figures.summary(
        table["crops alone"] - table["recolored"], overlap
    )
    drawn["untrained minus crops alone"] = figures.summary(
        table["untrained"] - table["crops alone"], overlap
    )
    drawn["free"] = {name: figures.example(float(table[name].mean())) for name in FREE}
    return drawn
