"""What lesson 07 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

import dmlkit
from dmlkit import figures, geometry
from dmlkit.losses.mining import semihard_negatives

CLASSES = ("#0072b2", "#d55e00", "#009e73")
#: Of the margins, from small to large.
SHADES = ("#e69f00", "#d55e00", "#a50f5e", "#3b0f70")
INKS = {"structured clustering": SHADES[2], "semi-hard triplets": "0.25"}
#: A network is tested on a sixth of the characters, and shares most of the others with the rest.
OVERLAP = 1 / 6
#: Semi-hard triplets of a third of the positive pairs, drawn anew at each step.
THINNED = "a third of the triplets"
#: Structured clustering minus semi-hard triplets on CUB, in Song et al. 2017: 48.2 − 42.6.
PRINTED = 5.6
#: Conditions of our studies in the picture of the answer, by their name in data/verdicts.csv.
STUDIES = {
    "drawings, from scratch": "study, drawings,\n1,000 steps",
    "drawings, fine-tuned": "study, drawings,\nfine-tuned",
    "photographs, head": "study, photographs,\na head",
}  # fmt: skip
FILE = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
#: Where labels of the curves stand.
GAMMAS = {
    "mixed": {1: (0.3, 1.62), 20: (0.62, 0.66)},
    "sorted": {1: (0.2, 0.06), 20: (0.6, 0.53)},
}


def four(points: np.ndarray, crossed: np.ndarray) -> Figure:
    """Three clusterings of four points on a line, with their scores."""
    fig, axes = plt.subplots(figsize=(6.5, 2.4))
    _row(axes, points, crossed, 1.5, [0, 1, 1, 1], "medoids 0 and 1", "−9")
    _row(axes, points, crossed, 0.75, [0, 0, 2, 2], "one exchanged: the best", "−2")
    _row(axes, points, crossed, 0, [0, 1, 0, 1], "own medoids: the true one", "−10")
    axes.text(12.6, 2.1, "score", ha="right", fontsize=10)
    axes.text(12.6, -0.62, "loss: −2 − (−10) = 8", ha="right", fontsize=12, weight="bold")
    axes.set(xlim=(-0.6, 12.7), ylim=(-0.75, 2.2))
    axes.set_axis_off()
    for x in points:
        axes.text(x, -0.62, f"{x:g}", ha="center", fontsize=10)
    return fig


def _row(
    axes: Axes, points: np.ndarray, crossed: np.ndarray, high: float, medoid_of: list[int],
    says: str, value: str,
) -> None:  # fmt: skip
    """One row: the points, medoids ringed, and an arc from each point to its medoid."""
    for i, j in enumerate(medoid_of):
        axes.plot(points[i], high, "os"[crossed[i]], color=CLASSES[crossed[i]], ms=9, zorder=3)
        if i == j:
            axes.plot(points[i], high, "o", ms=18, mfc="none", mec="0.2", mew=1.3)
            continue
        arc, half = np.linspace(0, np.pi, 50), abs(points[i] - points[j]) / 2
        x, y = (points[i] + points[j]) / 2 + half * np.cos(arc), np.sin(arc) * (0.15 + 0.08 * half)
        axes.plot(x, high + y, color="0.45", lw=1.5)
    axes.text(7.1, high, says, va="center", fontsize=10)
    axes.text(12.6, high, value, va="center", ha="right", fontsize=12, weight="bold")


def pole(turn: Tensor, shrinks: np.ndarray, costs: Mapping[str, Sequence[float]]) -> Figure:
    """Nine points on their way to the pole, and the loss over the margin by their size."""
    fig, (axes, *panels) = plt.subplots(1, 3, figsize=(6.5, 2.7), width_ratios=(1.35, 1, 1))
    angle, tilt = turn.numpy(), 0.42
    for s in (1.0, 0.65, 0.35):
        z, circle = (1 - s**2) ** 0.5, np.linspace(0, 2 * np.pi, 200)  # z: the height
        axes.plot(s * np.cos(circle), tilt * s * np.sin(circle) + z, color="0.75", lw=1, zorder=0)
        for k in range(3):
            own = angle[3 * k : 3 * k + 3]
            xy = s * np.cos(own), tilt * s * np.sin(own) + z
            axes.plot(*xy, "os^"[k], color=CLASSES[k], ms=4.5)
        axes.text(s + 0.1, z + 0.1 * (s < 0.5), f"× {s:g}", va="center", fontsize=9)
    for each in angle:
        s_all = np.linspace(1, 0.35, 50)
        height = tilt * s_all * np.sin(each) + np.sqrt(1 - s_all**2)
        axes.plot(s_all * np.cos(each), height, ":", color="0.6", lw=1)
    axes.set(aspect="equal", xlim=(-1.1, 1.55), ylim=(-0.5, 1.2))
    axes.set_axis_off()
    axes.set_title("nine images, mixed", weight="bold", loc="left")
    titles = {"mixed": "mixed: shrinking pays", "sorted": "sorted: it costs"}
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        for gamma, ink in zip((1, 20), SHADES[1:3], strict=True):
            panel.plot(shrinks, np.array(costs[f"{name}, {gamma}"]) / gamma, color=ink, lw=2)
            panel.text(*GAMMAS[name][gamma], f"γ = {gamma}", color=ink, fontsize=9, weight="bold")
        panel.plot(0, 1, "o", color="0.1", ms=7, clip_on=False, zorder=5)
        panel.text(0.04, 1.32, "one point", fontsize=9, va="center")
        panel.set(xlim=(0, 1), ylim=(-0.02, 2.1), xticks=[0, 0.5, 1], yticks=[0, 1, 2])
        panel.set_xlabel("distances × s")
        panel.set_title(title, weight="bold", loc="left", fontsize=9)
    panels[0].set(ylabel="loss / γ")
    panels[1].tick_params(labelleft=False)
    return fig


def search() -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by loss, margin and rate, in percent."""
    table = pd.read_csv(FILE)
    found = 100 * table.pivot_table(index="loss", columns="lr", values="Recall@1")
    margins = [f"γ = {margin}" for margin in (1, 5, 25, 125)]
    swapped = [f"{name}, with swaps" for name in margins if f"{name}, with swaps" in found.index]
    rows = [*margins, *swapped, "semi-hard triplets", THINNED]
    found = found.loc[rows]
    fig, axes = plt.subplots(figsize=(6.5, 3.9), layout="constrained")
    axes.imshow(found, cmap="Blues", vmin=25, vmax=80, aspect="auto")
    for y, name in enumerate(rows):
        for x, value in enumerate(found.loc[name]):
            if np.isnan(value):
                continue
            best = value == found.loc[name].max()
            ink, weight = "white" if value > 58 else "0.1", "bold" if best else "normal"
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", color=ink, weight=weight)
            if best:
                corner = x - 0.47, y - 0.45
                axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, ec="#e69f00", lw=2.5))
    axes.set_xticks(range(found.shape[1]), [f"{lr:g}" for lr in found])
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel="learning rate")
    axes.set_title("Recall@1 on validation characters (%)", loc="left", weight="bold")
    axes.grid(False)
    best = {name: float(found.loc[name].idxmax()) for name in rows}
    kept = {name: {f"{lr:g}": round(v, 2) for lr, v in found.loc[name].dropna().items()}
            for name in rows}  # fmt: skip
    return fig, {"recall": figures.example(kept), "best rate": figures.example(best)}


