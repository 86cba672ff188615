"""What lesson 13 draws and prepares."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
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


def free_race(
    seed: int, spread: float, lr: float, steps: int, changed: Callable[[Tensor, Tensor], Tensor]
) -> list[float]:
    """Losses of SGD on 200 free embeddings of norms from 1/spread to spread, and 60 proxies.

    ``changed`` makes the gradients that a step takes, of gradients (200, 64) and norms (200, 1).
    """
    torch.manual_seed(seed)
    x, proxies = (F.normalize(torch.randn(rows, 64)) for rows in (200, 60))
    f = x * spread ** (2 * torch.rand(200, 1) - 1)
    labels, told = torch.arange(200) % 60, []
    for _ in range(steps):
        f, proxies = f.detach().requires_grad_(), proxies.detach().requires_grad_()
        loss = F.cross_entropy(8 * F.normalize(f) @ F.normalize(proxies).T, labels)
        g, of_proxies = torch.autograd.grad(loss, (f, proxies))
        f = f - len(f) * lr * changed(g, f.detach().norm(dim=1, keepdim=True))
        proxies = proxies - 10 * lr * of_proxies
        told.append(loss.item())
    return told


def averaged(told: Mapping[str, Mapping[float, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Means over each training, {way: {p: (starts,)}}, without the loss before the first step."""
    return {
        way: {f"{p:g}": each[:, 1:].mean(axis=1) for p, each in of_p.items()}
        for way, of_p in told.items()
    }


