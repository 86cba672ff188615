"""Which loss: what the studies say to someone who has to choose one, in groups and settings.

A ranking to a tenth of a point says more than a study can. So losses come in groups: the leading
one, whose members are not separated from the best, and then bands of two points.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit import statistics
from dmlkit.statistics import Luck
from studies import confirm
from studies.answers import TWICE, restricted
from studies.claims import AGAIN, FEW, LEVEL, WHOLE, unequal
from studies.condition import UNTRAINED, Condition, plain, untrained
from studies.judgment import sensitivity
from studies.rules import protocol
from studies.search import recipes
from studies.trainings import tables

HAIR = 0.005  # of p: as far from 5 % a loss is named
BAND = 0.02  # of Recall@1: the width of the bands behind the best
#: The conditions of a page, each with the tables that have its searches.
SHOWN: Mapping[str, tuple[str, ...]] = {
    WHOLE: ("photos_whole",),
    "photographs, head": ("photos",),
    "fine-tuned": ("transfer",),
    AGAIN: TWICE,
}


def standings(at: Condition, luck: Luck | None = None) -> pd.DataFrame:
    """Every loss of a condition against the best, the highest mean first.

    Columns: mean, low, high of Recall@1 (95 %); behind (of the best, in Recall@1), error and df of
    that difference, p (of not being behind, after Holm's correction over all losses of which
    something is said) and group: 0 for the leading one, whose p is above 5 %, else the number of
    the band, −1 for a loss whose search failed, which nothing is said of, and −2 for one that did
    not train.

    The best is chosen for each repetition by those of other searches, and the luck of a recipe
    counts on both sides: what leads by its own luck does not lead here. ``luck`` is the condition's
    own estimate where no other is given.
    """
    wide = at.rivals()
    wide = wide[plain(wide.columns)].dropna(axis=1)
    searches = at.searches[wide.index].to_numpy()
    best = pd.Series(index=wide.index, dtype=float)
    for s in np.unique(searches):
        best[searches == s] = wide.loc[searches == s, wide[searches != s].mean().idxmax()]
    d = best.to_numpy()[:, None] - wide.to_numpy()
    tests = statistics.paired(d, overlap=at.overlap, luck=luck or at.luck(), searches=searches)
    found = wide.apply(statistics.interval, overlap=at.overlap).T[["mean", "low", "high"]]
    found["behind"] = tests["difference"].to_numpy()
    found[["error", "df"]] = tests[["error", "df"]].to_numpy()
    lost = {arm: -1 for arm, search in at.failed if (arm, search) not in at.better}
    lost |= {arm: -2 for (arm, _), why in at.failed.items() if why == UNTRAINED}
    p = np.where(tests["difference"] > 0, tests["p"], 1.0)
    found["p"] = statistics.holm(np.where(found.index.isin([*lost]), np.nan, p))
    behind = (found["behind"] / BAND).clip(lower=0).astype(int) + 1
    found["group"] = behind.where(found["p"] <= LEVEL, 0)
    for arm in lost.keys() & {*found.index}:
        found.loc[arm, "group"] = lost[arm]
    return found.sort_values("mean", ascending=False, kind="stable")


def title(group: float) -> str:
    """A group in words.

    >>> title(0), title(3), title(-1)
    ('not separated from the best', '4 to 6 points behind', 'a search failed')
    """
    band = 100 * BAND
    words = {0: "not separated from the best", -1: "a search failed"}
    words[-2] = f"did not train here ({UNTRAINED})"
    return words.get(int(group), f"{band * (group - 1):.0f} to {band * group:.0f} points behind")


def by_group(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The ``standings`` in groups with their titles, what failed and what did not train last."""
    parts = sorted(table.groupby("group"), key=lambda part: (part[0] < 0, abs(part[0])))
    return [(title(group), part) for group, part in parts]


class Power(NamedTuple):
    """In which share of such studies a loss that is behind the best would be separated from it:
    ``alone``, if it were the only rival, and ``corrected``, at the first step of Holm's correction
    for all of the ``rivals``."""

    alone: float
    corrected: float
    rivals: int

    def __str__(self) -> str:
        return (
            f"{100 * self.alone:.0f} of 100 such studies by one comparison, in "
            f"{100 * self.corrected:.0f} after correction for {self.rivals} rivals"
        )


def power(table: pd.DataFrame, points: float = 0.03) -> Power:
    """That of a loss so far behind, by the median error of the ``standings``."""
    error, df = table["error"].median(), table["df"].median()
    rivals = int(table["p"].notna().sum()) - 1
    edges = stats.t.ppf([1 - LEVEL / 2, 1 - LEVEL / 2 / rivals], df)
    alone, corrected = stats.nct.sf(edges, df, points / error)
    return Power(float(alone), float(corrected), rivals)


