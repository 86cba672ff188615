"""The reality check: every loss tuned alike and compared alike, by rules that are written first.

A protocol, ``data/studies/NAME.toml``, says what every training has in common, which batches a loss
may choose from, how the searches go, and what a repetition is. All that follows is a list of
Experiments, which are trained, or found on disk: so a study goes on where it was broken off.
"""

import json
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import qmc

from dmlkit import ROOT, losses, models, study, training
from dmlkit.files import write_whole
from dmlkit.losses.table import Range
from dmlkit.training import Experiment, Run

FOLDER = ROOT / "data" / "studies"
METRICS = (*(f"recall_at_{k}" for k in (1, 2, 4, 8, 16)), "map_at_r", "nmi")
#: Losses that the papers put SEC or SEE on.
SEC_ON = ("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity")
SEE_ON = ("normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor")
_LR: dict[str, Range] = {"lr": ("log", 5e-4, 3e-2)}
_PROXY_LR: dict[str, Range] = {"loss_lr_factor": ("log", 1.0, 100.0)}
_EDGE = 0.05  # share of a range within which an optimum is at its end

#: What the backbone of the study of transfer was trained as.
CLASSIFIER: Mapping[str, Any] = {
    "loss": "normalized_softmax",
    "sampler": "uniform",
    "sampler_args": {"size": 128},
    "augment": True,
    "steps": 2000,
    "split": "val",
    "data_args": {"part": "develop", "test_classes": 0},
}

Fields = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """What a study compares: a loss, or a loss with an addition, and what is tuned of it.

    ``fields`` are those of Experiment; ``space`` maps a setting, as ``"loss_args.margin"``, to its
    range. Where ``per_step`` names a setting, it is the number of steps of the training.
    """

    name: str
    fields: Mapping[str, Any]
    space: Mapping[str, Range]
    per_step: str | None = None


@dataclass(frozen=True)
class Protocol:
    """The rules of a study, as they stand in its file: see ``data/studies``."""

    name: str
    base: Mapping[str, Any]
    batches: Mapping[str, Mapping[str, Any]]
    tuning: Mapping[str, int]
    searches: Sequence[Mapping[str, Any]]
    repetitions: Mapping[str, Any]


