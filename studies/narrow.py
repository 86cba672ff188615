"""SEE on photographs in 3 to 256 dimensions, beside proxies that rest on Max-Mahalanobis centers.

``python -m studies.narrow`` writes data/evidence/narrow.csv, a row after each training, on all
cores; what is there is not made anew. Some 15 core-minutes. These rules were written before any
training by them. Known by then: the sealed study, every row of the ledger, ``studies.dimensions``
and ``studies.scarce`` (16 dimensions, three photographs of a product: −0.4 [−3.3, 2.6]).

grocery64 at 32 pixels; network, batches and 300 steps of the sealed study; normalized softmax, of
which the largest gain is printed; dimensions 3, 8, 16, 64, 256. SEE as in its authors' code, λ =
0.2, eight points (at most d − 1). In each dimension the plain loss and SEE have a search each, over
the same four recipes, by Recall@1 on validation classes of a fold. Then four repetitions, one a
fold, each tested once on the 20 or 21 products of its fold, all else at SEE's recipe: none;
*duplicates* of a sample in its points' places; and *centers*: proxies that rest on the centers of a
Max-Mahalanobis distribution of as many classes, without points. Beside them the plain loss at the
recipe of its own search. A cell is a product in a repetition, as in ``studies.scarce``.

- Positive control: without SEE 64 dimensions find more than 3 (interval above 0), or nothing is
  said.
- Asked (B6, of few dimensions): the gain of SEE over none in 3 and 8 dimensions minus that in 64
  and 256, means of both; B6's smallest effect, 2 points. The word is the ledger's.
- Beside it, asked of nobody: each gain, and the centers minus none, in each dimension. 60 classes
  do not fit a simplex in fewer than 59: if room is what SEE or the centers give, it shows there.

One loss and one small network; never of the paper's own networks. Eight repetitions and searches on
two folds were planned; before the first training they were cut, by the clock.
"""

import itertools
import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import dmlkit
from dmlkit import data, statistics, training
from dmlkit.data import grocery
from dmlkit.losses.spherical import max_mahalanobis_centers
from dmlkit.training import Experiment
from studies import claims
from studies.filling import Row, fill, missing
from studies.rules import arms, experiment, protocol
from studies.scarce import SIDE, cells, contrast, trained
from studies.views import found

PATH = dmlkit.ROOT / "data" / "evidence" / "narrow.csv"
KEYS = ["part", "dim", "way", "repetition", "recipe"]
DIMS, REPETITIONS, SEARCHED = (3, 8, 16, 64, 256), 4, 1
#: Rate of the network, and temperature.
RECIPES = tuple(itertools.product((2e-3, 6e-3), (1 / 8, 1 / 20)))
#: Each way, and by whose search its recipe is.
WAYS = {"none, own recipe": "none, own recipe", "SEE": "SEE"}
WAYS |= dict.fromkeys(("none", "duplicates", "centers"), "SEE")
FEW, MANY = (3, 8), (64, 256)  # dimensions


def planned(row: Row) -> Experiment:
    """The training of a row: a way in so many dimensions, on the products of a fold."""
    rules, way, r, dim = protocol("grocery64"), row["way"], row["repetition"], row["dim"]
    expanded, validation = way in ("SEE", "duplicates"), row["part"] == "search"
    rate, temperature = RECIPES[row["recipe"]]
    inner = "loss_args.loss_args.temperature" if expanded else "loss_args.temperature"
    settings: Row = {inner: temperature}
    if expanded:
        settings |= {"loss_args.points": min(8, dim - 1), "loss_args.weight": 0.2}
    if way == "duplicates":
        settings |= {"loss_args.directions": "none"}
    where = {"seed": 601 + r, "split": "val" if validation else "test", "lr": rate, "dim": dim}
    where["data_args"] = {"fold": r % len(grocery.FOLDS), "side": SIDE, "validation": validation}
    arm = "normalized_softmax" + " + SEE, code" * expanded
    return experiment(rules, arms(rules)[arm], settings, rules.base["steps"], where)


def outcome(row: Row) -> Row:
    """Recall@1 of each product of the split that is scored."""
    torch.set_num_threads(1)
    e = planned(row)
    train, scored = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    resting = None
    if row["way"] == "centers":
        resting = max_mahalanobis_centers(train.num_classes, e.dim)
    by = found(training.embed(trained(e, train, proxies=resting), scored.images), scored)
    return {"of": "unseen", "mean": round(np.mean([*by.values()]), 4), "by_class": json.dumps(by)}


def chosen(table: pd.DataFrame, dim: int, way: str) -> int:
    """The recipe of a way in so many dimensions, by validation classes."""
    of = (table["part"] == "search") & (table["dim"] == dim) & (table["way"] == WAYS[way])
    return int(table[of].groupby("recipe")["mean"].mean().idxmax())


def waiting(table: pd.DataFrame) -> list[Row]:
    """Trainings that the table has not: the searches, then those that are tested."""
    made, sides = partial(missing, table, KEYS), dict.fromkeys(WAYS.values())
    of = itertools.product(range(SEARCHED), DIMS, sides, range(len(RECIPES)))
    searches = [dict(zip(KEYS, ("search", d, way, r, k), strict=True)) for r, d, way, k in of]
    if rows := made(searches):
        return rows
    each = itertools.product(range(REPETITIONS), DIMS, WAYS)
    tested = [("test", d, way, r, chosen(table, d, way)) for r, d, way in each]
    return made([dict(zip(KEYS, key, strict=True)) for key in tested])


def gain(
    table: pd.DataFrame, dim: int, plus: str = "SEE", minus: str = "none"
) -> NDArray[np.float64]:
    """One way minus another on test classes, in cells."""
    mine = table[table["dim"] == dim]
    return cells(mine, "test", plus) - cells(mine, "test", minus)


def asked(table: pd.DataFrame) -> Row:
    """The question: effect, interval, what four of five studies find, and its word."""
    few, many = (np.mean([gain(table, d) for d in dims], axis=0) for dims in (FEW, MANY))
    at = contrast(few - many)
    size = 100 * float(claims.table()["B6"]["smallest"])
    word = statistics.word("positive", at["effect"], at["low"], at["high"], size, None, at["least"])
    return {**at[["effect", "low", "high", "least"]].to_dict(), "word": word}


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """What notebook 29 shows: levels and differences in each dimension, control and word."""
    ends, tested = ["effect", "low", "high", "least"], table[table["part"] == "test"]
    level = (100 * tested.groupby(["way", "dim"])["mean"].mean()).unstack("way")
    pairs = {"SEE minus none": ("SEE", "none"), "SEE minus duplicates": ("SEE", "duplicates"),
             "centers minus none": ("centers", "none"),
             "SEE minus the plain loss's own recipe": ("SEE", "none, own recipe")}  # fmt: skip
    plain = [cells(table[table["dim"] == d], "test", "none, own recipe") for d in (MANY[0], FEW[0])]
    return {
        "level": {way: {str(d): float(x) for d, x in level[way].items()} for way in WAYS},
        "minus": {
            name: {str(d): contrast(gain(table, d, *pair))[ends].to_dict() for d in DIMS}
            for name, pair in pairs.items()
        },
        "control": contrast(plain[0] - plain[1])[ends].to_dict(),
        "asked": asked(table),
    }


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, outcome)
