"""What lesson 14 measures of its networks, and what it draws."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Annulus
from torch import Tensor

from dmlkit import ROOT, figures, losses, models
from dmlkit.losses.spherical import SphericalConstraint

#: Colors of eight characters in the first picture.
EIGHT = (
    *("#009e73", "#e69f00", "#56b4e9", "#d55e00"),
    *("#8f6bb3", "#c0304a", "0.45", "#8a8a2b"),
)  # fmt: skip
#: Ways to train, as they are written, and their colors.
INKS = {
    "none": "0.35",
    "SEC": "#d55e00",
    "relative SEC": figures.RIGHT,
    "SEC, η = 0.01": "#9a7400",
}
WAYS = tuple(INKS)[1:]
SAID = {"none": "no constraint", "SEC": "SEC, η = 0.1"}
#: What widens an interval: seven eighths of the characters are learned, one eighth is searched.
OVERLAP = 1 / 8
#: How SEC's repository writes the multi-similarity loss.
PRINTED = "MS"


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
    drawn, colors = {}, np.repeat(np.array(EIGHT), 20)
    for axes, (way, weight) in zip(body.subplots(1, 2), (("none", 0), ("SEC", 0.1)), strict=True):
        f = _flat(images, weight, steps)
        f = f / np.linalg.norm(f, axis=1).mean()  # each in its own scale
        spread = float(np.linalg.norm(f, axis=1).std())
        drawn[way] = figures.example({"spread": spread})
        band: Any = {"color": INKS[way], "alpha": 0.15, "lw": 0}
        axes.add_patch(Annulus((0, 0), 1 + spread, 2 * spread, **band))
        axes.plot(0, 0, "+", color="0.5", ms=8, zorder=0)
        axes.scatter(*f.T, s=9, alpha=0.8, c=list(colors), lw=0, zorder=2)
        axes.set(aspect="equal", xlim=(-2.2, 2.2), ylim=(-1.6, 1.7))
        axes.set_axis_off()
        said = f"{SAID.get(way, f'{way}, η = {weight:g}')}: norms spread by {100 * spread:.0f} %"
        axes.set_title(said, color=INKS[way], fontweight="bold", fontsize=10)
    return fig, drawn


def _race(laps: int = 100, lr: float = 0.05) -> np.ndarray:
    """Four free embeddings turn to 90° by SGD: -> (laps + 1, 4, 2)."""
    path = [np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])]
    for _ in range(laps):
        n = np.linalg.norm(path[-1], axis=1, keepdims=True)  # (4, 1)
        x = path[-1] / n
        path.append(path[-1] + lr * (np.array([0.0, 1.0]) - x[:, 1:] * x) / n)
    return np.stack(path)


def race() -> tuple[Figure, dict[str, Any]]:
    """Four embeddings after 100 steps without a constraint, and both penalties by their scale."""
    fig, (axes, chart) = plt.subplots(1, 2, figsize=(6.5, 2.95))
    path = _race()
    axes.plot([0, 0], [0, 3], color="0.6", ls=":", lw=1.2)
    axes.text(0.06, 3.05, "target, 90°", color="0.4", va="top")
    for k, ink in enumerate(("#56b4e9", "#009e73", "#8f6bb3", "#e69f00")):
        axes.plot(*path[:, k].T, color=ink, lw=1.6, alpha=0.6)
        axes.plot(*path[0, k], "o", mfc="white", mec=ink, ms=5.5, zorder=3)
        props = {"arrowstyle": "-|>", "color": ink, "lw": 2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", path[-1, k], (0, 0), arrowprops=props)
        turned = np.degrees(np.arctan2(path[-1, k, 1], path[-1, k, 0]))
        axes.text(*path[-1, k] + (0.1, 0.08), f"{turned:.0f}°", color=ink, fontweight="bold")
    axes.set(aspect="equal", xlim=(-0.15, 4.75), ylim=(-0.25, 3.2))
    axes.set_axis_off()
    axes.set_title("no constraint: long ones lag", loc="left", fontweight="bold")
    scales, norms = np.linspace(0, 3, 61), torch.arange(1.0, 5.0)[:, None]
    drawn = {}
    for way, y in (("SEC", 5.0), ("relative SEC", 0.9)):
        penalty = SphericalConstraint(1.0, relative=way != "SEC")
        values = [penalty(c * norms).item() for c in scales[1:]]
        chart.plot(scales[1:], values, color=INKS[way], lw=2.5)
        chart.text(1.75, y, way, color=INKS[way], ha="right" if y > 1 else "left", weight="bold")
        drawn[way] = figures.example({f"{c:g}": penalty(c * norms).item() for c in (1, 2, 3)})
    chart.set(xlim=(0, 3.05), ylim=(0, 12), xticks=range(4))
    chart.set(xlabel="scale of all four embeddings", ylabel="penalty of weight 1")
    chart.set_title("SEC grows with the scale", color=INKS["SEC"], loc="left", fontweight="bold")
    return fig, drawn


#: How many points below the plain loss's best a tolerated rate may cost.
LOST = 5.0
#: What a training tells, by column.
TOLD = "Recall@1", "norm at the end", "spread of norms"
#: (way, rate) -> what trainings tell (R, 3).
Found = Mapping[tuple[str, float], np.ndarray]


def samples(found: Found) -> dict[str, Any]:
    """What trainings told, as samples by column, way and rate."""
    rows: dict[str, Any] = {name: {} for name in TOLD}
    for (way, rate), each in found.items():
        for k, name in enumerate(TOLD):
            rows[name].setdefault(way, {})[f"{rate:g}"] = figures.sample(each[:, k])
    return rows


def recorded() -> Found:
    """What trainings told in a run with ``profile = "full"``; at the rate 0: before training."""
    kept, _ = figures.recorded("14_answer")
    return {
        (way, float(rate)): np.stack([kept[name][way][rate] for name in TOLD], 1)
        for way, row in kept[TOLD[0]].items()
        for rate in row
    }


#: Colors of SEC's weights from random weights of the network.
BY_WEIGHT = {0.0: "0.35", 1e-4: "#56b4e9", 1e-3: "#009e73", 0.01: "#9a7400", 0.1: "#d55e00"}


def weights() -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation characters by rate, from random weights, for five weights of SEC."""
    scores: dict[float, dict[float, list[float]]] = {}
    for start, loss, by, way, weight, rate, _, score, *_ in _tried():
        if (start, by, loss[:4]) == ("random", "adam", "semi") and way in ("none", "SEC"):
            scores.setdefault(weight, {}).setdefault(rate, []).append(score)
    fig, axes = plt.subplots(figsize=(6.4, 3.0))
    for weight, ink in BY_WEIGHT.items():
        row = {rate: float(np.mean(each)) for rate, each in sorted(scores[weight].items())}
        axes.plot([*row], [*row.values()], "o-", color=ink, ms=4.5, lw=2)
        x, y = {0.1: (0.045, 8), 0.01: (1.2, 9), 1e-3: (1.2, 19), 1e-4: (1.2, 29)}.get(
            weight, (3.5, row[max(row)])
        )
        said = f"η = {weight:g}" if weight else "no constraint"
        axes.text(x, y, said, color=ink, va="center", fontweight="bold")
    axes.set(xscale="log", xlim=(0.0025, 30), ylim=(0, 100), xlabel="learning rate")
    axes.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    axes.minorticks_off()
    axes.set_ylabel("Recall@1, validation (%)")
    figures.letter(axes, "each tenth of η moves the fall to larger rates")
    return fig, {
        f"{weight:g}": {f"{k:g}": x for k, x in row.items()} for weight, row in scores.items()
    }


