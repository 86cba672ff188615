"""What lesson 27 draws and measures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from dmlkit import data, figures, models
from dmlkit.data.images import ImageSet
from dmlkit.data.pictures import color_histogram
from dmlkit.statistics import interval

SIDE = 16  # pixels that the networks see
COLOR, SHAPE = torch.tensor([[-1.5, -0.5, 0.5, 1.5], [0.5, -1.5, 1.5, -0.5]])
FIRST, SECOND = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
#: What needs no training, and where its name stands in the answer.
FREE = ("color histogram", "raw pixels", "untrained")


class World(NamedTuple):
    """Pictures of which one half trains, without labels, and the other asks."""

    x: Tensor  # (N, 3, 16, 16), from 0 to 1
    y: np.ndarray  # (N,)
    asked: np.ndarray  # (N,) of bool: not trained on
    large: Tensor  # (N, 3, 64, 64), to be shown
    names: Sequence[str]

    @property
    def first(self) -> np.ndarray:
        """The rows that train, and are searched."""
        return np.flatnonzero(~self.asked)


def painted(x: Tensor) -> Tensor:
    """Gray images (N, 1, H, W), each in an ink of its own: any mix of red, green and blue."""
    ink = 0.2 + 0.8 * torch.rand(len(x), 3, 1, 1, generator=torch.Generator().manual_seed(1))
    return x * ink


def worlds(where: str) -> tuple[dict[str, World], dict[str, ImageSet]]:
    """Groceries, and glyphs in random inks; and the data that they are of."""
    groceries = data.load("grocery64", "test", fold=None)  # all 81 products
    glyphs = data.load("glyphs", "test")
    turn = pd.Series(glyphs.labels).groupby(glyphs.labels).cumcount().to_numpy()  # of 20 in a class
    found = {}
    for name, of, asked in (
        ("groceries", groceries, groceries.queries),
        ("glyphs", glyphs, turn >= 10),
    ):
        large = of.images[:].float() / 255
        large = large if name == "groceries" else F.interpolate(painted(large), scale_factor=2)
        small = F.avg_pool2d(large, 64 // SIDE).to(where)
        found[name] = World(small, of.labels, np.asarray(asked), large, of.class_names)
    return found, {"groceries": groceries, "glyphs": glyphs}


@torch.no_grad()
def together(f: Tensor) -> float:
    """The mean cosine of different rows: raw embeddings (N, d)."""
    x, count = F.normalize(f), len(f)
    return float(((x.sum(dim=0) ** 2).sum() - count) / (count * (count - 1)))


@torch.no_grad()
def embed(network: nn.Module, pictures: Tensor) -> np.ndarray:
    """Embeddings of length 1: (N, d)."""
    parts = [F.normalize(network(part)).cpu() for part in pictures.split(1024)]
    return torch.cat(parts).numpy()


def by_class(told: np.ndarray, world: World) -> pd.Series:
    """How many of the half that asks are right, by class (%)."""
    own = world.y[world.asked]
    return 100 * pd.Series(told == own).groupby(own).mean()


def probe(z: np.ndarray, world: World) -> pd.Series:
    """The linear probe: ridge regression to classes, with all labels of the first half (%).

    Embeddings are centered and brought to a mean square of 1 first, so that the ridge is as strong
    for embeddings that lie close together as for others.
    """
    k = z - z[world.first].mean(axis=0)
    k = k / (k[world.first].std() + 1e-12)
    own, target = k[world.first], np.eye(world.y.max() + 1)[world.y[world.first]]
    mean, size = target.mean(axis=0), 0.002 * len(own)
    W = np.linalg.solve(own.T @ own + size * np.eye(own.shape[1]), own.T @ (target - mean))
    return by_class((k[world.asked] @ W + mean).argmax(axis=1), world)


def untrained(world: World, seed: int, where: str) -> np.ndarray:
    """Embeddings of a network whose weights never moved; BatchNorm has seen batches."""
    torch.manual_seed(seed)
    network, rng = models.ConvNet(64, channels=3, size=SIDE).to(where), np.random.default_rng(seed)
    batches = (world.x[rng.choice(world.first, 32, replace=False)] for _ in range(60))
    torch.optim.swa_utils.update_bn(batches, network)
    return embed(network.eval(), world.x)


def free(world: World) -> dict[str, np.ndarray]:
    """Vectors of length 1 that no network makes."""
    x = world.x.cpu()
    return {
        "color histogram": F.normalize(color_histogram(x)).numpy(),
        "raw pixels": F.normalize((x - x.mean(dim=0)).flatten(1)).numpy(),
    }


def toy_loss(weights: Tensor, change: float) -> Tensor:
    """NT-Xent of the network of two weights, σ = 0.5: (N, 2) -> (N,)."""
    color = torch.cat([COLOR + change * FIRST, COLOR - change * FIRST])  # (8,)
    shape = torch.cat([SHAPE + 0.3 * SECOND, SHAPE - 0.3 * SECOND])
    angle = weights @ torch.stack([color, shape])  # (N, 8)
    s = (angle[:, :, None] - angle[:, None, :]).cos() / 0.5  # (N, 8, 8)
    s = s.masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    return -s.log_softmax(dim=2)[:, torch.arange(8), torch.arange(8).roll(4)].mean(dim=1)


def _shown(of: Mapping[str, World]) -> list[tuple[World, np.ndarray, str]]:
    """Of two products and two characters: their world, their rows, and a name."""
    two = of["groceries"], of["glyphs"]
    names = {"Carrots": "carrots", "Arla-Natural-Yoghurt": "yoghurt"}
    rows = [
        (two[0], np.flatnonzero(two[0].y == list(two[0].names).index(name)), said)
        for name, said in names.items()
    ]
    return rows + [(two[1], np.flatnonzero(two[1].y == k), "a glyph") for k in (10, 40)]


def views(
    of: Mapping[str, World], crop: Callable[[Tensor], Tensor], recolor: Callable[..., Tensor]
) -> Figure:
    """Two groceries and one glyph in two inks, beside views of two kinds."""
    shown = _shown(of)
    some = [world.large[rows[~world.asked[rows]][0]] for world, rows, _ in shown[:2]]
    world, rows, _ = shown[2]
    x = torch.stack([*some, *world.large[rows[:2]]])
    torch.manual_seed(5)
    seen = [x, crop(x), crop(x), recolor(crop(x), 0.3), recolor(crop(x), 0.3)]
    fig, _ = figures.contact_sheet(
        torch.stack(seen, dim=1),
        ["carrots", "yoghurt", "a glyph", "the same"],
        ["image", "crop", "crop", "recolored", "recolored"],
    )
    fig.set_size_inches(4.4, 3.22)
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
        shade = axes.contourf(
            ticks, ticks, value.T, np.arange(0, 4.1, 0.25), cmap="Blues_r", extend="max"
        )
        axes.contour(ticks, ticks, value.T, np.arange(0, 4.1, 0.5), colors="white", linewidths=0.6)
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


def _inks(strengths: Sequence[float]) -> dict[float, Any]:
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.85, len(strengths)))
    return dict(zip(strengths, shades, strict=True))


def _smooth(curve: np.ndarray, width: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and means over the last steps."""
    width = min(width, len(curve))
    sums = np.convolve(curve, np.ones(width) / width, mode="valid")
    return np.arange(width, len(curve) + 1), sums


