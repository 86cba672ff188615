"""What lesson 13 draws and prepares."""

import tempfile
from collections.abc import Mapping, Sequence
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


def begin(seed: int, classes: int, table: int = 0) -> tuple[nn.Module, nn.Parameter]:
    """A network, or a table of so many embeddings of length 1, and the proxies of its classes."""
    torch.manual_seed(seed)
    net: nn.Module
    if table:
        net = nn.Embedding.from_pretrained(F.normalize(torch.randn(table, 64)), freeze=False)
    else:
        net = models.ConvNet(dim=64, channels=3).to(memory_format=torch.channels_last)
    return net, nn.Parameter(torch.randn(classes, 64))


def factors(count: int, ratio: int, seed: int) -> Tensor:
    """Lengths (count, 1), each 1, 2, 4, … or ``ratio`` by chance, over the root of the ratio."""
    choice = torch.Generator().manual_seed(seed)
    doublings = torch.randint(ratio.bit_length(), (count, 1), generator=choice)
    return 2.0**doublings / ratio**0.5


def steps_needed(told: Sequence[float], level: float) -> int:
    """The step at which the mean of ten batches' losses first is no higher than ``level``."""
    means = np.convolve(told, np.full(10, 0.1), mode="valid")
    there = np.flatnonzero(means <= level * (1 + 1e-9))
    return int(there[0]) + 10 if len(there) else len(told)


def per_hundred(
    told: Sequence[Sequence[float]], equal: Sequence[Sequence[float]], goal: int
) -> np.ndarray:
    """Steps to the loss that ``equal`` has after ``goal`` steps, for each 100 that it takes itself.

    Losses by step, a row each start -> (starts,).
    """
    pairs = zip(told, equal, strict=True)
    levels = [(each, one, float(np.mean(one[goal - 10 : goal]))) for each, one in pairs]
    return np.array(
        [100 * steps_needed(t, level) / steps_needed(one, level) for t, one, level in levels]
    )


def grown(weights: Sequence[Tensor], starts: Sequence[int]) -> dict[str, float]:
    """Mean length of a table's 240 rows after training, by their length at the start, R = 16."""
    rows = torch.cat([each[: 240 * 64].view(240, 64).norm(dim=1) for each in weights])
    begun = torch.cat([factors(240, 16, seed)[:, 0] for seed in starts])
    return {f"{n:g}": rows[begun == n].mean().item() for n in begun.unique().tolist()}


def reweighted(g: Tensor, n: Tensor, shift: int = 0) -> Tensor:
    """Gradients times norms, as long on average as before: (B, d), (B, 1) -> (B, d).

    So a gradient no longer has the factor 1/n; with a ``shift``, each gets another image's norm.
    """
    new = g * n.roll(shift, 0)
    return new * g.norm(dim=1).mean() / new.norm(dim=1).mean()


def turn_of_last(seed: int, images: Tensor, labels: Tensor, loss: Any, **size: float) -> float:
    """Mean turn (°) of embeddings by a small step of SGD of a new network's last layer.

    ``layer`` times as large is that layer, and ``factor`` times as long each output.
    """
    net, proxies = begin(seed, int(labels.max()) + 1)
    last = [*net.modules()][-1]
    with torch.no_grad():
        for weight in last.parameters():
            weight.mul_(size.get("layer", 1.0))
    f = size.get("factor", 1.0) * net(images)
    loss(F.normalize(f), proxies, labels).backward()
    torch.optim.SGD(last.parameters(), lr=1e-4).step()
    return turned(f, size.get("factor", 1.0) * net(images)).rad2deg().mean().item()


def _lines(
    top: Axes,
    steps: Mapping[str, Mapping[str, np.ndarray]],
    live: Mapping[str, Mapping[str, np.ndarray]],
    law: Mapping[str, float],
) -> None:
    """Steps by the ratio of lengths, as ``answer`` has them."""
    ratios = [int(ratio) for ratio in law]
    top.plot(ratios, [*law.values()], ":", color="0.35", lw=2)
    words: dict[str, Any] = {"va": "center", "fontsize": 9, "fontweight": "bold"}
    beside: dict[str, Any] = words | {"textcoords": "offset points", "xytext": (10, 0)}
    top.annotate("formula", (ratios[-1], law["16"]), color="0.35", **beside)
    looks = {
        "equal rate": ("table, SGD, rates\nof equal lengths", figures.RIGHT, "--", 1.6),
        "table": ("table, SGD", figures.RIGHT, "-", 2.8),
        "Adam": ("table, Adam", PURPLE, "-", 1.8),
        "network": ("network: not a\nweight differs", GREEN, "-", 2.8),
    }
    for way, (label, ink, style, width) in looks.items():
        x = [int(ratio) for ratio in steps[way]]
        found = [figures.summary(each) for each in steps[way].values()]
        mean = [each["mean"] for each in found]
        ends = [[abs(each["mean"] - each[end]) for each in found] for end in ("low", "high")]
        top.errorbar(x, mean, ends, color=ink, ls=style, lw=width, elinewidth=2, marker="o", ms=4)
        here = [each.mean() for each in live[way].values()]
        top.plot([int(ratio) for ratio in live[way]], here, "o", mfc="none", mec=ink, ms=8)
        shift = {"xytext": (10, -9)} if way == "network" else {}
        top.annotate(label, (x[-1], mean[-1]), color=ink, **(beside | shift))
    top.set(xscale="log", yscale="log", xlim=(0.92, 62), ylim=(85, 500))
    top.set_xlabel("longest over shortest")
    top.set_yticks([100, 200, 400], ["100", "200", "400"])
    top.set_xticks(ratios, [f"{ratio}" for ratio in ratios])
    top.minorticks_off()
    top.set_ylabel("steps for each 100 at equal lengths")
    top.set_title("A table is slowed; in a network, factors cancel", **BOLD)
    top.grid(False, axis="x")


def answer(
    steps: Mapping[str, Mapping[str, np.ndarray]],
    live: Mapping[str, Mapping[str, np.ndarray]],
    law: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Steps for each 100 at equal lengths, {way: {ratio: (starts,)}}, and the formula's.

    Lines are of ``steps``, hollow dots the means of the page's own trainings, ``live``.
    """
    fig, (top, low) = plt.subplots(
        2, 1, figsize=(6.9, 6.6), height_ratios=(2.1, 1), layout="constrained"
    )
    _lines(top, steps, live, law)
    rows = {
        "table, SGD, 1 to 16": steps["table"]["16"],
        "table, Adam, 1 to 16": steps["Adam"]["16"],
        "network, its own\n1/n taken out": steps["own"]["1"],
        "the control: n of\nother photographs": steps["shuffled"]["1"],
    }
    more = {name: np.asarray(each) - 100 for name, each in rows.items()}
    drawn: dict[str, Any] = {
        "more": figures.gains(low, more, "steps more for each 100 at equal lengths")
    }
    drawn["own minus shuffled"] = figures.summary(more[[*rows][2]] - more[[*rows][3]])
    return fig, drawn | {
        "law": figures.example(dict(law)),
        "steps": {
            way: {ratio: figures.summary(each) for ratio, each in of_way.items()}
            for way, of_way in steps.items()
        },
    }


def under_sgd() -> Path:
    """Of our studies of SEC the one under SGD, for ``verdict``; lesson 14 has the others."""
    rows = pd.read_csv(ROOT / "data" / "verdicts.csv", dtype=str, keep_default_na=False)
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    rows[rows["label"] == "drawings, under SGD"].to_csv(path, index=False)
    return path
