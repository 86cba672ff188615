"""What lesson 15 draws."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from dmlkit import ROOT, figures

Array = np.ndarray
TRAINED, SEC, LUCK = figures.RIGHT, "#e07b00", "0.72"
LOSSES = ("triplet_semihard", "multi_similarity", "normalized_softmax")


def _order(values: Array, groups: Array) -> Array:
    """Groups by the mean of their values: those with small means first."""
    return (np.bincount(groups, values) / np.bincount(groups)).argsort()


def kinds(length: Array, groups: Array, names: Sequence[str], glyphs: Sequence[str]) -> Figure:
    """Up to nine characters of each kind, from short to long, each at its mean length in %."""
    fig, axes = plt.subplots(figsize=(6.5, 6.2))
    order = _order(length, groups)
    for row, kind in enumerate(order):
        own = np.flatnonzero(groups == kind)
        own = own[length[own].argsort()]
        last = -np.inf
        for c in own[np.linspace(0, len(own) - 1, min(9, len(own))).round().astype(int)]:
            x = 100 * length[c]
            if x - last > 6:  # a glyph's width
                sign = unicodedata.lookup(glyphs[c])
                axes.text(x, row, sign, fontsize=15, ha="center", va="center", color="0.15")
                last = x
        mean = 100 * length[own].mean()
        axes.plot([mean] * 2, [row - 0.5, row - 0.3], color=TRAINED, lw=4, zorder=0)
    axes.axvline(100, color="0.6", lw=1, ls=":", zorder=0)
    ends = 100 * length.min() - 5, 100 * length.max() + 5
    axes.set(xlim=ends, ylim=(-0.7, len(order) - 0.3))
    axes.set_yticks(range(len(order)), [names[kind] for kind in order])
    axes.set_xlabel("length of a character's embeddings, in % of the mean")
    axes.grid(False, axis="y")
    axes.set_title("the kinds' means (blue) differ: by luck?", fontweight="bold", loc="left")
    return fig


def trap(
    each: Array, groups: Array, share: Callable[[Array, Array], float]
) -> tuple[Figure, dict[str, Any]]:
    """Shares by chance of groups (C,) in values (C, 20): images shuffled, or characters dealt."""
    of, each, rng = np.repeat(np.arange(len(each)), 20), each.ravel(), np.random.default_rng(3)
    dealt = [share(each, rng.permutation(groups)[of]) for _ in range(600)]
    shuffled = [share(each, rng.permutation(groups[of])) for _ in range(500)]
    shares = {
        "images shuffled": 100 * np.array(shuffled),
        "characters dealt": 100 * np.array(dealt[:500]),
    }
    hundred = 100 * np.array(dealt[500:])
    findings = int((hundred > 100 * np.percentile(shuffled, 95)).sum())
    fig, axes = plt.subplots(figsize=(5.6, 2.7))
    top = 1.02 * max(shares["characters dealt"])
    for (name, values), ink in zip(shares.items(), (figures.WRONG, TRAINED), strict=True):
        high, *_ = axes.hist(values, [*np.linspace(0, top, 55)], color=ink, alpha=0.7)
        x, y = float(np.percentile(values, 98)), 0.6 * float(np.max(high))
        axes.text(x, y, name.replace(" ", "\n"), color=ink, fontsize=9)
    at: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    axes.plot(hundred, np.full(len(hundred), 1.04), "|", color="black", ms=8, **at)
    axes.set(xlim=(0, top), xlabel="share of the variance (%)", ylabel="of 500 shuffles")
    title = f'{findings} of 100 random deals are "findings"'
    axes.set_title(title, loc="left", fontweight="bold", pad=14)
    drawn = {name: figures.example(float(v.mean())) for name, v in shares.items()}
    return fig, drawn | {"findings of 100": figures.sample([findings])}


def sizes(beyond: Mapping[str, Array]) -> tuple[Figure, dict[str, Any]]:
    """What the kind explains beyond chance in each network, {case: (networks,)} in points."""
    fig, axes = plt.subplots(figsize=(6.2, 2.9))
    drawn = figures.sweep(axes, beyond, {}, TRAINED, "", 1)
    axes.axhline(0, color="0.3", lw=1, zorder=0)
    axes.set(ylabel="share minus chance (points)")
    axes.set_title("what the kind explains of the lengths", loc="left", fontweight="bold")
    return fig, drawn


def _rows(axes: Axes, values: Array, groups: Array, order: Array, ink: str) -> dict[str, float]:
    """A mark at the mean of each group, and a gray bar where luck would put it in 95 of 100."""
    rng, means = np.random.default_rng(4), {}
    for row, kind in enumerate(order):
        own = values[groups == kind]
        luck = [rng.choice(values, len(own), replace=False).mean() for _ in range(1000)]
        axes.plot(np.percentile(luck, (2.5, 97.5)), [row] * 2, color=LUCK, lw=7, zorder=0)
        axes.plot(own.mean(), row, "o", color=ink, ms=8, mew=0, zorder=3)
        means[str(kind)] = float(own.mean())
    axes.set(ylim=(-0.6, len(order) - 0.4))
    axes.grid(False, axis="y")
    return means


def answer(
    length: Array,
    found: Mapping[str, Array],
    groups: Array,
    names: Sequence[str],
    glyphs: Sequence[str],
    floor: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Mean length and Recall@1 of each kind, beside what luck gives; Recall@1 with SEC, too."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.9, 4.6), sharey=True)
    order = _order(length, groups)
    means = _rows(left, 100 * length, groups, order, TRAINED)
    recalls = _rows(right, found["trained"], groups, order, TRAINED)
    with_sec = [float(found["SEC"][groups == kind].mean()) for kind in order]
    right.plot(with_sec, range(len(order)), "D", mfc="white", mec=SEC, mew=1.5, ms=6, zorder=4)
    labels = []
    for kind in map(int, order):
        own = np.flatnonzero(groups == kind)
        own = own[length[own].argsort()][[len(own) // 4, len(own) // 2, 3 * len(own) // 4]]
        signs = " ".join(unicodedata.lookup(glyphs[int(c)]) for c in own)
        labels.append(f"{names[kind]}  {signs}")
    left.set_yticks(range(len(order)), labels)
    left.axvline(100, color="0.6", ls=":", lw=1, zorder=0)
    for name, value in floor.items():
        right.axvline(value, color="0.5", ls=":", lw=1.4, zorder=0)
        right.text(value, len(order) - 0.35, name, fontsize=8, color="0.35", ha="center")
    left.set(xlabel="mean length (% of all)")
    right.set(xlabel="Recall@1 (%)")
    left.set_title("how long: the kind is in it", loc="left", fontweight="bold", pad=16)
    right.set_title("how often found: also with SEC", loc="left", fontweight="bold", pad=16)
    handles = [Line2D([], [], color=LUCK, lw=7), Line2D([], [], marker="o", ls="", ms=8)]
    handles[1].set_color(TRAINED)
    handles += [Line2D([], [], marker="D", ls="", ms=6, mfc="white", mec=SEC, mew=1.5)]
    said = ["luck (95 %)", "kind", "kind, trained with SEC"]
    fig.legend(handles, said, loc="outside lower center", ncols=3, frameon=False)
    named = {names[int(k)]: v for k, v in means.items()}
    return fig, {"length": named, "found": {names[int(k)]: v for k, v in recalls.items()}}


def study() -> tuple[Array, Array, Array]:
    """Of another study: the kind's share minus chance, in points, the same with SEC, the search."""
    table = pd.read_csv(ROOT / "data" / "evidence" / "mechanism.csv").sort_values("repetition")
    plain, even = (
        100 * np.mean([table[table.arm == loss + extra].between for loss in LOSSES], axis=0)
        for extra in ("", " + SEC")
    )
    return plain, even, table[table.arm == LOSSES[0]].search.to_numpy()