def trainings(told: Mapping[str, Mapping[float, np.ndarray]]) -> tuple[Figure, dict[str, Any]]:
    """Losses by step of {way: {p: losses (starts, steps)}}, free embeddings left, networks right.

    The numbers are the means over each training.
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.8, 3.0))
    inks: dict[float, str] = {-1: "#9a6a00", 0: "black", 1: BLUE, 2: PURPLE, 3: "0.6"}
    titles = {"free": "free: least on average at p = 2", "own": "networks: least as they come"}
    for axes, (way, title) in zip(panels, titles.items(), strict=True):
        for p in sorted(told[way]):
            mean, ink = told[way][p].mean(axis=0), inks[p]
            line = np.convolve(mean, np.full(5, 0.2), mode="valid")  # means of five steps
            look: dict[str, Any] = {"color": ink, "lw": 2, "ls": "-" if p else "--"}
            axes.plot(range(4, len(line) + 2), line[2:], label=f"p = {p}".replace("-", "−"), **look)
        axes.set_title(title, **BOLD)
        axes.set_xlabel("step")
    panels[0].set_ylabel("loss")
    panels[0].legend(loc="upper right")
    loss = {way: {p: figures.sample(each) for p, each in of_p.items()}
            for way, of_p in averaged(told).items()}  # fmt: skip
    free = {p: each.mean(axis=0)[1:] for p, each in told["free"].items()}
    gain = {f"{p}": free[p] - free[0] for p in (1, 2)}
    early = {p: 100 * float(each[:5].sum() / each.sum()) for p, each in gain.items()}
    most = {p: float(each.max()) for p, each in gain.items()}
    last = {f"{p}": float(each[-1]) for p, each in free.items()}
    shown = {"gained in steps 2 to 6": early, "most above p = 0": most, "last": last}
    return fig, {"loss": loss, "free": figures.example(shown)}


def in_parts(net: Sequence[Any], photographs: Tensor, labels: Tensor, loss: Any) -> dict[str, Any]:
    """Of a batch in a trained network: n, its factors, turns in a small step, and those if free.

    ``net`` is the layers below, the last layer and the proxies.
    """
    below, last, proxies = net
    h = below(photographs)
    f = last(h)
    f.retain_grad()
    loss(F.normalize(f), proxies, labels).backward()
    n, of_h = f.detach().norm(dim=1), h.detach().norm(dim=1)
    with torch.no_grad():
        for weight in (*below.parameters(), *last.parameters()):
            weight -= 1e-3 * weight.grad
        turns = turned(f, last(below(photographs)))
    alone = f.grad.norm(dim=1) / n  # what the same gradients would turn free embeddings by
    both = {"h": of_h, "W": n / of_h, "turn": turns, "free": alone}
    return {"n": n.cpu().numpy()} | {name: each.cpu().numpy() for name, each in both.items()}


def split(batches: Sequence[Mapping[str, np.ndarray]]) -> tuple[Figure, dict[str, Any]]:
    """Who makes the length, and who turns: factors of n, and turns, against n, of ``in_parts``."""
    logs = [{name: np.log10(v / np.median(v)) for name, v in each.items()} for each in batches]

    def slope(of: str) -> list[float]:
        return [float(np.polyfit(each["n"], each[of], 1)[0]) for each in logs]

    fig, panels = plt.subplots(1, 2, figsize=(6.8, 3.1), sharex=True)
    pairs = {
        "‖h‖ makes most of the length": {"h": ("‖h‖", GREEN), "W": ("‖Wĥ‖", BLUE)},
        "in a network, turns fall far less": {
            "free": ("if it were free", ORANGE), "turn": ("in the network", "black"),
        },
    }  # fmt: skip
    first = logs[0]
    for axes, (title, clouds) in zip(panels, pairs.items(), strict=True):
        for of, (label, ink) in clouds.items():
            axes.plot(10 ** first["n"], 10 ** first[of], ".", color=ink, ms=4, alpha=0.35, mew=0)
            ends = np.quantile(first["n"], [0.02, 0.98])
            fitted = np.polyval(np.polyfit(first["n"], first[of], 1), ends)
            axes.plot(10**ends, 10**fitted, color=ink, lw=2.4, label=label)
        axes.set(xscale="log", yscale="log", xlabel="norm of the embedding (median 1)")
        axes.set_title(title, **BOLD)
        axes.set_xticks([0.3, 1, 3], ["0.3", "1", "3"])
        axes.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axes.minorticks_off()
        axes.legend(loc="upper right" if axes is panels[1] else "upper left", framealpha=0.9)
    panels[0].set(ylabel="factor (median 1)", ylim=(0.3, 5))
    panels[1].set_ylabel("turn (median 1)")
    names = {
        "h": "share of h",
        "W": "share of W",
        "turn": "slope in networks",
        "free": "slope if free",
    }
    drawn: dict[str, Any] = {name: figures.summary(slope(of)) for of, name in names.items()}
    return fig, drawn | {
        "spread of log n": figures.summary([each["n"].std() * np.log(10) for each in logs])
    }


def answer(
    loss: Mapping[str, Mapping[str, np.ndarray]], live: Mapping[str, Mapping[str, np.ndarray]]
) -> tuple[Figure, dict[str, Any]]:
    """How much more loss (%) than at p = 0, by p, {way: {p: means over a training (starts,)}}.

    Curves are of ``loss``, hollow dots the means of the page's own trainings, ``live``.
    """

    def more(of: Mapping[str, Mapping[str, np.ndarray]], way: str) -> dict[int, np.ndarray]:
        plain = of["own" if way == "shuffled" else way]["0"]
        found = {int(p): 100 * (np.asarray(each) / plain - 1) for p, each in of[way].items()}
        return dict(sorted((found | {0: 0 * np.asarray(plain)}).items()))

    fig, (top, low) = plt.subplots(
        2, 1, figsize=(6.9, 6.4), height_ratios=(1.9, 1.15), layout="constrained"
    )
    looks = {
        "own": ("networks", figures.RIGHT, "-", 2.8),
        "free": ("free, as unequal", ORANGE, "-", 2.4),
        "shuffled": ("networks,\nshuffled", "0.45", "--", 1.8),
        "far more unequal": ("free, far\nmore unequal", ORANGE, ":", 1.8),
    }  # fmt: skip
    percent = {way: more(loss, way) for way in looks}
    top.axhline(0, color="0.3", lw=1)
    for way, (label, ink, style, width) in looks.items():
        found = {p: figures.summary(each) for p, each in percent[way].items()}
        mean = [each["mean"] for each in found.values()]
        ends = [
            [abs(each["mean"] - each[end]) for each in found.values()] for end in ("low", "high")
        ]
        top.errorbar([*found], mean, ends, color=ink, ls=style, lw=width, elinewidth=2)
        best = int(np.argmin(mean))
        top.plot([*found][best], mean[best], "o", color=ink, ms=9)
        here = more(live, way)
        top.plot([*here], [each.mean() for each in here.values()], "o", mfc="none", mec=ink, ms=6)
        words: dict[str, Any] = {"color": ink, "fontweight": "bold", "va": "center", "fontsize": 9}
        top.annotate(label, (max(found), mean[-1]), (8, 0), textcoords="offset points", **words)
    top.set(xlabel="p: gradients are multiplied by $n^p$", ylabel="percent more loss than at p = 0")
    top.set(xticks=range(-1, 4), xlim=(-1.15, 3.9))
    top.set_title("Without the length: free embeddings have less loss, networks more", **BOLD)
    top.grid(False, axis="x")
    rows = {
        "networks,\np = 1": percent["own"][1],
        "the same,\nown − shuffled": percent["own"][1] - percent["shuffled"][1],
        "free, as unequal,\np = 1": percent["free"][1],
        "the same,\np = 2": percent["free"][2],
    }  # fmt: skip
    drawn: dict[str, Any] = {"more": figures.gains(low, rows, "percent more loss than at p = 0")}
    by_p = {
        way: {f"{p}": figures.summary(v) for p, v in of_p.items() if p or way == "own"}
        for way, of_p in percent.items()
    }
    return fig, drawn | {"by p": by_p}


def under_sgd() -> Path:
    """Of our studies of SEC the one under SGD, for ``verdict``; lesson 14 has the others."""
    rows = pd.read_csv(ROOT / "data" / "verdicts.csv", dtype=str, keep_default_na=False)
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    rows[rows["label"] == "drawings, under SGD"].to_csv(path, index=False)
    return path
