"""Does SEC even the turns, image by image? A step's turn by the image's norm, early and late.

``python -m studies.turns`` writes data/evidence/turns.csv, a row after each training, on all
cores; what is there is not made anew. Some twenty core-minutes. These rules were written before
any training by them. Known by then: lesson 14 (the spread of turns of a batch, 43 % without and 22
% with SEC, under Adam; that shorter norms alone do part of it), lesson 13 (free embeddings), the
mean turns of ``studies.mechanism``, the sealed study, all that ``studies.scarce`` lists, and, of a
try of this script, Recall@1 of four trainings on validation classes, which showed that SGD learns.

grocery64 at 32 pixels; network, batches of 64 and 300 steps of the sealed study, semi-hard triplets
and normalized softmax at candidate 0. Ways: none; SEC at 0.1, the lower end of its paper's range;
L2 at 0.01; a fixed norm of 16 at 0.0087 and the relative penalty at 0.23, as in ``studies.anew``.
Optimizers: Adam, SGD with momentum 0.9, AdamW with a decay of 0.1. For a loss and an optimizer one
rate holds for all ways: of three the one that is best without a constraint, by Recall@1 on
validation classes of one fold. So ways differ by the constraint alone. Five repetitions of all,
with one seed for all ways; the first and the last share products.

In every fifth step of two windows, early (10 to 59) and late (160 to 209, just before the rate
falls), the images of the batch are embedded before and after the step, as the loss sees them. By
norm they make fifths of a batch. Of each window: mean norm and mean turn of every fifth; the
logarithm to base 2 of the turn of the shortest fifth over that of the longest (the *ratio*); the
slope of log turn on log norm; the spread (standard deviation over mean) of norms and of turns.

- Positive control: without a constraint the shortest fifth turns more than the longest (ratio,
  interval above 0). For an optimizer where it does not, there is nothing to even.
- SEC acts: it makes the spread of norms smaller. Else its row says nothing.
- Asked of each optimizer, in the mean of both losses and both windows: the ratio without minus the
  ratio with SEC, and the ratio with L2 minus the ratio with SEC. Positive: SEC evens. The smallest
  effect is a factor of 1.1. Six words of the ledger, corrected together by Holm's.
- Beside them: every loss and window, the spread of turns (whatever makes turns uneven beside the
  norm is left in it), the slope, the fixed norm and the relative penalty.

A training that diverges keeps its row, without numbers; a repetition of a comparison counts where
both have theirs, and how many are missing is said. Eight repetitions, a fourth rate of SGD, a
second fold of validation and Recall@1 at the end were planned; before the first training they were
cut, as the machine with more cores was not there: what is watched ends with the late window.
"""

import copy
import itertools
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

import dmlkit
from dmlkit import data, statistics, training
from dmlkit.data import grocery
from dmlkit.training import Experiment
from dmlkit.training.build import build_model, build_objective, open_fabric
from dmlkit.training.devices import repeatable_numerics
from dmlkit.training.trainer import Trainer
from studies.filling import Row, fill, missing
from studies.rules import arms, experiment, protocol
from studies.scarce import SIDE
from studies.views import found

PATH = dmlkit.ROOT / "data" / "evidence" / "turns.csv"
KEYS = ["part", "loss", "optimizer", "way", "repetition", "rate"]
LOSSES, REPETITIONS, SEARCHED, FIFTHS = ("triplet_semihard", "normalized_softmax"), 5, 1, 5
WINDOWS = {"early": range(10, 60, 5), "late": range(160, 210, 5)}
SMALLEST = float(np.log2(1.1))
#: The constraint of each way.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "SEC": {"weight": 0.1},
    "L2": {"target": 0.0, "weight": 0.01},
    "norm 16": {"target": 16.0, "weight": 0.0087},
    "relative": {"relative": True, "weight": 0.23},
}
#: Arguments of each optimizer, and the rates that it chooses from.
OPTIMIZERS: Mapping[str, tuple[Mapping[str, float], tuple[float, ...]]] = {
    "adam": ({}, (1e-3, 3e-3, 9e-3)),
    "sgd": ({"momentum": 0.9}, (0.03, 0.1, 0.3)),
    "adamw": ({"weight_decay": 0.1}, (1e-3, 3e-3, 9e-3)),
}
MEASURES = ("ratio", "slope", "norm spread", "turn spread")


def planned(row: Row) -> Experiment:
    """The training of a row."""
    rules, r = protocol("grocery64"), row["repetition"]
    validation = row["part"] == "rates"
    constraint = {f"constraint.{key}": value for key, value in WAYS[row["way"]].items()}
    where = {"seed": 601 + r, "split": "val" if validation else "test", "lr": row["rate"]}
    where["data_args"] = {"fold": r % len(grocery.FOLDS), "side": SIDE, "validation": validation}
    where |= {"optimizer": row["optimizer"], "optimizer_args": OPTIMIZERS[row["optimizer"]][0]}
    return experiment(rules, arms(rules)[row["loss"]], constraint, rules.base["steps"], where)