def _beyond(values: Array, groups: Array) -> float:
    """Variance between groups over all of it, minus what it is by chance, in points."""
    part = np.bincount(groups) / len(groups)
    mean = np.bincount(groups, values) / np.bincount(groups)
    share = part @ (mean - values.mean()) ** 2 / values.var()
    return float(100 * (share - (len(mean) - 1) / (len(values) - 1)))


def _jackknife(statistic: Callable[[Array], float], count: int) -> dict[str, float]:
    """The statistic of all characters, and its 95 % interval: each is left out once."""
    every, each = np.arange(count), []
    each = [statistic(np.delete(every, c)) for c in every]
    wide, value = 1.96 * np.sqrt((count - 1) * np.var(each)), statistic(every)
    return {"value": value, "low": value - wide, "high": value + wide}


def evidence(shown: Mapping[str, Array], groups: Array, deals: int) -> dict[str, Any]:
    """Beyond chance: what the kind explains, and differences of it; how length goes with Recall."""

    def size(what: str) -> Callable[[Array], float]:
        return lambda some: _beyond(shown[what][some], groups[some])

    def less(one: str, other: str) -> dict[str, float]:
        return _jackknife(lambda some: size(one)(some) - size(other)(some), len(groups))

    means = [
        np.bincount(groups, shown[f"{what}, trained"]) / np.bincount(groups)
        for what in ("length", "found")
    ]
    mix, link = np.random.default_rng(1), stats.pearsonr(*means).statistic
    lucky = [stats.pearsonr(means[0], mix.permutation(means[1])).statistic for _ in range(deals)]
    apart = {
        what: float(np.sqrt(max(0.0, _beyond(v, groups) / 100) * v.var()))
        for what, v in shown.items()
    }
    return {
        "size": figures.example({what: _jackknife(size(what), len(groups)) for what in shown}),
        "training adds": figures.example(less("length, trained", "length, untrained")),
        "training adds to found": figures.example(less("found, trained", "found, untrained")),
        "SEC adds to length": figures.example(less("length, SEC", "length, trained")),
        "SEC adds to found": figures.example(less("found, SEC", "found, trained")),
        "link": figures.example(float(link)),
        "link reached": figures.example(int((np.abs(lucky) >= abs(link)).sum())),
        "apart": figures.example(apart),
        "spread": figures.example({what: float(v.std()) for what, v in shown.items()}),
        "mean": figures.example({what: float(v.mean()) for what, v in shown.items()}),
    }
