"""Two findings about norms that came by looking, tried anew: norm 16, and the relative penalty.

``python -m studies.anew`` writes data/evidence/anew.csv, a row after each training, on all cores;
what is there is not made anew. Some fifteen core-minutes. These rules were written before any
training by them. Known by then: that on drawings a fixed norm of 16 and a penalty of relative
norms once seemed to bring normalized softmax 4.2 and 1.4 points, of which nothing was left at
their own recipes with weight 0 (lesson 21), and all that ``studies.scarce`` lists.

grocery64 at 32 pixels; network, batches, 300 steps and temperature of the sealed study's candidate
0 of normalized softmax. Ways: no constraint; fixed norms of 1, 4, 16 and 64; the relative penalty.
As norms act as a rate does, each way has a rate of its own, of three: a third of candidate 0's,
that, or three times it, by the mean Recall@1 on validation classes of two folds.
Weights are not chosen: of norm 16 and of the relative one each is the
geometric mean of the two that the searches on drawings had found; other fixed norms have that of 16
times (16 / norm)², so that the same share of the norm costs the same. Then eight
repetitions, each tested once, on the 20 or 21 products of its fold; a cell is a product in a
repetition, as in ``studies.scarce``.

- Positive control: twice the steps (without a constraint, at its rate) find more, by an interval
  above 0, or nothing is said.
- The constraint acts: of test embeddings the mean norm is within a quarter of what a fixed norm
  asks, and the spread of relative norms is smaller than without, or that way says nothing.
- Asked: norm 16 minus none, relative minus none. The smallest effect that matters is half a
  point (the margin of the sealed study); what once seemed to be gained is the printed size. Words
  are the ledger's, corrected together by Holm's.
- Beside it, asked of nobody: norms 1, 4 and 64 minus none, and each way's rate: if a norm is
  a rate, what is chosen rises with the norm, and no difference is left.
- What can be found is said beside: a small gain will not be.

Sixteen repetitions, a fourth rate and four folds of validation were planned; before the first
training they were cut, as the machine with more cores was not there.
"""

import itertools
import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

import dmlkit
from dmlkit import data, statistics, training
from dmlkit.data import grocery
from dmlkit.training import Experiment
from studies.filling import Row, fill, missing
from studies.rules import arms, experiment, protocol
from studies.scarce import SIDE, cells, contrast, trained
from studies.views import found

PATH = dmlkit.ROOT / "data" / "evidence" / "anew.csv"
KEYS = ["part", "way", "repetition", "rate"]
REPETITIONS, SEARCHED, RATES = 8, 2, (1e-3, 3e-3, 9e-3)
MARGIN = 0.5  # points
NORMS, WEIGHT = (1.0, 4.0, 16.0, 64.0), 0.0087  # of norm 16
#: The constraint of each way. Twice the steps, the control, have the rate of none.
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    **{f"norm {n:g}": {"target": n, "weight": WEIGHT * (16 / n) ** 2} for n in NORMS},
    "relative": {"relative": True, "weight": 0.23},
}
TWICE = "none, twice the steps"
#: What is asked, and the gain that it once seemed to bring, in points.
ASKED = {"norm 16": 4.2, "relative": 1.4}


def planned(row: Row) -> Experiment:
    """The training of a row: a way at a rate, on the products of a fold."""
    rules, way, r = protocol("grocery64"), row["way"], row["repetition"]
    validation = row["part"] == "rates"
    constraint = {f"constraint.{key}": value for key, value in WAYS.get(way, {}).items()}
    where = {"seed": 501 + r, "split": "val" if validation else "test", "lr": row["rate"]}
    where["data_args"] = {"fold": r % len(grocery.FOLDS), "side": SIDE, "validation": validation}
    steps = rules.base["steps"] * (2 if way == TWICE else 1)
    return experiment(rules, arms(rules)["normalized_softmax"], constraint, steps, where)


def outcome(row: Row) -> Row:
    """Recall@1 of each product of the split that is scored, and its raw norms."""
    torch.set_num_threads(1)
    e = planned(row)
    train, scored = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    x = training.embed(trained(e, train), scored.images)
    norms, by = np.linalg.norm(x.astype(float), axis=1), found(x, scored)
    told = {"mean": np.mean([*by.values()]), "norm": norms.mean(), "spread": norms.std()}
    told["spread"] /= told["norm"]
    kept = {key: round(float(value), 4) for key, value in told.items()}
    return {"of": "unseen", **kept, "by_class": json.dumps(by)}


def chosen(table: pd.DataFrame, way: str) -> float:
    """The rate of a way, by validation classes."""
    mine = table[(table["part"] == "rates") & (table["way"] == ("none" if way == TWICE else way))]
    return float(mine.groupby("rate")["mean"].mean().idxmax())


def waiting(table: pd.DataFrame) -> list[Row]:
    """Trainings that the table has not: those that choose rates, then those that are tested."""
    made = partial(missing, table, KEYS)
    searches = made(
        [
            dict(zip(KEYS, ("rates", way, r, rate), strict=True))
            for r, way, rate in itertools.product(range(SEARCHED), WAYS, RATES)
        ]
    )
    return searches or made(
        [
            dict(zip(KEYS, ("test", way, r, chosen(table, way)), strict=True))
            for r, way in itertools.product(range(REPETITIONS), (*WAYS, TWICE))
        ]
    )


def minus(table: pd.DataFrame, way: str, other: str = "none") -> pd.Series:
    """A way minus another on test classes, in points: that of ``scarce.contrast``."""
    return contrast(cells(table, "test", way) - cells(table, "test", other))


def questions(table: pd.DataFrame) -> pd.DataFrame:
    """Both questions: those of ``minus``, word, and p of what it says after Holm's."""
    rows = {}
    for way, size in ASKED.items():
        at = minus(table, way)
        low, high, least = at["low"], at["high"], at["least"]
        word = statistics.word("positive", at["effect"], low, high, MARGIN, size, least)
        against = {"too small to see here": MARGIN, "printed size excluded here": size}
        t = (at["effect"] - against.get(word, 0.0)) / at["error"]
        rows[way] = {**at, "word": word, "p": float(2 * stats.t.sf(abs(t), at["df"]))}
    frame = pd.DataFrame(rows).T
    return frame.assign(holm=statistics.holm(frame["p"].to_numpy(dtype=float)))


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """What notebook 21 shows: all ways minus none, their rates, levels, norms and the words."""
    ends = ["effect", "low", "high", "least"]
    tested = table[table["part"] == "test"].groupby("way")[["mean", "norm", "spread", "rate"]]
    by_way = tested.mean().rename(columns={"mean": "recall"}).to_dict("index")
    return {
        "minus none": {w: minus(table, w)[ends].to_dict() for w in by_way if w != "none"},
        "by way": by_way,
        "asked": questions(table)[["word", "holm"]].to_dict("index"),
    }


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, outcome)
