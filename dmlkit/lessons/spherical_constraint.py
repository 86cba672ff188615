"""What lesson 14 measures of its networks, and what it draws."""

from collections.abc import Mapping, Sequence
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
    "fixed size": "#9a7400",
    "relative SEC": figures.RIGHT,
}
WAYS = tuple(INKS)[1:]
#: SEC of a tenth of the weight, recorded alone.
TENTH = "SEC, η = 0.01"
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
    """What trainings told in a run with ``profile = "full"``."""
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


def size(rate: float, steps: int) -> float:
    """A weight of the last layer after steps of Adam of unrelated directions.

    >>> round(size(0.02, 60), 2), round(size(0.1, 60), 2)
    (0.16, 0.78)
    """
    return float(np.sqrt(START**2 + steps * rate**2))


def reach(found: Found, way: str) -> np.ndarray:
    """Rate over the mean norm at the end, by rate."""
    rates, norms = _curves(found, 1)[way]
    return np.array(rates) / norms.mean(axis=1)


def _curves(found: Found, k: int) -> dict[str, tuple[list[float], np.ndarray]]:
    """A column of ``found``: way -> its rates, and the values (rates, R)."""
    curves = {}
    for way in INKS:
        rates = sorted(rate for which, rate in found if which == way and rate > 0)
        if rates:
            curves[way] = rates, np.stack([found[way, rate][:, k] for rate in rates])
    return curves


def _decades(axes: Axes, rates: Sequence[float]) -> None:
    """A logarithmic axis of learning rates, with plain decades."""
    axes.set(xscale="log", xlabel="learning rate", xlim=(rates[0] * 0.75, rates[-1] * 2.7))
    axes.set_xticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
    axes.minorticks_off()


def _names(axes: Axes, x: float, heights: Sequence[float]) -> None:
    """Write the names of the ways, one below the other, each in its color."""
    for (way, ink), y in zip(INKS.items(), heights, strict=True):
        axes.text(x, y, SAID.get(way, way), color=ink, va="center", fontweight="bold")


def brake(found: Found, steps: int) -> tuple[Figure, dict[str, Any]]:
    """Norms at the end and rate/norm by learning rate, beside the formula."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.2), layout="constrained")
    for way, (rates, each) in _curves(found, 1).items():
        look: Any = {"color": INKS[way], "ms": 4.5, "lw": 2}
        left.plot(rates, each.mean(axis=1), "o-", **look)
        right.plot(rates, reach(found, way), "o-", **look)
    before = float(found["none", 0.0][:, 1].mean())
    formula = {rate: before * size(rate, steps) / START for rate in rates}
    left.plot([*formula], [*formula.values()], color="0.2", ls="--", lw=1.4, zorder=4)
    right.plot([*formula], [x / y for x, y in formula.items()], color="0.2", ls="--", zorder=4)
    for axes in (left, right):
        _decades(axes, rates)
        axes.set_yscale("log")
    left.set(ylim=(1, 400), ylabel="mean norm at the end")
    left.set_yticks([1, 10, 100], ["1", "10", "100"])
    right.set(ylim=(2e-4, 0.1), ylabel="rate / norm")
    right.set_yticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
    for axes in (left, right):
        axes.minorticks_off()
    _names(left, 9e-4, (240, 140, 82, 48))
    right.text(0.011, 1.25e-3, "formula (dashed)", color="0.2", va="center")
    figures.letter(left, "SEC holds embeddings short")
    figures.letter(right, "so its steps reach further")
    drawn: dict[str, Any] = {"0": before} | {f"{rate:g}": n for rate, n in formula.items()}
    reached = {
        way: {f"{rate:g}": float(x) for rate, x in zip(swept, reach(found, way), strict=True)}
        for way, (swept, _) in _curves(found, 1).items()
    }
    return fig, {"formula": figures.example(drawn), "reach": figures.example(reached)}


def factor(logs: Mapping[str, np.ndarray], way: str, over: str = "none") -> dict[str, float]:
    """Tolerated rates of a way over those of another: mean, low and high."""
    row = figures.summary(logs[way] - logs[over], OVERLAP)
    return {k: float(10 ** row[k]) for k in ("mean", "low", "high")}


def _ratios(axes: Axes, logs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Draw tolerated rates over those without a constraint, on a logarithmic axis."""
    rows = {SAID.get(way, way): logs[way] - logs["none"] for way in WAYS}
    drawn = figures.gains(axes, rows, "largest tolerated rate / the plain loss's", OVERLAP)
    for k, (text, way) in enumerate(zip(list(axes.texts), WAYS, strict=True)):
        text.set_text("{mean:.2f} [{low:.2f}, {high:.2f}]".format(**factor(logs, way)))
        inked: list[Any] = [text, *axes.lines[1 + 3 * k : 4 + 3 * k]]
        plt.setp(inked, color=INKS[way])
    axes.set_xticks(np.log10([0.125, 0.25, 0.5, 1, 2]), ["1/8", "1/4", "1/2", "1", "2"])
    return drawn


