"""What lesson 13 draws and prepares."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from torch import Tensor, nn

from dmlkit import ROOT, data, figures, models

BOLD: dict[str, Any] = {"loc": "left", "fontweight": "bold", "fontsize": 10}
BLUE, GREEN, ORANGE, PURPLE = "#0072b2", "#009e73", "#d55e00", "#7a3e9d"
#: Steps that are needed: {way: {ratio: (n,)}}.
Steps = Mapping[str, Mapping[str, np.ndarray]]


def lengths(test: data.ImageSet, n: Tensor) -> tuple[Figure, dict[str, Any]]:
    """Six photographs of three products, from the shortest embedding to the longest."""
    products = ["Royal-Gala", "Lemon", "Carrots"]
    large = data.load("grocery64", "test", fold=0).images  # the same photographs, 64 pixels
    ours = [test.class_names.index(product) for product in products]
    longest = n[torch.from_numpy(np.isin(test.labels, ours))].max()
    fig, panels = plt.subplots(3, 6, figsize=(6.2, 3.8))
    for line, product, own in zip(panels, products, ours, strict=True):
        row = np.flatnonzero(test.labels == own)
        row = row[n[row].argsort().numpy()]
        line[0].set_ylabel(product.lower().replace("-", " "), fontsize=9)
        for axes, one in zip(line, row[np.linspace(0, len(row) - 1, 6).astype(int)], strict=True):
            axes.imshow(large[one].permute(1, 2, 0))
            end = 63 * float(n[one] / longest)
            axes.plot([0, end], [67, 67], lw=4, color=ORANGE, clip_on=False)
            axes.set(xticks=[], yticks=[], xlim=(0, 63), ylim=(63, 0))
            axes.spines[:].set_visible(False)
            axes.set_title(f"n = {n[one]:.0f}", fontsize=10, fontweight="bold", pad=2)
    within = []
    for k in range(test.num_classes):
        own_n = n[torch.from_numpy(test.labels == k)]
        within.append((own_n.std() / own_n.mean()).item())
    return fig, {"spread within each product": figures.example(within)}


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], ink: str) -> None:
    """An arrow from start to end in the units of the data."""
    props = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11}
    axes.annotate("", end, start, arrowprops=props | {"color": ink, "lw": 2.2}, zorder=4)


def triangles() -> tuple[Figure, dict[str, Any]]:
    """One step of SGD on two embeddings of one direction, of norms 1 and 3, from one origin."""
    fig, axes = plt.subplots(figsize=(6.8, 2.0))
    taken: dict[str, Any] = {}
    for n, ink, spot in ((3.0, BLUE, (1.55, 0.24)), (1.0, GREEN, (-0.05, 0.67))):
        step = 0.6 / n
        turn = float(np.degrees(np.arctan2(step, n)))
        axes.add_patch(Arc((0, 0), 2 * n, 2 * n, theta1=0, theta2=turn + 4, color="0.6", ls=":"))
        radius = 0.55 * n
        of_turn: dict[str, Any] = {"theta1": 0, "theta2": turn, "color": ink, "lw": 3}
        axes.add_patch(Arc((0, 0), 2 * radius, 2 * radius, **of_turn))
        axes.fill([0, n, n], [0, 0, step], color=ink, alpha=0.13, lw=0)
        axes.plot([n - 0.07, n - 0.07, n], [0, 0.07, 0.07], color="0.2", lw=1.2)  # right angle
        axes.plot([0, n], [0, step], color=ink, lw=1.8)
        _arrow(axes, (0, 0), (n, 0), "black")
        _arrow(axes, (n, 0), (n, step), figures.WRONG)
        beside: dict[str, Any] = {"color": figures.WRONG, "va": "center"}
        axes.text(n + 0.06, 0.5 * step + 0.22 * (n < 2), f"step {step:.1f}", **beside)
        words: dict[str, Any] = {"color": ink, "fontweight": "bold", "fontsize": 10}
        axes.text(*spot, f"norm {n:g}: turns by {turn:.0f}°", **words)
        taken[f"norm {n:g}"] = {"turn in degrees": turn, "norm after": np.hypot(n, step)}
    axes.set(aspect="equal", xlim=(-0.05, 3.6), ylim=(-0.08, 0.8))
    axes.set_axis_off()
    return fig, taken


def turned(before: Tensor, after: Tensor) -> Tensor:
    """Angle between rows, exact for small ones, too: (B, d), (B, d) -> (B,)."""
    x = F.normalize(before)
    along = (after * x).sum(dim=1, keepdim=True)  # (B, 1)
    return torch.atan2((after - along * x).norm(dim=1), along[:, 0])


def free(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings (200, 16) of norms from 0.1 to 10, their 20 classes and proxies (20, 16)."""
    torch.manual_seed(seed)
    kind = torch.float64
    x, proxies = (F.normalize(torch.randn(rows, 16, dtype=kind)) for rows in (200, 20))
    n = 10 ** (2 * torch.rand(200, 1, dtype=kind) - 1)
    return n * x, torch.arange(200) % 20, proxies


