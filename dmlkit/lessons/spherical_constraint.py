"""What lesson 14 draws."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Annulus
from torch import Tensor, nn

from dmlkit import ROOT, data, figures, losses
from dmlkit.losses.spherical import SphericalConstraint

#: Eight products of the first picture, and the color of their dots.
PRODUCTS = {
    "Granny-Smith": "#009e73",
    "Banana": "#e69f00",
    "Watermelon": "#56b4e9",
    "Satsumas": "#d55e00",
    "Aubergine": "#8f6bb3",
    "Red-Bell-Pepper": "#c0304a",
    "Arla-Standard-Milk": "0.45",
    "Pineapple": "#8a8a2b",
}
NONE, SEC, EVEN, FAST = "0.35", figures.RIGHT, "#e07b00", "#7a3e9d"
#: How SEC's repository writes the four losses.
PRINTED = {
    "triplet_all": "Triplet",
    "triplet_semihard": "Semihard",
    "n_pairs_normalized": "NormNpair",
    "multi_similarity": "MS",
}


def _flat(x: Tensor, eta: float, steps: int) -> np.ndarray:
    """A head takes eight products, forty photographs each, into the plane: -> (320, 2)."""
    torch.manual_seed(0)
    labels, constraint = torch.arange(8).repeat_interleave(40), SphericalConstraint(eta)
    head = nn.Linear(x.shape[1], 2)
    loss = losses.build("normalized_softmax", num_classes=8, dim=2, temperature=1 / 8)
    groups: list[dict[str, Any]] = [{"params": head.parameters()}]
    groups += [{"params": loss.parameters(), "lr": 0.05}]
    update = torch.optim.Adam(groups, lr=0.003)
    for _ in range(steps):
        i = torch.randint(320, (64,))
        f = head(x[i])
        update.zero_grad()
        (loss(f, labels[i]) + constraint(f)).backward()
        update.step()
    return head(x).detach().numpy()


def rings(whole: data.ImageSet, steps: int) -> tuple[Figure, dict[str, Any]]:
    """Eight products in the plane, by heads trained without a constraint and with SEC."""
    large = data.load("grocery64", "train", fold=0)
    own = [np.flatnonzero(whole.labels == whole.class_names.index(p))[:40] for p in PRODUCTS]
    x = whole.images[np.concatenate(own)].flatten(1).float()
    x = (x - x.mean(dim=0)) / x.std()
    fig = plt.figure(figsize=(6.5, 4.1))
    halves: Any = fig.subfigures(2, 1, height_ratios=(1, 2.9))
    key, body = halves
    for axes, (name, color) in zip(key.subplots(1, 8), PRODUCTS.items(), strict=True):
        photos = large.images[large.labels == large.class_names.index(name)]  # (N, 3, 64, 64)
        color_of = photos.float().mean(dim=(2, 3))
        usual = (color_of - color_of.mean(dim=0)).norm(dim=1).argmin()  # of the usual color
        axes.imshow(photos[usual].permute(1, 2, 0))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=color, lw=3)
        said = name.replace("Arla-Standard-", "").replace("-Bell-", " ").replace("-", " ")
        axes.set_title(said, fontsize=8, color="0.2", pad=4)
    ways = {"none": ("no constraint: a cloud", 0.0, NONE), "SEC": ("SEC: a ring", 0.1, SEC)}
    drawn = {}
    colors = np.repeat([*PRODUCTS.values()], 40)
    for axes, (way, (title, eta, ink)) in zip(body.subplots(1, 2), ways.items(), strict=True):
        f = _flat(x, eta, steps)
        f = f / np.linalg.norm(f, axis=1).mean()  # each in its own scale
        spread = float(np.linalg.norm(f, axis=1).std())
        drawn[way] = figures.example({"spread": spread})
        axes.add_patch(Annulus((0, 0), 1 + spread, 2 * spread, color=ink, alpha=0.15, lw=0))
        axes.plot(0, 0, "+", color="0.5", ms=8, zorder=0)
        axes.scatter(*f.T, s=8, alpha=0.8, c=colors, lw=0, zorder=2)
        axes.set(aspect="equal", xlim=(-2.0, 2.0), ylim=(-1.7, 1.7))
        axes.set_axis_off()
        axes.set_title(title, color=ink, loc="left", fontweight="bold")
        said = f"norms spread by {100 * spread:.0f} %"
        axes.text(0, -1.7, said, ha="center", va="top", color=ink)
    return fig, drawn


def _race(eta: float, laps: int = 1100, lr: float = 0.05) -> np.ndarray:
    """Four free embeddings turn to 90° by SGD, until all are at 85°: -> (steps + 1, 4, 2)."""
    path = [np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])]
    while len(path) <= laps and (path[-1][:, 1] < np.tan(np.radians(85)) * path[-1][:, 0]).any():
        n = np.linalg.norm(path[-1], axis=1, keepdims=True)  # (4, 1)
        x = path[-1] / n
        sideways = (np.array([0.0, 1.0]) - x[:, 1:] * x) / n  # minus the gradient of −sin θ
        path.append(path[-1] + lr * (sideways - eta / 2 * (n - n.mean()) * x))
    return np.stack(path)


def race() -> tuple[Figure, dict[str, Any]]:
    """Four embeddings after 100 steps without SEC, and the steps that each needs, by the weight."""
    fig, (axes, chart) = plt.subplots(1, 2, figsize=(6.5, 2.95))
    inks, etas = ["#56b4e9", "#0072b2", "#8f6bb3", "#d55e00"], (0.0, 0.1, 1.0, 8.0)
    late = np.tan(np.radians(85))
    paths = {f"{eta:g}": _race(eta) for eta in etas}  # (steps + 1, 4, 2) each
    arrival = {eta: (p[:, :, 1] >= late * p[:, :, 0]).argmax(axis=0) for eta, p in paths.items()}
    path = paths["0"][:101]
    axes.plot([0, 0], [0, 3], color="0.6", ls=":", lw=1.2)
    axes.text(0.06, 3.05, "target, 90°", color="0.4", va="top")
    for k, ink in enumerate(inks):
        axes.plot(*path[:, k].T, color=ink, lw=1.6, alpha=0.6)
        axes.plot(*path[0, k], "o", mfc="white", mec=ink, ms=5.5, zorder=3)
        props = {"arrowstyle": "-|>", "color": ink, "lw": 2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", path[-1, k], (0, 0), arrowprops=props)
        turned = np.degrees(np.arctan2(path[-1, k, 1], path[-1, k, 0]))
        axes.text(*path[-1, k] + (0.1, 0.08), f"{turned:.0f}°", color=ink, fontweight="bold")
        steps_of = [each[k] for each in arrival.values()]
        chart.plot(range(4), steps_of, "o:", color=ink)
        chart.text(-0.15, steps_of[0], f"norm {k + 1}", color=ink, ha="right", va="center")
    axes.set(aspect="equal", xlim=(-0.15, 4.75), ylim=(-0.25, 3.2))
    axes.set_axis_off()
    axes.set_title("no constraint: long ones lag", loc="left", fontweight="bold")
    chart.set(xticks=range(4), xticklabels=arrival, xlim=(-1.0, 3.2), ylim=(0, 1080))
    chart.grid(False, axis="x")
    chart.set(xlabel=r"weight $\eta$ of SEC", ylabel="steps to 85°")
    chart.set_title("SEC: arrivals come together", color=SEC, loc="left", fontweight="bold")
    return fig, {eta: figures.example(each.tolist()) for eta, each in arrival.items()}


def lengths(found: Mapping[str, np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Spread of norms, mean norm and spread of turns of each way, {way: (reps, losses, 5)}."""
    fig, panels = plt.subplots(4, 1, figsize=(6.5, 5.4), sharex=True)
    rows: tuple[tuple[str, int, str, int], ...]
    rows = ("spread of norms", 1, " %", 0), ("mean norm", 2, "", 1)
    rows += ("spread of turns", 3, " %", 0), ("mean turn in a step", 4, "°", 1)
    drawn: dict[str, Any] = {}
    for axes, (what, column, unit, digits) in zip(panels, rows, strict=True):
        told = {way: each[:, :, column].mean(axis=1) for way, each in found.items()}
        drawn[what] = figures.sweep(axes, told, {}, SEC, unit, digits)["scores"]
        axes.set(ylim=(0, 1.45 * max(map(max, told.values()))), yticks=[])
        axes.set_title(what, loc="left", fontweight="bold")
        for place, way in enumerate(found):
            if not way.startswith("SEC"):
                axes.axvspan(place - 0.5, place + 0.5, color="0.94", lw=0, zorder=-1)
    named = [way.replace("SEC ", "SEC\nη = ").replace("even ", "even only\nκ = ") for way in found]
    panels[-1].set_xticks(
        range(len(found)), [each.replace("faster", "larger\nrate") for each in named]
    )
    turns = {way: each[:, :, 3].mean(axis=1) for way, each in found.items()}
    drawn["none minus turns"] = {w: figures.sample(turns["none"] - v) for w, v in turns.items()}
    return fig, drawn


