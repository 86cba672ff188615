"""Few photographs: fine-tune the whole network, or leave it? At 224 pixels, on a GPU.

``python -m studies.whole`` writes data/evidence/25_whole.csv, a row after each training; what is
there is not made anew, so that it can be broken off. 64 searches and at most 96 trainings: eight
minutes of a GPU with six processes. These rules were committed before any training by them.

**Known by then.** Notebook 25: at 128 pixels 5 products x 10 photographs brought the whole network
+6.7 points over itself untouched, in 60 steps, not searched, one training a fold; that ended below
untouched features of 224 pixels. At 224 pixels 60 products with all their photographs brought +13.4
in 200 steps (24_photographs). Heads begun at random end at -6.3 from 5 x 10 and +4.3 from 60 x 40.

**What is trained.** EfficientNet-Lite0 by the recipe photos_grocery_lite0 at 224 pixels (resized to
252), bf16, at most 16 products x 4 photographs a batch; the new head leaves after training, and the
network's 1,280 features search. Cells are so many products x so many photographs of each, drawn as
in 25_thinned; repetition r draws anew. Of 20, 60 and 200 steps the number is chosen in each cell
and fold by a third of the training products, which is held out, in repetition 0; 60 products leave
none to hold out, and take what 40 x 10 took. **WiSE-FT**: weights halfway (share 0.5) between
untouched and trained. *Chosen* is the share (0, 0.5, 1) that was best on held-out products: 0 is
*leave it*. Repetitions are made one after another: of three those that are whole when eight minutes
are over count, and at least one must be.

**What is measured.** Recall@1 of each of 81 products in the fold that tests it, on another visit;
the product is the unit, of its mean over repetitions, and intervals are t-intervals of 95 %.
*Forgotten*: of a tested product whose coarse class (such as Apple) has another product, how often
the nearest photograph of another visit among all other products is of that coarse class; there are
50. Untouched is measured by the same code and the same processor.

- Positive control: 60 x 40, share 1, gains at least 3 points over untouched, or nothing is said.
- Main: 5 x 10, share 1, minus untouched; 1 point matters. Above 0 and at least 1: *train it*. Below
  0: *leave it*. Its upper end below 1: *no gain that matters*. Else open.
- Second: in the same cell halfway minus share 1; above 0: WiSE-FT is the safer way. And *chosen*
  minus always 1, mean over all cells: above 0, and held-out products tell when to leave it.
- Third: coarse classes, share 1 minus untouched, in 5 x 10 and 60 x 40; below 0: forgotten.
- Beside them: the curve over products (10 photographs of each) and over photographs (20 products),
  against heads and whitening of 25_thinned, from the same draws (repetition 0). It decides nothing.

All of it is of groceries, one network and one recipe, whose rates were not searched here.
"""

import argparse
import copy
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dmlkit
from dmlkit import data, recipes, training
from dmlkit.cli import terminal
from dmlkit.data import ImageSet, grocery
from dmlkit.files import write_whole
from studies.thinned import between, rows_of, thin

PATH = dmlkit.ROOT / "data" / "evidence" / "25_whole.csv"
CELLS = ((5, 10), (10, 10), (20, 10), (40, 10), (60, 10), (20, 2), (20, 40), (60, 40))
STEPS, SHARES, REPETITIONS, SECONDS = (20, 60, 200), (0.5, 1.0), 3, 480
RECIPE = "photos_grocery_lite0"
PIXELS: dict[str, Any] = {"crop": 224, "resize": 252}
FOLDS = range(len(grocery.FOLDS))
HELD: dict[str, Any] = {"validation": True, "third": 0}


class Job(NamedTuple):
    """A training; without steps the network is untouched."""

    part: str  # search (scored on held-out products) or test
    classes: int
    each: int
    fold: int
    repetition: int
    steps: int


@cache
def everything(device: str) -> tuple[ImageSet, Tensor]:
    """All photographs, with their center crops (N, 3, 224, 224) on the device."""
    every = data.load("grocery", "test", fold=None, **PIXELS)
    return every, every.images[:].to(device)


def found(f: Tensor, every: ImageSet, asked: np.ndarray) -> pd.DataFrame:
    """Of each product asked, by name: Recall@1 among those, and how often the nearest other product
    is of the same coarse class (NaN without kin), of features (N, D); rows may be NaN where unused.
    """
    z, y, names = F.normalize(f), torch.from_numpy(every.labels), np.array(every.class_names)
    own, queries = np.isin(names, asked)[every.labels], every.queries
    assert queries is not None
    q, g = np.flatnonzero(own & queries), np.flatnonzero(~queries)
    s = (z[q] @ z[g].T).nan_to_num(-2.0)  # (Q, G)
    among = s.masked_fill(~torch.from_numpy(own[g]), -2).argmax(dim=1)
    other = s.masked_fill(y[q][:, None] == y[g], -2).argmax(dim=1)
    told = {"recall": y[g][among].numpy() == every.labels[q],
            "coarse": every.groups[g][other] == every.groups[q]}  # fmt: skip
    means = pd.DataFrame(told).groupby(names[every.labels[q]]).mean()
    coarse = pd.Series(every.groups).groupby(names[every.labels]).first()
    kin = coarse.map(coarse.value_counts())[means.index] > 1
    return means.assign(coarse=means["coarse"].where(kin))


