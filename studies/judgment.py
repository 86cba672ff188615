"""What the judge says of a loss: its verdicts, its costs, and the page that tells them."""

import gc
import itertools
import json
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch.profiler import ProfilerActivity, profile

from dmlkit import data, study, training
from dmlkit.training import Experiment
from studies.standing import LEVEL, Standing, questions

#: The studies that a loss is judged by; Holm's correction counts the questions of all of them.
REGIMES = ("scratch", "transfer")
_ROUNDS = 15  # of timing


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
    with (
        warnings.catch_warnings(action="ignore"),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record,
    ):
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
    if not len(trials):  # of a study whose trials are not there
        return pd.DataFrame(columns=["median_loss", "failed"], dtype=float)
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
    standings: Mapping[str, Standing]  # by regime, as all that follow
    trials: Mapping[str, pd.DataFrame]
    rows: Mapping[str, pd.DataFrame]
    costs: Mapping[str, pd.Series]
    others: Mapping[str, pd.DataFrame]  # trials of the study's own losses
    missing: Sequence[str] = ()  # what of the studies is not done yet, in sentences

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

    __repr__ = __str__ = _repr_markdown_ = page

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
        found += [f"*Not done yet:* {sentence}" for sentence in self.missing]
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
        for regime, c in self.costs.items():
            own, others = sensitivity(self.trials[regime]), sensitivity(self.others[regime])
            lines.append(
                f"- {regime}: the loss adds {c['loss']:.2f} ms to the {c['network']:.1f} ms "
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
        for regime, at in self.standings.items():
            rows = self.rows[regime]
            t, df = stats.t, at.n - 1
            least = at.error * (t.ppf(1 - LEVEL / count / 2, df) + t.ppf(0.8, df))
            lines.append(
                f"- {regime}: {at.n} repetitions, {rows['search'].nunique()} searches of "
                f"{_candidates(self.trials[regime])} candidates, {_diverged(rows)} of the "
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