def pairs_of_clustering(nearest: Tensor, own: Tensor) -> int:
    """How many pairs of images move, by each image's nearest chosen medoid and its class's (B,).

    >>> pairs_of_clustering(torch.tensor([1, 1, 1]), torch.tensor([0, 1, 0]))  # {0, 1}, {2, 1}, ...
    3
    """
    pairs = {
        frozenset((i, j))
        for i, (a, b) in enumerate(zip(nearest.tolist(), own.tolist(), strict=True))
        if a != b  # else the pull and the push cancel
        for j in (a, b)
        if i != j  # the distance of an image to itself stays 0
    }
    return len(pairs)


def pairs_of_triplets(D: Tensor, y: Tensor, margin: float, keep: Tensor | None = None) -> int:
    """How many pairs of images semi-hard triplets move: distances (B, B), classes (B,).

    ``keep`` (B, B) says of which anchors and positives triplets are made.

    >>> x = torch.tensor([0.0, 1.0, 2.0])
    >>> pairs_of_triplets((x[:, None] - x).abs(), torch.tensor([0, 0, 1]), margin=0.2)
    2
    """
    D2, positive, n = _triplets(D, y)
    active = positive & (D2 - D2.gather(1, n) + margin > 0)
    pairs: set[frozenset[int]] = set()
    for a, p in (active if keep is None else active & keep).nonzero().tolist():
        pairs |= {frozenset((a, p)), frozenset((a, int(n[a, p])))}
    return len(pairs)


