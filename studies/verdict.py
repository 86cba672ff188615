"""The judge on photographs: a loss goes through a sealed study as the study's own losses go.

It has the candidates and searches that the study's losses have by now. As long as the test classes
are sealed, both sides are compared on validation classes, each with the better half of its
candidates, so that what choosing gains is alike on both.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

import dmlkit
from dmlkit import data, losses, retrieval, training
from dmlkit.cli import terminal
from dmlkit.files import write_whole
from dmlkit.recipes import merged
from dmlkit.statistics import holm
from dmlkit.training import Experiment
from studies import probes, sealed
from studies.condition import plain
from studies.confirm import LEVEL, Outcomes, behind, means, outcomes
from studies.rules import Protocol, loss_arm, searching
from studies.search import candidates, trial
from studies.trainings import EVIDENCE, TRIAL_KEY, Table, work_off

_SHOWN = 15  # losses of the picture
_EACH = 11.0  # seconds of one quiet core, a training with its scores


# Against whom ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """What the losses of a study have by now: ``count`` candidates in the first searches."""

    searches: int
    count: int
    rivals: Sequence[str]
    lacking: Sequence[str]


def extent(rules: Protocol, trials: pd.DataFrame) -> Extent:
    """The most that a loss of the study has on all folds: of all searches, else of the first third,
    or two thirds, of the classes. Raises ValueError where no loss has that yet."""
    folds = len({searching(rules, s)["data_args"]["fold"] for s in range(len(rules.searches))})
    for S in range(len(rules.searches), 0, -folds):
        first = dataclasses.replace(rules, searches=rules.searches[:S])
        there = sealed.layers(first, trials)
        mine = {name: there[name] for name in plain(pd.Index(list(there)))}
        if count := max(mine.values()):
            rivals = [name for name, m in mine.items() if m >= count]
            return Extent(S, count, rivals, [name for name in mine if name not in rivals])
    raise ValueError(f"no loss has all folds yet: first dmlkit study {rules.name}")


def _rows(frame: pd.DataFrame, name: str, at: Extent) -> pd.DataFrame:
    kept = frame[(frame["candidate"] < at.count) & (frame["search"] < at.searches)]
    return kept.rename(columns={"recall_at_1": "validation"})[
        ["arm", "search", "candidate", "validation", name]
    ].rename(columns={name: "hits"})


# What is found --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What was found of a loss: shown as its page, by ``print`` and in a notebook."""

    name: str
    family: str
    at: Extent
    split: str
    notes: Sequence[str]
    arms: pd.DataFrame  # by rival: mean, effect (the loss minus it), low, high, least, p, family
    own: float
    bounds: tuple[float, float]  # of the loss minus the best other one, simultaneous

    @property
    def word(self) -> str:
        """better than every one, behind the best, or not told from it."""
        beats = self._beaten(self.arms)
        if beats <= LEVEL:
            return "better than every one"
        return "behind the best" if self.bounds[1] <= 0 else "not told from the best"

    def _beaten(self, rivals: pd.DataFrame) -> float:
        """Of being better than every one, and than every one of the family: the first's p after
        Holm's correction."""
        groups = (rivals, rivals[rivals["family"] == self.family])
        p = [float(x["p"].where(x["effect"] > 0, 1.0).max()) if len(x) else 1.0 for x in groups]
        return float(holm(p)[0])

    def sentence(self) -> str:
        """What the page leads with."""
        best = self.arms.iloc[0]
        told = {
            "better than every one": f"is better than every one of {len(self.arms)} losses",
            "behind the best": f"lies behind the best of {len(self.arms)} losses",
            "not told from the best": f"cannot be told from the best of {len(self.arms)} losses",
        }[self.word]
        return (
            f"On photographs, from scratch, **{self.name}** {told}: it finds {self.own:.1f} %, "
            f"{best.name} {best['mean']:.1f}; the difference is {_difference(best)} points. One of "
            f"{best['least']:.1f} would be found in four of five such studies."
        )

    def page(self, picture: str = "") -> str:
        """The page, as Markdown."""
        a = self.at
        classes = "test" if self.split == "test" else "validation"
        lines = ["| loss | Recall@1 (%) | this minus it (points) |", "|---|---|---|"]
        lines += [
            f"| {arm} | {r['mean']:.1f} | {_difference(r)} |" for arm, r in self.arms.iterrows()
        ]
        sealed_note = "" if classes == "test" else (
            " The study's test classes are sealed until it ends; what choosing on validation "
            "classes gains is alike on both sides."
        )  # fmt: skip
        lacking = f"*Without as many candidates:* {', '.join(a.lacking)}." if a.lacking else ""
        low, high = self.bounds
        parts = [
            f"# {self.name}", picture, self.sentence(), *(f"*Noticed:* {x}" for x in self.notes),
            f"Both sides have {a.count} candidate{'s' * (a.count > 1)} in each of {a.searches} "
            f"searches, and the better half of them counts, on {classes} classes.{sealed_note}",
            f"Against the best of the others it lies between {low:+.1f} and {high:+.1f} points, "
            "by bounds that hold for all losses together.",
            lacking,
            "<details><summary>Against each loss</summary>\n\n" + "\n".join(lines)
            + "\n\n</details>",
            "One small network of 300 steps: what learns fast has an advantage here.",
        ]  # fmt: skip
        return "\n\n".join(part for part in parts if part) + "\n"

    __repr__ = __str__ = _repr_markdown_ = page

    def figure(self) -> Figure:
        """The loss minus each of the best others, with 95 % intervals."""
        shown = self.arms.head(_SHOWN).iloc[::-1]
        fig = Figure(figsize=(6.4, 1.2 + 0.26 * len(shown)), layout="constrained")
        axes, y = fig.subplots(), np.arange(len(shown))
        reach = shown["effect"] - shown["low"]
        axes.errorbar(shown["effect"], y, xerr=reach, fmt="o", color="#0000e6", capsize=0)
        axes.axvline(0, color="#707070", linewidth=1)
        labels = [f"{name}  {mean:.1f} %" for name, mean in shown["mean"].items()]
        axes.set_yticks(y, labels)
        axes.set_xlabel(f"{self.name} ({self.own:.1f} %) minus it, points of Recall@1, 95 %")
        axes.set_title(f"Right of the line, {self.name} is better", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        return fig


def compared(name: str, family: str, found: Outcomes, at: Extent, split: str,
             notes: Sequence[str]) -> Verdict:  # fmt: skip
    """The verdict on a loss among its rivals, by their outcomes."""
    scores = {arm: found.scores(arm) for arm in (name, *at.rivals)}
    of = means([scores[name] - scores[arm] for arm in at.rivals])
    rows = {}
    families = {entry.name: entry.family for entry in losses.entries()} | {"dreml": "ensembles"}
    for arm, weights in zip(at.rivals, np.eye(len(at.rivals)), strict=True):
        test = of.of(weights)
        p = 2 * float(stats.t.sf(abs(test["effect"]) / test["error"], test["df"]))
        mean = float(np.nanmean(scores[arm]))
        rows[arm] = {**test, "mean": mean, "p": p, "family": families[arm]}
    arms = pd.DataFrame(rows).T.sort_values("mean", ascending=False, kind="stable")
    bounds = behind(found, [name, *at.rivals]).loc[name, ["low", "high"]]
    own = float(np.nanmean(scores[name]))
    ends = (float(bounds["low"]), float(bounds["high"]))
    return Verdict(name.rpartition(":")[2], family, at, split, notes, arms, own, ends)


def verdict(
    rules: Protocol, name: str, loss_args: Mapping[str, Any], folder: Path | None, **how: Any
) -> Verdict:
    """Put a loss through a sealed study; see ``studies.judge.judge``."""
    notes = [f"before training: {x}" for x in probes.noticed(name, loss_args)]
    for note in notes:
        terminal.console.print(note, highlight=False)
    evidence = EVIDENCE / f"{rules.name}.csv"
    if open_ := evidence.is_file():
        rivals = pd.read_csv(evidence, keep_default_na=False)
    else:
        rivals = sealed.table(rules.name).frame()
    at = extent(rules, rivals)
    total = at.count * at.searches
    terminal.console.print(
        f"{total} trainings, about {total * _EACH / 60:.0f} minutes of one core.", highlight=False
    )
    arm, mine = loss_arm(name, loss_args), Table(TRIAL_KEY)
    settings = {s: candidates(rules, arm, s) for s in range(at.searches)}
    plans = [
        trial(rules, arm, s, "full", i, settings[s][i])
        for i in range(at.count)
        for s in range(at.searches)
    ]
    work_off(plans, mine, store=dmlkit.cache_folder() / "runs", **how)
    both = [
        _rows(mine.frame(), "sealed" if open_ else "hits", at),
        _rows(rivals, "hits", at),
    ]
    split = "test" if open_ else "val"
    first = dataclasses.replace(rules, searches=rules.searches[: at.searches])
    found = outcomes(first, pd.concat(both), split)
    notes += _after(first, found.scores(name), mine.frame(), split)
    made = compared(name, losses.entry(name).family, found, at, split, notes)
    if folder is not None:
        _write(made, folder)
    return made


def _after(
    rules: Protocol, own: np.ndarray, trials: pd.DataFrame, split: str
) -> list[str]:  # fmt: skip
    """What is wrong with a loss that did not learn."""
    notes = []
    if (diverged := int(trials["diverged"].sum())):  # fmt: skip
        notes.append(f"after training: {diverged} of {len(trials)} trainings diverged.")
    start = np.mean([
        _untrained(Experiment(**merged(rules.base, searching(rules, s), {"split": split})))
        for s in range(min(4, len(rules.searches)))  # one a fold
    ])  # fmt: skip
    if (score := float(np.nanmean(own))) < start + 5:
        notes.append(
            f"after training: it learned next to nothing: {score:.1f} %, where a network with "
            f"random weights finds {start:.1f} %."
        )
    return notes


def _difference(row: pd.Series) -> str:
    return f"{row['effect']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"


def _untrained(made: Experiment) -> float:
    images = data.load(made.data, made.split, **made.data_args)
    x = training.untrained(made, "cpu")["untrained network"]
    sets = images.retrieval_sets(x)
    each = retrieval.by_query(**sets, scores=["recall_at_1"], metric=made.metric)
    return 100 * float(each.groupby("label").mean()["recall_at_1"].mean())


def _write(made: Verdict, folder: Path) -> None:
    """The page and its picture, side by side."""
    picture = f"judge_{made.name}.png"
    page = made.page(f"![{made.name} minus each of the best other losses.]({picture})")
    write_whole({
        folder / picture: lambda beside: made.figure().savefig(beside, format="png", dpi=160),
        folder / f"judge_{made.name}.md": partial(Path.write_text, data=page, encoding="utf-8"),
    })  # fmt: skip
