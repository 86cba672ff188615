"""Which loss: what a study says to someone who has to choose one, and the table of it."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from dmlkit import losses
from dmlkit.files import write_between
from dmlkit.statistics import interval
from studies.answers import scores
from studies.check import asked_for
from studies.judgment import sensitivity
from studies.rules import Protocol, protocol
from studies.search import recipes
from studies.standing import LEVEL, holm, paired, tuning_luck
from studies.trainings import baselines, tables


def plain(names: pd.Index) -> list[str]:
    """Of a study's arms, those that are a loss of the table, or DREML, with nothing added."""
    known = {entry.name for entry in losses.entries()} | {"dreml"}
    return [name for name in names if name in known]


def behind_the_best(wide: pd.DataFrame, overlap: float = 0.0) -> pd.DataFrame:
    """Every arm minus the arm of the highest mean, in the same repetitions: wide (n, arms).

    Columns: mean, low, high (95 % t-interval), p, the larger p-value of the t-test and of the
    sign-flip test, and ``apart``, whether that stands at 5 % after Holm's correction over all
    arms. Where repetitions share classes, ``overlap`` widens the interval and raises the t-test's
    p-value (Nadeau and Bengio 2003). The best is chosen by these very repetitions, and owes a part
    of its lead to luck: what is ``apart`` may be a little less so, what is not is not.
    """
    best = wide.mean().idxmax()
    delta = wide.drop(columns=best).sub(wide[best], axis=0)
    found = delta.apply(interval, overlap=overlap).T[["mean", "low", "high"]]
    found["p"] = paired(delta.to_numpy(), overlap)["p"].to_numpy()
    return found.assign(apart=holm(found["p"].to_numpy()) <= LEVEL)


def which_loss(rules: Protocol, trials: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """One row for each loss that has all repetitions, the best first, from a study's tables.

    Columns: mean, low, high of Recall@1 with 95 % t-interval; behind (points of Recall@1 that the
    best is ahead, 0 for itself), behind_low, behind_high, apart (see ``behind_the_best``); batches
    (those that the searches chose, each once) and blind (how far the median of the candidates of a
    search is below their best, on validation classes after the short trainings).
    """
    wide = scores(rules, evidence)
    wide = wide[plain(wide.columns)]
    share, tuned = rules.repetitions.correction, recipes(trials)
    found = wide.apply(interval, overlap=share).T[["mean", "low", "high"]]
    rest = behind_the_best(wide, share).reindex(found.index)
    for mine, theirs in (("behind", "mean"), ("behind_low", "high"), ("behind_high", "low")):
        found[mine] = -rest[theirs].fillna(0.0)
    found["apart"] = rest["apart"].eq(True)  # the best has none
    found["batches"] = [
        tuple(dict.fromkeys(recipe["batch"] for (arm, _), recipe in tuned.items() if arm == name))
        for name in found.index
    ]
    found["blind"] = sensitivity(trials)["median_loss"].reindex(found.index)
    return found.sort_values("mean", ascending=False, kind="stable")


def markdown(rules: Protocol, trials: pd.DataFrame, evidence: pd.DataFrame) -> str:
    """The table of ``which_loss`` for a page, with what it comes to in two sentences."""
    table, wide = which_loss(rules, trials, evidence), scores(rules, evidence)
    columns = ("loss", "batch", "Recall@1 (%)", "behind the best (points)", "a blind setting costs")
    lines = [_in_words(rules, table, wide), "", f"| {' | '.join(columns)} |", "|---" * 5 + "|"]
    for name, row in table.iterrows():
        behind = "" if row["behind"] == 0 else _interval(row, "behind", "behind_low", "behind_high")
        cells = (
            f"`{name}`",
            ", ".join(row["batches"]),
            _interval(row, "mean", "low", "high"),
            behind if row["apart"] or not behind else f"{behind}, not told apart",
            f"{100 * row['blind']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _in_words(rules: Protocol, table: pd.DataFrame, wide: pd.DataFrame) -> str:
    """What a table comes to: how much the loss matters, and how much its settings."""
    best, *others = table.index
    level = ", ".join(f"`{name}`" for name in others if not table.at[name, "apart"])
    beaten = wide.mean().reindex(list(baselines(rules))).dropna()
    floor = ", ".join(f"{name} {100 * value:.1f} %" for name, value in beaten.items())
    luck = tuning_luck(wide[[*table.index]].to_numpy(), wide.index.to_numpy() % len(rules.searches))
    return (
        f"Of {len(table)} losses `{best}` has the highest mean"
        f"{f'; not told apart from it: {level}' if level else ''}. The median loss is "
        f"{100 * table['behind'].median():.1f} points behind, and settings drawn without looking "
        f"cost {100 * table['blind'].median():.0f} points in the median, after "
        f"{rules.tuning.short_steps} steps. Another search would move a loss by about "
        f"{100 * luck:.1f} points (one standard deviation), which the intervals hold in part. What "
        f"every loss has to beat: {floor}. Mean of "
        f"{rules.repetitions.count} repetitions with 95 % t-intervals; batches are classes x "
        "images of each, as chosen by the two searches (two, where they differ)."
    )


def _interval(row: Mapping[str, float], *names: str) -> str:
    mean, low, high = (100 * row[name] for name in names)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def write_choice(page: Path, name: str) -> None:
    """Write the table of a study between ``<!-- which-loss -->`` and ``<!-- /which-loss -->``."""
    rules, (trials, evidence) = protocol(name), tables(name)
    text = markdown(rules, trials.frame(), asked_for(rules, evidence))
    write_between(page, "which-loss", text)