def protocol(name: str, folder: Path = FOLDER) -> Protocol:
    """The rules of a study by its name.

    Raises:
        ValueError: there is no such study.

    >>> protocol("scratch").repetitions["count"]
    12
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.toml")))
        raise ValueError(f"no study {name!r} in {folder}; there are {there}")
    return Protocol(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))


def arms() -> dict[str, Arm]:
    """Every loss of the table, SEC and the L2 penalty on those that SEC's paper has, and SEE on
    those that SEE's has: as the paper writes it (a sum over the points, which reach the network),
    and as its authors' code has it (a mean, and they reach the proxies alone), both with the
    curriculum.

    >>> arms()["normalized_softmax + SEC"].fields["constraint"]
    {'weight': 0.0, 'target': 'mean'}
    """
    found = [_loss(entry.name) for entry in losses.entries()]
    by_name = {arm.name: arm for arm in found}
    weight: dict[str, Range] = {"constraint.weight": ("log", 1e-3, 1.0)}
    for name in (*SEC_ON, "normalized_softmax"):
        plain = by_name[name]
        for label, target in (("SEC", "mean"), ("L2", 0.0)):
            fields = {**plain.fields, "constraint": {"weight": 0.0, "target": target}}
            found.append(Arm(f"{name} + {label}", fields, {**plain.space, **weight}))
    for name in SEE_ON:
        found += [_expanded(by_name[name], detach) for detach in (False, True)]
    return {arm.name: arm for arm in found}


def _loss(name: str) -> Arm:
    accepted = losses.signature(name)
    needed = {key for key, p in accepted.items() if p.default is p.empty}
    rates = _LR | _PROXY_LR if {"num_classes", "dim"} <= needed else _LR
    own = losses.entry(name).space or {}
    return Arm(name, {"loss": name}, rates | {f"loss_args.{key}": own[key] for key in own})


def _expanded(plain: Arm, detach: bool) -> Arm:
    points, name = 8, f"{plain.name} + SEE, {'code' if detach else 'paper'}"
    args = {"loss": plain.name, "points": points, "detach": detach, "end_rate": 0.4}
    # The paper sums over the points of a sample where the code takes a mean: n times the weight.
    scale = 1 if detach else points
    inside = {
        key.replace("loss_args.", "loss_args.loss_args."): bounds
        for key, bounds in plain.space.items()
    }
    weight: Range = ("log", 0.02 * scale, 2.0 * scale)
    fields = {"loss": "spherical_expansion", "loss_args": {**args, "weight": 0.2 * scale}}
    return Arm(name, fields, {**inside, "loss_args.weight": weight}, "loss_args.steps")


# Fields --------------------------------------------------------------------------------------


def merged(*parts: Mapping[str, Any]) -> Fields:
    """Fields of Experiment put together: later ones win, mappings within them are merged.

    >>> merged({"seed": 1, "data_args": {"level": "hard"}}, {"data_args": {"seed": 2}})
    {'seed': 1, 'data_args': {'level': 'hard', 'seed': 2}}
    """

    def add(below: Fields, above: Mapping[str, Any]) -> Fields:
        nested = {
            key: add(below[key], value)
            for key, value in above.items()
            if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        }
        return {**below, **above, **nested}

    return reduce(add, parts, {})


def set_at(settings: Mapping[str, Any]) -> Fields:
    """``{"loss_args.margin": m}`` -> ``{"loss_args": {"margin": m}}``, at any depth.

    >>> set_at({"lr": 0.1, "loss_args.margin": 0.2})
    {'lr': 0.1, 'loss_args': {'margin': 0.2}}
    """
    nested = [
        reduce(lambda inner, key: {key: inner}, reversed(name.split(".")), value)
        for name, value in settings.items()
    ]
    return merged(*nested)


def experiment(
    rules: Protocol, arm: Arm, settings: Mapping[str, Any], steps: int, where: Mapping[str, Any]
) -> Experiment:
    """One training of an arm at its settings, in a search or a repetition (``where``)."""
    chosen = {key: value for key, value in settings.items() if key != "batch"}
    batch = rules.batches[settings["batch"]]
    own_steps = set_at({arm.per_step: steps}) if arm.per_step else {}
    common = {**rules.base, "steps": steps}
    return Experiment(**merged(common, arm.fields, batch, own_steps, set_at(chosen), where))


# Searches -------------------------------------------------------------------------------------


def candidates(
    rules: Protocol, arm: Arm, search: int, count: int, wider: Mapping[str, Range] | None = None
) -> list[Fields]:
    """Settings to try, the first with the arm's defaults in the first batches of the protocol.

    The others are points of a scrambled Sobol sequence over the space, its own for each arm and
    search, so that few candidates cover every setting's range evenly.
    """
    space = {**arm.space, **(wider or {})}
    sobol = qmc.Sobol(len(space) + 1, seed=zlib.crc32(f"{arm.name} {search}".encode()))
    points = sobol.random_base2((max(count, 2) - 1).bit_length())[: count - 1]
    names = list(rules.batches)
    drawn = [
        {"batch": names[int(point[-1] * len(names))]}
        | {key: _between(space[key], float(u)) for key, u in zip(space, point, strict=False)}
        for point in points
    ]
    return [{"batch": names[0]}, *drawn]


def _between(bounds: Range, share: float) -> float:
    """What lies at a share of a range: 0 at its low end, 1 at its high one."""
    scale, low, high = bounds
    if scale == "log":
        return float(np.exp((1 - share) * np.log(low) + share * np.log(high)))
    return (1 - share) * low + share * high


def _place(bounds: Range, value: float) -> float:
    """Where in a range a value lies: 0 at its low end, 1 at its high one."""
    scale, low, high = bounds
    if scale == "log":
        low, value, high = np.log([low, value, high])
    return float((value - low) / (high - low))


def widened(bounds: Range, value: float) -> Range | None:
    """A range twice as long, on the side at whose end the best value lies; None where it does not.

    >>> widened(("log", 0.1, 10.0), 9.9)
    ('log', 0.1, 1000.0)
    >>> widened(("linear", 0.0, 1.0), 0.5) is None
    True
    """
    place, (scale, low, high) = _place(bounds, value), bounds
    if place < _EDGE:
        far = low**2 / high if scale == "log" else 2 * low - high
        return scale, far, high
    if place > 1 - _EDGE:
        far = high**2 / low if scale == "log" else 2 * high - low
        return scale, low, far
    return None


def search(
    rules: Protocol,
    chosen: Sequence[Arm],
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> pd.DataFrame:
    """Tune arms on validation classes: one row for each training, of every search and stage.

    Columns: arm, search, stage (``short`` or ``full``), candidate, settings (JSON), hash, steps,
    recall_at_1 (0 where it diverged) and seconds. In each search an arm's candidates are trained
    for few steps, and the best ``finalists`` of them for all.
    """
    plans = [
        {"arm": arm, "search": number, "candidate": i, "settings": settings}
        for number in range(len(rules.searches))
        for arm in chosen
        for i, settings in enumerate(candidates(rules, arm, number, rules.tuning["candidates"]))
    ]
    how: dict[str, Any] = {"executor": executor, "device": device, "progress": progress}
    short = _tried(rules, plans, "short", rules.tuning["short_steps"], **how)
    best = short.sort_values("recall_at_1", ascending=False, kind="stable")
    best = best.groupby(["search", "arm"]).head(rules.tuning["finalists"]).sort_index()
    finals = [plans[i] for i in best.index]
    full = _tried(rules, finals, "full", rules.base["steps"], **how)
    return pd.concat([short, full], ignore_index=True)


def _tried(
    rules: Protocol, plans: Sequence[Mapping[str, Any]], stage: str, steps: int, **how: Any
) -> pd.DataFrame:
    experiments = [
        experiment(
            rules, plan["arm"], plan["settings"], steps,
            {**rules.searches[plan["search"]], "split": "val"},
        )
        for plan in plans
    ]  # fmt: skip
    runs = study.train(experiments, **how)
    return pd.DataFrame([
        {
            "arm": plan["arm"].name, "search": plan["search"], "stage": stage,
            "candidate": plan["candidate"], "settings": json.dumps(plan["settings"]),
            "hash": made.hash(), "steps": steps,
            "recall_at_1": run.scores["recall_at_1"] if run else 0.0,
            "seconds": round(run.seconds, 2) if run else 0.0,
        }
        for plan, made, run in zip(plans, experiments, runs, strict=True)
    ])  # fmt: skip


def recipes(trials: pd.DataFrame) -> dict[tuple[str, int], Fields]:
    """The best settings of each arm in each search, among those trained in full."""
    full = trials[trials["stage"] == "full"].sort_values(
        "recall_at_1", ascending=False, kind="stable"
    )
    best = full.drop_duplicates(["arm", "search"])
    return {(row.arm, row.search): json.loads(row.settings) for row in best.itertuples()}


# Repetitions ----------------------------------------------------------------------------------


def repetition(rules: Protocol, k: int) -> Fields:
    """The fields of repetition k: what all have in common, and k where a number is asked for."""
    numbers = dict.fromkeys(rules.repetitions["numbered"], k)
    return merged(rules.repetitions["fields"], set_at(numbers))


def compare(
    rules: Protocol,
    chosen: Sequence[Arm],
    found: Mapping[tuple[str, int], Mapping[str, Any]],
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> pd.DataFrame:
    """Score arms on test classes: one row for each arm and repetition.

    Repetition k takes the recipe of search k mod S, of S searches: so differences between
    repetitions hold the luck of the search, too.
    """
    count, searches = rules.repetitions["count"], len(rules.searches)
    points = [(k, arm) for k in range(count) for arm in chosen]
    experiments = [
        experiment(
            rules, arm, found[arm.name, k % searches], rules.base["steps"], repetition(rules, k)
        )
        for k, arm in points
    ]
    runs = study.train(experiments, executor, device=device, progress=progress)
    rows = zip(points, experiments, runs, strict=True)
    return pd.DataFrame([
        {"arm": arm.name, "repetition": k, "search": k % searches, **_outcome(made, run)}
        for (k, arm), made, run in rows
    ])  # fmt: skip


def _outcome(made: Experiment, run: Run | None) -> dict[str, Any]:
    """What the table keeps of a Run; None is one that diverged, which found nothing."""
    facts = {"hash": made.hash(), "steps": made.steps, "seed": made.seed}
    if run is None:
        return facts | {"diverged": True, "seconds": 0.0} | dict.fromkeys(METRICS, 0.0)
    facts |= {"diverged": False, "seconds": round(run.seconds, 2)}
    return facts | {metric: round(run.scores[metric], 6) for metric in METRICS}


def pretrain(device: str = "auto") -> Path:
    """Train the classifier that the study of transfer starts from, and write its backbone.

    It tells the training classes of Glyphs apart, which have nothing to do with Omniglot's.
    """
    made = training.run(Experiment(**CLASSIFIER), device=device)
    state = {
        name: value.numpy()
        for name, value in made.model().state_dict().items()
        if not name.startswith("head.")
    }

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez(file, **state)

    models.GLYPHS_CONVNET.parent.mkdir(exist_ok=True)
    write_whole({models.GLYPHS_CONVNET: write})
    return models.GLYPHS_CONVNET
