"""What lesson 14 measures of its networks, and what it draws."""

from collections.abc import Mapping
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
INKS = {"none": "0.35", "SEC": "#d55e00", "relative SEC": figures.RIGHT}
SAID = {"none": "no constraint"}
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


#: What a training tells, by column; the last is μ² in its first ten steps.
TOLD = "Recall@1", "norm at the end", "spread of norms", "early square"
#: (way, rate, weight) -> what trainings tell (R, 4).
Told = Mapping[tuple[str, float, float], np.ndarray]


def recorded() -> Told:
    """What validation characters said of weights, in a run with ``profile = "full"``."""
    kept, _ = figures.recorded("14_sweep")
    return {
        (way, float(rate), float(weight)): np.stack([kept[k][way][rate][weight] for k in TOLD], 1)
        for way, rows in kept[TOLD[0]].items()
        for rate, row in rows.items()
        for weight in row
    }


def _samples(found: Told, k: int) -> dict[str, Any]:
    """A column of ``found`` as samples, by way, rate and weight."""
    rows: dict[str, Any] = {}
    for (way, rate, weight), each in found.items():
        of = rows.setdefault(way, {}).setdefault(f"{rate:g}", {})
        of[f"{weight:g}"] = figures.sample(each[:, k])
    return rows


def frontier(search: Told) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation characters by the spread of norms, at two rates."""
    rates = sorted({rate for _, rate, _ in search})
    fig, panels = plt.subplots(1, len(rates), figsize=(6.8, 3.1), sharey=True)
    for axes, rate in zip(panels, rates, strict=True):
        for way, ink in INKS.items():
            weights = sorted(w for which, r, w in search if (which, r) == (way, rate))
            mean = np.array([search[way, rate, w].mean(axis=0) for w in weights])
            axes.plot(mean[:, 2], mean[:, 0], "o-", color=ink, lw=2, ms=5)
            for (score, _, spread, _), w in zip(mean, weights, strict=True):
                place, ha = ((7, -10), "left") if way == "SEC" else ((0, 7), "center")
                look: Any = {"textcoords": "offset points", "ha": ha, "fontsize": 8.5}
                axes.annotate(f"{w:g}" if w else "none", (spread, score), place, color=ink, **look)
        axes.set(xlim=(0, 29), ylim=(0, 100), xlabel="spread of norms (%)")
        figures.letter(axes, f"learning rate {rate:g}")
    panels[0].set_ylabel("Recall@1, validation (%)")
    panels[0].text(9.5, 36, "SEC, by η", color=INKS["SEC"], weight="bold")
    panels[0].text(1, 92, "relative SEC, by κ", color=INKS["relative SEC"], weight="bold")
    return fig, {name: _samples(search, k) for k, name in enumerate(TOLD)}


def printed() -> float:
    """What SEC's repository prints that SEC gains with semi-hard triplets, of four data sets."""
    table = pd.read_csv(ROOT / "data" / "reported" / "extra_sec_repo_results.csv")
    value = table[table.metric == "R@1"].groupby("method").value.mean()
    return float(value[f"{PRINTED}+SEC"] - value[PRINTED])


#: The size of a weight before training: 1/√(3 · 512) in a layer of 512 inputs.
START = (3 * 512) ** -0.5


def grown(rate: float, steps: int) -> float:
    """By how much steps of Adam of unrelated directions make a weight grow.

    >>> round(grown(0.03, 100), 1)
    11.8
    """
    return float(np.sqrt(START**2 + steps * rate**2) / START)


