"""The judge: any ``loss(embeddings, labels)`` goes through a study as the study's own losses went.

``judge("mylosses.py:MyLoss")`` checks the loss before anything is trained, tunes and repeats it by
the study's protocol (the same searches, candidates, seeds and test classes), and writes one page:
where it stands, against what, at what cost. The rule is ``standing``'s.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

import dmlkit
import studies
from dmlkit import losses
from dmlkit.files import write_whole
from dmlkit.training import Experiment
from studies.judgment import REGIMES, Judgment, cost
from studies.standing import standing

# Before any training --------------------------------------------------------------------------


def check(
    name: str,
    loss_args: Mapping[str, Any] | None = None,
    *,
    num_classes: int = 64,
    dim: int = 32,
    classes: int = 32,
    per_class: int = 4,
) -> list[str]:
    """Try a loss on batches of random embeddings; return what is odd of it, in sentences.

    Expected of loss(embeddings (B, dim), labels (B,)) is a finite scalar whose gradient at the
    embeddings is finite and not 0, and that it leaves both as they are.

    Raises:
        ValueError: it gives another shape, NaN or inf, or no gradient; or there is no such loss.
        TypeError: it is no ``nn.Module``, gives no Tensor, or cannot be built with ``loss_args``.
        RuntimeError: it fails on a batch, or changes it.

    >>> check("contrastive")
    []
    """
    try:
        loss = losses.build(name, num_classes=num_classes, dim=dim, **(loss_args or {}))
    except TypeError as error:
        if "missing" not in str(error):
            raise
        raise TypeError(f"{name}: {error}: give it by loss_args, or a default") from error
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(classes).repeat_interleave(per_class)
    x = torch.randn(len(y), dim, generator=generator)
    gradients = [_gradient(name, loss, scale * x, y) for scale in (1.0, 5.0)]
    if not any(gradient.any() for gradient in gradients):
        raise ValueError(
            f"{name} has no gradient: it is 0 for all {len(y)} embeddings of two batches, as where "
            "values are detached, rounded or only counted"
        )
    odd = {
        "without a positive pair, as uniform batches may be": torch.arange(num_classes),
        "of one class": torch.zeros(num_classes, dtype=torch.int64),
    }
    notes = []
    for what, labels in odd.items():
        z = torch.randn(num_classes, dim, generator=generator)
        try:
            _gradient(name, loss, z, labels)
        except (ValueError, TypeError, RuntimeError) as error:
            notes.append(f"On a batch {what}: {error}.")
    return notes + _unnoticed(loss, x, y)


def _gradient(name: str, loss: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of a loss at embeddings, all that it must be checked on the way."""
    given, labels = x.clone().requires_grad_(), y.clone()
    batch = f"embeddings {tuple(x.shape)} float32 and labels {tuple(y.shape)} int64"
    try:
        value = loss(given * 1.0, labels)  # no leaf: as in training, it may be changed in place
    except Exception as error:
        raise RuntimeError(f"{name} fails on {batch}: {type(error).__name__}: {error}") from error
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must give a Tensor, but gives {type(value).__name__}")
    if value.shape != ():
        raise ValueError(f"{name} must give a scalar, shape (), but gives {tuple(value.shape)}")
    if not value.is_floating_point() or not value.isfinite():
        raise ValueError(f"{name} must give a finite number, but gives {value.item()} on {batch}")
    if not value.requires_grad:
        raise ValueError(f"{name} has no gradient: its value {value.item():g} depends on nothing")
    try:
        value.backward()
    except RuntimeError as error:
        raise RuntimeError(f"{name}: its gradient fails on {batch}: {error}") from error
    gradient = torch.zeros_like(x) if given.grad is None else given.grad
    if not gradient.isfinite().all():
        count = int((~gradient.isfinite().all(1)).sum())
        raise ValueError(
            f"{name} must have a finite gradient, but {count} of {len(x)} rows are not"
        )
    if not torch.equal(labels, y):
        raise RuntimeError(f"{name} changes the labels that it is given")
    return gradient


def _unnoticed(loss: nn.Module, x: Tensor, y: Tensor) -> list[str]:
    """What a loss takes without a word, and should not."""
    notes = []
    with suppress(Exception), torch.no_grad():
        loss(x, y[:-1])
        notes.append("It takes fewer labels than embeddings without an error.")
    broken = x.clone()
    broken[0, 0] = torch.nan
    with suppress(Exception), torch.no_grad():
        if loss(broken, y).isfinite():
            notes.append("It gives a finite value for embeddings with NaN: it hides a divergence.")
    return notes


