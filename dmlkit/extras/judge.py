"""The judge: any ``loss(embeddings, labels)`` goes through a study as the study's own losses went.

``judge("mylosses.py:MyLoss")`` checks the loss before anything is trained, tunes and repeats it by
the study's protocol (the same searches, candidates, seeds and test classes), and writes one page:
where it stands, against what, at what cost. The rule is ``extras.standing``'s.
"""

import gc
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from tqdm.auto import tqdm

from dmlkit import data, losses, study, training
from dmlkit.extras import protocol, reality
from dmlkit.extras.standing import LEVEL, Standing, questions, standing
from dmlkit.files import write_whole
from dmlkit.training import Experiment

#: The studies that a loss is judged by; Holm's correction counts the questions of all of them.
REGIMES = ("scratch", "transfer")
_ROUNDS = 15  # of timing


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
    notes = []
    for what, labels in (
        ("without a positive pair, as uniform batches may be", torch.arange(len(y)) % num_classes),
        ("of one class", torch.zeros_like(y)),
    ):
        if what.startswith("without"):
            labels = labels[:num_classes]
        try:
            _gradient(name, loss, x[: len(labels)], labels)
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
        raise ValueError(f"{name} must have a finite gradient, but {count} of {len(x)} rows are not")
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


# A regime -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regime:
    """A study that a loss can be put through.

    ``evidence`` has columns arm, repetition, search and recall_at_1; ``trials``, those of its
    searches, arm, search, stage ("short" for all candidates) and recall_at_1. ``families`` tells
    that of each arm, and None of what is no rival. ``train(name, loss_args, executor, device,
    progress)`` gives the trials and the rows of a loss, and ``example(name, loss_args)`` one of its
    Experiments. ``overlap`` is the share of test classes that two repetitions have in common.
    """

    name: str
    evidence: pd.DataFrame
    trials: pd.DataFrame
    families: Mapping[str, str | None]
    train: Callable[..., tuple[pd.DataFrame, pd.DataFrame]]
    example: Callable[[str, Mapping[str, Any]], Experiment]
    overlap: float = 0.0


def families(arms: Sequence[str]) -> dict[str, str | None]:
    """The family of each arm of a study, by the loss that its name begins with.

    >>> families(["contrastive + SEC", "dreml", "raw pixels"])
    {'contrastive + SEC': 'pairs', 'dreml': 'ensembles', 'raw pixels': None}
    """
    known = {entry.name: entry.family for entry in losses.entries()} | {"dreml": "ensembles"}
    return {arm: known.get(re.split(r" \+ |, ", arm)[0]) for arm in arms}


def regime(name: str) -> Regime:
    """A study by its name, with the evidence that is kept of it.

    A loss is trained by the study's protocol in full: its searches, candidates and repetitions.

    Raises ValueError for an unknown study, or one without evidence.
    """
    rules = protocol.protocol(name)
    trials, evidence = reality.tables(name)
    if not evidence.rows:
        raise ValueError(
            f"the study {name!r} has no evidence in {evidence.path} to judge by: first "
            f"`dmlkit study {name}`"
        )
    arms = evidence.frame()
    return Regime(
        name, arms, trials.frame(), families(list(arms["arm"].unique())),
        partial(_through, rules, trials, evidence), partial(_example, rules), rules.repetitions.overlap,
    )  # fmt: skip


def _arm(name: str, loss_args: Mapping[str, Any]) -> Any:
    own = losses.entry(name).space or {}
    made = losses.build(name, num_classes=8, dim=16, **loss_args)
    return protocol.Arm(
        name,
        {"loss": name, "loss_args": dict(loss_args)},
        {f"loss_args.{key}": bounds for key, bounds in own.items()},
        learns=any(p.requires_grad for p in made.parameters()),
        points=name,
    )


