"""What lesson 15 draws."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dmlkit import ROOT, figures

Array = np.ndarray
TRAINED, LUCK = figures.RIGHT, "0.72"
LOSSES = ("triplet_semihard", "multi_similarity", "normalized_softmax")


def families(glyphs: Sequence[str]) -> Array:
    """Characters of one base letter, as É and é, by their Unicode names: C names -> (C,)."""
    base = [re.sub(r"\b(SMALL|CAPITAL) ", "", name.partition(" WITH ")[0]) for name in glyphs]
    return np.unique(base, return_inverse=True)[1]


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
            if x - last > 9:  # a wide glyph's width
                sign = unicodedata.lookup(glyphs[c])
                axes.text(x, row, sign, fontsize=15, ha="center", va="center", color="0.15")
                last = x
        mean = 100 * length[own].mean()
        axes.plot(100 * length[own], [row - 0.4] * len(own), "|", color="0.6", ms=5, zorder=0)
        axes.plot(mean, row - 0.4, "^", color=TRAINED, ms=8, mec="white", zorder=3)
    axes.axvline(100, color="0.6", lw=1, ls=":", zorder=0)
    ends = 100 * length.min() - 5, 100 * length.max() + 5
    axes.set(xlim=ends, ylim=(-0.85, len(order) - 0.3))
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
    limit = 100 * float(np.percentile(shuffled, 95))
    fig, axes = plt.subplots(figsize=(6.4, 3.0))
    top = 1.02 * max(shares["characters dealt"])
    axes.axvspan(limit, top, color="0.93", zorder=0, lw=0)
    axes.axvline(limit, color="0.3", lw=1.2, ls="--")
    for (name, values), ink in zip(shares.items(), (figures.WRONG, TRAINED), strict=True):
        high, *_ = axes.hist(values, [*np.linspace(0, top, 55)], color=ink, alpha=0.75)
        x, y = float(np.percentile(values, 97)), 0.62 * float(np.max(high))
        x = max(x, 1.12 * limit)
        axes.text(x, y, name.replace(" ", "\n"), color=ink, fontsize=9.5, fontweight="bold")
    count = axes.get_ylim()[1]
    axes.plot(hundred, np.full(len(hundred), 1.06 * count), "|", color="black", ms=8)
    at = 1.03 * float(hundred.max()), 1.06 * count
    axes.text(*at, "100 more deals", ha="left", va="center", fontsize=9)
    axes.set(xlim=(0, top), ylim=(0, 1.13 * count), xlabel="share of the variance (%)",
             ylabel="of 500 shuffles or deals")  # fmt: skip
    title = f'{findings} of 100 random deals are "findings"'
    axes.set_title(title, loc="left", fontweight="bold")
    drawn = {name: figures.example(float(v.mean())) for name, v in shares.items()}
    return fig, drawn | {"findings of 100": figures.sample([findings])}


#: What is dealt, as the verdict names it.
_ROWS = {"length, trained": "lengths,\ntrained", "length, untrained": "lengths,\nrandom weights",
         "found, trained": "Recall@1,\ntrained"}  # fmt: skip


def answer(
    luck: Mapping[str, Array],
    numbers: Mapping[str, Any],
    length: Array,
    found: Array,
    groups: Array,
    names: Sequence[str],
) -> Figure:
    """The kind's share minus chance, above what deals give; and length by Recall@1, by kind."""
    fig, (top, low) = plt.subplots(2, 1, figsize=(6.5, 6.6), height_ratios=(1.2, 1.6))
    rows = {}
    for row, (what, said) in enumerate(_ROWS.items()):
        dealt = luck[what] - luck[what].mean()
        high, bins = np.histogram(dealt, 24)
        top.stairs(row + 0.4 - 0.75 * high / high.max(), bins, baseline=row + 0.4, fill=True,
                   color=LUCK, zorder=0)  # fmt: skip
        ends = numbers["size"][what]
        rows[said] = {"mean": ends["value"], "low": ends["low"], "high": ends["high"]}
    ends = numbers["SEC adds to found"]
    rows["what SEC adds\nto Recall@1's"] = {
        "mean": ends["value"], "low": ends["low"], "high": ends["high"],
    }  # fmt: skip
    figures.spans(top, rows, "points of the variance, minus the mean of the deals")
    top.text(-3.4, 1.1, "random\ndeals", color="0.4", fontsize=9, ha="right", va="center")
    top.set_xlim(-9, 34)
    top.set_title("the kind explains more than deals do", loc="left", fontweight="bold")
    x, y = (_means(values, groups, len(names)) for values in (100 * length, found))
    ends = np.array([x.min() - 6.5, x.max() + 5])
    low.axvline(100, color="0.7", lw=1, zorder=0)
    for across, up, name in zip(x, y, names, strict=True):
        worst = name in ("latin-accented", "math")
        ink = TRAINED if worst else "0.35"
        low.plot(across, up, "o", color=ink, ms=9 if worst else 6, mec="white", zorder=3)
        left = name in _LEFT
        low.annotate(name, (across, up), (-7 if left else 7, _LIFT.get(name, 0)), va="center",
                     textcoords="offset points", ha="right" if left else "left", color=ink,
                     fontsize=10, fontweight="bold" if worst else "normal")  # fmt: skip
    low.set(xlim=ends, xlabel="mean length of the kind, in % of all", ylabel="Recall@1 (%)")
    low.set_title("accented Latin letters are shortest, and found least", loc="left",
                  fontweight="bold")  # fmt: skip
    return fig