def _triplets(D: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared distances, positive pairs and the negative of each, (B, B) each."""
    same = y[:, None] == y
    n = semihard_negatives(D.detach().square(), ~same)
    return D.square(), same & ~torch.eye(len(y), dtype=torch.bool), n


class Thinned:
    """The loss of semi-hard triplets, of a third of the anchors and positives of each batch."""

    keep: Tensor | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Embeddings (B, d), classes (B,) -> scalar."""
        D2, positive, n = _triplets(geometry.distances(geometry.normalize(x)), y)
        self.keep = torch.rand(len(y), len(y)) < 1 / 3  # (B, B)
        hinge = (D2 - D2.gather(1, n) + 0.2).relu()[positive & self.keep]
        return hinge.sum() / max(len(hinge), 1)


def batch(
    shown: Mapping[str, tuple[np.ndarray, Tensor, Tensor, Tensor]],
    moved: Mapping[str, np.ndarray],
    wrong: np.ndarray,
    found: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Two real batches with their medoids, and how many pairs of images move, by step.

    ``shown`` has, by title, ink (64, 32, 32), classes, nearest chosen medoids and true ones, (64,)
    each; ``moved`` (networks, every tenth step) by loss; ``wrong`` is the share of images whose
    nearest chosen medoid has another class, likewise; ``found`` is Recall@1 in percent (networks,).
    """
    fig = plt.figure(figsize=(7.4, 3.3), layout="constrained")
    grid = fig.add_gridspec(len(shown), 2, width_ratios=(1.75, 1))
    for row, (title, (ink, y, nearest, own)) in enumerate(shown.items()):
        axes = fig.add_subplot(grid[row, 0])
        order = y.argsort(stable=True)
        place = {int(image): at for at, image in enumerate(order)}
        sheet = np.ones((4 * 32, 16 * 32))
        chosen, true = set(nearest.tolist()), set(own.tolist())
        for image, at in place.items():
            x, up = 32 * (at // 4), 32 * (at % 4)
            sheet[up : up + 32, x : x + 32] = 1 - ink[image]
            if y[nearest[image]] != y[image]:
                axes.add_patch(Rectangle((x, up), 31, 31, fc=figures.WRONG, alpha=0.3, lw=0))
            if image in chosen:
                axes.add_patch(Rectangle((x + 2, up + 2), 27, 27, fill=False, ec="black", lw=2.2))
            if image in true:
                axes.plot(x + 26, up + 6, "o", color=figures.RIGHT, ms=5, mec="white", mew=0.6)
        axes.imshow(sheet, cmap="gray", vmin=0.05, vmax=0.9, zorder=0)
        figures.bare(axes)
        axes.spines[:].set_visible(False)
        lost = int((y[nearest] != y).sum())
        axes.set_title(f"{title}: {lost} of {len(y)} with another class", loc="left",
                       weight="bold", fontsize=9.5)  # fmt: skip
    axes = fig.add_subplot(grid[:, 1])
    steps = 10 * np.arange(next(iter(moved.values())).shape[1])
    drawn: dict[str, Any] = {}
    inks = INKS | {THINNED: "0.55"}
    places = {"structured clustering": 55, "semi-hard triplets": 262, THINNED: 131}
    for name, each in moved.items():
        axes.plot(steps, each.T, color=inks[name], lw=0.7, alpha=0.3)
        axes.plot(steps, each.mean(axis=0), color=inks[name], lw=2.6)
        parts = {"first": each[:, 0], "mean": each.mean(axis=1), "last": each[:, -1]}
        drawn[name] = {part: figures.sample(of) for part, of in parts.items()}
        said = f"{name}: {found[name].mean():.0f} %"
        axes.text(steps[-1], places[name], said, ha="right", color=inks[name], weight="bold",
                  fontsize=9)  # fmt: skip
    axes.set(ylim=(0, None), xlabel="step")
    axes.set_title("pairs that move, of 2,016", loc="left", weight="bold", fontsize=9.5)
    drawn["wrong"] = {"first": figures.sample(100 * wrong[:, 0]),
                      "last": figures.sample(100 * wrong[:, -1])}  # fmt: skip
    gain = found[THINNED] - found["structured clustering"]
    drawn["thinned minus clustering"] = figures.summary(gain, OVERLAP)
    drawn["thinned minus all"] = figures.summary(
        found[THINNED] - found["semi-hard triplets"], OVERLAP
    )
    few = moved[THINNED].mean(axis=1) - moved["structured clustering"].mean(axis=1)
    drawn["fewer pairs"] = figures.summary(few, OVERLAP)
    return fig, drawn


def answer(
    found: Mapping[str, np.ndarray], floors: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """What each loss finds, a line for each pair of trainings, and the difference."""
    fig, (axes, right) = plt.subplots(
        1, 2, figsize=(7.4, 3.2), width_ratios=(1, 1.25), layout="constrained"
    )
    names = list(INKS)
    for pair in zip(*(found[name] for name in names), strict=True):
        axes.plot(range(2), pair, "-", color="0.7", lw=1, zorder=1)
    for x, name in enumerate(names):
        axes.plot([x] * len(found[name]), found[name], "o", color=INKS[name], ms=5, mew=0, zorder=2)
        axes.plot([x - 0.2, x + 0.2], [found[name].mean()] * 2, color=INKS[name], lw=3)
    for name, value in floors.items():
        axes.axhline(value, color="0.5", ls=":", lw=1.2, zorder=0)
        axes.text(-0.45, value + 0.9, name, fontsize=8, color="0.35")
    axes.set_xticks(range(2), [name.replace(" ", "\n", 1) for name in names])
    axes.set(xlim=(-0.5, 1.5), ylim=(0, 80), ylabel="Recall@1, unseen characters (%)")
    axes.grid(False)
    gain = found["structured clustering"] - found["semi-hard triplets"]
    drawn: dict[str, Any] = {"here, drawings": figures.summary(gain, OVERLAP)}
    table = pd.read_csv(dmlkit.ROOT / "data" / "verdicts.csv")
    table = table[table["lesson"] == "07_clustering"].set_index("label")
    known = table.rename(columns={"effect": "mean"})[["mean", "low", "high"]].astype(float)
    rows = {label: known.loc[condition].to_dict() for condition, label in STUDIES.items()}
    figures.spans(right, drawn | rows, "points of Recall@1")
    printed = [PRINTED, *table.loc[["CUB", "Cars"], "effect"]]
    labels = [*drawn, *rows, "printed, birds\nand cars"]
    right.plot(printed, [len(labels) - 1] * len(printed), "*", ms=12, color="#e69f00")
    right.text(1.03, len(labels) - 1, "+5.5, +5.6\n+12.3", va="center", color="0.35", fontsize=9,
               transform=right.get_yaxis_transform())  # fmt: skip
    right.set_yticks(range(len(labels)), labels)
    right.set(ylim=(len(labels) - 0.45, -0.55), xlim=(None, 14))
    right.set_title("structured clustering − triplets", loc="left", weight="bold", fontsize=10)
    drawn["scores"] = {name: figures.sample(each) for name, each in found.items()}
    drawn["floors"] = figures.example(dict(floors))
    return fig, drawn