def _example(rules: Any, name: str, loss_args: Mapping[str, Any]) -> Experiment:
    """The training of the first repetition with all defaults."""
    arm, first = _arm(name, loss_args), protocol.repetition(rules, 0)
    settings = protocol.candidates(rules, arm, 0)[0]
    return protocol.experiment(rules, arm, settings, rules.base["steps"], first)


def _through(
    rules: Any, trials: Any, evidence: Any, name: str, loss_args: Mapping[str, Any],
    executor: Executor | None, device: str, progress: bool,
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """Tune and repeat a loss as the study does. Its Runs are kept by the code that they trained;
    a table would know them by the name of its file alone, so that none is written."""
    arm, tuning, steps = _arm(name, loss_args), rules.tuning, rules.base["steps"]
    full = tuning.finalists + tuning.rounds * tuning.extra
    total = len(rules.searches) * (tuning.candidates * tuning.short_steps + full * steps)
    known = reality.Table(evidence.key)
    baselines = reality.baselines(rules)  # need no training again
    known.rows = {p: row for p, row in evidence.rows.items() if row["arm"] in baselines}
    with tqdm(
        total=total + rules.repetitions.count * steps, desc=f"{name}, {rules.name}", unit="step",
        unit_scale=True, disable=not progress,
    ) as bar:  # fmt: skip
        how = reality.How(executor, device, bar=bar)
        tried = reality.search(rules, [arm], reality.Table(trials.key), how)
        rows = reality.compare(rules, [arm], reality.recipes(tried), known, how)
    return tried, rows[rows["arm"] == name]


# Cost -----------------------------------------------------------------------------------------


def cost(experiment: Experiment, rounds: int = _ROUNDS) -> pd.Series:
    """What a loss adds to a step: network (ms of forward and backward without a loss), loss (ms
    that it adds; the median of paired rounds), batch (images), dim and memory (MB that the loss
    holds at most, with its gradients), on one thread of a CPU.
    """
    images = data.load(experiment.data, "train", **experiment.data_args)
    model = training.build_model(experiment, images)
    objective = training.build_objective(experiment, images)
    batch = training.build_sampler(experiment, images)(0)
    x, y = training.to_float(images.images[batch]), torch.from_numpy(images.labels[batch])

    def bare() -> None:
        z = model(x)
        z.backward(torch.ones_like(z))

    taken = study.step_times(
        {"network": bare, "both": lambda: objective(model(x), y).backward()}, rounds
    )
    z = model(x).detach().requires_grad_()
    return pd.Series({
        "network": 1e3 * taken["network"].median(),
        "loss": 1e3 * (taken["both"] - taken["network"]).median(),
        "memory": _peak(lambda: objective(z, y).backward()),
        "batch": len(y), "dim": z.shape[1],
    })  # fmt: skip


def _peak(step: Callable[[], object]) -> float:
    """MB that tensors held at once during a step, by the profiler's record of allocations."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        record.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    return max(itertools.accumulate(change for _, change in changes), default=0) / 2**20


def sensitivity(trials: pd.DataFrame) -> pd.DataFrame:
    """How much the choice of settings matters: one row for each arm.

    Of the candidates of a search, trained for few steps: ``median_loss``, how far the median lies
    below the best, and ``failed``, the share that reaches less than half of the best; means over
    searches.
    """
    short = trials[trials["stage"] == "short"]
    each = short.groupby(["arm", "search"])["recall_at_1"]
    best = each.transform("max")
    failed = (short["recall_at_1"] < best / 2).groupby([short["arm"], short["search"]]).mean()
    lost = each.max() - each.median()
    return pd.DataFrame({"median_loss": lost, "failed": failed}).groupby("arm").mean()


# The verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgment:
    """What was found of a loss; shown as its page, by ``print`` and in a notebook."""

    name: str
    family: str
    notes: list[str]
    regimes: Sequence[Regime]  # those that it was judged by
    standings: Mapping[str, Standing]
    trials: Mapping[str, pd.DataFrame]
    rows: Mapping[str, pd.DataFrame]
    costs: Mapping[str, pd.Series]
    path: Path | None = field(default=None, compare=False)

    @property
    def questions(self) -> pd.DataFrame:
        """Every question, with its p-value and Holm's; those that were not asked count as 1."""
        names = dict.fromkeys([*REGIMES, *self.standings])
        return questions(self.standings, [*names])

    def verdict(self, regime: str) -> str:
        """better, worse, no difference or undecided, against the best of a regime."""
        return self.standings[regime].verdict(self.questions.loc[(regime, "best"), "holm"])

    def page(self) -> str:
        """The page, as Markdown."""
        parts = [f"# {self.name}", *self._findings(), self._table(), self._costs()]
        return "\n\n".join([*parts, "## What limits this verdict", self._limits()]) + "\n"

    __str__ = _repr_markdown_ = page

    def _findings(self) -> list[str]:
        asked, found = self.questions, []
        for regime, at in self.standings.items():
            best = at.arms.loc[at.best]
            lines = [
                f"**{regime}: {self.verdict(regime)}.** Recall@1 {_interval(at.own)} % on unseen "
                f"classes, place {1 + (_rivals(at)['mean'] > at.own['mean']).sum():.0f} among "
                f"{len(_rivals(at))} losses.",
                f"Against the best, {at.best}: {_difference(best)} points, sign-flip p = "
                f"{best['flip']:.3g}; better than every one of them: "
                f"{_tested(asked, regime, 'best')}.",
            ]
            if at.family_best:
                rival = at.arms.loc[at.family_best]
                lines.append(
                    f"Against the best of its family ({self.family}), {at.family_best}: "
                    f"{_difference(rival)} points, sign-flip p = {rival['flip']:.3g}; better than "
                    f"all of these: {_tested(asked, regime, 'family')}."
                )
            found.append(" ".join(lines))
        return [*found, *(f"*Noticed before training:* {note}" for note in self.notes)]

    def _table(self) -> str:
        """All arms of all regimes with their scores, and the loss minus each, paired."""
        names = [*self.standings]
        head = ["", *(f"{n}: R@1 (%) | this minus it" for n in names)]
        lines = [f"| {' | '.join(head)} |", "|---" * (1 + 2 * len(names)) + "|"]
        cells: dict[str, list[str]] = {}
        for i, at in enumerate(self.standings.values()):
            own = (f"**{self.name}**", f"**{_interval(at.own)}** | ", at.own["mean"])
            arms = ((a, f"{_interval(r)} | {_difference(r)}", r["mean"]) for a, r in _rows(at))
            for arm, text, _ in sorted([own, *arms], key=lambda each: -each[2]):
                cells.setdefault(arm, [" | "] * len(names))[i] = text
        lines += [f"| {arm} | {' | '.join(texts)} |" for arm, texts in cells.items()]
        return "\n".join(["## Where it stands", "", *lines])

    def _costs(self) -> str:
        lines = ["## Cost and sensitivity", ""]
        for regime in self.regimes:
            c, own = self.costs[regime.name], sensitivity(self.trials[regime.name])
            others = sensitivity(regime.trials)
            lines.append(
                f"- {regime.name}: the loss adds {c['loss']:.2f} ms to the {c['network']:.1f} ms "
                f"of the network's step (one thread, {c['batch']:.0f} images, {c['dim']:.0f} "
                f"dimensions) and holds {c['memory']:.2f} MB. " + _sensitivity(own, others)
            )
        return "\n".join(lines)

    def _limits(self) -> str:
        count = len(self.questions)
        lines = [
            f"- Holm's correction is over {count} comparisons (each regime's best and its family's "
            "best); those of a regime that was not judged count as lost."
        ]
        for regime in self.regimes:
            at, rows = self.standings[regime.name], self.rows[regime.name]
            t, df = stats.t, at.n - 1
            least = at.error * (t.ppf(1 - LEVEL / count / 2, df) + t.ppf(0.8, df))
            lines.append(
                f"- {regime.name}: {at.n} repetitions, {rows['search'].nunique()} searches of "
                f"{_candidates(self.trials[regime.name])} candidates, {_diverged(rows)} of the "
                f"repetitions diverged. The luck of a recipe is {100 * at.luck:.2f} points "
                f"(standard deviation over searches), and part of the interval. A gain of "
                f"{100 * least:.1f} points over one rival would be found in four of five such "
                "studies; smaller ones mostly not."
            )
        lines.append(
            "- One small network and small images, whose order of losses need not be that of large "
            "ones; a search of this size favors losses with few settings."
        )
        return "\n".join(lines)


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

    ``name`` is ``path/to/file.py:Class`` or ``package.module:Class``; its class may have a ``space``
    of settings to tune and a ``family`` (see ``losses.entry``). ``study`` is ``"scratch"``,
    ``"transfer"`` or both, which is the default. The page is written to ``judge_Class.md`` in the
    ``folder``; None writes none. What was trained is on disk: called again, it goes on from there.

    Raises:
        ValueError, TypeError, RuntimeError: see ``check``; nothing was trained then.
        ValueError: an unknown study, or one without evidence.
    """
    args, chosen = dict(loss_args or {}), REGIMES if study is None else study
    entry = losses.entry(name)
    notes = check(name, args)
    listed = [chosen] if isinstance(chosen, str | Regime) else chosen
    regimes = [each if isinstance(each, Regime) else regime(each) for each in listed]
    costs = {each.name: cost(each.example(name, args)) for each in regimes}
    trials, rows, standings = {}, {}, {}
    for each in regimes:
        how = {"executor": executor, "device": device, "progress": progress}
        trials[each.name], rows[each.name] = each.train(name, args, **how)
        standings[each.name] = standing(
            rows[each.name], each.evidence, each.families, entry.family, each.overlap
        )
    path = None if folder is None else folder / f"judge_{name.rpartition(':')[2]}.md"
    found = Judgment(name, entry.family, notes, regimes, standings, trials, rows, costs, path)
    if path is not None:
        write_whole({path: partial(Path.write_text, data=found.page(), encoding="utf-8")})
    return found


# Words ----------------------------------------------------------------------------------------


def _interval(at: pd.Series) -> str:
    return f"{100 * at['mean']:.1f} [{100 * at['low']:.1f}, {100 * at['high']:.1f}]"


def _difference(row: pd.Series) -> str:
    d, low, high = (100 * row[f"difference{end}"] for end in ("", "_low", "_high"))
    return f"{d:+.1f} [{low:+.1f}, {high:+.1f}]"


def _rivals(at: Standing) -> pd.DataFrame:
    return at.arms[at.arms["family"].notna()]


def _rows(at: Standing) -> list[tuple[str, pd.Series]]:
    return [(str(arm), row) for arm, row in at.arms.iterrows()]


def _tested(asked: pd.DataFrame, regime: str, against: str) -> str:
    p, adjusted = asked.loc[(regime, against)]
    stands = "which stands" if adjusted <= LEVEL else "which does not stand"
    return f"p = {p:.3g}, {adjusted:.3g} after Holm's correction, {stands} at 5 %"


def _sensitivity(own: pd.DataFrame, others: pd.DataFrame) -> str:
    lost = 100 * own["median_loss"].iloc[0]
    text = (
        f"Of its candidate settings, the median loses {lost:.1f} points to the best"
        f" and {own['failed'].iloc[0]:.0%} fail (less than half of the best)"
    )
    if not len(others):
        return text + "."
    low, middle, high = 100 * np.quantile(others["median_loss"], [0.1, 0.5, 0.9])
    return f"{text}; other losses lose {middle:.1f} ({low:.1f} to {high:.1f}, from 10 to 90 %)."


def _candidates(trials: pd.DataFrame) -> int:
    return int((trials["stage"] == "short").sum() / trials["search"].nunique())


def _diverged(rows: pd.DataFrame) -> int:
    return int((rows["recall_at_1"] == 0).sum())