#: Kinds whose names stand left of their dots, or higher or lower, so that none overlap.
_LEFT = ("arrows", "symbols", "cyrillic", "numbers")
_LIFT = {"cyrillic": 4, "latin-accented": -3, "georgian": -9}


def _means(values: Array, groups: Array, count: int) -> Array:
    """The mean of each group: (N,), (N,) -> (count,)."""
    return np.bincount(groups, values, count) / np.bincount(groups, minlength=count)


def length_and_recall(
    length: Mapping[str, Array],
    found: Mapping[str, Array],
    groups: Array,
    names: Sequence[str],
    family: Array,
) -> dict[str, Any]:
    """How lengths and Recall@1 of the kinds go together: means, and r with its interval."""
    count, everyone = len(names), np.arange(len(groups))

    def means(way: str, some: Array) -> tuple[Array, Array]:
        return (_means(length[way][some], groups[some], count),
                _means(found[way][some], groups[some], count))  # fmt: skip

    def r(one: Array, other: Array) -> float:
        return float(np.corrcoef(one, other)[0, 1])

    long, often = means("trained", everyone)
    alone = np.flatnonzero(np.bincount(family)[family] == 1)
    rest = np.array([name != "math" for name in names])
    kept = {way: r(*means(way, everyone)) for way in length if way != "trained"} | {
        "within kinds": r(length["trained"] - long[groups], found["trained"] - often[groups]),
        "without math": r(long[rest], often[rest]),
        "alone in a family": r(*means("trained", alone)),
    }
    return {
        "by kind": {
            name: {"length": float(100 * a), "found": float(b)}
            for name, a, b in zip(names, long, often, strict=True)
        },
        "r": {"trained": _jackknife(lambda some: r(*means("trained", some)), family)} | kept,
        "alone": len(alone),
    }


def says_yes(
    values: Array,
    groups: Array,
    share: Callable[[Array, Array], float],
    order: Callable[[np.random.Generator], Array],
    size: float,
) -> int:
    """Of 100 random deals with an effect of this share planted: where the rule says yes."""
    rng, sizes, yes = np.random.default_rng(5), np.sort(groups), 0
    for _ in range(100):
        dealt = np.empty_like(groups)
        dealt[order(rng)] = sizes
        effect = rng.normal(size=groups.max() + 1)[dealt]
        effect *= np.sqrt(size / (1 - size)) * values.std() / effect.std()
        seen = values + effect
        luck = [share(seen[order(rng)], sizes) for _ in range(200)]
        yes += bool(np.mean(np.array(luck) >= share(seen, dealt)) < 0.05)
    return yes


def study() -> tuple[Array, Array, Array]:
    """Of another study: the kind's share minus chance, in points, the same with SEC, the search."""
    table = pd.read_csv(ROOT / "data" / "evidence" / "mechanism.csv").sort_values("repetition")
    plain, even = (
        100 * np.mean([table[table.arm == loss + extra].between for loss in LOSSES], axis=0)
        for extra in ("", " + SEC")
    )
    return plain, even, table[table.arm == LOSSES[0]].search.to_numpy()


def _share(values: Array, groups: Array) -> float:
    """Variance between groups over all of it, in percent."""
    part = np.bincount(groups) / len(groups)
    mean = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return float(100 * (part @ (mean - values.mean()) ** 2 / values.var()))


def _jackknife(statistic: Callable[[Array], float], unit: Array) -> dict[str, float]:
    """The statistic of all characters, and its 95 % interval: each unit is left out once."""
    count, value = unit.max() + 1, statistic(np.arange(len(unit)))
    each = [statistic(np.flatnonzero(unit != u)) for u in range(count)]
    wide = 1.96 * np.sqrt((count - 1) * np.var(each))
    return {"value": value, "low": value - wide, "high": value + wide}


def between(each: Array) -> float:
    """The part of the variance of images (C, 20) that lies between characters, in percent."""
    return float(100 * each.mean(axis=1).var() / each.var())


def evidence(
    shown: Mapping[str, Array], luck: Mapping[str, Array], groups: Array, family: Array
) -> dict[str, Any]:
    """What the kind explains, minus the mean of the deals, and differences; spreads and means."""

    def size(what: str) -> Callable[[Array], float]:
        return lambda some: _share(shown[what][some], groups[some]) - luck[what].mean()

    def less(one: str, other: str) -> dict[str, float]:
        return _jackknife(lambda some: size(one)(some) - size(other)(some), family)

    sizes = {what: _jackknife(size(what), family) for what in shown}
    return {
        "size": sizes,
        "rise by half": sizes["found, trained"]["value"] / 2,
        "fall by half": -sizes["found, trained"]["value"] / 2,
        "training adds": less("length, trained", "length, untrained"),
        "SEC adds to length": less("length, SEC", "length, trained"),
        "SEC adds to found": less("found, SEC", "found, trained"),
        "families": int(family.max() + 1),
        "by chance": {what: float(each.mean()) for what, each in luck.items()},
        "spread": {what: float(v.std()) for what, v in shown.items()},
        "mean": {what: float(v.mean()) for what, v in shown.items()},
    }