def _tried() -> list[Any]:
    """The search on validation characters, a row for each training."""
    tried: list[Any] = figures.recorded("14_search")[0]["tried"]
    return tried


def printed() -> float:
    """What SEC's repository prints that SEC gains with its loss, the mean of four data sets."""
    table = pd.read_csv(ROOT / "data" / "reported" / "extra_sec_repo_results.csv")
    value = table[table.metric == "R@1"].groupby("method").value.mean()
    return float(value[f"{PRINTED}+SEC"] - value[PRINTED])


#: The size of a weight of the last layer before training: 1/√(3 · 384), of 384 inputs.
START = (3 * 384) ** -0.5


def grown(rate: float, steps: int) -> float:
    """By how much steps of Adam of unrelated directions make a weight grow.

    >>> round(grown(0.05, 100), 1)
    17.0
    """
    return float(np.sqrt(START**2 + steps * rate**2) / START)


def _curves(found: Found, k: int) -> dict[str, tuple[list[float], np.ndarray]]:
    """A column of ``found``: way -> its rates, and the values (rates, R)."""
    curves = {}
    for way in INKS:
        rates = sorted(rate for which, rate in found if which == way and rate > 0)
        if rates:
            curves[way] = rates, np.stack([found[way, rate][:, k] for rate in rates])
    return curves