def ranks(at: Condition, draws: int = 2000) -> pd.DataFrame:
    """95 % intervals of the ranks of the losses that trained, each for itself: low, high.

    Of losses that lie close together most of the spread is error. So a loss is where its mean m̂,
    drawn towards the mean c of all as far as errors explain their spread, lets it be (Efron and
    Morris 1975, Journal of the American Statistical Association 70:311):

        m | m̂ ~ N(c + B (m̂ − c), B σ²),   B = 1 − σ²/V

    with V the variance of all m̂ and σ² that of an error, by ``statistics.paired``. Ranks are those
    of draws; benchmarks/ranks.py tells how often the intervals are right.
    """
    wide, rng, lost = at.rivals(), np.random.default_rng(0), untrained(at.wide().mean())
    wide = wide[[arm for arm in plain(wide) if arm not in lost]].dropna(axis=1)
    mean, A = wide.mean(), len(wide.columns)
    rest = wide.sub(wide.mean(axis=1), axis=0).to_numpy() * math.sqrt(A / (A - 1))
    how: Any = {"overlap": at.overlap, "luck": at.luck(), "pairs": 0.5}
    searches = at.searches[wide.index].to_numpy()
    error = (statistics.paired(rest, searches=searches, **how)["error"] ** 2).mean()
    B = max(1e-6, 1 - error / mean.var())  # above 0, so that equals have drawn places
    drawn = B * (mean - mean.mean()).to_numpy() + math.sqrt(B * error) * rng.standard_normal(
        (draws, A)
    )
    rank = 1 + (-drawn).argsort(1).argsort(1)
    ends = np.quantile(rank, [0.025, 0.975], axis=0).round().astype(int)
    found = pd.DataFrame(ends.T, wide.columns, ["low", "high"])
    return found.loc[mean.sort_values(ascending=False).index]


def settings(*passes: str) -> pd.DataFrame:
    """What searches chose for each loss, and what a blind choice costs.

    Columns: chosen (each setting with its values, one a search), blind and default (how far the
    median of a search's first candidates, and the defaults, lie below the best of them, on
    validation classes after the short trainings).
    """
    trials = pd.concat([tables(name)[0].frame() for name in passes], ignore_index=True)
    tuned = recipes(trials)
    if "scratch" in passes:
        parts = recipes(tables("claims")[0].frame())
        tuned |= {(arm, s): parts[part, s] for (arm, s), (part, _) in restricted(*passes).items()}
    chosen = {}
    for arm in plain(pd.Index(dict.fromkeys(name for name, _ in tuned))):
        mine = [recipe for (name, _), recipe in tuned.items() if name == arm]
        chosen[arm] = ", ".join(
            f"{key.removeprefix('loss_args.')} "
            + "/".join(dict.fromkeys(_short(r[key]) for r in mine))
            for key in mine[0]
        )
    lost = sensitivity(trials)
    blind, default = lost["median_loss"], lost["default_loss"]
    found = {"chosen": pd.Series(chosen), "blind": blind, "default": default}
    return pd.DataFrame(found).dropna()


@cache
def first(table: str) -> dict[str, Mapping[str, Any]]:
    """The settings that the first search of a table chose for each loss."""
    tuned = recipes(tables(table)[0].frame())
    return {arm: recipe for (arm, search), recipe in tuned.items() if search == 0}


