"""Rates and margins of structured clustering, beside semi-hard triplets, on validation characters.

``python -m studies.clustering`` writes data/evidence/07_clustering.csv, a row after each training;
rows that are there are not made again. Some five minutes of one quiet core. 300 characters train as
in lesson 07, 100 validation characters judge, twice in each cell. The whole table leaves the
paper's swaps of medoids out; with them, which lesson 07 trains, the cells around a margin's best.
Semi-hard triplets of a third and a ninth of the positive pairs have every rate, too. Each setting
trains at the rate with the highest mean (the smaller of two equals).
"""

from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import data, geometry, losses, models, retrieval
from dmlkit.data.batches import PK
from dmlkit.lessons.clustering import SHARES, triplets
from studies.filling import Row, fill, missing

PATH = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
STEPS, REPEATS = 150, 2
MARGINS, RATES = (1, 5, 25, 125), (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
#: Rates at which other margins of the triplets are tried.
BESIDE = (0.0025, 0.005, 0.01)
#: With the paper's swaps: rates by margin.
SWAPPED = {1: (0.005, 0.01, 0.02), 5: (0.005, 0.01, 0.02), 25: (0.0025, 0.005, 0.01),
           125: (0.00125, 0.0025, 0.005, 0.01, 0.02)}  # fmt: skip
KEYS = ["loss", "lr", "seed"]


def loss_of(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of a row: a margin, with the paper's swaps or without, or triplets.

    >>> loss_of("γ = 5").gamma, loss_of("γ = 5, with swaps").pam_steps
    (5.0, 5)
    """
    share, _, m = name.partition(", margin ")
    if share in SHARES:
        of = SHARES[share], float(m or 0.2)
        return lambda x, y: triplets(geometry.distances(geometry.normalize(x)), y, *of)
    margin, _, swaps = name.removeprefix("γ = ").partition(", ")
    return losses.StructuredClusteringLoss(gamma=float(margin), pam_steps=5 if swaps else 0)


def work(row: Row) -> Row:
    """One training, as the cells of lesson 07 do it, and its score."""
    torch.set_num_threads(1)
    train, val = data.load("glyphs", "train"), data.load("glyphs", "val")
    images, unseen = (each.images[:].float() / 255 for each in (train, val))
    torch.manual_seed(row["seed"])
    model = models.ConvNet(dim=64).to(memory_format=torch.channels_last)
    batches = PK(train.labels, classes=16, per_class=4, seed=row["seed"])
    loss, optimizer = loss_of(row["loss"]), torch.optim.Adam(model.parameters())
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = row["lr"] * min(1, (STEPS - step) / (0.3 * STEPS))
        i = batches(step)
        value = loss(model(images[i]), torch.from_numpy(train.labels[i]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        x: Tensor = torch.cat([model.eval()(part) for part in unseen.split(250)])
    found = retrieval.recall_at_k(nn.functional.normalize(x), val.labels, ks=1)
    return {"Recall@1": round(found[1], 6)}


def waiting(table: pd.DataFrame) -> list[Row]:
    """What is not there yet."""
    settings = [(f"γ = {each}", lr) for each in MARGINS for lr in RATES]
    settings += [(each, lr) for each in SHARES for lr in RATES]
    settings += [(each, 0.00125) for each in ("γ = 125", *list(SHARES)[1:])]  # below their edge
    others = [f"{share}, margin {m}" for share in [*SHARES][:2] for m in (0.1, 0.4)]
    settings += [(each, lr) for each in others for lr in BESIDE]  # asked after the lesson's run
    settings += [(f"γ = {each}, with swaps", lr) for each in SWAPPED for lr in SWAPPED[each]]
    asked = [
        dict(zip(KEYS, (*each, seed), strict=True)) for each in settings for seed in range(REPEATS)
    ]
    return missing(table, KEYS, asked)


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, work)