_NAMED = 4  # arms, in a sentence on what a study lacks

# A regime -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regime:
    """A study that a loss can be put through.

    ``evidence`` has columns arm, repetition, search and recall_at_1; ``trials``, those of its
    searches, arm, search, stage ("short" for all candidates) and recall_at_1. ``families`` tells
    that of each arm, and None of what is no rival. ``train(name, loss_args, executor, device,
    progress)`` gives the trials and the rows of a loss, and ``example(name, loss_args)`` one of its
    Experiments. ``overlap`` is the share of test classes that two repetitions have in common, and
    ``missing`` a sentence on what of the study is not done yet, if anything.
    """

    name: str
    evidence: pd.DataFrame
    trials: pd.DataFrame
    families: Mapping[str, str | None]
    train: Callable[..., tuple[pd.DataFrame, pd.DataFrame]]
    example: Callable[[str, Mapping[str, Any]], Experiment]
    overlap: float = 0.0
    missing: str = ""


class NoEvidenceError(ValueError):
    """A study has nothing yet that a loss could be compared with."""


def families(arms: Sequence[str]) -> dict[str, str | None]:
    """The family of each arm of a study: that of its loss, whatever is added to it.

    None, and so no rival, has what is no loss, or a loss with more steps than a new one gets.

    >>> families(["contrastive + SEC", "dreml", "raw pixels"])
    {'contrastive + SEC': 'pairs', 'dreml': 'ensembles', 'raw pixels': None}
    >>> families(["proxy_anchor, as many visits"])
    {'proxy_anchor, as many visits': None}
    """
    known = {entry.name: entry.family for entry in losses.entries()} | {"dreml": "ensembles"}
    return {arm: known.get(arm.split(" + ")[0]) for arm in arms}


def regime(
    rules: str | studies.Protocol, tables: tuple[studies.Table, studies.Table] | None = None
) -> Regime:
    """A study by its name or its rules, with its trials and evidence: those that are kept, or the
    ``tables``. A loss goes through its protocol in full: all searches, candidates and repetitions.

    A study that is partly done judges by those of its arms that have all repetitions.

    Raises:
        NoEvidenceError: no loss of the study has all repetitions.
        ValueError: an unknown study, or one whose arms are not losses.
    """
    if isinstance(rules, str):
        rules = studies.protocol(rules)
    trials, evidence = tables or studies.tables(rules.name)
    if not evidence.rows:
        raise NoEvidenceError(
            f"the study {rules.name!r} has no evidence to judge by ({evidence.path}): first "
            f"dmlkit study {rules.name}"
        )
    if rules.like:
        raise ValueError(f"the study {rules.name!r} is for single claims: judge by {rules.like}")
    complete, missing = _complete(rules, evidence)
    return Regime(
        rules.name,
        complete,
        trials.frame(),
        families(list(complete["arm"].unique())),
        partial(_through, rules, evidence),
        partial(_example, rules),
        rules.repetitions.overlap,
        missing,
    )


def _complete(rules: studies.Protocol, evidence: studies.Table) -> tuple[pd.DataFrame, str]:
    """The evidence of arms that have all repetitions, and a sentence on the others, if any."""
    rows, count, known = studies.asked_for(rules, evidence), rules.repetitions.count, studies.arms()
    done = rows["arm"].value_counts() if len(rows) else pd.Series(dtype=int)
    lacking = {arm: int(done.get(arm, 0)) for arm in known if done.get(arm, 0) < count}
    some = ", ".join(f"{arm} {done}" for arm, done in list(lacking.items())[:_NAMED])
    told = (
        f"The study {rules.name!r} is only partly done: of its {len(known)} arms, "
        f"{len(lacking)} lack some of the {count} repetitions ({some}"
        f"{', and others' if len(lacking) > _NAMED else ''}). Go on with dmlkit study {rules.name}."
    )
    if not any(families([arm])[arm] for arm in done.index[done == count]):
        raise NoEvidenceError(f"{told} Nothing can be judged before the first has all.")
    missing = f"{told} The loss is compared with the others alone." if lacking else ""
    return rows[rows["arm"].map(done) == count], missing


def _arm(name: str, loss_args: Mapping[str, Any]) -> studies.Arm:
    own = losses.entry(name).space or {}
    made = losses.build(name, num_classes=8, dim=16, **loss_args)
    return studies.Arm(
        name,
        {"loss": name, "loss_args": dict(loss_args)},
        {f"loss_args.{key}": bounds for key, bounds in own.items()},
        learns=any(p.requires_grad for p in made.parameters()),
        points=name,
    )


