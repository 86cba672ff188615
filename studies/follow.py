"""A whole study: go on with it, say how far it is, and what the command line prints."""

import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from dmlkit import ROOT
from studies.arms import arms
from studies.candidates import candidates
from studies.checks import trained_anew
from studies.designs import adapted
from studies.protocol import DEFAULTS, Arm, Fields, Protocol, protocol
from studies.repetitions import ROW_KEY, compare
from studies.searches import TRIAL_KEY, agreement, ends, recipes, search
from studies.trainings import How, OutOfTimeError, Table

TRIALS, EVIDENCE = ROOT / "data" / "tuning", ROOT / "data" / "evidence"


def chosen_arms(names: Sequence[str] = (), rules: Protocol | None = None) -> list[Arm]:
    """Arms of a study by name; none means all. Raises ValueError for a name that no arm has."""
    known = arms(rules)
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"no arm {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def follow(
    rules: Protocol,
    chosen: Sequence[Arm],
    trials: Table,
    evidence: Table,
    *,
    only: str | None = None,
    minutes: float | None = None,
    executor: Executor | None = None,
    device: str = "auto",
    progress: bool = True,
) -> bool:
    """Go on with a study, or with its ``search`` or its ``repetitions`` only.

    Returns whether all that was asked for is done; it is not where the ``minutes`` were over.

    Raises:
        ValueError: ``only`` is neither, or repetitions are asked for before their search, or
            before that of the study whose recipes they have.
        RuntimeError: see ``work_off``.
    """
    if only not in (None, "search", "repetitions"):
        raise ValueError(f"only must be search or repetitions, not {only!r}")
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    if only != "search" and (missing := list(_lacking(rules, chosen, trials, only))):
        raise ValueError("; ".join(missing))
    counts = remaining(rules, chosen, trials, evidence)
    if only:
        counts = counts[(counts["stage"] == "repetitions") == (only == "repetitions")]
    with tqdm(
        total=int(counts["steps"].sum()), initial=int(counts["steps_done"].sum()), unit="step",
        unit_scale=True, desc=rules.name, disable=not progress,
    ) as bar:  # fmt: skip
        how = How(executor, device, deadline, bar)
        try:
            if only != "repetitions":
                search(rules, chosen, trials, how)
            if only != "search":
                compare(rules, chosen, _recipes(rules, chosen, trials), evidence, how)
        except OutOfTimeError:
            return False
    return True


def _recipes(
    rules: Protocol, chosen: Sequence[Arm], trials: Table
) -> dict[tuple[str, int], Fields]:
    """Those that the arms' own searches found, and of an arm that has another's, that one's."""
    ours = _tuned(rules)
    found = recipes(trials.frame())
    theirs = recipes(tables(rules.like)[0].frame()) if rules.like else {}
    adopted = {}
    for arm in chosen:
        if not arm.recipe_of:
            continue
        source = found if arm.recipe_of in ours else theirs
        for number in range(len(rules.searches)):
            if arm.recipe_of == DEFAULTS:
                recipe = candidates(rules, arm, number)[0]
            else:
                recipe = source[arm.recipe_of, number]
            adopted[arm.name, number] = adapted(rules, arm, recipe)
    return found | adopted


def _tuned(rules: Protocol) -> set[str]:
    return {name for name, arm in arms(rules).items() if not arm.recipe_of}


def _lacking(
    rules: Protocol, chosen: Sequence[Arm], trials: Table, only: str | None = None
) -> Iterator[str]:
    """What must be searched before the repetitions of arms, and by which command."""
    ours = _tuned(rules)
    sources = dict.fromkeys(arm.recipe_of for arm in chosen if arm.recipe_of)
    names = [arm.name for arm in chosen]
    here = [name for name in sources if name in ours and name not in names]
    if only == "repetitions":
        here += [arm.name for arm in chosen if not arm.recipe_of]
    yield from _unsearched(rules, here, trials)
    if rules.like:
        there = [name for name in sources if name not in ours and name != DEFAULTS]
        other = replace(rules, name=rules.like, like=None, arms={}, contrasts={})
        yield from _unsearched(other, there, tables(rules.like)[0])


def _unsearched(rules: Protocol, names: Sequence[str], trials: Table) -> Iterator[str]:
    known, lacking = arms(rules), []
    for name in names:
        counts = remaining(rules, [known[name]], trials, Table(ROW_KEY))
        stages = counts[counts["stage"] != "repetitions"]
        if (stages["done"] < stages["rows"]).any():
            lacking.append(name)
    if lacking:
        which = [] if len(lacking) == len(known) else lacking
        options = "".join(f" --arms {shlex.quote(name)}" for name in which)
        yield (
            f"no recipe of every search for {', '.join(lacking)}: first dmlkit study {rules.name} "
            f"--only search{options}"
        )


