"""What lesson 14 measures of its networks, and what it draws."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Annulus, Rectangle
from torch import Tensor

from dmlkit import ROOT, figures, losses, models
from dmlkit.losses.spherical import SphericalConstraint

#: Colors of eight characters in the first picture.
EIGHT = (
    *("#009e73", "#e69f00", "#56b4e9", "#d55e00"),
    *("#8f6bb3", "#c0304a", "0.45", "#8a8a2b"),
)  # fmt: skip
NONE, SEC, SHORT, EVEN = "0.35", figures.RIGHT, "#d55e00", "#009e73"
#: What widens an interval: five sixths of the characters are learned, one sixth is searched.
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
    fig = plt.figure(figsize=(7.4, 3.4))
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


#: What a training tells, by column.
TOLD = "Recall@1", "mean norm", "spread of norms", "turn"


def heat(
    search: Mapping[tuple[float, float], np.ndarray], even: Mapping[float, np.ndarray]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 and mean norm of validation characters, {(rate, weight): (trainings, 4)}, as maps.

    ``even`` are the trainings of the variant that is even only, by its weight.
    """
    rates, weights = (sorted({pair[k] for pair in search}) for k in (0, 1))
    level = np.array([[search[r, w].mean(axis=0) for r in rates] for w in weights])
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.0), sharey=True)
    titles = "Recall@1, validation (%)", "mean norm in training"
    for axes, k, title in zip(panels, (0, 1), titles, strict=True):
        values = level[:, :, k]
        shown = values if k == 0 else np.log(values)
        low = max(shown.min(), shown.max() - 40) if k == 0 else shown.min()
        axes.imshow(shown, vmin=low, vmax=shown.max(), aspect="auto", cmap="cividis")
        for i, j in np.ndindex(values.shape):
            dark, best = shown[i, j] < (low + shown.max()) / 2, j == level[i, :, 0].argmax()
            axes.text(
                j, i, f"{values[i, j]:.1f}", ha="center", va="center", fontsize=8,
                color="white" if dark else "black", fontweight="bold" if best else None,
            )  # fmt: skip
            if best:
                box = Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, fill=False, lw=2.2, ec="white")
                axes.add_patch(box)
        axes.set_xticks(range(len(rates)), [f"{r:g}" for r in rates])
        axes.set(xlabel="learning rate")
        axes.grid(False)
        axes.set_title(title, loc="left", fontweight="bold")
    panels[0].set_yticks(range(len(weights)), [f"{w:g}" if w else "none" for w in weights])
    panels[0].set_ylabel(r"weight $\eta$ of SEC")
    drawn: dict[str, Any] = {
        name: {
            f"{r:g}": {f"{w:g}": figures.sample(search[r, w][:, k]) for w in weights} for r in rates
        }
        for k, name in enumerate(TOLD)
    }
    drawn["even only"] = {
        name: {f"{kappa:g}": figures.sample(each[:, k]) for kappa, each in even.items()}
        for k, name in enumerate(TOLD)
    }
    return fig, drawn


def recorded() -> tuple[dict[tuple[float, float], np.ndarray], dict[float, np.ndarray]]:
    """What ``heat`` drew of a run with ``profile = "full"``."""
    kept, _ = figures.recorded("14_sweep")
    search = {
        (float(rate), float(weight)): np.stack([kept[name][rate][weight] for name in TOLD], 1)
        for rate, row in kept[TOLD[0]].items()
        for weight in row
    }
    found = kept["even only"]
    return search, {
        float(k): np.stack([found[name][k] for name in TOLD], 1) for k in found[TOLD[0]]
    }


def printed() -> float:
    """What SEC's repository prints that SEC gains with semi-hard triplets, of four data sets."""
    table = pd.read_csv(ROOT / "data" / "reported" / "extra_sec_repo_results.csv")
    value = table[table.metric == "R@1"].groupby("method").value.mean()
    return float(value[f"{PRINTED}+SEC"] - value[PRINTED])


