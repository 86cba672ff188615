"""What lesson 14 measures of its networks, and what it draws."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Annulus, Rectangle
from torch import Tensor, nn

from dmlkit import ROOT, figures, losses, models
from dmlkit.losses.spherical import SphericalConstraint

#: Colors of eight characters in the first picture.
EIGHT = (
    *("#009e73", "#e69f00", "#56b4e9", "#d55e00"),
    *("#8f6bb3", "#c0304a", "0.45", "#8a8a2b"),
)  # fmt: skip
NONE, SEC = "0.35", figures.RIGHT
#: The share of test characters that two networks of different cuts have in common.
OVERLAP = 1 / 6
#: How SEC's repository writes semi-hard triplets.
PRINTED = "Semihard"


def _flat(images: Tensor, eta: float, steps: int) -> np.ndarray:
    """A network takes the drawings of eight characters into the plane: -> (160, 2)."""
    torch.manual_seed(0)
    constraint, loss = SphericalConstraint(eta), losses.build("triplet_semihard")
    model = models.ConvNet(2, widths=(8, 16, 32)).to(memory_format=torch.channels_last)
    update = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    labels = torch.arange(8).repeat_interleave(6)
    for _ in range(steps):
        f = model(images[labels, torch.randint(20, (48,))])
        update.zero_grad()
        (loss(f, labels) + constraint(f)).backward()
        update.step()
    with torch.no_grad():
        return model.eval()(images.flatten(0, 1)).numpy()


def rings(images: Tensor, steps: int) -> tuple[Figure, dict[str, Any]]:
    """Eight characters (8, 20, 1, 32, 32) in the plane, without a constraint and with SEC."""
    fig = plt.figure(figsize=(7.2, 3.3))
    halves: Any = fig.subfigures(2, 1, height_ratios=(1, 4))
    key, body = halves
    for axes, image, color in zip(key.subplots(1, 8), images[:, 0, 0], EIGHT, strict=True):
        axes.imshow(1 - image, cmap="gray", vmin=0, vmax=1)
        figures.bare(axes)
        axes.spines[:].set(visible=True, color=color, lw=3)
    ways = {"none": ("no constraint", 0.0, NONE)}
    ways |= {f"SEC, {eta:g}": (f"SEC, η = {eta:g}", eta, SEC) for eta in (0.01, 0.1)}
    drawn, colors = {}, np.repeat(np.array(EIGHT), 20)
    for axes, (way, (title, weight, ink)) in zip(body.subplots(1, 3), ways.items(), strict=True):
        f = _flat(images, weight, steps)
        f = f / np.linalg.norm(f, axis=1).mean()  # each in its own scale
        spread = float(np.linalg.norm(f, axis=1).std())
        drawn[way] = figures.example({"spread": spread})
        axes.add_patch(Annulus((0, 0), 1 + spread, 2 * spread, color=ink, alpha=0.15, lw=0))
        axes.plot(0, 0, "+", color="0.5", ms=8, zorder=0)
        axes.scatter(*f.T, s=9, alpha=0.8, c=list(colors), lw=0, zorder=2)
        axes.set(aspect="equal", xlim=(-2.2, 2.2), ylim=(-2.0, 2.0))
        axes.set_axis_off()
        said = f"{title}:\nnorms spread by {100 * spread:.0f} %"
        axes.set_title(said, color=ink, fontweight="bold", fontsize=10)
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


def balance(model: nn.Module, images: Tensor, classes: int) -> float:
    """How far a small step of SGD turns the shortest fifth, over the longest fifth.

    As in lesson 13: each image (N, 1, 32, 32), N a multiple of ``classes``, takes a step of all
    weights alone, in the direction that the loss asks of its embedding; its turn is divided by
    how hard the loss asks.
    """
    model, images = copy.deepcopy(model).double(), images.double()
    labels = torch.arange(classes).repeat_interleave(len(images) // classes)
    f = model(images)
    (g,) = torch.autograd.grad(losses.build("triplet_semihard", margin=2.0)(f, labels), f)
    asked = F.normalize(g)  # margin 2: every triplet asks
    weights: list[Tensor] = list(model.parameters())
    lr, turns = 1e-6, []
    for image, before, way in zip(images[:, None], f.detach(), asked, strict=True):
        n = before.norm()
        slopes = torch.autograd.grad((model(image)[0] * way / n).sum(), weights)
        with torch.no_grad():
            torch._foreach_add_(weights, slopes, alpha=-lr)
            after = model(image)[0]
            torch._foreach_add_(weights, slopes, alpha=lr)
            step = F.normalize(after, dim=0) - F.normalize(before, dim=0)
        turns.append(step.norm().item() / lr)
    order, fifth = f.detach().norm(dim=1).argsort(), len(images) // 5
    told = np.array(turns)[order.numpy()]
    return float(told[:fifth].mean() / told[-fifth:].mean())


def heat(tried: Mapping[tuple[float, float], Sequence[float]]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation characters, {(rate, weight): (trainings, 3)}, as a map."""
    rates, weights = (sorted({pair[k] for pair in tried}) for k in (0, 1))
    each = {f"{rate:g}": {f"{w:g}": np.array(tried[rate, w]) for w in weights} for rate in rates}
    level = np.array([[np.mean(tried[r, w], axis=0) for r in rates] for w in weights])
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.0), width_ratios=(1, 1), sharey=True)
    titles = "Recall@1, validation (%)", "mean norm in training"
    for axes, k, title in zip(panels, (0, 2), titles, strict=True):
        values = level[:, :, k]
        shown = values if k == 0 else np.log(values)
        low = max(shown.min(), shown.max() - 15) if k == 0 else shown.min()
        axes.imshow(shown, vmin=low, vmax=shown.max(), aspect="auto", cmap="cividis")
        for i, j in np.ndindex(values.shape):
            dark = shown[i, j] < (low + shown.max()) / 2
            best = k == 0 and values[i, j] == (values[0].max() if i == 0 else values[1:].max())
            said = f"{values[i, j]:.1f}"
            axes.text(
                j, i, said, ha="center", va="center", fontsize=8,
                color="white" if dark else "black", fontweight="bold" if best else None,
            )  # fmt: skip
            if best:
                box = Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, fill=False, lw=2.2, ec=SEC)
                axes.add_patch(box)
        axes.set_xticks(range(len(rates)), [f"{r:g}" for r in rates])
        axes.set(xlabel="learning rate")
        axes.grid(False)
        axes.set_title(title, loc="left", fontweight="bold")
    panels[0].set_yticks(range(len(weights)), [f"{w:g}" if w else "none" for w in weights])
    panels[0].set_ylabel(r"weight $\eta$ of SEC")
    drawn = {
        name: {r: {w: figures.sample(v[:, k]) for w, v in row.items()} for r, row in each.items()}
        for k, name in enumerate(("Recall@1", "spread of norms", "mean norm"))
    }
    return fig, drawn


