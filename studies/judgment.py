"""What the judge says of a loss: its verdicts, its costs, and the page that tells them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from scipy import stats

from dmlkit import data, sweeps, training
from dmlkit.training import Experiment
from studies.standing import LEVEL, Standing, questions

#: The studies that a loss is judged by; Holm's correction counts the questions of all of them.
REGIMES = ("scratch", "transfer")


def cost(experiment: Experiment, rounds: int = 15) -> pd.Series:
    """What a loss adds to a step: network (ms of forward and backward without a loss), loss (ms
    that it adds; the median of paired rounds), batch (images) and dim, on one thread of a CPU."""
    images = data.load(experiment.data, "train", **experiment.data_args)
    model = training.build_model(experiment, images)
    objective = training.build_objective(experiment, images)
    batch = training.build_sampler(experiment, images)(0)
    x, y = training.to_float(images.images[batch]), torch.from_numpy(images.labels[batch])

    def bare() -> None:
        z = model(x)
        z.backward(torch.ones_like(z))

    steps = {"network": bare, "both": lambda: objective(model(x), y).backward()}
    taken = 1e3 * sweeps.step_times(steps, rounds)
    return pd.Series({
        "network": taken["network"].median(), "loss": (taken["both"] - taken["network"]).median(),
        "batch": len(y), "dim": experiment.dim,
    })  # fmt: skip


def sensitivity(trials: pd.DataFrame) -> pd.DataFrame:
    """How much the choice of settings matters: one row for each arm.

    Of the candidates of a search, trained for few steps: ``median_loss``, how far the median lies
    below the best, ``default_loss``, how far the first, the defaults, does, and ``failed``, the
    share that reaches less than half of the best; means over searches.
    """
    short = trials[trials["stage"] == "short"]
    each = short.groupby(["arm", "search"])["recall_at_1"]
    failed = (short["recall_at_1"] < each.transform("max") / 2).groupby(
        [short["arm"], short["search"]]
    )
    first = short[short["candidate"] == 0].set_index(["arm", "search"])["recall_at_1"]
    lost = {"median_loss": each.max() - each.median(), "default_loss": each.max() - first}
    return pd.DataFrame({**lost, "failed": failed.mean()}).groupby("arm").mean()


@dataclass(frozen=True)
class Regime:
    """What one study found of a loss."""

    standing: Standing
    cost: pd.Series
    trials: pd.DataFrame
    rows: pd.DataFrame
    others: pd.DataFrame  # trials of the study's own losses
    lacking: Sequence[str] = ()  # arms of the study without all repetitions


@dataclass(frozen=True)
class Judgment:
    """What was found of a loss; shown as its page, by ``print`` and in a notebook."""

    name: str
    family: str
    notes: Sequence[str]
    regimes: Mapping[str, Regime]

    @property
    def questions(self) -> pd.DataFrame:
        """Every question, with its p-value and Holm's; those that were not asked count as 1."""
        found = {name: each.standing for name, each in self.regimes.items()}
        return questions(found, [*dict.fromkeys([*REGIMES, *found])])

    def verdict(self, regime: str) -> str:
        """What becomes of "better than the best" in a regime."""
        adjusted = self.questions.loc[(regime, "best"), "holm"]
        return self.regimes[regime].standing.verdict(adjusted)

    def page(self) -> str:
        """The page, as Markdown."""
        parts = [
            f"# {self.name}",
            *(self._finding(name) for name in self.regimes),
            *(
                f"*Not done yet:* {name} lacks repetitions of {', '.join(each.lacking)}; the loss "
                "is compared with the others alone."
                for name, each in self.regimes.items()
                if each.lacking
            ),
            *(f"*Noticed before training:* {note}" for note in self.notes),
            "## Where it stands",
            self._table(),
            "## Cost and sensitivity",
            "\n".join(_cost(name, each) for name, each in self.regimes.items()),
            "## What limits this verdict",
            f"- Holm's correction is over {len(self.questions)} comparisons (each regime's best "
            "and its family's best); those of a regime that was not judged count as lost.\n"
            + "".join(self._limit(name, each) for name, each in self.regimes.items())
            + "- One small network and small images, whose order of losses need not be that of "
            "large ones; a search of this size favors losses with few settings.",
        ]
        return "\n\n".join(parts) + "\n"

    __repr__ = __str__ = _repr_markdown_ = page

    def _finding(self, regime: str) -> str:
        at = self.regimes[regime].standing
        rivals = at.arms[at.arms["family"].notna()]
        place = 1 + (rivals["mean"] > at.own["mean"]).sum()
        text = (
            f"**{regime}: better than the best? {self.verdict(regime)}.** "
            f"Recall@1 {_interval(at.own)} % on unseen "
            f"classes, place {place} among {len(rivals)} losses. Against the best, "
            f"{self._against(regime, 'best', at.best)}"
        )
        d, low, high = 100 * at.mean[["difference", "low", "high"]]
        text += f" Minus the mean of all rivals: {d:+.1f} [{low:+.1f}, {high:+.1f}] points."
        if not at.family_best:
            return text
        family = self._against(regime, "family", at.family_best)
        return f"{text} Against the best of its family ({self.family}), {family}"

    def _against(self, regime: str, question: str, rival: str) -> str:
        row = self.regimes[regime].standing.arms.loc[rival]
        p, adjusted = self.questions.loc[(regime, question)]
        return (
            f"{rival}: {_difference(row)} points; better than "
            f"every one of them: p = {p:.3g}, {adjusted:.3g} after Holm's correction, which "
            f"{'stands' if adjusted <= LEVEL else 'does not stand'} at 5 %."
        )

    def _table(self) -> str:
        """All arms of all regimes with their scores, and the loss minus each, paired."""
        head = ["", *(f"{n}: R@1 (%) | this minus it" for n in self.regimes)]
        cells: dict[str, list[str]] = {}
        for i, at in enumerate(each.standing for each in self.regimes.values()):
            rows = [
                (str(a), f"{_interval(r)} | {_difference(r)}", r) for a, r in at.arms.iterrows()
            ]
            own = (f"**{self.name}**", f"**{_interval(at.own)}** | ", at.own)
            for arm, text, _ in sorted([own, *rows], key=lambda row: -row[2]["mean"]):
                cells.setdefault(arm, [" | "] * len(self.regimes))[i] = text
        lines = [f"| {' | '.join(head)} |", "|---" * (1 + 2 * len(self.regimes)) + "|"]
        return "\n".join([*lines, *(f"| {arm} | {' | '.join(x)} |" for arm, x in cells.items())])

    def _limit(self, name: str, regime: Regime) -> str:
        """What a regime could have found: the smallest gain with a power of 80 %."""
        at, trials = regime.standing, regime.trials
        best, level = at.arms.loc[at.best], 1 - LEVEL / len(self.questions) / 2
        least = best["error"] * stats.t.ppf([level, 0.8], best["df"]).sum()
        searches = trials["search"].nunique()
        lucky = min(1.0, 2 * at.luck**2 / searches / best["error"] ** 2)
        return (
            f"- {name}: {at.n} repetitions, {searches} searches of "
            f"{(trials['stage'] == 'short').sum() / searches:.0f} candidates, "
            f"{(regime.rows['recall_at_1'] == 0).sum()} of the repetitions diverged. The luck of "
            f"a recipe is {100 * at.luck:.2f} points (standard deviation over searches): "
            f"{lucky:.0%} of the variance of a difference, which no repetition narrows. A gain of "
            f"{100 * least:.1f} points over one rival would be found in four of five such studies; "
            "smaller ones mostly not. Over the mean of all rivals "
            f"it would be {100 * at.mean['least']:.1f} points (uncorrected): that one is a typical "
            "loss, which is less than the best, and no luck of theirs is in it. Classes are no "
            "units here: this study has kept its scores by repetition.\n"
        )


def _cost(name: str, regime: Regime) -> str:
    c, own = regime.cost, sensitivity(regime.trials).iloc[0]
    others = 100 * sensitivity(regime.others)["median_loss"].quantile([0.1, 0.5, 0.9])
    return (
        f"- {name}: the loss adds {c['loss']:.2f} ms to the {c['network']:.1f} ms of the network's "
        f"step (one thread, {c['batch']:.0f} images, {c['dim']:.0f} dimensions). Of its candidate "
        f"settings, the median loses {100 * own['median_loss']:.1f} points to the best and "
        f"{own['failed']:.0%} fail (less than half of the best); other losses lose "
        f"{others[0.5]:.1f} ({others[0.1]:.1f} to {others[0.9]:.1f}, from 10 to 90 %)."
    )


def _interval(at: pd.Series) -> str:
    return f"{100 * at['mean']:.1f} [{100 * at['low']:.1f}, {100 * at['high']:.1f}]"


def _difference(row: pd.Series) -> str:
    d, low, high = (100 * row[f"difference{end}"] for end in ("", "_low", "_high"))
    return f"{d:+.1f} [{low:+.1f}, {high:+.1f}]"