def printed() -> dict[str, float]:
    """What SEC's repository prints that SEC gains with each loss, a mean of four data sets."""
    table = pd.read_csv(ROOT / "data" / "reported" / "extra_sec_repo_results.csv")
    value = table[table.metric == "R@1"].groupby("method").value.mean()
    return {name: float(value[f"{said}+SEC"] - value[said]) for name, said in PRINTED.items()}


def answer(
    found: Mapping[str, np.ndarray], four: Mapping[str, str], floor: float
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 minus that without a constraint: SEC at its own settings, all weights, controls."""
    level = {way: each[:, :, 0].mean(axis=1) for way, each in found.items()}  # (reps,)
    gain = {way: each - level["none"] for way, each in level.items() if way != "none"}
    own = found["SEC, chosen"][:, :, 0] - found["none"][:, :, 0]  # (reps, losses)
    drawn: dict[str, Any] = {"Recall@1": {w: figures.sample(v) for w, v in level.items()}}
    drawn["gain"] = {way: figures.sample(each) for way, each in gain.items()}
    if {"even 10", "SEC 1"} <= {*level}:
        drawn["even 10 minus SEC 1"] = figures.sample(level["even 10"] - level["SEC 1"])
    drawn["own"] = {said: figures.sample(own[:, k]) for k, said in enumerate(four.values())}
    drawn["printed"], none = printed(), float(level["none"].mean())
    fig, (upper, axes) = plt.subplots(2, 1, figsize=(6.5, 5.0), height_ratios=(5, 6), sharex=True)
    rows = {"mean of the four": gain["SEC, chosen"]}
    rows |= {said: own[:, k] for k, said in enumerate(four.values())}
    figures.dots(upper, rows, every=True, color=SEC, ms=7, lw=2)
    stars = [*drawn["printed"].values()]
    upper.plot([np.mean(stars), *stars], range(5), "*", color="black", ms=10, mew=0, zorder=4)
    upper.annotate(
        "printed", (float(np.mean(stars)), 0), (8, 0), textcoords="offset points", va="center"
    )
    upper.get_yticklabels()[0].set_fontweight("bold")
    upper.set_title("SEC, each loss at its own rate and weight", loc="left", fontweight="bold")
    names, inks = [], []
    for way in gain:
        if way != "SEC, chosen":
            inks.append(SEC if way.startswith("SEC") else EVEN if way.startswith("even") else FAST)
            said = way.replace("SEC ", "SEC, η = ").replace("even ", "even only, κ = ")
            names.append(said.replace("faster", "larger rate only"))
            row = {names[-1]: gain[way]}
            style: dict[str, Any] = {"color": inks[-1], "every": True, "ms": 7, "lw": 2}
            figures.dots(axes, row, shift=len(names) - 1, **style)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for label, ink in zip(axes.get_yticklabels(), inks, strict=True):
        label.set_color(ink)
    axes.set_title("the four at the rate of none", loc="left", fontweight="bold")
    for each in (upper, axes):
        each.axvline(0, color="0.3", lw=1.2, zorder=0)
        each.axvline(floor - none, color="0.5", lw=1.4, ls=":", zorder=0)
    said = (
        f"points of Recall@1 minus none ({none:.1f} %); dotted: untouched features ({floor:.1f} %)"
    )
    axes.set(xlabel=said)
    return fig, drawn | {"floor": floor}
