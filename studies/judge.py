"""The judge: any ``loss(embeddings, labels)`` goes through a study as the study's own losses went.

``judge("mylosses.py:MyLoss")`` tries the loss before anything is trained, tunes and repeats it by
the study's protocol (the same searches, candidates, seeds and test classes), and writes one page:
where it stands, against what, at what cost. The rule is ``standing``'s.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import losses
from dmlkit.cli import terminal
from dmlkit.files import told, write_whole
from dmlkit.training import Experiment
from studies.answers import complete
from studies.check import asked_for
from studies.judgment import REGIMES, Judgment, Regime, cost
from studies.rules import Protocol, arms, experiment, loss_arm, protocol, repetition
from studies.search import candidates, recipes, search
from studies.standing import standing
from studies.trainings import TRIAL_KEY, Table, baselines, compare, tables
from studies.verdict import Verdict, verdict

# Before any training --------------------------------------------------------------------------


def examine(name: str, loss_args: Mapping[str, Any] | None = None) -> list[str]:
    """Try a loss on batches of random embeddings; return what is odd of it, in sentences.

    Raises:
        ValueError: it gives no finite scalar, or no finite gradient at the embeddings other than 0.

    >>> examine("contrastive")
    []
    """
    loss = losses.build(name, num_classes=64, dim=32, **(loss_args or {}))
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(32).repeat_interleave(4)
    x = torch.randn(len(y), 32, generator=generator)
    if not any(_gradient(name, loss, scale * x, y).any() for scale in (1.0, 5.0)):
        raise ValueError(f"{name} has no gradient: it is 0 for all embeddings of two batches")
    odd = {
        "without a positive pair, as uniform batches may be": torch.arange(64),
        "of one class": torch.zeros(64, dtype=torch.int64),
    }
    notes = []
    for what, labels in odd.items():
        try:
            _gradient(name, loss, torch.randn(64, 32, generator=generator), labels)
        except (ValueError, TypeError, RuntimeError) as error:
            notes.append(f"On a batch {what}: {error}.")
    return notes


def _gradient(name: str, loss: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of a loss at embeddings, which must be finite as its value."""
    given = x.clone().requires_grad_()
    value = loss(given * 1.0, y)  # no leaf: as in training, it may be changed in place
    if not isinstance(value, Tensor) or value.shape or not value.isfinite():
        raise ValueError(f"{name} must give a finite scalar Tensor, but gives {value}")
    value.backward()
    gradient = torch.zeros_like(x) if given.grad is None else given.grad
    if not gradient.isfinite().all():
        raise ValueError(
            f"{name} must have a finite gradient, but it is not on {len(x)} embeddings"
        )
    return gradient


# By the study's rules -------------------------------------------------------------------------


def compared(rules: Protocol) -> pd.DataFrame:
    """The evidence that a loss is compared with: that of arms which have all repetitions."""
    found = complete(rules, asked_for(rules, tables(rules.name)[1]))
    if not any(families(found["arm"].unique()).values()):
        raise ValueError(f"no loss has all repetitions yet: first dmlkit study {rules.name}")
    return found


def families(arms: Iterable[str]) -> dict[str, str | None]:
    """The family of each arm of a study: that of its loss, whatever is added to it.

    None, and so no rival, has what is no loss, or a loss with more steps than a new one gets.

    >>> families(["contrastive + SEC", "dreml", "raw pixels", "proxy_anchor, as many visits"])
    {'contrastive + SEC': 'pairs', 'dreml': 'ensembles', 'raw pixels': None, \
'proxy_anchor, as many visits': None}
    """
    known = {entry.name: entry.family for entry in losses.entries()} | {"dreml": "ensembles"}
    return {arm: known.get(arm.split(" + ")[0]) for arm in arms}


def example(rules: Protocol, name: str, loss_args: Mapping[str, Any]) -> Experiment:
    """The training of the first repetition with all defaults."""
    arm = loss_arm(name, loss_args)
    settings = candidates(rules, arm, 0)[0]
    return experiment(rules, arm, settings, rules.base["steps"], repetition(rules, 0))