def gradient(loss: Any, f: Tensor) -> Tensor:
    """∂L/∂f by autograd: (B, d) -> (B, d)."""
    f = f.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(f), f)[0]


def characters(parts: int = 15) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Drawn characters in parts: images, at 16 pixels, and labels of 50 to learn, of 24 to find."""
    both: dict[str, Any] = {"train_classes": 1018, "per_class": 20}
    old, _, new = (data.load("glyphs", part, **both) for part in data.SPLITS)
    kinds = np.hstack([old.labels, 1018 + new.labels])
    pixels = torch.cat([torch.as_tensor(each.images) for each in (old, new)]).float() / 255
    images = F.avg_pool2d(pixels, 2).contiguous(memory_format=torch.channels_last)
    told = []
    for part in np.array_split(np.random.default_rng(13).permutation(1118), parts):
        rows = [np.isin(kinds, chosen) for chosen in (part[:50], part[50:])]
        labels = [np.unique(kinds[some], return_inverse=True)[1] for some in rows]
        y, found = map(torch.from_numpy, labels)
        told.append((images[rows[0]], y, images[rows[1]], found))
    return told


@torch.no_grad()
def recall(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Recall@1 in percent; each image is a query of all the others."""
    x = F.normalize(net.eval()(images))
    net.train()
    nearest = (x @ x.T).fill_diagonal_(-2).argmax(dim=1)
    return 100 * (labels[nearest] == labels).double().mean().item()


def begin(seed: int, classes: int = 50) -> tuple[nn.Module, nn.Parameter]:
    """A small network for images of 16 pixels, and the proxies of its classes."""
    torch.manual_seed(seed)
    net = models.ConvNet(64, [16, 32, 96], size=16).to(memory_format=torch.channels_last)
    return net, nn.Parameter(torch.randn(classes, 64))


def factors(count: int, ratio: int, seed: int) -> Tensor:
    """Lengths (count, 1), each 1, 2, 4, … or ``ratio`` by chance, over the root of the ratio."""
    choice = torch.Generator().manual_seed(seed)
    doublings = torch.randint(ratio.bit_length(), (count, 1), generator=choice)
    return 2.0**doublings / ratio**0.5


def steps_to(told: Sequence[float], level: float, every: int = 1) -> float:
    """Steps until the scores, one after each ``every`` steps, first reach a level: a straight line
    joins two scores. Their number where none does.

    >>> steps_to([10, 30, 50], 40, every=5)
    12.5
    """
    scores = np.array([0.0, *told])
    there = np.flatnonzero(scores >= level)
    if not len(there):
        return every * len(told)
    k = int(there[0])
    return float(every * (k - 1 + (level - scores[k - 1]) / (scores[k] - scores[k - 1])))


def in_a_step(sizes: Iterable[Sequence[float]]) -> float:
    """By how many percent a norm changes from a step to the next: the mean of some trainings.

    >>> round(in_a_step([[1.0, 2.0, 1.0]]), 1)
    69.3
    """
    return float(np.mean([100 * np.abs(np.diff(np.log(size))).mean() for size in sizes]))


#: Label, ink and style of each way, and where its label stands in the panels, by ratio.
_LOOKS = {
    "as it is": ("as it is", figures.RIGHT, "-"),
    "evened": ("1/n evened", ORANGE, "-"),
    "Adam": ("Adam", PURPLE, "--"),
    "control": ("control", "0.35", ""),
}
_SPOTS = {
    "network": {"as it is": (4.5, -7), "evened": (1.6, 27), "control": (0.9, 11)},
    "table": {"as it is": (4.1, 42), "evened": (4.4, -12), "Adam": (1.6, 9)},
}