def _lines(
    axes: Axes, found: Mapping[tuple[str, float], np.ndarray], k: int, ends: Mapping[str, float]
) -> None:
    """A column of ``found`` by learning rate, a line for each way, with its name at its end."""
    for way, ink in INKS.items():
        rates = sorted(rate for which, rate in found if which == way)
        each = np.stack([found[way, rate][:, k] for rate in rates])  # (rates, networks)
        axes.plot(rates, each, ".", color=ink, ms=4, alpha=0.35, mew=0)
        axes.plot(rates, each.mean(axis=1), "o-", color=ink, ms=5, lw=2)
        if way in ends:
            style: Any = {"color": ink, "va": "center", "fontweight": "bold"}
            axes.text(rates[-1] * 1.15, ends[way], SAID.get(way, way), **style)
    axes.set(xscale="log", xlim=(rates[0] * 0.8, rates[-1] * (7 if ends else 1.3)))
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set(xlabel="learning rate")


def _norms(
    norm: Axes,
    even: Axes,
    found: Mapping[tuple[str, float], np.ndarray],
    formula: Mapping[float, float],
    xlim: tuple[float, float],
) -> None:
    """Mean norms, beside the formula, and their spread by learning rate."""
    norm.plot([*formula], [*formula.values()], color="0.6", ls="--", lw=1.5, zorder=0)
    norm.text(
        max(formula) * 1.15, formula[max(formula)] * 0.8, "formula", color="0.45", va="center"
    )
    _lines(norm, found, 1, {})
    norm.set(yscale="log", ylim=(1, 500), ylabel="mean norm at the end", xlim=xlim)
    norm.set_yticks([1, 10, 100], ["1", "10", "100"])
    norm.minorticks_off()
    figures.letter(norm, "only SEC keeps norms short")
    _lines(even, found, 2, {})
    even.set(ylim=(0, 32), ylabel="spread of norms (%)")
    figures.letter(even, "both make norms even")


def answer(
    found: Mapping[tuple[str, float], np.ndarray],
    floors: Mapping[str, float],
    large: float,
    formula: Mapping[float, float],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1, norms and their spread by learning rate, and differences; found[…] is (R, 4)."""
    fig, ((left, right), (norm, even)) = plt.subplots(
        2, 2, figsize=(7.4, 6.3), width_ratios=(1.1, 1), layout="constrained"
    )
    low, high = min(formula), max(formula)
    ends = {way: float(found[way, high][:, 0].mean()) for way in INKS}
    upper, top = sorted(ends, key=ends.__getitem__)[1:]
    apart = max(8 - ends[top] + ends[upper], 0) / 2  # their names would meet
    _lines(left, found, 0, ends | {upper: ends[upper] - apart, top: ends[top] + apart})
    for name, value in floors.items():
        left.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
        left.text(low, value + 1, name, color="0.35", fontsize=8, va="bottom")
    left.set(ylim=(0, 100), ylabel="Recall@1, unseen characters (%)")
    figures.letter(left, "with SEC, large rates fail")
    pairs = {
        "relative SEC\n− SEC": ("relative SEC", "SEC"),
        "SEC\n− none": ("SEC", "none"),
        "relative SEC\n− none": ("relative SEC", "none"),
    }
    gain = {
        rate: {said: found[a, rate][:, 0] - found[b, rate][:, 0] for said, (a, b) in pairs.items()}
        for rate in (low, large, high)
    }
    drawn: dict[str, Any] = {
        "gain": figures.gains(right, gain[large], f"points, rate {large:g}", overlap=OVERLAP),
    }
    for name, rate in (("low", low), ("top", high)):
        drawn[name] = {
            said.replace("\n", " "): figures.summary(each, OVERLAP)
            for said, each in gain[rate].items()
        }
    figures.letter(right, "strength and shortening together")
    _norms(norm, even, found, formula, left.get_xlim())
    for k, name in enumerate(TOLD):
        rows = drawn.setdefault(name, {})
        for (way, rate), each in found.items():
            rows.setdefault(way, {})[f"{rate:g}"] = figures.sample(each[:, k])
    drawn["floor"], drawn["printed"] = figures.example(dict(floors)), printed()
    drawn["formula"] = figures.example({f"{rate:g}": n for rate, n in formula.items()})
    return fig, drawn