def curves(
    losses: Mapping[tuple[str, float], Sequence[Sequence[float]]],
    longer: Mapping[tuple[str, float], Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """The loss of each training by steps, and of the two that went on four times as long."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.2), sharey=True)
    strengths = sorted({strength for _, strength in losses})
    inks = _inks(strengths)
    drawn: dict[str, dict[str, Any]] = {}
    for axes, of in zip(panels, ("groceries", "glyphs"), strict=True):
        drawn[of] = {}
        for strength in strengths:
            runs = np.array(losses[of, strength])  # (repetitions, steps)
            axes.plot(*_smooth(runs.mean(axis=0)), color=inks[strength], lw=1.8)
            drawn[of][f"{strength:g}"] = figures.sample(runs[:, -30:].mean(axis=1))
        for (name, strength), curve in longer.items():
            if name == of:
                axes.plot(*_smooth(np.array(curve)), "--", color=inks[strength], lw=1.6)
                drawn[of]["longer"] = figures.example(float(np.mean(curve[-30:])))
        most = max(len(curve) for curve in longer.values())
        axes.axhline(np.log(63), color="0.4", ls=":", lw=1.2)
        axes.set(xlabel="steps", xlim=(0, 1.03 * most), ylim=(0, 4.6))
        axes.set_xticks(np.linspace(0, most, 4).round())
        axes.set_title(of, fontweight="bold", loc="left")
    panels[0].text(most, np.log(63) + 0.06, "guessing", ha="right", fontsize=9, color="0.3")
    panels[0].set_ylabel("loss")
    for k, strength in enumerate(reversed(strengths)):
        said = f"strength {strength:g}" + (" (colors kept)" if not strength else "")
        panels[1].text(0.3, 0.8 - 0.075 * k, said, color=inks[strength], weight="bold",
                       transform=panels[1].transAxes, fontsize=9)  # fmt: skip
    return fig, drawn


def found(of: Mapping[str, World], seen: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """What two networks find: for four queries the three nearest pictures of each.

    ``seen`` are embeddings, of each world and each kind of views.
    """
    rows = _shown(of)
    fig, panels = plt.subplots(
        4, 9, figsize=(6.5, 3.9), width_ratios=[1, 0.3, 1, 1, 1, 0.3, 1, 1, 1]
    )
    for line, (world, own, said) in zip(panels, rows, strict=True):
        name = "groceries" if world is of["groceries"] else "glyphs"
        query = own[world.asked[own]][0]
        line[0].imshow(world.large[query].permute(1, 2, 0).numpy())
        figures.bare(line[0])
        line[0].set_ylabel(said, fontsize=9)
        for gap in (1, 5):
            line[gap].set_axis_off()
        for start, z in zip((2, 6), seen[name].values(), strict=True):
            best = world.first[np.argsort(-(z[world.first] @ z[query]))[:3]]
            for axes, row in zip(line[start : start + 3], best, strict=True):
                axes.imshow(world.large[row].permute(1, 2, 0).numpy())
                figures.bare(axes)
                right = world.y[row] == world.y[query]
                look: dict[str, Any] = {"linestyle": "-" if right else (0, (2, 1.2))}
                look |= {"color": figures.RIGHT if right else figures.WRONG, "linewidth": 2.5}
                for spine in axes.spines.values():
                    spine.set(visible=True, capstyle="butt", **look)
    for place, words in {0: "query", 3: "crops find", 7: "changed colors find"}.items():
        panels[0, place].set_title(words, fontsize=9.5, fontweight="bold")
    return fig


def collapse(
    runs: Mapping[str, Sequence[float]], scores: Mapping[str, Mapping[str, pd.Series]], steps: int
) -> tuple[Figure, dict[str, Any]]:
    """The mean cosine of different photographs with the push, then without, and from scratch."""
    fig, axes = plt.subplots(figsize=(6.5, 2.7))
    first, then, scratch = runs["with push"], runs["pull alone"], runs["from scratch"]
    axes.plot(range(steps), first, color=figures.RIGHT)
    axes.plot(range(steps, 2 * steps), then, color=figures.WRONG)
    axes.plot(range(steps), scratch, "--", color=figures.WRONG)
    said = {
        "with push": ("pull and push", 0.5, 0.16),
        "pull alone": ("pull alone", 1.5, 0.55),
        "from scratch": ("pull alone from scratch (dashed)", 0.5, 0.62),
    }
    drawn: dict[str, Any] = {}
    for when, (words, across, up) in said.items():
        one, other = (float(scores[when][key].mean()) for key in ("Recall@1", "linear probe"))
        told = f"{words}\nRecall@1 {one:.0f} %, probe {other:.0f} %"
        axes.text(across * steps, up, told, ha="center", fontsize=9)
        drawn[when] = figures.example(float(np.mean(runs[when][-10:])))
        drawn |= {f"{key}, {when}": figures.example(float(scores[when][key].mean()))
                  for key in ("Recall@1", "linear probe")}  # fmt: skip
    axes.axvline(steps, color="0.5", lw=1)
    axes.set(xlabel="steps", ylabel="mean cosine", ylim=(-0.1, 1.08), xlim=(0, 2 * steps))
    axes.set_title("without the push, photographs fall together", fontweight="bold", loc="left")
    return fig, drawn


def decide(
    scores: Mapping[tuple[str, Any], Sequence[Mapping[str, pd.Series]]],
    longer: Mapping[tuple[str, float], Mapping[str, pd.Series]],
    record: Mapping[str, Any],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the strength of the change in two worlds, beside what needs no training."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.7), sharey=True)
    drawn: dict[str, Any] = {}
    for axes, of in zip(panels, ("groceries", "glyphs"), strict=True):
        strengths = sorted(s for name, s in scores if name == of and not isinstance(s, str))
        table = {
            (s, key): pd.concat([each[key] for each in scores[of, s]], axis=1)  # (classes, R)
            for s in (*strengths, *FREE)
            for key in ("Recall@1", "linear probe")
        }
        mine = {f"{s:g}": table[s, "Recall@1"].mean().to_numpy() for s in strengths}
        floor = {name: float(table[name, "Recall@1"].mean().mean()) for name in FREE}
        figures.sweep(axes, mine, floor)
        means = [table[s, "Recall@1"].mean().mean() for s in strengths]
        axes.plot(range(len(means)), means, color=figures.RIGHT, lw=1, zorder=0)
        probed = [table[s, "linear probe"].mean().mean() for s in strengths]
        axes.plot(range(len(means)), probed, "--", color="0.55", lw=1.3, zorder=0)
        if of == "glyphs":
            axes.text(1.9, 21.2, "linear probe", color="0.35", fontsize=9, ha="right")
        own: dict[str, Any] = {name: figures.example(value) for name, value in floor.items()}
        for key in ("Recall@1", "linear probe"):
            own[key] = {f"{s:g}": figures.sample(table[s, key].mean()) for s in strengths}
            own[f"{key}, minus kept"], own[f"{key}, minus untrained"] = {}, {}
            for s in strengths:
                for name, other in (("kept", strengths[0]), ("untrained", "untrained")):
                    minus = table[s, key].mean(axis=1) - table[other, key].mean(axis=1)
                    both = figures.example(interval(minus).to_dict())
                    own[f"{key}, minus {name}"][f"{s:g}"] = both
        for place, s in enumerate(strengths):
            if own["Recall@1, minus untrained"][f"{s:g}"]["example"]["low"] <= 0:
                axes.plot([place - 0.2, place + 0.2], [means[place]] * 2, color="white", lw=1.2)
        for (name, s), each in longer.items():
            if name == of:
                gain = each["Recall@1"] - scores[of, s][0]["Recall@1"]
                own["longer"] = figures.example(interval(gain).to_dict())
                own["longer, found"] = figures.example(float(each["Recall@1"].mean()))
                axes.plot(strengths.index(s) + 0.5, each["Recall@1"].mean(), "D", ms=5.5,
                          mfc="white", mec="black", zorder=5)  # fmt: skip
        own["recorded"] = figures.example(record[of]["changed less crops, Recall@1"])
        axes.set(xlabel="strength of the change of color", ylim=(0, None))
        axes.set_title(of, fontweight="bold", loc="left")
        drawn[of] = own
    panels[0].set_ylabel("same class first (Recall@1, %)")
    return fig, drawn