def answer(
    found: Mapping[tuple[str, float], np.ndarray],
    floors: Mapping[str, float],
    small: float,
    large: float,
    best: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by learning rate, and differences to no constraint; found[way, rate] is (R, 6)."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.4, 3.9), width_ratios=(1.05, 1), layout="constrained"
    )
    score = {key: each[:, 0] for key, each in found.items()}
    drawn: dict[str, Any] = {"levels": {}}
    for way, ink in (("none", NONE), ("SEC", SEC)):
        rates = sorted(rate for which, rate in found if which == way)
        each = np.stack([score[way, rate] for rate in rates])  # (rates, networks)
        left.plot(rates, each, ".", color=ink, ms=5, alpha=0.4, mew=0)
        left.plot(rates, each.mean(axis=1), "o-", color=ink, ms=5, lw=2)
        name, end = "no constraint" if way == "none" else "SEC", each[-1].mean()
        left.text(rates[-1] * 1.15, end, name, color=ink, va="center", fontweight="bold")
        drawn["levels"][way] = {f"{r:g}": figures.sample(score[way, r]) for r in rates}
    for name, value in floors.items():
        left.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
        left.text(rates[0], value + 1, name, color="0.35", fontsize=8, va="bottom")
    left.set(xscale="log", xlim=(rates[0] * 0.8, rates[-1] * 4.2), ylim=(0, 100))
    left.set_xticks(rates, [f"{rate:g}" for rate in rates])
    left.minorticks_off()
    left.set(xlabel="learning rate", ylabel="Recall@1, unseen characters (%)")
    figures.letter(left, "with SEC, large rates fail")
    figures.letter(right, "short norms alone cost points")
    at = f"{large:g}"
    pairs = {
        f"SEC,\nrate {at}": (("SEC", large), ("none", large)),
        f"short only,\nrate {at}": (("short only", large), ("none", large)),
        f"even only,\nrate {at}": (("even only", large), ("none", large)),
        f"SEC,\nrate {small:g}": (("SEC", small), ("none", small)),
        "SEC, each at\nits best rate": (("SEC", best["SEC"]), ("none", best["none"])),
    }
    gain = {said: score[one] - score[other] for said, (one, other) in pairs.items()}
    drawn["gain"] = figures.gains(right, gain, "points, minus no constraint", overlap=OVERLAP)
    more = {
        "even only minus short only": ("even only", large), "SEC minus short only": ("SEC", large),
    }  # fmt: skip
    gaps = {name: score[one] - score["short only", large] for name, one in more.items()}
    gaps["none, large minus small"] = score["none", large] - score["none", small]
    top = max(rates)
    for way in ("SEC", "short only"):
        gaps[f"{way} at {top:g}"] = score[way, top] - score["none", top]
    drawn["more"] = {name: figures.summary(each, OVERLAP) for name, each in gaps.items()}
    drawn["floor"], drawn["printed"] = figures.example(dict(floors)), printed()
    return fig, drawn


def brake(found: Mapping[tuple[str, float], np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Norms by learning rate, and Recall@1 by the turn of a step; found[way, rate] is (R, 6)."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.4, 3.8), width_ratios=(1, 1.3), layout="constrained"
    )
    inks = {"none": NONE, "SEC": SEC, "short only": SHORT, "even only": EVEN}
    said = {"none": "no constraint"}
    told = *TOLD[1:], "apart", "fifth share", "share"  # share: turn in % of the angle apart
    drawn: dict[str, Any] = {name: {} for name in told}
    for (way, ink), mark in zip(inks.items(), "os^D", strict=True):
        rates = sorted(rate for which, rate in found if which == way)
        each = np.stack([found[way, rate] for rate in rates])  # (rates, networks, 6)
        share = 100 * np.stack([each[..., 5], each[..., 3] / each[..., 4]], axis=2)
        each = np.concatenate([each[..., :5], share], axis=2)
        mean = each.mean(axis=1)  # (rates, 7)
        for k, name in enumerate(told, 1):
            drawn[name][way] = {
                f"{rate:g}": figures.sample(each[i, :, k]) for i, rate in enumerate(rates)
            }
        style: dict[str, Any] = {"color": ink, "marker": mark, "mec": "white"}
        right.plot(each[..., 3], each[..., 0], mark, color=ink, ms=4, alpha=0.3, mew=0)
        right.plot(mean[:, 3], mean[:, 0], lw=1.5, ms=8, label=said.get(way, way), **style)
        for rate, (score, _, _, turn, *_) in zip(rates, mean, strict=True):
            if way in ("SEC", "short only"):
                x, y = (-1.2, 6.5) if (way, rate) == ("SEC", rates[0]) else (1.1, 1.5)
                look: Any = {"color": ink, "fontsize": 8.5, "fontweight": "bold"}
                right.text(turn + x, score + y, f"{rate:g}", **look)
        if way in ("none", "SEC"):
            left.plot(rates, mean[:, 1], lw=2, ms=7, **style)
            at = (rates[-1], mean[-1, 1] * 1.25)
            left.text(*at, said.get(way, way), color=ink, ha="right", fontweight="bold")
            left.set(xscale="log", yscale="log", ylim=(3, 300), xlabel="learning rate")
            left.set_xticks(rates, [f"{rate:g}" for rate in rates])
    left.set_yticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
    left.set_ylabel("mean norm in training")
    left.minorticks_off()
    figures.letter(left, "SEC keeps norms short")
    right.set(xlim=(0, 32), ylim=(0, 100), xlabel="how far a step turns embeddings (°)")
    right.set_ylabel("Recall@1, unseen characters (%)")
    figures.letter(right, "SEC does not fall as short only does")
    right.legend(loc="lower right", fontsize=8.5, frameon=False)
    return fig, drawn