def _lines(axes: Axes, found: Found, k: int, ends: Mapping[str, float]) -> None:
    """Means and networks by rate, a line for each way; its name stands at the height ``ends``."""
    for way, (rates, each) in _curves(found, k).items():
        ink = INKS[way]
        axes.plot(rates, each, ".", color=ink, ms=4, alpha=0.3, mew=0)
        axes.plot(rates, each.mean(axis=1), "o-", color=ink, ms=4.5, lw=2)
        if way in ends:
            style: Any = {"color": ink, "va": "center", "fontweight": "bold"}
            axes.text(rates[-1] * 1.2, ends[way], SAID.get(way, way), **style)
    axes.set(xscale="log", xlabel="learning rate", xlim=(rates[0] * 0.8, rates[-1] * 11))
    decades = [rate if np.isclose(np.log10(rate) % 1, [0, 1]).any() else None for rate in rates]
    axes.set_xticks(rates, ["" if rate is None else f"{rate:g}" for rate in decades])
    axes.minorticks_off()


def brake(found: Found, steps: int) -> tuple[Figure, dict[str, Any]]:
    """Mean norms at the end of training by learning rate, beside the formula."""
    fig, axes = plt.subplots(figsize=(6.4, 3.0))
    before = float(found["none", 0.0][:, 1].mean())
    rates = _curves(found, 1)["none"][0]
    formula = {rate: before * grown(rate, steps) for rate in rates}
    axes.plot([*formula], [*formula.values()], color="0.3", ls="--", lw=1.6, zorder=4)
    ends = {"none": 135.0, "relative SEC": 230.0, "SEC": 9.0, "SEC, η = 0.01": 5.2}
    _lines(axes, found, 1, ends)
    axes.text(rates[-1] * 1.2, 78, "formula (dashed)", color="0.3", va="center")
    axes.set(yscale="log", ylim=(1, 500), ylabel="mean norm at the end")
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.minorticks_off()
    figures.letter(axes, "a larger rate makes embeddings longer")
    return fig, {"formula": figures.example({f"{rate:g}": n for rate, n in formula.items()})}


def _apart(found: Found, gap: float) -> dict[str, float]:
    """Heights of the ways' names: their right ends of Recall@1, at least ``gap`` apart."""
    ends = {way: float(each[-1].mean()) for way, (_, each) in _curves(found, 0).items()}
    order = sorted(ends, key=ends.__getitem__)
    for lower, upper in pairwise(order):
        ends[upper] = max(ends[upper], ends[lower] + gap)
    return ends


