"""Two findings about norms that came by looking, tried anew: norm 16, and the relative penalty.

``python -m studies.anew`` writes data/evidence/anew.csv, a row after each training; what is there
is not made anew. Some five minutes of one quiet core. These rules were written before any training
by them. Known by then: that on drawings a fixed norm of 16 and a penalty of relative norms once
seemed to bring normalized softmax 4.2 and 1.4 points, of which nothing was left at their own
recipes with weight 0 (lesson 21), and all that ``studies.scarce`` lists.

grocery64 at 32 pixels; network, batches, 300 steps and temperature of the sealed study's candidate
0 of normalized softmax. Each way chooses one of three rates, a third of candidate 0's, that, or
three times it, by the mean Recall@1 on validation classes over the four folds. Weights are not
chosen: each is the geometric mean of the two that the searches on drawings had found. Then eight
repetitions, as in ``studies.scarce``, each tested once, on the 20 or 21 products of its fold.

- Asked: norm 16 minus none, relative minus none. Positive, by half a point (the margin of the
  sealed study): the finding holds here. Both are corrected together by Holm's.
- What can be found is said beside: a small gain will not be.
"""

import json
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy import stats

import dmlkit
from dmlkit import data, statistics, training
from dmlkit.cli import terminal
from dmlkit.data import grocery
from dmlkit.files import write_whole
from dmlkit.training import Experiment
from studies.rules import arms, experiment, protocol
from studies.scarce import SIDE, cells, contrast, trained
from studies.views import found

PATH = dmlkit.ROOT / "data" / "evidence" / "anew.csv"
REPETITIONS, RATES = 8, (1e-3, 3e-3, 9e-3)
MARGIN = 0.5  # points
#: The constraint of each way, and the gain that it once seemed to bring, in points.
WAYS: dict[str, tuple[dict[str, float | bool], float]] = {
    "none": ({}, 0.0),
    "norm 16": ({"target": 16.0, "weight": 0.0087}, 4.2),
    "relative": ({"relative": True, "weight": 0.23}, 1.4),
}


def planned(way: str, rate: float, fold: int, seed: int, validation: bool = False) -> Experiment:
    """The training of a way at a rate, on the products of a fold."""
    rules = protocol("grocery64")
    settings = {f"constraint.{key}": value for key, value in WAYS[way][0].items()}
    where = {"seed": seed, "split": "val" if validation else "test", "lr": rate}
    where["data_args"] = {"fold": fold, "side": SIDE, "validation": validation}
    arm = arms(rules)["normalized_softmax"]
    return experiment(rules, arm, settings, rules.base["steps"], where)


def of_unseen(e: Experiment) -> dict[str, float]:
    """Recall@1 of each product of the split that is scored."""
    train, scored = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    return found(training.embed(trained(e, train), scored.images), scored)


def chosen(table: pd.DataFrame, way: str) -> float:
    """The rate of a way, by validation classes."""
    mine = table[(table["part"] == "rates") & (table["way"] == way)]
    return float(mine.groupby("rate")["mean"].mean().idxmax())


def questions(table: pd.DataFrame) -> pd.DataFrame:
    """Both questions: those of ``scarce.contrast``, word, and p of what it says after Holm's."""
    rows = {}
    for way, (_, size) in WAYS.items():
        if way != "none":
            at = contrast(cells(table, "test", way) - cells(table, "test", "none"))
            low, high, least = at["low"], at["high"], at["least"]
            word = statistics.word("positive", at["effect"], low, high, MARGIN, size, least)
            against = {"too small to see here": MARGIN, "printed size excluded here": size}
            t = (at["effect"] - against.get(word, 0.0)) / at["error"]
            p = float(2 * stats.t.sf(abs(t), at["df"]))
            rows[way] = {**at, "word": word, "p": p, "rate": chosen(table, way)}
    frame = pd.DataFrame(rows).T
    return frame.assign(holm=statistics.holm(frame["p"].to_numpy(dtype=float)))


def main() -> None:
    """Train what is missing, and write the table after each training."""
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame({"part": []})
    torch.set_num_threads(1)
    folds = len(grocery.FOLDS)
    plans = [("rates", way, r, rate) for r in range(folds) for way in WAYS for rate in RATES]
    plans += [("test", way, r, None) for r in range(REPETITIONS) for way in WAYS]
    for part, way, r, rate in plans:
        about = {"part": part, "way": way, "repetition": r, "of": "unseen"}
        known = table if rate is None or not len(table) else table[table["rate"] == rate]
        if len(known) and (known[[*about]] == [*about.values()]).all(axis=1).any():
            continue
        at = chosen(table, way) if rate is None else rate
        by = of_unseen(planned(way, at, r % folds, 501 + r, validation=part == "rates"))
        row = {**about, "rate": at, "mean": round(float(np.mean([*by.values()])), 4)}
        table = pd.concat([table, pd.DataFrame([row | {"by_class": json.dumps(by)}])])
        write_whole({PATH: partial(table.to_csv, index=False)})
        terminal.console.print(part, way, r, at, row["mean"] if part == "rates" else "")


if __name__ == "__main__":
    main()
