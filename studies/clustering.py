"""Structured clustering beside semi-hard triplets, trained longer than a lesson's minute.

``python -m studies.clustering`` writes data/evidence/07_clustering.csv, a row after each training;
rows that are there are not made again. Some eight minutes of one quiet core. The rule stands in
lesson 07, and was written before any score on test characters.

- Search: 300 characters train, 100 validation characters judge, twice in each cell after 150
  steps and once after 600. Margins and learning rates of structured clustering, and rates of triplets.
- Test: 600 steps with the best of each, six times, each tested on other characters of 400.

The paper's swaps of medoids are left out, but for one setting that has both.
"""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, models, retrieval
from dmlkit.data.batches import PK
from studies.filling import Row, fill, missing

PATH = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
SHORT, LONG, PARTS = 150, 600, 6
REPEATS = {SHORT: 2, LONG: 1}
MARGINS = {SHORT: (1, 5, 25, 125), LONG: (5, 25)}
RATES = {SHORT: (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08), LONG: (0.0025, 0.005, 0.01, 0.02)}
TRIPLETS = "semi-hard triplets"
KEYS = ["judged by", "loss", "steps", "lr", "seed"]


def loss_of(name: str) -> nn.Module:
    """The loss of a row: a margin, with the paper's swaps or without, or triplets.

    >>> loss_of("γ = 5").gamma, loss_of("γ = 5, with swaps").pam_steps
    (5.0, 5)
    """
    if name == TRIPLETS:
        return losses.build("triplet_semihard", margin=0.2)
    margin, _, swaps = name.removeprefix("γ = ").partition(", ")
    return losses.StructuredClusteringLoss(gamma=float(margin), pam_steps=5 if swaps else 0)


@cache
def characters(*parts: str) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Images, labels, and each image's place within its class, of parts of Glyphs together."""
    sets: list[Any] = [data.load("glyphs", part) for part in parts]
    images = torch.cat([each.images.float() / 255 for each in sets])
    labels = np.hstack([300 * k + each.labels for k, each in enumerate(sets)])
    return images, labels, pd.Series(labels).groupby(labels).cumcount().to_numpy()


def work(row: Row) -> Row:
    """One training, as the cells of lesson 07 do it, and its score."""
    torch.set_num_threads(1)
    seed, steps = row["seed"], row["steps"]
    if row["judged by"] == "validation":
        images, labels, _ = characters("train")
        unseen, asked, _ = characters("val")
    else:
        every, all_labels, place = characters("train", "test")
        part = np.array_split(np.random.default_rng(0).permutation(400), PARTS)[seed]
        tested = np.isin(all_labels, part)
        images, labels = every[~tested], np.unique(all_labels[~tested], return_inverse=True)[1]
        unseen, asked = every[tested & (place < 20)], all_labels[tested & (place < 20)]
        seed += 10
    torch.manual_seed(seed)
    model = models.ConvNet(dim=64).to(memory_format=torch.channels_last)
    batches, loss = PK(labels, classes=16, per_class=4, seed=seed), loss_of(row["loss"])
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = row["lr"] * min(1, (steps - step) / (0.3 * steps))
        i = batches(step)
        value = loss(model(images[i]), torch.from_numpy(labels[i]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        x = torch.cat([model.eval()(part) for part in unseen.split(250)])
    found = retrieval.recall_at_k(nn.functional.normalize(x), asked, ks=1)
    return {"Recall@1": round(found[1], 6)}


def searches() -> list[Row]:
    """All trainings that validation characters judge."""
    settings = [
        (f"γ = {each}", steps, lr)
        for steps, margins in MARGINS.items()
        for each in margins
        for lr in RATES[steps]
    ]
    settings += [(TRIPLETS, steps, lr) for steps, rates in RATES.items() for lr in rates]
    settings += [("γ = 5, with swaps", SHORT, 0.01)]
    return [
        dict(zip(KEYS, ("validation", *each, seed), strict=True))
        for each in settings
        for seed in range(REPEATS[each[1]])
    ]


def waiting(table: pd.DataFrame) -> list[Row]:
    """What can be trained: searches first, then the tests of the best."""
    if rows := missing(table, KEYS, searches()):
        return rows
    long = table[(table["judged by"] == "validation") & (table["steps"] == LONG)]
    means = long.groupby(["loss", "lr"])["Recall@1"].mean()
    is_triplets = means.index.get_level_values("loss") == TRIPLETS
    best = [means[is_triplets].idxmax(), means[~is_triplets].idxmax()]
    tests = [("test", name, LONG, lr, k) for name, lr in best for k in range(PARTS)]
    return missing(table, KEYS, [dict(zip(KEYS, each, strict=True)) for each in tests])


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, work)
