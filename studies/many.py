"""SEE with up to 1,000 classes, in 8, 64 and 256 dimensions.

``python -m studies.many`` writes data/evidence/see_classes.csv, a row after each training, on all
cores; what is there is not made anew. Some 40 core-minutes. It is ``studies.dimensions`` with more
classes. These rules were written before any training by them. Known by then: that study, lessons 17
and 29, the ledger; and twenty trainings on validation classes, which chose rates, scales and the
number of steps (there raw pixels find 32 %, the features 40 %). Two of them had SEE: 0.1 points
below the same without it in 8 dimensions, 0.8 above it in 256, both with 1,000 classes.

- The paper has 98 to 11,318 classes. Of Omniglot 242 characters are here, of Glyphs 1,218. So the
  242 characters of Omniglot, with jitter, train a network whose first layers then rest, and Glyphs
  (its own drawings, though both have Greek and Latin letters) gives the classes: 118 to validate,
  and eleven blocks of 100. In each of ten repetitions one block of its own is tested, and the other
  ten, or 300 or 60 of their classes, train a head of two layers and its proxies by normalized
  softmax: 600 steps, 20 images of a class.
- SEE as in its authors' code: detached, a mean, λ = 0.2, eight points (7 in 8 dimensions), for a
  share of the batch that rises to 0.4. In each cell the plain loss and SEE have a search each, over
  the same nine recipes, on validation classes. λ is not searched.
- Control: without SEE 1,000 classes find more than 60 (64 dimensions, interval above 0), or nothing
  is said of many classes.
- Asked first (B4 in the regime of B6): SEE minus its own recipe without points, at 1,000 classes
  in 8 dimensions; the smallest effect is B4's 0.5 points, the printed size 1.2 (lesson 29).
- Asked second (B6): that gain minus the mean gain of the other eight cells; smallest effect 2.
- Both have the ledger's words, corrected together by Holm's. Beside them, in every cell: SEE minus
  none, minus duplicates of the sample, minus random places; and, as a trap, minus the plain loss at
  the recipe of its own search, which counts the luck of two searches as a gain.

Repetitions share no test class. With 1,000 classes any two share 900 of those that they train on,
and the network that rests is one: an interval covers other test classes, starts and batches, not
another alphabet, nor another search. A shorter form of these rules was begun once and broken off by
the clock; none of its rows is used, and none was looked at.
"""

import io
import itertools
from functools import cache
from typing import Any

import filelock
import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, models, statistics
from dmlkit.data import glyphs
from dmlkit.files import write_whole
from studies import claims
from studies.dimensions import BATCH, KEYS, Grid, Material, outcome, waiting
from studies.filling import Row, fill
from studies.turns import interval

PATH = dmlkit.ROOT / "data" / "evidence" / "see_classes.csv"
EVERY, BLOCKS, BLOCK, IMAGES = 1218, 11, 100, 20  # characters; those left over validate
STEPS, PRINTED = 600, 1.2  # points
CORNER = (1000, 8)  # classes and dimensions of the first question


def rested(steps: int = STEPS) -> nn.Module:
    """The first layers of a network that has learned Omniglot's characters."""
    parts = [data.load("omniglot", split) for split in ("train", "test")]
    images = torch.cat([part.images[:] for part in parts])
    y = np.concatenate([parts[0].labels, parts[1].labels + parts[0].num_classes])
    torch.manual_seed(0)
    network = models.ConvNet(dim=64, widths=(8, 16, 32)).to(memory_format=torch.channels_last)
    loss = losses.NormalizedSoftmaxLoss(int(y.max()) + 1, 64, temperature=1 / 16)
    groups: list[dict[str, Any]] = [
        {"params": [*network.parameters()]},
        {"params": [*loss.parameters()], "lr": 0.1},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    generator, labels = torch.Generator().manual_seed(0), torch.from_numpy(y)
    for _ in range(steps):
        i = torch.randint(len(y), (BATCH,), generator=generator)
        batch = glyphs.jitter(images[i], generator).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        loss(network(batch), labels[i]).backward()
        optimizer.step()
        fall.step()
    return nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()


@cache
def features() -> tuple[Tensor, np.ndarray]:
    """What that network makes of all Glyphs (N, 512), and their classes; one process makes it."""
    path = dmlkit.cache_folder() / "see_classes.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{path}.lock"):
        if not path.exists():
            torch.set_num_threads(1)
            args: dict[str, Any] = {"train_classes": EVERY, "val_classes": 0, "test_classes": 0}
            every, network = data.load("glyphs", per_class=IMAGES, **args), rested()
            with torch.no_grad():
                x = torch.cat([network(part.float() / 255) for part in every.images[:].split(1000)])
            arrays: dict[str, Any] = {"x": x.numpy().astype(np.float16), "y": every.labels}
            write_whole({path: lambda beside: beside.write_bytes(_packed(arrays))})
    with np.load(path) as kept:
        return torch.from_numpy(kept["x"]).float(), kept["y"]


