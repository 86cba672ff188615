"""What a sealed study says: its hypotheses, and how far each loss lies behind the best.

A cell is a class in a search that tests it; its value is the share of the class's queries that find
their class first, the mean over the better half of the arm's candidates, by validation. Differences
of two arms in the same cells vary from class to class, from search to search (recipes, seed, and
classes that train and validate: the luck of that pair) and from cell to cell; with e the
difference minus its mean over all N cells,

    Var(mean d) = (c/(c−1) Σ_classes (Σ e)² + s/(s−1) Σ_searches (Σ e)² − N/(N−1) Σ e²) / N²

for c classes and s searches (Cameron, Gelbach and Miller 2011, Journal of Business & Economic
Statistics 29:238, "Robust Inference With Multiway Clustering"), with Satterthwaite's degrees of
freedom: nothing is assumed of the luck, and no pair borrows another's.
Where nothing differs it finds 4 to 5 of 100, 7 if folds differ by a point of their own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit import data
from dmlkit.statistics import holm
from studies.rules import Hypothesis, Protocol, protocol, searching
from studies.sealed import primary
from studies.trainings import EVIDENCE

LEVEL = 0.05
#: How a sentence calls the hypotheses of grocery64.toml.
_NAMES = {
    "SEC": "SEC (equal norms)", "SEC, not L2": "SEC minus the L2 penalty",
    "SEE, code": "SEE (synthetic points)",
}  # fmt: skip
#: How the table calls one, and what it says of the size that is printed of another form.
_TITLES = {"SEE, paper": "SEE's sum, by our reading of equation 3"}
_PRINTED = dict.fromkeys(("SEC, not L2", "SEE, paper"), "none of it; held against {:g}")
_DRAWS = 20_000


# Cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcomes:
    """What each candidate of an arm found: ``shares`` (m, S, C), NaN where a search does not test a
    class, and ``validation`` (m, S), by arms; S searches, C ``classes``."""

    shares: Mapping[str, np.ndarray]
    validation: Mapping[str, np.ndarray]
    classes: Sequence[str]

    def first(self, count: int) -> "Outcomes":
        """The same of the first candidates alone."""
        return Outcomes(
            {arm: found[:count] for arm, found in self.shares.items()},
            {arm: found[:count] for arm, found in self.validation.items()},
            self.classes,
        )

    def scores(self, arm: str, by: str | None = None, share: float = 0.5) -> np.ndarray:
        """Of the share of an arm's candidates that validates best (at least one), or that of
        another arm, ``by``: the mean, in percent, (S, C)."""
        validation = self.validation[by or arm]
        ranks = (-validation).argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
        chosen = ranks < max(1, round(share * len(validation)))  # (m, S)
        return (
            100 * np.where(chosen[..., None], self.shares[arm], 0).sum(0) / chosen.sum(0)[:, None]
        )


def outcomes(rules: Protocol, rows: pd.DataFrame, split: str = "test") -> Outcomes:
    """The outcomes of rows (arm, search, candidate, validation, hits); hits are of the split."""
    S, queries = len(rules.searches), []
    for s in range(S):
        args = {**rules.base.get("data_args", {}), **searching(rules, s)["data_args"]}
        images = data.load(rules.base["data"], split, **args)
        counts = np.bincount(images.labels[images.queries], minlength=images.num_classes)
        queries.append(pd.Series(counts, list(images.class_names)))
    classes = sorted(set().union(*(each.index for each in queries)))
    places = [np.searchsorted(classes, each.index) for each in queries]
    shares, validation = {}, {}
    for arm, mine in rows.groupby("arm"):
        m = mine["candidate"].max() + 1
        found, scored = np.full((m, S, len(classes)), np.nan), np.full((m, S), np.nan)
        for row in mine.itertuples():
            hits = [int(n) for n in row.hits.split()] or 0  # what diverged found nothing
            found[row.candidate, row.search, places[row.search]] = hits / queries[row.search]
            scored[row.candidate, row.search] = row.validation
        shares[str(arm)], validation[str(arm)] = found, scored
    return Outcomes(shares, validation, classes)


# One test -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Means:
    """Means (A,) of A differences over their cells, and the three parts of their covariance."""

    mean: np.ndarray
    parts: Sequence[np.ndarray]  # of classes, searches and cells, each (A, A)
    groups: Sequence[int]

    def of(self, weights: Sequence[float] | np.ndarray) -> pd.Series:
        """A sum of the differences: effect, error, df, low, high (95 %), luck (the spread that
        one search adds, in points), least (what four of five such studies would find)."""
        w = np.asarray(weights, dtype=float)
        effect, parts = float(w @ self.mean), [float(w @ part @ w) for part in self.parts]
        *between, cells = parts
        variance = max(sum(between) - cells, *between, 1e-12)
        df = variance**2 / sum(p**2 / (g - 1) for p, g in zip(parts, self.groups, strict=True))
        df, error = min(df, self.groups[0] - 1), variance**0.5
        half, power = (stats.t.ppf(q, df) for q in (1 - LEVEL / 2, 0.8))
        luck = max(0.0, between[1] - cells) * self.groups[1]
        return pd.Series({
            "effect": effect, "low": effect - half * error, "high": effect + half * error,
            "error": error, "df": df, "luck": luck**0.5, "least": (half + power) * error,
        })  # fmt: skip


def means(differences: Sequence[np.ndarray]) -> Means:
    """Means of differences over the same cells, each (S, C) with NaN where there is none."""
    d = np.stack(differences)  # (A, S, C)
    there = ~np.isnan(d).any(0)
    mean = d[:, there].mean(1)
    e = np.where(there, d - mean[:, None, None], 0)
    groups = (there.any(0).sum(), there.any(1).sum(), there.sum())
    sums = (e.sum(1), e.sum(2), e[:, there])  # (A, C), (A, S), (A, N)
    parts = [
        g / (g - 1) * each @ each.T / groups[2] ** 2
        for g, each in zip(groups, sums, strict=True)
    ]  # fmt: skip
    return Means(mean, parts, groups)


# Hypotheses -----------------------------------------------------------------------------------


def hypotheses(rules: Protocol, found: Outcomes) -> pd.DataFrame:
    """One row for each hypothesis whose arms are there.

    Columns: those of ``Means.of``; printed; p and p_printed (that there is no gain; that it is the
    printed one or more), holm and holm_printed (over all hypotheses of the study, by Shaffer's form
    of Holm's correction, as frozen); word and, for each loss left out, the word without it; stands
    (all of these are the same); rest (the mean without the loss that moves it most), own (the
    effect at the base's own choice of recipes), best (of the best candidate alone), all (of all
    candidates), folds and losses (JSON).
    """
    rows = {}
    for name, told in rules.hypotheses.items():
        pairs = [(f"{x}{told.addition}", f"{x}{told.against}") for x in told.losses]
        if all(arm in found.shares for pair in pairs for arm in pair):
            rows[name] = _tested(told, pairs, found, rules)
    frame = pd.DataFrame(rows).T
    if len(frame):
        p = frame[["p", "p_printed"]].astype(float).reindex(list(rules.hypotheses)).fillna(1.0)
        # As frozen: of a row one can be true, that there is no gain or that it is as printed.
        adjusted = pd.DataFrame(holm(p.to_numpy(), most=len(p)), p.index).loc[frame.index]
        frame[["holm", "holm_printed"]] = adjusted.to_numpy()
        words = [_word(row, rules.margin) for _, row in frame.iterrows()]
        frame["word"] = words
        frame["stands"] = [
            set(without) == {word} for without, word in zip(frame["without"], words, strict=True)
        ]
    return frame


def _tested(
    told: Hypothesis, pairs: Sequence[tuple[str, str]], found: Outcomes, rules: Protocol
) -> dict[str, Any]:
    def gains(**how: Any) -> list[np.ndarray]:
        return [found.scores(a, **how) - found.scores(b, **how) for a, b in pairs]

    each, n = gains(), len(pairs)
    all_of = means(each)
    at, rest = all_of.of(np.full(n, 1 / n)), 1 - np.eye(n)
    own = [found.scores(a, by=_base(a)) - found.scores(b, by=_base(a)) for a, b in pairs]
    mean = np.mean(each, axis=0)  # (S, C)
    folds = [searching(rules, s)["data_args"]["fold"] for s in range(len(mean))]
    return {
        **at, "printed": told.printed, **_p(at, told.printed),
        "without": [
            _word({**(x := all_of.of(w / (n - 1))), **_p(x, told.printed), "printed": told.printed},
                  rules.margin)
            for w in rest
        ],
        "rest": _rest(all_of, told.losses), "own": _ends(means(own).of(np.full(n, 1 / n))),
        "best": means(gains(share=0.0)).mean.mean(),
        "all": _ends(means(gains(share=1.0)).of(np.full(n, 1 / n))),
        "folds": json.dumps([round(float(np.nanmean(mean[np.equal(folds, f)])), 2)
                             for f in sorted(set(folds))]),
        "losses": json.dumps(dict(zip(told.losses, all_of.mean.round(2).tolist(), strict=True))),
    }  # fmt: skip


def _rest(all_of: Means, losses: Sequence[str]) -> str:
    """The mean without the loss that moves it most, and its interval."""
    n, mean = len(losses), all_of.mean.mean()
    without = {x: all_of.of((1 - np.eye(n)[i]) / (n - 1)) for i, x in enumerate(losses)}
    name = max(without, key=lambda x: abs(without[x]["effect"] - mean))
    return f"{name}: {_ends(without[name])}"


def _ends(at: pd.Series) -> str:
    return f"{at['effect']:+.1f} [{at['low']:+.1f}, {at['high']:+.1f}]"


def _base(arm: str) -> str:
    return arm.partition(" + ")[0]


def _p(at: pd.Series, printed: float) -> dict[str, float]:
    t = at["effect"] / at["error"]
    below = (at["effect"] - printed) / at["error"]
    return {
        "p": float(2 * stats.t.sf(abs(t), at["df"])),
        "p_printed": float(min(1.0, 2 * stats.t.cdf(below, at["df"]))),
    }


def _word(row: Mapping[str, Any], margin: float) -> str:
    """In the study's words; after the correction for many, where ``row`` has it."""
    said = []
    if row["low"] > 0 and row.get("holm", row["p"]) <= LEVEL:
        said.append(f"shown, at least {margin:g}" if row["low"] >= margin else "shown")
    elif row["high"] < 0 and row.get("holm", row["p"]) <= LEVEL:
        said.append("reversed")
    elif -margin < row["low"] and row["high"] < margin:
        said.append("negligible")
    if row["high"] < row["printed"] and row.get("holm_printed", row["p_printed"]) <= LEVEL:
        said.append("printed size excluded")
    return ", ".join(said) or "undecided"


@cache
def _opened(name: str) -> Outcomes | None:
    """What a study's trainings found whose seal is broken."""
    path = EVIDENCE / f"{name}.csv"
    if not path.is_file():
        return None
    return outcomes(protocol(name), pd.read_csv(path, keep_default_na=False))


@cache
def confirmed(name: str = "grocery64") -> pd.DataFrame:
    """The hypotheses of a study whose seal is broken; none before."""
    found = _opened(name)
    return pd.DataFrame() if found is None else hypotheses(protocol(name), found)


def _alike(found: Outcomes) -> tuple[Outcomes, list[str], str]:
    """Losses without an addition, all with as many candidates, and how each counts."""
    plain = [arm for arm in found.shares if arm == _base(arm)]
    count = min(len(found.validation[arm]) for arm in plain)
    how = {2: "the better of two recipes", 3: "the better two of three recipes"}
    return found.first(count), plain, how.get(count, f"the better half of {count} recipes")


def rivals(arms: Sequence[str], name: str = "grocery64") -> str:
    """How far losses lie behind the best of those without an addition, in a sentence; nothing
    before the seal is broken."""
    if (opened := _opened(name)) is None:
        return ""
    found, plain, how = _alike(opened)
    best = max(plain, key=lambda arm: float(np.nanmean(found.scores(arm))))
    others, told = [arm for arm in plain if arm != best], []
    tests = [means([found.scores(best) - found.scores(arm)]).of([1.0]) for arm in others]
    p = holm(np.array([_p(at, 0.0)["p"] for at in tests]))
    for arm, at, corrected in zip(others, tests, p, strict=True):
        ends = f"{at['effect']:.1f} points [{at['low']:.1f}, {at['high']:.1f}]"
        shown = f", which is shown (p = {corrected:.2g}, corrected for {len(others)} rivals)"
        if arm in arms:
            told.append(f"`{arm}` is {ends} behind{shown * bool(corrected <= LEVEL)}")
    return (
        f"In the sealed study (small photographs, from scratch, {len(plain)} losses, each by "
        f"{how}) `{best}` is first by estimate; {', '.join(told)}."
    )


def every_loss(name: str = "grocery64") -> str:
    """How far each loss lies behind the best, as a table; a sentence before the second part of
    the study is open."""
    opened = _opened(name)
    if opened is None or not {*opened.shares} > {*primary(protocol(name))}:
        return "The second part of the study is sealed: nothing is known of all losses yet."
    found, plain, how = _alike(opened)
    frame = behind(found, plain)
    near = [f"`{arm}`" for arm in frame.index[frame["high"] > 0]]
    reach = (frame["mean"] - frame["mean"].iloc[0] - frame["low"]).iloc[1:].median()
    lines = ["| loss | Recall@1 (%) | minus the best of the others (points) |", "|---|---|---|"]
    lines += [
        f"| `{arm}` | {row['mean']:.1f} | {row['low']:+.1f} to {row['high']:+.1f} |"
        for arm, row in frame.iterrows()
    ]
    return (
        f"{len(plain)} losses, each by {how}, {len(protocol(name).searches)} searches, "
        f"{len(found.classes)} classes. All bounds hold together in 95 of 100 such studies. An "
        f"upper bound of 0 says that a loss is behind the best: {len(frame) - len(near)} are. Of "
        f"{len(near)} that is not shown: {', '.join(near)}; one that is less than {reach:.1f} "
        "points behind, in the median, could not be told.\n\n" + "\n".join(lines)
    )


def said(row: pd.Series) -> str:
    """Its word; one that hangs on one loss is none."""
    return str(row["word"]) if row["stands"] else "undecided"


def markdown(frame: pd.DataFrame) -> str:
    """What a study confirmed or excluded, in points of Recall@1: a column for each hypothesis."""
    if not len(frame):
        return "The study is sealed: nothing is known yet."
    told = {
        _TITLES.get(name, name): {
            "word, of these recipes": said(row),
            "effect": f"{row['effect']:+.2f}",
            "95 % interval": f"[{row['low']:+.2f}, {row['high']:+.2f}]",
            "found in 4 of 5 such studies": f"{row['least']:.1f}",
            "printed": _PRINTED.get(name, "{:g}").format(row["printed"]),
            "its losses": ", ".join(
                f"{x} {gain:+.1f}" for x, gain in json.loads(row["losses"]).items()
            ),
            "without the loss that moves it most": row["rest"],
            "at its loss's own choice of recipes": row["own"],
            "best recipe alone": f"{row['best']:+.1f}",
            "all three recipes": row["all"],
            "folds": ", ".join(f"{gain:+.1f}" for gain in json.loads(row["folds"])),
            "p of no gain, corrected": f"{row['holm']:.2g}",
            "p of the printed gain, corrected": f"{row['holm_printed']:.2g}",
        }
        for name, row in frame.iterrows()
    }
    lines = [f"| | {' | '.join(map(str, told))} |", "|---" * (len(told) + 1) + "|"]
    lines += [
        f"| {what} | {' | '.join(each[what] for each in told.values())} |"
        for what in next(iter(told.values()))
    ]
    return "\n".join(lines)


def sentence(frame: pd.DataFrame) -> str:
    """Whose printed gain a study excluded, whatever loss is left out; nothing before its seal is
    broken. No gain of SEE's sum is printed: the table alone has it."""
    rows = frame.drop(index="SEE, paper", errors="ignore").iterrows()
    told = [_NAMES[name] for name, row in rows if "excluded" in said(row)]
    return (
        "A sealed study (small photographs, one small network, recipes drawn for the plain losses) "
        f"excluded mean gains as large as printed: of {' and of '.join(told)}."
    ) * bool(told)


# All losses -----------------------------------------------------------------------------------


def behind(found: Outcomes, arms: Sequence[str], seed: int = 0) -> pd.DataFrame:
    """How far each arm may lie behind the best of the others, and before it: simultaneous bounds.

    Columns: mean (percent); low and high, of the arm's score minus that of the best other one, all
    of them right together in 95 of 100 studies (Hsu 1984, Annals of Statistics 12:1136,
    "Constrained Simultaneous Confidence Intervals for Multiple Comparisons with the Best"); a low
    of 0 says that it is the best, a high of 0 that it is not. ``quantile`` is what one
    difference must be of its error, by draws of the estimated covariance (Dunnett's, for each arm
    as the control).
    """
    at, A = means([found.scores(arm) for arm in arms]), len(arms)
    values, vectors = np.linalg.eigh(at.parts[0] + at.parts[1] - at.parts[2])
    root = vectors * np.sqrt(values.clip(0))  # what is estimated below 0 is 0
    differences = np.eye(A)[:, None] - np.eye(A)  # (A, A, A): row i minus row j
    pairs = [[at.of(w) if w.any() else None for w in rows] for rows in differences]
    error = np.array([[np.inf if x is None else x["error"] for x in row] for row in pairs])
    df = np.array([[np.nan if x is None else x["df"] for x in row] for row in pairs])
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((_DRAWS, A)) @ root.T  # (draws, A)
    scale = np.sqrt(rng.chisquare(nu := np.nanmedian(df), _DRAWS) / nu)
    low, high, quantile = np.zeros(A), np.zeros(A), np.zeros(A)
    for i in range(A):
        others = np.arange(A) != i
        t = ((z[:, others] - z[:, [i]]) / error[i, others]).max(1) / scale
        quantile[i] = np.quantile(t, 1 - LEVEL)
        d = at.mean[i] - at.mean[others]
        low[i] = min(0.0, (d - quantile[i] * error[i, others]).min())
        high[i] = max(0.0, (d + quantile[i] * error[i, others]).min())
    frame = {"mean": at.mean, "low": low, "high": high, "quantile": quantile}
    return pd.DataFrame(frame, pd.Index(arms, name="arm")).sort_values("mean", ascending=False)
