"""A whole study: go on with it, say how far it is, and what the command line prints."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from studies import sealed
from studies.check import sample
from studies.rules import DEFAULTS, Arm, Fields, Protocol, arms, choices_of, protocol
from studies.search import agreement, candidates, ends, recipes, search
from studies.trainings import Plan, Table, compare, repeated, tables, work_off


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
    only: str | None = None,
    **how: Any,
) -> None:
    """Go on with a study, or with its ``search``, its ``repetitions`` or its second pass only
    (``further``: as many trials again, and repetitions where a recipe changed; with tables of its
    own); see ``work_off``.

    Raises ValueError where repetitions are asked for before their search, or before that of the
    study whose recipes they have.
    """
    if only == "further":
        more, scores = tables(f"{rules.name}_further")
        first = trials.frame()
        second = search(rules, chosen, more, first, **how)
        work_off(changed(rules, chosen, first, second), scores, **how)
        return
    if only not in (None, "search", "repetitions"):
        raise ValueError(f"only must be search, further or repetitions, not {only!r}")
    if only != "search" and (missing := list(_unsearched(rules, chosen, trials, only))):
        raise ValueError("; ".join(missing))
    if only != "repetitions":
        search(rules, chosen, trials, **how)
    if only != "search":
        compare(rules, chosen, _recipes(rules, chosen, trials), evidence, **how)


def changed(
    rules: Protocol, chosen: Sequence[Arm], first: pd.DataFrame, second: pd.DataFrame
) -> list[Plan]:
    """The repetitions of arms whose best recipe in a search is one of the second pass."""
    old, new = recipes(first), recipes(pd.concat([first, second], ignore_index=True))
    return [
        repeated(rules, arm, k, new[place])
        for k in range(rules.repetitions.count)
        for arm in chosen
        if new[place := (arm.name, k % len(rules.searches))] != old[place]
    ]


def _unsearched(
    rules: Protocol, chosen: Sequence[Arm], trials: Table, only: str | None = None
) -> Iterator[str]:
    """What must be searched before the repetitions of arms, and by which command."""
    ours = _tuned(rules)
    needed = dict.fromkeys(arm.recipe_of or arm.name for arm in chosen)
    coming = {DEFAULTS, *(arm.name for arm in chosen if only is None and not arm.recipe_of)}
    for study in [rules.name, *([rules.like] if rules.like else [])]:
        own = study == rules.name
        done = Counter(row["arm"] for row in (trials if own else tables(study)[0]).rows.values())
        lacking = [
            name
            for name in needed
            if name not in coming and (name in ours) == own and done[name] < _trials_of_each(rules)
        ]
        if lacking:
            options = "".join(f" --arms {shlex.quote(name)}" for name in lacking)
            yield (
                f"no recipe of every search for {', '.join(lacking)}: first dmlkit study {study} "
                f"--only search{options}"
            )


def _tuned(rules: Protocol) -> set[str]:
    return {name for name, arm in arms(rules).items() if not arm.recipe_of}


def _recipes(
    rules: Protocol, chosen: Sequence[Arm], trials: Table
) -> dict[tuple[str, int], Fields]:
    """Those that the arms' own searches found, and of an arm that has another's, that one's."""
    found, ours = recipes(trials.frame()), _tuned(rules)
    theirs = recipes(tables(rules.like)[0].frame()) if rules.like else {}
    for arm in chosen:
        for number in range(len(rules.searches)):
            if arm.recipe_of:
                first = candidates(rules, arm, number)[0]
                source = found if arm.recipe_of in ours else theirs
                plain = arm.recipe_of == DEFAULTS
                recipe = first if plain else source[arm.recipe_of, number]
                found[arm.name, number] = _adapted(rules, arm, first, recipe)
    return found


def _adapted(rules: Protocol, arm: Arm, first: Fields, recipe: Fields) -> Fields:
    """The recipe of another as an arm has it that is not tuned itself.

    What the arm fixes stays; what the recipe lacks is as in the defaults, ``first``; an option that
    the arm has not is the only one that it has; factors multiply.
    """
    choices = choices_of(rules, arm)
    taken = {
        key: recipe[key]
        for key in first
        if key in recipe and (key not in choices or recipe[key] in choices[key])
    }
    return {
        key: value * arm.factors[key] if key in arm.factors else value
        for key, value in (first | taken).items()
    }


def remaining(
    rules: Protocol, chosen: Sequence[Arm], trials: Table, evidence: Table
) -> dict[str, tuple[int, int]]:
    """How many trainings of searches and of repetitions are done, of how many."""

    def counted(table: Table, asked: Sequence[Arm], each: int) -> tuple[int, int]:
        done = Counter(row["arm"] for row in table.rows.values())
        return sum(min(done[arm.name], each) for arm in asked), each * len(asked)

    tuned = [arm for arm in chosen if not arm.recipe_of]
    return {
        "search": counted(trials, tuned, _trials_of_each(rules)),
        "repetitions": counted(evidence, chosen, rules.repetitions.count),
    }


def _trials_of_each(rules: Protocol) -> int:
    """How many trainings the searches of an arm have, all together."""
    tuning = rules.tuning
    each = tuning.candidates + tuning.finalists + tuning.rounds * tuning.extra
    return each * len(rules.searches)


def command(
    name: str,
    names: Sequence[str] = (),
    only: str | None = None,
    status: bool = False,
    sampled: int = 0,
    key: str = "",
    device: str = "auto",
) -> Iterator[str]:
    """What ``dmlkit study`` does, and the lines that it prints. Raises as ``follow`` does, and
    RuntimeError where rows that are trained anew are not as they were."""
    rules = protocol(name)
    chosen = chosen_arms(names, rules)
    if rules.sealed:
        yield from _sealed(rules, chosen, only, status, device)
        return
    trials, evidence = tables(name)
    if sampled:
        found = sample(f"{name}_{only}" if only == "further" else name, sampled, key, device)
        yield found.to_string(index=False)
        if not found["agrees"].all():
            raise RuntimeError(f"{(~found['agrees']).sum()} scores are not those of the evidence")
        yield f"{found['exact'].sum()} of {len(found)} scores are the same to six digits"
        return
    if not status:
        follow(rules, chosen, trials, evidence, only, device=device, progress=True)
    yield from _unsearched(rules, chosen, trials)
    for part, (done, of) in remaining(rules, chosen, trials, evidence).items():
        yield f"{part}: {done} of {of} trainings"
    if len(frame := trials.frame()):
        found = agreement(frame)
        numbers = f"{found['tau']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
        yield f"Kendall's tau of the searches, over {found['n']:.0f} arms: {numbers}"
        yield from ends(rules, chosen, frame)


def _sealed(
    rules: Protocol, chosen: Sequence[Arm], only: str | None, status: bool, device: str
) -> Iterator[str]:
    """What ``command`` does in a sealed study, and its lines."""
    trials = sealed.table(rules.name)
    if only == "unseal":
        yield f"the seal is broken: {sealed.unseal(rules, trials)}"
        return
    if only is not None:
        raise ValueError(f"only must be unseal, not {only!r}")
    if not status:
        sealed.follow(rules, chosen, trials, device=device, progress=True)
    done, of = remaining(rules, chosen, trials, trials)["search"]
    yield f"trainings: {done} of {of}; a part's test classes are sealed until its last"
    there = sealed.layers(rules, trials.frame())
    first = sealed.primary(rules)
    for part, names in (("hypotheses", first), ("others", [a for a in there if a not in first])):
        least = min(there[name] for name in names)
        yield f"{part}: {least} of {rules.tuning.candidates} candidates in all searches of all arms"