def _moved(axes: Axes, found: Found) -> dict[str, float]:
    """SEC's curve, √10 to the right: what the formula says of a tenth of its weight."""
    rates, each = _curves(found, 0)["SEC"]
    x = np.array([rate for rate in rates if rate >= rates[0] * np.sqrt(10)])
    y = np.interp(np.log10(x) - 0.5, np.log10(rates), each.mean(axis=1))
    axes.plot(x, y, color=INKS["SEC, η = 0.01"], ls="--", lw=1.8, zorder=4)
    return {f"{rate:g}": float(value) for rate, value in zip(x, y, strict=True)}


def factor(logs: Mapping[str, np.ndarray], way: str) -> dict[str, float]:
    """Tolerated rates of a way over those without a constraint: mean, low and high."""
    row = figures.summary(logs[way] - logs["none"], OVERLAP)
    return {k: float(10 ** row[k]) for k in ("mean", "low", "high")}


def _ratios(axes: Axes, logs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Draw tolerated rates over those without a constraint, on a logarithmic axis."""
    rows = {f"{SAID.get(way, way)}\n: none": logs[way] - logs["none"] for way in WAYS}
    drawn = figures.gains(axes, rows, "tolerated rate, as a multiple of none's", overlap=OVERLAP)
    for text, way in zip(list(axes.texts), WAYS, strict=True):
        mean, low, high = factor(logs, way).values()
        text.set_text(f"× {mean:.2f}\n[{low:.2f}, {high:.2f}]")
    axes.set_xticks(np.log10([0.125, 0.25, 0.5, 1, 2]), ["⅛", "¼", "½", "1", "2"])
    return drawn


def answer(
    found: Found, mine: Found, logs: Mapping[str, np.ndarray], large: float
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by rate beside the page's own trainings ``mine``, and ratios of tolerated rates."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.6, 3.9), width_ratios=(1.45, 1), layout="constrained"
    )
    _lines(left, found, 0, _apart(found, 7))
    moved = _moved(left, found)
    for way, (rates, each) in _curves(mine, 0).items():
        left.plot(rates, each.mean(axis=1), "x", color=INKS[way], ms=7, mew=1.5, zorder=5)
    level = float(_curves(found, 0)["none"][1].max(axis=0).mean()) - LOST
    left.plot([0.0008, 0.105], [level, level], color="0.3", lw=1.2, ls=":")
    small, plain = (float(10 ** logs[way].mean()) for way in ("SEC", "none"))
    for x, way in ((small, "SEC"), (plain, "none")):
        left.plot([x, x], [level, 31], color=INKS[way], lw=1.2, ls=":")
        left.plot(x, level, "D", color=INKS[way], ms=9, mec="white", mew=1.2, zorder=6)
    arrow: Any = {"arrowstyle": "-|>", "color": INKS["SEC"], "lw": 2, "shrinkA": 0, "shrinkB": 0}
    left.annotate("", (small, 34), (plain, 34), arrowprops=arrow)
    said: Any = {"color": INKS["SEC"], "ha": "center", "va": "bottom", "fontweight": "bold"}
    left.text((small * plain) ** 0.5, 35.5, f"× {small / plain:.2f}", **said)
    left.set(ylim=(28, 100), ylabel="Recall@1, unseen characters (%)")
    figures.letter(left, "with SEC, Recall@1 falls at smaller rates")
    drawn = samples(found) | {"moved": moved}
    drawn["log ratio"] = _ratios(right, logs)
    drawn["ratio"] = {way: factor(logs, way) for way in WAYS}
    drawn["tolerated"] = figures.example({way: 10 ** float(x.mean()) for way, x in logs.items()})
    figures.letter(right, "the largest tolerated rate")
    drawn["gain"] = {
        way: figures.summary(found[way, large][:, 0] - found["none", large][:, 0], OVERLAP)
        for way in WAYS
    }
    drawn["printed"] = printed()
    return fig, drawn