def remaining(
    rules: Protocol, chosen: Sequence[Arm], trials: Table, evidence: Table
) -> pd.DataFrame:
    """What a study asks for, and what of it is done: one row for each stage.

    Columns: stage, rows, done, steps, steps_done, hours (of one core, for the rest; NaN where
    nothing tells how long a step takes).
    """
    tuning, rows = rules.tuning, []
    of_each = {"short": tuning.candidates, "full": tuning.finalists}
    of_each |= {f"extra {r + 1}": tuning.extra for r in range(tuning.rounds)}
    stages = {stage: count * len(rules.searches) for stage, count in of_each.items()}
    for stage, count in {**stages, "repetitions": rules.repetitions.count}.items():
        table = evidence if stage == "repetitions" else trials
        steps = {"short": tuning.short_steps, "repetitions": rules.base["steps"]}.get(
            stage, tuning.steps
        )
        for arm in chosen:
            if arm.recipe_of and stage != "repetitions":
                continue
            per_row = max(1, round(steps * arm.steps_factor)) * arm.members
            there = sum(
                row["arm"] == arm.name and row.get("stage", "repetitions") == stage
                for row in table.rows.values()
            )
            done = min(there, count)
            of_step = _seconds_per_step(arm, trials, evidence) if done < count else 0.0
            rest = (count - done) * per_row * of_step / 3600
            rows.append((stage, count, done, count * per_row, done * per_row, rest))
    columns = ["stage", "rows", "done", "steps", "steps_done", "hours"]
    return (
        pd.DataFrame(rows, columns=columns)
        .groupby("stage", sort=False)
        .sum(min_count=1)
        .reset_index()
    )


def _seconds_per_step(arm: Arm, *tables: Table) -> float:
    """Of an arm's own trainings, else of all."""
    rows = [
        (row["arm"], row["seconds"] / row["steps"])
        for table in tables
        for row in table.rows.values()
        if row["seconds"] and row["steps"]
    ]
    own = [seconds for name, seconds in rows if name == arm.name]
    return float(np.median(own or [seconds for _, seconds in rows] or [np.nan]))


def tables(name: str) -> tuple[Table, Table]:
    """The trials and the evidence of a study, as they are kept."""
    return Table(TRIAL_KEY, TRIALS / f"{name}.csv"), Table(ROW_KEY, EVIDENCE / f"{name}.csv")


def sample(name: str, n: int, key: str, device: str = "auto") -> pd.DataFrame:
    """Train n rows of a study's evidence anew, and compare: see ``checks.trained_anew``."""
    return trained_anew(protocol(name), tables(name)[1], n, key, device)


def command(
    name: str,
    names: Sequence[str] = (),
    only: str | None = None,
    minutes: float | None = None,
    status: bool = False,
    sampled: int = 0,
    key: str = "",
    device: str = "auto",
) -> Iterator[str]:
    """What ``dmlkit study`` does, and the lines that it prints. Raises as ``follow`` does, and
    RuntimeError where rows that are trained anew are not as they were."""
    rules, kept = protocol(name), tables(name)
    chosen = chosen_arms(names, rules)
    if sampled:
        found = sample(name, sampled, key, device=device)
        yield found.to_string(index=False)
        if not found["agrees"].all():
            raise RuntimeError(f"{(~found['agrees']).sum()} scores are not those of the evidence")
        yield f"{found['exact'].sum()} of {len(found)} scores are the same to six digits"
        return
    done = status or follow(rules, chosen, *kept, only=only, minutes=minutes, device=device)
    if not done:
        yield f"stopped after {minutes:g} minutes, with all that was trained written down"
    yield from _report(rules, chosen, *kept)


def _report(
    rules: Protocol, chosen: Sequence[Arm], trials: Table, evidence: Table
) -> Iterator[str]:
    counts = remaining(rules, chosen, trials, evidence)
    yield from _lacking(rules, chosen, trials)
    for row in counts.itertuples():
        yield f"{row.stage}: {row.done} of {row.rows} trainings"
    hours = counts["hours"].sum(skipna=False)
    told = "unknown before the first" if np.isnan(hours) else f"about {hours:.1f} core-hours"
    yield f"the rest: {told}, on {joblib.cpu_count()} cores of this machine"
    if trials.rows and (trials.frame()["stage"] != "short").any():
        found = agreement(trials.frame())
        if not np.isnan(found["tau"]):
            numbers = f"{found['tau']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
            yield f"Kendall's tau of the searches, over {found['n']:.0f} arms: {numbers}"
        yield from ends(rules, chosen, trials.frame())