def apart(found: Found, way: str, other: str) -> dict[str, float]:
    """Mean Recall@1 of a way minus that of another at the same rate/norm, by rate, if it has it."""
    x, y = (np.log(reach(found, each)) for each in (other, way))
    (_, level), (rates, each) = _curves(found, 0)[other], _curves(found, 0)[way]
    order = np.argsort(x)
    same = np.interp(y, x[order], level.mean(axis=1)[order])
    gap = dict(zip(map("{:g}".format, rates), each.mean(axis=1) - same, strict=True))
    return {rate: float(v) for (rate, v), at in zip(gap.items(), y, strict=True) if at <= x.max()}


def answer(
    found: Found, mine: Found, logs: Mapping[str, np.ndarray]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by rate and by rate/norm, beside the page's own trainings, and tolerated rates."""
    fig = plt.figure(figsize=(7.4, 6.2), layout="constrained")
    grid = fig.add_gridspec(2, 2, height_ratios=(1.6, 1))
    left, right = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[0, 1])
    below = fig.add_subplot(grid[1, :])
    for way, (rates, each) in _curves(found, 0).items():
        look: Any = {"color": INKS[way], "ms": 4.5, "lw": 2}
        left.plot(rates, each.mean(axis=1), "o-", **look)
        right.plot(reach(found, way), each.mean(axis=1), "o-", **look)
    for way, (own, each) in _curves(mine, 0).items():
        cross: Any = {"color": INKS[way], "ms": 6, "mew": 1.4, "zorder": 5}
        left.plot(own, each.mean(axis=1), "x", **cross)
        right.plot(reach(mine, way), each.mean(axis=1), "x", **cross)
    level = float(_curves(found, 0)["none"][1].max(axis=0).mean()) - LOST
    for axes in (left, right):
        axes.axhline(level, color="0.3", lw=1.2, ls=":", zorder=1)
        axes.set(ylim=(50, 100))
    _decades(left, rates)
    left.set(ylabel="Recall@1, unseen characters (%)")
    right.set(xscale="log", xlabel="rate / norm")
    right.set_xticks([0.001, 0.01], ["0.001", "0.01"])
    right.minorticks_off()
    _names(left, 9e-4, (72, 67, 62, 57))
    figures.letter(left, "SEC falls at smaller rates")
    figures.letter(right, "by rate / norm: alike above 85 %")
    drawn = samples(found)
    drawn["log ratio"] = _ratios(below, logs)
    drawn["ratio"] = {way: factor(logs, way) for way in logs if way != "none"}
    drawn["SEC over fixed size"] = factor(logs, "SEC", "fixed size")
    drawn["at one reach"] = apart(found, "SEC", "fixed size")
    figures.letter(below, "with SEC, a smaller rate is tolerated")
    return fig, drawn | {"printed": printed()}
