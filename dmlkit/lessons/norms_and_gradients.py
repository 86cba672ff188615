"""What lesson 13 draws and prepares."""

import json
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
from torch import Tensor

from dmlkit import ROOT, data, figures

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


def one_step(
    turns: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
) -> tuple[Figure, dict[str, Any]]:
    """Turns of one step by how long embeddings were made, {part: {way: {factor: turns}}}."""
    fig, panels = plt.subplots(1, 2, figsize=(6.8, 2.9), sharey=True)
    looks = {"W larger": (BLUE, "o-", 2.4), "h longer": (GREEN, "s--", 1.8)}
    for axes, (part, ways) in zip(panels, turns.items(), strict=True):
        for way, each in ways.items():
            ink, style, width = looks[way]
            told = np.array([each[k] for k in each])  # (factors, draws)
            axes.plot([*each], told, color=ink, lw=0.5, alpha=0.4)
            axes.plot([*each], told.mean(axis=1), style, color=ink, lw=width, ms=6)
        axes.set(xscale="log", yscale="log", xlabel="times as long")
        factors = [*next(iter(ways.values()))]
        axes.set_xticks(factors, [f"{k:g}" for k in factors])
        axes.minorticks_off()
        axes.set_title(f"a step of {part}", **BOLD)
    panels[0].set_ylabel("turn of embeddings (°)")
    panels[0].set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    low, high = panels[0].get_ylim()
    for way, (ink, *_) in looks.items():
        spot = turns["the last layer"][way]
        k = max(spot)
        at = (k, float(np.mean(spot[k])))
        words: dict[str, Any] = {"color": ink, "fontweight": "bold", "ha": "right"}
        shift = (-12, -4) if way == "W larger" else (0, 8)
        panels[0].annotate(way, at, shift, textcoords="offset points", **words)
    panels[1].text(1, 0.03, "no difference", color="0.3", fontweight="bold", ha="center")
    panels[0].set_ylim(low / 1.3, high * 1.6)
    numbers = {
        part: {way: {f"{k:g}": figures.sample(v) for k, v in each.items()}
               for way, each in ways.items()} for part, ways in turns.items()
    }  # fmt: skip
    return fig, {"turns": numbers}


def free_race(seed: int, spread: float, lr: float, steps: int) -> list[float]:
    """Losses of SGD on 200 free embeddings of norms from 1/spread to spread, and 20 proxies."""
    torch.manual_seed(seed)
    x, proxies = (F.normalize(torch.randn(rows, 16)) for rows in (200, 20))
    f = x * spread ** (2 * torch.rand(200, 1) - 1)
    labels, told = torch.arange(200) % 20, []
    for _ in range(steps):
        f = f.detach().requires_grad_()
        loss = F.cross_entropy(8 * F.normalize(f) @ proxies.T, labels)
        (g,) = torch.autograd.grad(len(f) * loss, f)
        f = f - lr * g
        told.append(loss.item())
    return told


def answer(
    told: Mapping[str, Tensor], free: Mapping[str, np.ndarray]
) -> tuple[Figure, dict[str, Any]]:
    """How much more loss (%) a training has than as it comes, and losses by step.

    ``told`` is {way: losses and norms of the photographs (starts, steps, 2, batch)}, ``free``
    {way: losses (starts, steps)}. The loss before the first step is left out: it is the same.
    """
    curves = {way: each[:, :, 0].mean(dim=2).numpy() for way, each in told.items()}
    means = {way: each[:, 1:].mean(axis=1) for way, each in (curves | dict(free)).items()}

    def more(way: str, less: str = "as it comes") -> np.ndarray:
        share: np.ndarray = 100 * (means[way] / means[less] - 1)
        return share

    fig = plt.figure(figsize=(6.9, 5.6), layout="constrained")
    grid = fig.add_gridspec(2, 2, height_ratios=(1.4, 1))
    top, left, right = (fig.add_subplot(at) for at in (grid[0, :], grid[1, 0], grid[1, 1]))
    rows = {
        "a factor on each h": more("factor on h"), "gradients evened": more("evened"),
        "control: factors\nshuffled": more("shuffled"),
        "evened\n− shuffled": more("evened") - more("shuffled"),
        "W 5 times\nas large": more("W larger"),
    }  # fmt: skip
    drawn: dict[str, Any] = {"more": figures.gains(top, rows, "percent more loss than as it comes")}
    drawn["more"]["free"] = figures.summary(more("unequal", "equal"))
    inks = {"equal": "0.35", "unequal": ORANGE, "as it comes": "0.35", "evened": PURPLE}
    inks["factor on h"] = figures.RIGHT
    smooth = {way: each.mean(axis=0) for way, each in (curves | dict(free)).items()}
    for way, ink in inks.items():
        line = np.convolve(smooth[way], np.full(5, 0.2), mode="valid")  # means of five steps
        axes = left if way in free else right
        axes.plot(range(2, len(line) + 2), line, color=ink, lw=2, label=way,
                  ls="--" if way == "factor on h" else "-")  # fmt: skip
    left.set_title("free embeddings: the brake", **BOLD)
    right.set_title("networks: no brake is seen", **BOLD)
    left.set_yscale("log")
    left.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"])
    left.minorticks_off()
    left.set_ylabel("loss")
    right.set_ylim(1.5, None)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.legend(loc="upper right")
    spread = {
        way: (n.std(dim=2) / n.mean(dim=2)).mean(dim=1)
        for way, n in ((way, each[:, :, 1]) for way, each in told.items())
    }
    drawn["spread"] = {way: figures.sample(100 * each) for way, each in spread.items()}
    return fig, drawn


def searched() -> dict[str, dict[str, list[float]]]:
    """Losses over a training of the three starts that chose the rates, {way: {rate: losses}}."""
    kept = (ROOT / "data" / "evidence" / "13_search.json").read_text("utf-8")
    found: dict[str, dict[str, list[float]]] = json.loads(kept)
    return found


def under_sgd() -> Path:
    """Of our studies of SEC the one under SGD, for ``verdict``; lesson 14 has the others."""
    rows = pd.read_csv(ROOT / "data" / "verdicts.csv", dtype=str, keep_default_na=False)
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    rows[rows["label"] == "drawings, under SGD"].to_csv(path, index=False)
    return path