def binned(before: NDArray[Any], after: NDArray[Any]) -> dict[str, Any]:
    """Of a step: mean norm and turn (°) of each fifth by norm, and the four measures.

    >>> f = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [8.0, 0.0], [16.0, 0.0]])
    >>> told = binned(f, f + [0.0, 0.01])  # all are moved alike: turns fall as 1/norm
    >>> round(told["ratio"], 3), round(told["slope"], 3)
    (4.0, -1.0)
    """
    f, g = before.astype(float), after.astype(float)
    n = np.linalg.norm(f, axis=1)
    along = (f * g).sum(axis=1) / n
    turn = np.rad2deg(
        np.arctan2(np.linalg.norm(g - along[:, None] * f / n[:, None], axis=1), along)
    )
    fifths = np.array_split(np.argsort(n), FIFTHS)
    turns = [float(turn[rows].mean()) for rows in fifths]
    return {
        "norms": [float(n[rows].mean()) for rows in fifths],
        "turns": turns,
        "ratio": float(np.log2(turns[0] / turns[-1])),
        "slope": float(np.polyfit(np.log(n), np.log(turn + 1e-12), 1)[0]),
        "norm spread": float(n.std() / n.mean()),
        "turn spread": float(turn.std() / turn.mean()),
    }


def seen(model: nn.Module, batch: Tensor) -> NDArray[np.float32]:
    """Raw embeddings of a batch as the loss sees them, by a copy: BatchNorm's averages stay."""
    with torch.no_grad():
        return copy.deepcopy(model).train()(batch).numpy()


def outcome(row: Row) -> Row:
    """Train, and tell turns by norm in both windows, or Recall@1 on validation classes."""
    torch.set_num_threads(1)
    e = planned(row)
    train, scored = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    searching = row["part"] == "rates"
    steps: dict[str, list[dict[str, Any]]] = {window: [] for window in WINDOWS}
    with repeatable_numerics(e.threads):
        model, objective = build_model(e, train), build_objective(e, train)
        trainer = Trainer(e, model, objective, train, open_fabric(e, "cpu"))
        while trainer.step < (e.steps if searching else WINDOWS["late"].stop):
            step = trainer.step
            windows = [w for w, there in WINDOWS.items() if step in there]
            if searching or not windows:
                trainer.advance()
                continue
            batch = trainer._batch(e.seed * 1_000_003 + step)[0]  # that of ``advance``
            before = seen(trainer.plain_model, batch)
            trainer.advance()
            after = seen(trainer.plain_model, batch)
            if all(np.isfinite(f).all() and f.any(axis=1).all() for f in (before, after)):
                steps[windows[0]].append(binned(before, after))
        x = training.embed(trainer.plain_model, scored.images)
    well = bool(np.isfinite(x).all())
    told: Row = {"recall": np.nan}
    if searching and well:
        told["recall"] = np.mean([*found(x, scored).values()])
    for window, each in steps.items():
        whole = well and len(each) == len(WINDOWS[window])
        for name in MEASURES:
            told[f"{window}, {name}"] = np.mean([s[name] for s in each]) if whole else np.nan
        for name in ("norms", "turns"):
            means = np.mean([s[name] for s in each], axis=0).round(4).tolist() if whole else []
            told[f"{window}, {name}"] = json.dumps(means)
    return {k: v if isinstance(v, str) else round(float(v), 5) for k, v in told.items()}


def chosen(table: pd.DataFrame, loss: str, optimizer: str) -> float:
    """The rate of a loss and an optimizer, by validation classes, without a constraint."""
    mine = table[table["part"].eq("rates") & table["loss"].eq(loss)]
    mine = mine[mine["optimizer"] == optimizer].fillna({"recall": 0.0})
    return float(mine.groupby("rate")["recall"].mean().idxmax())


def waiting(table: pd.DataFrame) -> list[Row]:
    """Trainings that the table has not: those that choose rates, then those that are watched."""
    made = partial(missing, table, KEYS)
    sides = list(itertools.product(LOSSES, OPTIMIZERS))
    searches = [
        ("rates", loss, optimizer, "none", r, rate)
        for loss, optimizer in sides
        for r in range(SEARCHED)
        for rate in OPTIMIZERS[optimizer][1]
    ]
    if rows := made([dict(zip(KEYS, key, strict=True)) for key in searches]):
        return rows
    rates = {side: chosen(table, *side) for side in sides}
    watched = [
        ("watched", *side, way, r, rates[side])
        for r in range(REPETITIONS)
        for side in sides
        for way in WAYS
    ]
    return made([dict(zip(KEYS, key, strict=True)) for key in watched])