def _lines(
    axes: Axes, name: str, steps: Steps, live: Steps, law: Mapping[str, Mapping[str, float]]
) -> None:
    """Steps by the ratio of lengths of one panel."""
    for way, of_way in steps.items():
        label, ink, style = _LOOKS[way]
        found = [figures.summary(each) for each in of_way.values()]
        x = [int(ratio) * (1 if style else 1.13) for ratio in of_way]
        mean = np.array([each["mean"] for each in found])
        ends = [[abs(each["mean"] - each[end]) for each in found] for end in ("low", "high")]
        marker = "o" if style else "s"
        axes.errorbar(x, mean, ends, color=ink, ls=style, lw=2.2, elinewidth=2, marker=marker, ms=5)
        axes.plot(
            x[: len(law.get(way, {}))], [*law.get(way, {}).values()], ":", color="k", zorder=4
        )
        here = {int(ratio): np.mean(each) for ratio, each in live.get(way, {}).items()}
        axes.plot([*here], [*here.values()], "o", mfc="none", mec=ink, ms=10, mew=1.3)
        spot, rise = _SPOTS[name][way]
        y = float(np.interp(np.log(spot), np.log(x), mean)) + rise
        axes.text(spot, y, label, color=ink, fontweight="bold", fontsize=9, va="center")
    ratios = [1, 2, 4, 8, 16]
    axes.set(xscale="log", xlim=(0.8, 20), ylim=(80, 205), xlabel="longest over shortest, planted")
    axes.set_xticks(ratios, [f"{ratio}" for ratio in ratios])
    axes.minorticks_off()
    axes.grid(False, axis="x")


def answer(
    steps: Mapping[str, Steps],
    live: Mapping[str, Steps],
    law: Mapping[str, Mapping[str, float]],
    change: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Steps for each 100 at a ratio of 1, {"network": {way: {ratio: (n,)}}, "table": …}, and the
    law's for the table; how much the gradient's norm changes in a step, in percent, {way: (n,)}.

    Lines are of ``steps``, hollow dots the means of the page's own trainings, ``live``.
    """
    fig, panels = plt.subplot_mosaic(
        [["network", "table"], ["more", "more"]],
        figsize=(6.9, 6.4), height_ratios=(3, 1.5), layout="constrained",
    )  # fmt: skip
    _lines(panels["network"], "network", steps["network"], live["network"], {})
    _lines(panels["table"], "table", steps["table"], live["table"], law)
    panels["network"].set_title("network: slower if evened", **BOLD)
    panels["table"].set_title("table: faster if evened", **BOLD)
    panels["network"].set_ylabel("steps for each 100")
    panels["table"].tick_params(labelleft=False)
    panels["table"].text(0.95, 190, "dotted: formula", va="center", fontsize=9)
    net, rows = steps["network"], steps["table"]
    more = {
        "network,\nown lengths": net["evened"]["1"] - net["as it is"]["1"],
        "the same, against\nanother image's n": net["evened"]["1"] - net["control"]["1"],
        "table,\n1 to 16": rows["evened"]["16"] - rows["as it is"]["16"],
    }
    drawn: dict[str, Any] = {
        "more": figures.gains(panels["more"], more, "how many more of 100 steps if 1/n is evened"),
        "change": {"network": figures.summary(change["evened"] - change["as it is"])},
    }
    for name, of_panel in steps.items():
        drawn[name] = {
            way: {ratio: figures.summary(each) for ratio, each in of_way.items()}
            for way, of_way in of_panel.items()
        }
    drawn["table saves at 4"] = figures.summary(rows["as it is"]["4"] - rows["evened"]["4"])
    drawn["in a step"] = {way: figures.summary(each) for way, each in change.items()}
    return fig, drawn | {"law": figures.example({way: dict(each) for way, each in law.items()})}


def under_sgd() -> Path:
    """Of our studies of SEC the one under SGD, for ``verdict``; lesson 14 has the others."""
    rows = pd.read_csv(ROOT / "data" / "verdicts.csv", dtype=str, keep_default_na=False)
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    rows[rows["label"] == "drawings, under SGD"].to_csv(path, index=False)
    return path