def recorded() -> dict[tuple[float, float], np.ndarray]:
    """What ``heat`` drew of a run with ``profile = "full"``."""
    kept, _ = figures.recorded("14_sweep")
    columns = ("Recall@1", "spread of norms", "mean norm")
    return {
        (float(rate), float(weight)): np.stack([kept[name][rate][weight] for name in columns], 1)
        for rate, row in kept[columns[0]].items()
        for weight in row
    }


def lengths(found: Mapping[str, np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Spread of norms, mean norm and balance of turns of each way, {way: (networks, 4)}."""
    fig, (*panels, right) = plt.subplots(1, 3, figsize=(6.9, 2.7), layout="constrained")
    rows = [("spread of norms", 1, " %", 0), ("mean norm", 2, "", 1)]
    drawn: dict[str, Any] = {}
    for axes, (what, column, unit, digits) in zip(panels, rows, strict=True):
        told = {way: each[:, column] for way, each in found.items()}
        drawn[what] = figures.sweep(axes, told, {}, SEC, unit, digits)["scores"]
        axes.set(ylim=(0, 1.3 * max(map(max, told.values()))), yticks=[])
        axes.set_title(what, loc="left", fontweight="bold")
        axes.set_xticks(range(len(found)), [way.replace(" ", "\n") for way in found])
    drawn["turn, short / long"] = {way: figures.sample(v[:, 3]) for way, v in found.items()}
    ways, drawn["ratio of turns"] = [way for way in found if way != "none"], {}
    right.axhline(1, color="0.3", lw=1, zorder=0)
    for place, way in enumerate(ways):
        ratio = found[way][:, 3] / found["none"][:, 3]
        ends = figures.summary(np.log(ratio), OVERLAP)
        value, low, high = (float(np.exp(ends[end])) for end in ("mean", "low", "high"))
        drawn["ratio of turns"][way] = figures.example({"mean": value, "low": low, "high": high})
        shift = np.linspace(0.14, 0.34, len(ratio))
        right.plot(place + shift, ratio, ".", ms=4, color=SEC, alpha=0.5, mew=0)
        right.plot([place] * 2, [low, high], color=SEC, lw=5, alpha=0.45)
        right.plot(place, value, "o", ms=7, color=SEC)
    right.set(yscale="log", ylim=(0.15, 4), xlim=(-0.5, len(ways) - 0.5))
    right.set_yticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
    right.minorticks_off()
    right.grid(False, axis="x")
    right.set_xticks(range(len(ways)), [way.replace(" ", "\n") for way in ways])
    right.set_title("turn, short / long,\ntimes that of none", loc="left", fontweight="bold")
    return fig, drawn


def printed() -> float:
    """What SEC's repository prints that SEC gains with semi-hard triplets, of four data sets."""
    table = pd.read_csv(ROOT / "data" / "reported" / "extra_sec_repo_results.csv")
    value = table[table.metric == "R@1"].groupby("method").value.mean()
    return float(value[f"{PRINTED}+SEC"] - value[PRINTED])


def networks() -> dict[str, np.ndarray]:
    """What the notebook's ``run`` found with ``seeds = 24``, of networks 7 to 24: (18, 4) each."""
    kept = json.loads((ROOT / "data" / "evidence" / "14_networks.json").read_text("utf-8"))
    return {way: np.array(rows) for way, rows in kept.items()}


def answer(
    more: Mapping[str, np.ndarray], live: Mapping[str, np.ndarray], floors: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each way, and minus no constraint; ways are (networks, 4)."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.4, 3.9), width_ratios=(1.1, 1), layout="constrained"
    )
    names = {
        "none": "none", "SEC": "SEC", "strong SEC": "strong\nSEC", "even only": "even\nonly",
        "short only": "short\nonly", "longer": "twice\nsteps",
    }  # fmt: skip
    found = {names[way]: more[way][:, 0] for way in names}
    drawn: dict[str, Any] = {"levels": figures.sweep(left, found, floors, NONE, "")}
    left.set(ylim=(40, 95), ylabel="Recall@1, unseen characters (%)")
    left.tick_params(axis="x", labelsize=8)
    rows = {"SEC": "SEC", "strong SEC": "strong SEC", "even only": "even only",
            "short only": "short only", "no SEC,\ntwice the steps": "longer"}  # fmt: skip
    gain = {said: more[way][:, 0] - more["none"][:, 0] for said, way in rows.items()}
    drawn["gain"] = figures.gains(right, gain, "points, minus no constraint", overlap=OVERLAP)
    drawn["live"] = {}
    for row, (said, way) in enumerate(rows.items()):
        here = live[way][:, 0] - live["none"][:, 0]
        drawn["live"][said.replace("\n", " ")] = figures.sample(here)
        right.plot(here.mean(), row - 0.24, "D", mfc="white", mec="0.2", ms=5, zorder=4)
    drawn["printed"] = printed()
    right.plot(drawn["printed"], -0.24, "*", color="black", ms=11, mew=0, zorder=4)
    twins = {"even only minus short only": ("even only", "short only"),
             "SEC minus even only": ("SEC", "even only")}  # fmt: skip
    drawn["twins"] = {
        name: figures.sample(more[a][:, 0] - more[b][:, 0]) for name, (a, b) in twins.items()
    }
    return fig, drawn