def told(table: pd.DataFrame, way: str, measure: str, optimizer: str) -> pd.DataFrame:
    """A measure by repetition (rows), loss and window (columns)."""
    mine = table[(table["part"] == "watched") & (table["way"] == way)]
    mine = mine[mine["optimizer"] == optimizer].set_index(["repetition", "loss"])
    each = {window: mine[f"{window}, {measure}"] for window in WINDOWS}
    return pd.concat(each, axis=1).unstack("loss")


def interval(d: pd.Series) -> dict[str, float]:
    """Mean over repetitions, its 95 % interval, and what four of five studies find."""
    d = d.dropna()
    n, effect, error = len(d), float(d.mean()), float(d.sem())
    half, power = (float(stats.t.ppf(q, n - 1)) for q in (0.975, 0.8))
    return {
        "effect": effect, "low": effect - half * error, "high": effect + half * error,
        "least": (half + power) * error, "error": error, "n": n,
    }  # fmt: skip


def evened(
    table: pd.DataFrame, other: str, optimizer: str, measure: str = "ratio", way: str = "SEC"
) -> pd.DataFrame:
    """A measure of another way minus that of SEC."""
    return told(table, other, measure, optimizer) - told(table, way, measure, optimizer)


def questions(table: pd.DataFrame) -> pd.DataFrame:
    """The six questions: those of ``interval``, word, and p of what it says after Holm's."""
    rows = {}
    for optimizer, other in itertools.product(OPTIMIZERS, ("none", "L2")):
        d = evened(table, other, optimizer).mean(axis=1, skipna=False)
        at = interval(d)
        low, high, least = at["low"], at["high"], at["least"]
        word = statistics.word("positive", at["effect"], low, high, SMALLEST, None, least)
        of = SMALLEST if word == "too small to see here" else 0.0
        p = 2 * stats.t.sf(abs(at["effect"] - of) / at["error"], at["n"] - 1)
        rows[optimizer, other] = {**at, "word": word, "p": float(p)}
    frame = pd.DataFrame(rows).T
    return frame.assign(holm=statistics.holm(frame["p"].to_numpy(dtype=float)))


def fifths(table: pd.DataFrame, way: str, optimizer: str) -> NDArray[np.float64]:
    """Norm and turn of each fifth over their means, the mean (in logarithms) of all trainings and
    windows: (2, 5)."""
    mine = table[(table["part"] == "watched") & (table["way"] == way)]
    mine = mine[mine["optimizer"] == optimizer]
    shares = []
    for window, name in itertools.product(WINDOWS, ("norms", "turns")):
        each = [json.loads(text) for text in mine[f"{window}, {name}"]]
        x = np.array([row for row in each if row])  # (n, 5)
        shares.append(np.log(x / x.mean(axis=1, keepdims=True)).mean(axis=0))
    early, late = np.reshape(shares, (2, 2, FIFTHS))
    return np.exp((early + late) / 2)


def _times(at: Mapping[str, float]) -> dict[str, float]:
    return {end: 2 ** at[end] for end in ("effect", "low", "high", "least")}


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """What notebook 21 shows, by optimizer: fifths, measures of each way, what SEC evens."""
    whole: dict[str, Any] = {"evened": {}}
    for measure in ("ratio", "turn spread", "norm spread"):
        whole["evened"][measure] = {
            f"{optimizer}, {other} minus SEC": interval(
                evened(table, other, optimizer, measure).mean(axis=1, skipna=False)
            )
            for optimizer in OPTIMIZERS
            for other in WAYS
            if other != "SEC"
        }
    for optimizer in OPTIMIZERS:
        ways: dict[str, Any] = {}
        for way in WAYS:
            norms, turns = fifths(table, way, optimizer).tolist()
            ways[way] = {"norms": norms, "turns": turns}
            for measure in MEASURES:
                d = told(table, way, measure, optimizer)
                ways[way][measure] = interval(d.mean(axis=1, skipna=False))
                ways[way] |= {f"{measure}, {w}": float(d[w].mean(axis=None)) for w in WINDOWS}
            ways[way]["times"] = _times(ways[way]["ratio"])
        whole[optimizer] = ways
    whole["evened times"] = {name: _times(at) for name, at in whole["evened"]["ratio"].items()}
    asked = questions(table)[["word", "holm"]]
    whole["asked"] = {
        " minus SEC, ".join(key[::-1]): row.to_dict() for key, row in asked.iterrows()
    }
    watched = table[table["part"] == "watched"]
    whole["missing"] = int(watched["late, ratio"].isna().sum())
    whole["rates"] = {
        f"{loss}, {optimizer}": chosen(table, loss, optimizer)
        for loss, optimizer in itertools.product(LOSSES, OPTIMIZERS)
    }
    return whole


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, outcome)