def _short(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def leading(found: Mapping[str, Condition]) -> str:
    """Which losses are never shown to be worse than the best, where all conditions have them, and
    on which conditions that rests: those that show another of these to be worse."""
    tables = {name: standings(found[name]) for name in SHOWN if name in found}
    tried = set.intersection(*(set(table.index) for table in tables.values()))
    kept = {arm for arm in tried if all(table["group"][arm] == 0 for table in tables.values())}
    best = next(iter(tables.values()))["mean"]  # of whole networks, the highest first
    names = [f"`{arm}`" for arm in best.index if arm in kept]
    means = best[best.index.isin(kept)]
    reach = " to ".join(dict.fromkeys(f"{100 * end:.0f}" for end in (means.min(), means.max())))
    apart = {k: table for k, table in tables.items() if (table["group"][[*tried]] > 0).any()}
    few = [
        name
        for name in tables
        if statistics.effective(len(found[name].wide()), found[name].overlap) < FEW
    ]
    near = [_behind(arm, row) for table in apart.values() for arm, row in table.iterrows()
            if arm in kept and row["behind"] > row["error"]]  # fmt: skip
    return (
        f"Of the {len(tried)} losses that were searched in all {len(tables)} conditions below, "
        f"{len(kept)} were shown in none of them to be worse than the best: {', '.join(names)}. "
        f"This rests on {len(apart)} of the {len(tables)}, *{', '.join(apart)}*: the others show "
        f"none of the {len(tried)} to be worse"
        + f" (*{', '.join(few)}* can show nothing: too few effective repetitions)" * bool(few)
        + ". "
        + f"There, by one comparison, {', '.join(near)}. " * bool(near)
        + f"On products, fine-tuned, these reach {reach} % Recall@1. "
        + confirm.rivals([arm for arm in best.index if arm in kept])
    ).rstrip()


def _behind(arm: object, row: pd.Series) -> str:
    """How far a loss is behind the best, and the 95 % interval of that, uncorrected."""
    reach = stats.t.ppf(1 - LEVEL / 2, row["df"]) * row["error"]
    ends = (row["behind"], row["behind"] - reach, row["behind"] + reach)
    points, low, high = (100 * end for end in ends)
    return f"`{arm}` is {points:.1f} points [{low:.1f}, {high:.1f}] behind"


def markdown(found: Mapping[str, Condition]) -> str:
    """The page's part: how much the choice matters, the groups, the settings."""
    parts = ["\n".join(f"- {line}" for line in _in_words(found))]
    for name, passes in SHOWN.items():
        if name in found:
            parts += [f"## {name[0].upper()}{name[1:]}", _groups(found[name]), _settings(*passes)]
    return "\n\n".join(parts)


def _in_words(found: Mapping[str, Condition]) -> Iterator[str]:
    for name in SHOWN:
        if name in found:
            at, table, rank = found[name], standings(found[name]), ranks(found[name])
            told, dead = power(table), table.index[table["group"] == -2]
            table = table.drop(index=dead)
            low, high = 100 * table["mean"].quantile([0.1, 0.9])
            n = statistics.effective(len(at.wide()), at.overlap)
            close = [
                f"`{arm}` (p {p:.3f})" for arm, p in table["p"].items() if abs(p - LEVEL) < HAIR
            ]
            few = f"repetitions share classes and count as {n:.1f}, so that no group is told: "
            group = f"{few if n < FEW else ''}{(table['group'] == 0).sum()} of {len(table)}"
            lost = ", ".join(f"`{arm}`" for arm in dead)
            yield (
                f"**{name}**{unequal(name)}: {group} losses cannot be separated from the best"
                + f" (by a hair in or out: {', '.join(close)})" * bool(close)
                + f"; a loss 3 points behind would be found in {told}. "
                "The 95 % interval of a rank (not corrected for many) spans "
                f"{(rank['high'] - rank['low']).median():.0f} places in the median. Four in "
                f"five losses have a Recall@1 of {low:.0f} to {high:.0f} %. "
                + f"Not counted, as they did not train here: {lost}. " * bool(lost)
                + f"{_costs(name)} {_floor(at)}"
            )


def _costs(name: str) -> str:
    blind, default = 100 * settings(*SHOWN[name])[["blind", "default"]].median()
    return (
        f"A blind choice costs the median loss at most {blind:.1f} points, the defaults at most "
        f"{default:.1f}."
    )


def _floor(at: Condition) -> str:
    means = at.wide().mean()
    untrained = ("untrained network", "random head", "raw pixels")
    names = ("untouched features", "pretrained network", *untrained)
    pixels = " (128 pixels)" if "fine-tuned" in at.name else " (224 pixels)"
    told = [
        f"{name}{pixels * (name == names[0])} {100 * means[name]:.0f} %"
        for name in names
        if name in means
    ]
    return f"Without training: {', '.join(told)}."


def _groups(at: Condition) -> str:
    rank = ranks(at)
    head = "losses, by their mean (95 % interval of the rank, not corrected for many)"
    lines = [f"| group | {head} | Recall@1 (%) |", "|---|---|---|"]
    for words, part in by_group(standings(at)):
        ends = (f"{100 * mean:.0f}" for mean in (part["mean"].min(), part["mean"].max()))
        span = " to ".join(dict.fromkeys(ends))
        place = {arm: f" ({low}–{high})" for arm, low, high in rank.itertuples()}
        if part["group"].iloc[0] < 0:
            place = dict.fromkeys(part.index, "")  # nothing is said of it
        names = [f"`{name}`{place[name]}" for name in part.index]
        lines.append(f"| {words} | {', '.join(names)} | {span} |")
    n, luck = len(at.wide()), at.luck().sd / np.sqrt(2)  # of one loss
    unit = "classes" if at.name.startswith("photographs") else "repetitions"
    return "\n".join(lines) + (
        f"\n\n{n} {unit} (effective {statistics.effective(n, at.overlap):.1f}), "
        f"{at.searches.nunique()} searches; another search moves a loss by "
        f"{100 * luck:.1f} points (one standard deviation), which the test counts."
    )


def _settings(*passes: str) -> str:
    lines = ["<details><summary>Chosen settings, and what a blind choice costs</summary>", ""]
    head = "a blind choice costs (points) | the defaults cost"
    lines += [f"| loss | chosen (where the searches differ, each) | {head} |"]
    lines += ["|---|---|---|---|"]
    for name, row in settings(*passes).sort_index().iterrows():
        costs = f"{100 * row['blind']:.0f} | {100 * row['default']:.0f}"
        lines.append(f"| `{name}` | {row['chosen']} | {costs} |")
    steps = protocol(passes[0]).tuning.short_steps
    blind = f"Blind: the median of a search's first candidates after {steps} steps, all settings at"
    blind += " once. Both lie below the best of these, luck and all, on validation classes."
    return "\n".join([*lines, "", blind, "", "</details>"])