def through(
    rules: Protocol, name: str, loss_args: Mapping[str, Any], **how: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tune and repeat a loss as a study does: its trials and its rows.

    Its Runs on disk are known by the code that they trained; a table would know them by the file's
    name alone, so that none is written.
    """
    arm, evidence = loss_arm(name, loss_args), tables(rules.name)[1]
    how["store"] = dmlkit.cache_folder() / "runs"
    tried = search(rules, [arm], Table(TRIAL_KEY), **how)
    known = Table(evidence.key)
    known.rows = {p: row for p, row in evidence.rows.items() if row["arm"] in baselines(rules)}
    rows = compare(rules, [arm], recipes(tried), known, **how)
    return tried, rows[rows["arm"] == name]


def _steps(rules: Protocol) -> int:
    """Of all trainings of one loss."""
    t, repeated = rules.tuning, rules.repetitions.count * rules.base["steps"]
    full = t.finalists + t.rounds * t.extra
    return len(rules.searches) * (t.candidates * t.short_steps + full * t.steps) + repeated


def judge(
    name: str,
    study: str | Sequence[str] = REGIMES,
    *,
    loss_args: Mapping[str, Any] | None = None,
    folder: Path | None = Path(),
    executor: Executor | None = None,
    device: str = "auto",
    progress: bool = True,
) -> Judgment | Verdict:
    """Put a loss through a study, or several, and say where it stands among the study's losses.

    ``name`` is ``path/to/file.py:Class`` or ``package.module:Class``; its class may have a
    ``space`` of settings to tune and a ``family`` (see ``losses.entry``). ``study`` is
    ``"scratch"``, ``"transfer"`` or both; of these, one whose images are not here is left out, and
    the page says so; or ``"grocery64"`` alone (see ``verdict``). The page is written to
    ``judge_Class.md`` in the ``folder``; None writes none. What was trained is on disk: called
    again, it goes on from there.

    Raises:
        ValueError: see ``examine``; nothing was trained then. Or an unknown study.
    """
    args, entry, found = dict(loss_args or {}), losses.entry(name), {}
    notes = examine(name, args)
    studies = [protocol(each) for each in ([study] if isinstance(study, str) else study)]
    if any(rules.sealed for rules in studies):
        if len(studies) > 1:
            raise ValueError(f"a sealed study judges alone: say one of {', '.join(study)}")
        how = {"executor": executor, "device": device, "progress": progress}
        return verdict(studies[0], name, args, folder, **how)
    for rules, evidence in [(rules, compared(rules)) for rules in studies]:
        try:
            price = cost(example(rules, name, args))
        except OSError as error:  # images that are not here
            if len(studies) == 1:
                raise
            notes.append(f"{rules.name} was not judged: {told(error)}.")
            terminal.console.print(notes[-1], highlight=False)
            continue
        minutes = _steps(rules) * (price["network"] + price["loss"]) / 60_000
        about = f"{rules.name}: {_steps(rules):,} steps, about {max(1, minutes):.0f} minutes"
        terminal.console.print(f"{about} on one core, without the scores.", highlight=False)
        others = tables(rules.name)[0].frame()
        how = {"executor": executor, "device": device, "progress": progress}
        trials, rows = through(rules, name, args, **how)
        of, overlap = families(evidence["arm"].unique()), rules.repetitions.overlap
        at = standing(rows, evidence, of, entry.family, overlap)
        lacking = sorted(set(arms(rules)) - set(of))
        found[rules.name] = Regime(at, price, trials, rows, others, lacking)
    judgment = Judgment(name.rpartition(":")[2], entry.family, notes, found)
    if folder is not None:
        path = folder / f"judge_{judgment.name}.md"
        write_whole({path: partial(Path.write_text, data=judgment.page(), encoding="utf-8")})
    return judgment
