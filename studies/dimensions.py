"""SEE where its paper claims most: in few dimensions, with many classes.

``python -m studies.dimensions`` writes data/evidence/see_dimensions.csv, a row after each training;
rows that are there are not made again. Some fifteen minutes of one quiet core. These rules were
written before any training by them; known by then were the ledger's B4 to B8, and that heads
of this size learn (twenty trainings without SEE, on validation classes of lesson 17).

- Glyphs. In each of seven repetitions 100 classes train a network, whose first layers then rest:
  all learns on top of them. 200 other classes, or 20 of those, train a head of two layers and its
  proxies by normalized softmax. Each repetition is tested on 100 classes of its own.
- Dimensions 3, 8, 16, 64. SEE as in its authors' code: detached, a mean, λ = 0.2, eight points (at
  most d − 1), for a share of the batch that rises to 0.4 by half a cosine.
- In each cell the plain loss and SEE have a search each, over the same six recipes, on validation
  classes of a part of Glyphs that has no test class. λ is not searched, so that it cannot become 0.
- What is asked: SEE minus the same recipe without points. Controls have SEE's recipe, too: each
  point replaced by its sample, and random places on the same circle of latitude. The plain loss
  with the recipe of its own search stands beside them.

Eight repetitions were planned; Glyphs has test classes for seven that share none.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, models, retrieval
from dmlkit.losses.spherical import SphericalExpansion
from studies.filling import Row, fill, missing

PATH = dmlkit.ROOT / "data" / "evidence" / "see_dimensions.csv"
DIMS, CLASSES, REPETITIONS = (3, 8, 16, 64), (20, 200), 7
#: Rate of the head (ten times of it that of the proxies), and scale of the softmax.
RECIPES = tuple(itertools.product((0.002, 0.005, 0.0125), (8.0, 20.0)))
STEPS, BATCH = 300, 128
#: What is trained: with whose recipe, and which points (None: no SEE).
VARIANTS: dict[str, tuple[str, str | None]] = {
    "plain, own recipe": ("plain", None),
    "plain": ("SEE", None),
    "SEE": ("SEE", "rotated"),
    "duplicates": ("SEE", "none"),
    "random places": ("SEE", "random"),
}
KEYS = ["repetition", "classes", "dim", "variant", "recipe"]


class Material(NamedTuple):
    """What a head sees: features of images to train on and to score, with their labels."""

    features: Tensor  # (N, 512)
    labels: Tensor  # (N,), of 0 to C - 1
    unseen: Tensor  # (M, 512)
    unseen_labels: np.ndarray  # (M,)


@cache
def material(repetition: int) -> Material:
    """Features of a network that learned 100 other classes; repetition −1 is for the searches."""
    searches = repetition < 0
    args: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "class_split": repetition}
    if searches:
        args = {"part": "develop", "test_classes": 0}
    train = data.load("glyphs", "train", **args)
    scored = data.load("glyphs", "val" if searches else "test", **args)
    labels = torch.from_numpy(train.labels)
    first = labels < 100
    torch.manual_seed(repetition + 1)
    network = models.ConvNet(dim=64, widths=(8, 16, 32)).to(memory_format=torch.channels_last)
    images = train.images[:].float() / 255
    fit(network, images[first], labels[first], 0.01, 16.0, repetition + 1)
    rest = nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()
    with torch.no_grad():
        x = torch.cat([rest(part) for part in images[~first].split(1000)])
        z = rest(scored.images[:].float() / 255)
    mean, spread = x.mean(dim=0), x.std()
    return Material((x - mean) / spread, labels[~first] - 100, (z - mean) / spread, scored.labels)


def fit(
    model: nn.Module, x: Tensor, y: Tensor, lr: float, scale: float, seed: int,
    directions: str | None = None, steps: int = STEPS,
) -> None:  # fmt: skip
    """Train a model and its proxies by normalized softmax, with SEE's points or without."""
    dim, classes = list(model.parameters())[-1].shape[0], int(y.max()) + 1
    loss: nn.Module = losses.NormalizedSoftmaxLoss(classes, dim, temperature=1 / scale)
    if directions:
        n = min(8, dim - 1)
        loss = SphericalExpansion(
            loss, n, weight=0.2, detach=True, directions=directions, steps=steps
        )
    groups: list[dict[str, Any]] = [{"params": [*model.parameters()]}]
    groups += [{"params": [*loss.parameters()], "lr": 10 * lr}]
    optimizer = torch.optim.Adam(groups, lr=lr)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        i = torch.randint(len(y), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(model(x[i]), y[i]).backward()
        optimizer.step()
        fall.step()


class Grid(NamedTuple):
    """What a study of dimensions and classes trains."""

    material: Callable[[int], Material]  # of a repetition; of −1 for the searches
    dims: Sequence[int] = DIMS
    classes: Sequence[int] = CLASSES
    repetitions: int = REPETITIONS
    recipes: Sequence[tuple[float, float]] = RECIPES
    steps: int = STEPS
    variants: Sequence[str] = tuple(VARIANTS)


GRID = Grid(material)


def outcome(row: Row, grid: Grid = GRID) -> Row:
    """Recall@1 of one training."""
    torch.set_num_threads(1)
    found, seed = grid.material(row["repetition"]), row["repetition"] + 1
    every = int(found.labels.max()) + 1
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(every)[: row["classes"]])
    place = torch.full((every,), -1).scatter(0, chosen, torch.arange(len(chosen)))[found.labels]
    x, y = found.features[place >= 0], place[place >= 0]
    torch.manual_seed(seed)
    first = [nn.Linear(x.shape[1], 256, bias=False), nn.BatchNorm1d(256), nn.ReLU()]
    model = nn.Sequential(*first, nn.Linear(256, row["dim"]))
    lr, scale = grid.recipes[row["recipe"]]
    fit(model, x, y, lr, scale, seed, VARIANTS[row["variant"]][1], grid.steps)
    with torch.no_grad():
        z = model.eval()(found.unseen)
    recall = retrieval.recall_at_k(z, found.unseen_labels, ks=(1,), metric="cosine")[1]
    return {"recall_at_1": round(recall, 4)}


def waiting(table: pd.DataFrame, grid: Grid = GRID) -> list[Row]:
    """Trainings that the table has not: first the searches, then what they decide."""
    cells = list(itertools.product(grid.classes, grid.dims))
    sides = {"plain": "plain, own recipe", "SEE": "SEE"}
    searches = [
        (-1, *cell, variant, k)
        for cell in cells
        for variant in sides.values()
        for k in range(len(grid.recipes))
    ]
    if rows := missing(table, KEYS, [dict(zip(KEYS, key, strict=True)) for key in searches]):
        return rows
    searched = table[table["repetition"] < 0].set_index(KEYS[1:])["recall_at_1"].sort_index()
    best = {(*cell, s): searched[*cell, a].idxmax() for cell in cells for s, a in sides.items()}
    asked = [
        (repetition, *cell, variant, best[*cell, VARIANTS[variant][0]])
        for repetition in range(grid.repetitions)
        for cell in cells
        for variant in grid.variants
    ]
    return missing(table, KEYS, [dict(zip(KEYS, key, strict=True)) for key in asked])


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, outcome)