def rows(job: Job, device: str) -> list[dict[str, Any]]:
    """Train, and score the weights at each share of the way."""
    torch.set_num_threads(1)
    began, settings = time.perf_counter(), {f"data_args.{k}": v for k, v in PIXELS.items()}
    settings |= {"data_args.fold": job.fold, "seed": job.repetition, "steps": max(job.steps, 1)}
    settings["sampler_args"] = {"classes": min(job.classes or 16, 16), "per_class": 4}
    settings["precision"] = "bf16-mixed" if device == "cuda" else "32-true"
    e = recipes.load(RECIPE, settings=settings)
    search = job.part == "search"
    args: dict[str, Any] = {**e.data_args, **(HELD if search else {})}
    train, test = (data.load("grocery", s, **args) for s in ("train", "val" if search else "test"))
    asked = np.array(test.class_names)
    some = train
    if job.steps:
        seed = job.fold + len(FOLDS) * job.repetition
        some = thin(train, rows_of(train, job.classes, job.each, seed))
    model: Any = training.build.build_model(e, some)
    before = copy.deepcopy(model.backbone.state_dict())
    if job.steps:
        objective = training.build.build_objective(e, some)
        training.fit(model, objective, some, e, device=device, progress=False)
    model, after = model.to(device), copy.deepcopy(model.backbone.state_dict())
    model.head = nn.Identity()
    every, pixels = everything(device)
    used = np.isin(np.array(every.class_names), asked)[every.labels]
    used |= ~every.queries if not search else False  # type: ignore[operator]
    at, made = np.flatnonzero(used), []
    for share in SHARES if job.steps else (0.0,):
        start = {name: value.to(device) for name, value in before.items()}
        model.backbone.load_state_dict(between(start, after, share))
        x = torch.from_numpy(training.embed(model, pixels[torch.from_numpy(at).to(device)]))
        f = torch.full((len(every), x.shape[1]), torch.nan)
        f[at] = x
        by = found(f, every, asked).round(4)
        if search:
            by["coarse"] = np.nan  # what else there is was not embedded
        made.append({**job._asdict(), "share": share, "photographs": len(some),
                     **by.mean().round(4), "by_class": json.dumps(by["recall"].to_dict()),
                     "by_coarse": json.dumps(by["coarse"].dropna().to_dict()),
                     "seconds": round(time.perf_counter() - began, 1)})  # fmt: skip
    return made


def chosen(table: pd.DataFrame, C: int, n: int, fold: int) -> int:
    """The steps that were best on held-out products, at share 1."""
    C, n = (40, 10) if CELLS[-1][0] == C else (C, n)
    tried = table[(table["part"] == "search") & (table["share"] == 1) & (table["fold"] == fold)]
    mine = tried[(tried["classes"] == C) & (tried["each"] == n)]
    return int(mine.loc[mine["recall"].idxmax(), "steps"])


def searches() -> list[Job]:
    """What is scored on held-out products, the longest first."""
    untouched = [Job("search", 0, 0, fold, 0, 0) for fold in FOLDS]
    cells = [cell for cell in CELLS if cell[0] < CELLS[-1][0]]
    return untouched + [
        Job("search", C, n, fold, 0, steps)
        for steps, fold, (C, n) in product(STEPS[::-1], FOLDS, cells)
    ]


def tests(table: pd.DataFrame, repetition: int) -> list[Job]:
    """What is scored on the products that each fold tests."""
    untouched = [Job("test", 0, 0, fold, 0, 0) for fold in FOLDS]
    trained = [
        Job("test", C, n, fold, repetition, chosen(table, C, n, fold))
        for (C, n), fold in product(CELLS, FOLDS)
    ]
    return untouched + sorted(trained, key=lambda job: -job.steps)


def main() -> None:
    """Train what is missing, and write the table after each training."""
    parser = argparse.ArgumentParser(prog="python -m studies.whole")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=6)
    args = parser.parse_args()
    began, keys = time.monotonic(), [*Job._fields]
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame(columns=keys)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, context) as pool:
        for stage in range(-1, REPETITIONS):
            there = set(table[keys].itertuples(index=False, name=None))
            jobs = [job for job in (searches() if stage < 0 else tests(table, stage))
                    if job not in there]  # fmt: skip
            if time.monotonic() - began > SECONDS:
                break
            for future in as_completed([pool.submit(rows, job, args.device) for job in jobs]):
                new = pd.DataFrame(future.result())
                table = pd.concat([table, new], ignore_index=True) if len(table) else new
                write_whole({PATH: partial(table.to_csv, index=False)})
                said = new.drop(columns=["by_class", "by_coarse"])
                terminal.console.print(said.to_string(header=False, index=False))


if __name__ == "__main__":
    main()