def _packed(arrays: dict[str, Any]) -> bytes:
    np.savez(packed := io.BytesIO(), **arrays)
    return packed.getvalue()


@cache
def material(repetition: int) -> Material:
    """One block to test and the others to train on; of −1 what validates, and ten blocks."""
    x, y = features()
    order = np.random.default_rng(0).permutation(EVERY)
    blocks = np.array_split(order[-BLOCKS * BLOCK :], BLOCKS)
    tested = order[: -BLOCKS * BLOCK] if repetition < 0 else blocks[repetition]
    learned = np.concatenate(blocks[:-1] if repetition < 0 else np.delete(blocks, repetition, 0))
    place = np.full(EVERY, -1)
    place[learned] = np.arange(len(learned))
    train, unseen = torch.from_numpy(place[y] >= 0), np.isin(y, tested)
    mean, spread = x[train].mean(dim=0), x[train].std()
    labels = torch.from_numpy(place[y])[train]
    return Material((x[train] - mean) / spread, labels, (x[unseen] - mean) / spread, y[unseen])


RECIPES = tuple(itertools.product((0.005, 0.0125, 0.03), (4.0, 8.0, 20.0)))
GRID = Grid(material, (8, 64, 256), (60, 300, 1000), 10, RECIPES, STEPS)


def trained(row: Row) -> Row:
    """Recall@1 of one training."""
    return outcome(row, GRID)


def asked(table: pd.DataFrame) -> list[Row]:
    """Trainings that the table has not."""
    return waiting(table, GRID)


def gains(table: pd.DataFrame, plus: str = "SEE", minus: str = "plain") -> pd.DataFrame:
    """One variant minus another, in points: a row for each repetition, a column for each cell."""
    kept = table[table["repetition"] >= 0].set_index([*KEYS[:3], "variant"])["recall_at_1"]
    wide = 100 * kept.unstack("variant")
    return (wide[plus] - wide[minus]).unstack(["classes", "dim"])


def questions(table: pd.DataFrame) -> pd.DataFrame:
    """Both questions: effect, its interval, what four of five studies find, word, and p of what it
    says after Holm's."""
    d, known = gains(table), claims.table()
    others = d.drop(columns=[CORNER]).mean(axis=1)
    rows = {}
    for claim, each, size in (("B4", d[CORNER], PRINTED), ("B6", d[CORNER] - others, None)):
        margin, at = 100 * float(known[claim]["smallest"]), interval(each)
        low, high, least = at["low"], at["high"], at["least"]
        word = statistics.word("positive", at["effect"], low, high, margin, size, least)
        against = {"too small to see here": margin, "printed size excluded here": size or 0}
        t = (at["effect"] - against.get(word, 0.0)) / at["error"]
        rows[claim] = {**at, "word": word, "p": float(2 * stats.t.sf(abs(t), at["n"] - 1))}
    frame = pd.DataFrame(rows).T
    return frame.assign(holm=statistics.holm(frame["p"].to_numpy(dtype=float)))


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """What notebook 29 shows: levels, gains in each cell, recipes, the control and the words."""
    kept = table[table["repetition"] >= 0].groupby(["variant", "classes", "dim"])
    recall, recipe = kept["recall_at_1"].mean(), kept["recipe"].first()
    cells = list(itertools.product(GRID.classes, GRID.dims))
    others = {"none": "plain", "duplicates": "duplicates", "random places": "random places"}
    others["the plain loss's own recipe"] = "plain, own recipe"
    own = gains(table, "plain, own recipe", "plain")  # by its columns alone
    of = table[(table["repetition"] >= 0) & (table["variant"] == "plain, own recipe")]
    level = 100 * of.set_index(["repetition", "classes", "dim"])["recall_at_1"].unstack([1, 2])
    name = "{}, {}".format
    return {
        "plain": {name(*cell): float(level[cell].mean()) for cell in cells},
        "recipes": {
            name(*cell): [list(RECIPES[recipe[v][cell]]) for v in ("plain, own recipe", "SEE")]
            for cell in cells
        },
        "minus": {
            other: {name(*cell): interval(gains(table, "SEE", v)[cell]) for cell in cells}
            for other, v in others.items()
        },
        "own recipe minus SEE's, both without points": {
            name(*cell): float(own[cell].mean()) for cell in cells
        },
        "SEE": {name(*cell): float(100 * recall["SEE"][cell]) for cell in cells},
        "control": interval(level[1000, 64] - level[60, 64]),
        "asked": questions(table).drop(columns="p").to_dict("index"),
    }


if __name__ == "__main__":
    fill(PATH, KEYS, asked, trained)
