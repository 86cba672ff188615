"""What lesson 13 draws and prepares."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from torch import Tensor

from dmlkit import data, figures

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
            axes.set_title(f"{n[one]:.0f}", fontsize=10, fontweight="bold", pad=2)
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


def answer(
    angle: Mapping[str, Mapping[str, float]], own: Mapping[str, Sequence[np.ndarray]]
) -> tuple[Figure, dict[str, Any]]:
    """Angles to the unchanged network (°), and turns of photographs against their own norms.

    ``angle`` is {optimizer: {setting: °}}; ``own`` has, for each part that steps, of each network
    norms and turns (photographs, 2).
    """
    fig = plt.figure(figsize=(6.9, 5.4))
    grid = fig.add_gridspec(2, 2, width_ratios=(0.8, 1), height_ratios=(1.7, 1))
    left, right, low_right = (fig.add_subplot(at) for at in (grid[:, 0], grid[0, 1], grid[1, 1]))
    left.axvspan(3e-14, 1e-3, color=GREEN, alpha=0.1, lw=0)
    left.axvspan(1, 200, color=ORANGE, alpha=0.1, lw=0)
    row, names = 0, []
    for optimizer, each in angle.items():
        left.text(7e-14, row, optimizer, fontweight="bold", va="center")
        names.append("")
        row += 1
        for setting, value in each.items():
            ink = GREEN if setting.startswith("h") else BLUE
            ink = "0.4" if setting.startswith("last digit") else ink
            left.plot(max(value, 1e-13), row, "o", color=ink, ms=7)
            names.append(setting)
            row += 1
    left.set_yticks(range(row), names, fontsize=8.5)
    left.set(xscale="log", xlim=(3e-14, 200), ylim=(row - 0.4, -0.6))
    left.set_xticks([1e-12, 1e-6, 1], ["10⁻¹²", "10⁻⁶", "1"])
    left.minorticks_off()
    left.grid(False, axis="y")
    left.set_xlabel("angle to the unchanged network (°)")
    for x, said in ((1e-8, "the same"), (20, "another")):
        left.text(x, -0.8, said, ha="center", va="bottom", fontweight="bold", fontsize=10)
    slopes = {
        part: [float(np.polyfit(np.log(each[:, 0]), np.log(each[:, 1]), 1)[0]) for each in networks]
        for part, networks in own.items()
    }
    words: dict[str, Any] = {"fontweight": "bold", "fontsize": 9.5, "transform": right.transAxes}
    for (part, networks), ink in zip(own.items(), (BLUE, ORANGE), strict=True):
        n, turn = np.concatenate(networks).T
        right.scatter(n, turn, s=5, color=ink, alpha=0.3, lw=0)
        at, middle = np.exp([np.log(n).mean(), np.log(turn).mean()])
        ends = np.array([n.min(), n.max()])
        slope = float(np.mean(slopes[part]))
        right.plot(ends, middle * (ends / at) ** slope, color=ink, lw=2.4)
        said = f"{part}: slope {slope:.1f}".replace("-", "−")
        up, ha = (0.94, "right") if part == "all weights" else (0.03, "left")
        right.text(0.97 if ha == "right" else 0.03, up, said, color=ink, ha=ha, **words)
        if part == "all weights":
            right.plot(ends, middle * (ends / at) ** -2.0, "--", color="0.2", lw=1.6)
            right.text(0.97, 0.87, "free embeddings (dashed): −2", color="0.2", ha=ha, **words)
    span = right.get_xlim()
    right.set(xscale="log", yscale="log", xlabel="norm n of a photograph", ylabel="turn / (lr G)")
    low, high = right.get_ylim()
    right.set_ylim(low / 1.8, high * 4)
    shown = [k for k in (1, 2, 3, 5, 10, 20) if span[0] <= k <= span[1]]
    right.set_xticks(shown, [f"{k}" for k in shown])
    right.minorticks_off()
    right.set_title("lengths of its own", **BOLD)
    numbers = figures.sweep(low_right, slopes, {}, "0.3", "", 1)["scores"]
    low_right.axhline(-2, color="0.2", ls="--", lw=1.6)
    low_right.text(0.5, -1.95, "free", fontweight="bold", ha="center", va="bottom", fontsize=9)
    low_right.axhline(0, color="0.6", lw=1)
    low_right.text(0.5, 0.03, "no brake", fontweight="bold", ha="center", va="bottom", fontsize=9)
    low_right.set(ylabel="slope", ylim=(-2.3, 0.45))
    return fig, {"angle": angle, "slope": numbers}