def _example(rules: studies.Protocol, name: str, loss_args: Mapping[str, Any]) -> Experiment:
    """The training of the first repetition with all defaults."""
    arm, first = _arm(name, loss_args), studies.repetition(rules, 0)
    settings = studies.candidates(rules, arm, 0)[0]
    return studies.experiment(rules, arm, settings, rules.base["steps"], first)


def _through(
    rules: studies.Protocol,
    evidence: studies.Table,
    name: str,
    loss_args: Mapping[str, Any],
    executor: Executor | None,
    device: str,
    progress: bool,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tune and repeat a loss as the study does. Its Runs on disk are known by the code that they
    trained; a table would know them by the file's name alone, so that none is written."""
    arm, tuning = _arm(name, loss_args), rules.tuning
    full = tuning.finalists + tuning.rounds * tuning.extra
    total = len(rules.searches) * (tuning.candidates * tuning.short_steps + full * tuning.steps)
    known, baselines = studies.Table(evidence.key), studies.baselines(rules)
    known.rows = {p: row for p, row in evidence.rows.items() if row["arm"] in baselines}
    with tqdm(
        total=total + rules.repetitions.count * rules.base["steps"], desc=f"{name}, {rules.name}",
        unit="step", unit_scale=True, disable=not progress,
    ) as bar:  # fmt: skip
        how = studies.How(executor, device, bar=bar, store=dmlkit.cache_folder() / "runs")
        tried = studies.search(rules, [arm], how=how)
        rows = studies.compare(rules, [arm], studies.recipes(tried), known, how)
    return tried, rows[rows["arm"] == name]


# The whole of it ----------------------------------------------------------------------------


def judge(
    name: str,
    study: str | Regime | Sequence[str | Regime] | None = None,
    *,
    loss_args: Mapping[str, Any] | None = None,
    folder: Path | None = Path(),
    executor: Executor | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Judgment:
    """Put a loss through a study, or several, and say where it stands among the study's losses.

    ``name`` is ``path/to/file.py:Class`` or ``package.module:Class``; its class may have a
    ``space`` of settings to tune and a ``family`` (see ``losses.entry``). ``study`` is
    ``"scratch"``, ``"transfer"`` or several; without it, both, or the one that has evidence. The
    page is written to ``judge_Class.md`` in the ``folder``; None writes none. What was trained is
    on disk: called again, it goes on from there.

    Raises:
        ValueError, TypeError, RuntimeError: see ``check``; nothing was trained then.
        ValueError: an unknown study, or one in which no loss has all repetitions yet.
    """
    if name.endswith(".py"):
        raise ValueError(f"{name} is a file: name its class, too, as in {name}:MyLoss")
    args = dict(loss_args or {})
    entry, accepted = losses.entry(name), losses.signature(name)
    if unset := [key for key in entry.space or () if accepted[key].default is Parameter.empty]:
        raise ValueError(f"{name}: {', '.join(unset)} is tuned, and must have a default to start")
    notes = check(name, args)
    regimes, missing = _regimes(study)
    costs = {each.name: cost(each.example(name, args)) for each in regimes}
    trials, rows, standings = {}, {}, {}
    for each in regimes:
        how = {"executor": executor, "device": device, "progress": progress}
        trials[each.name], rows[each.name] = each.train(name, args, **how)
        standings[each.name] = standing(
            rows[each.name], each.evidence, each.families, entry.family, each.overlap
        )
    path = None if folder is None else folder / f"judge_{name.rpartition(':')[2]}.md"
    others = {each.name: each.trials for each in regimes}
    found = Judgment(name, entry.family, notes, standings, trials, rows, costs, others, missing)
    if path is not None:
        write_whole({path: partial(Path.write_text, data=found.page(), encoding="utf-8")})
    return found


def _regimes(study: str | Regime | Sequence[str | Regime] | None) -> tuple[list[Regime], list[str]]:
    """The regimes that are asked for, or all that have evidence; and what they lack."""
    listed = [study] if isinstance(study, str | Regime) else study or REGIMES
    found, missing = [], []
    for each in listed:
        try:
            found.append(each if isinstance(each, Regime) else regime(each))
        except NoEvidenceError as error:
            if study is not None:
                raise
            missing.append(f"Not judged by {each}: {error}")
    if not found:
        raise NoEvidenceError("; ".join(missing))
    return found, [*missing, *(each.missing for each in found if each.missing)]
