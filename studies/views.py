"""Contrast without labels on groceries: what the views leave of color, and what labels add.

``python -m studies.views`` writes data/evidence/27_views.csv, one row for each network, fold and
number of labels; what is there already is not made anew, so that it can be broken off. Nothing was
tuned: rate and temperature were fixed before the first test class was scored. Some 15 minutes of
one quiet core.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, models, retrieval
from dmlkit.cli import terminal
from dmlkit.data import ImageSet, grocery
from dmlkit.data.batches import PK
from dmlkit.data.images import to_float
from dmlkit.data.pictures import color_histogram
from dmlkit.files import write_whole

PATH = dmlkit.ROOT / "data" / "evidence" / "27_views.csv"
STEPS, RATE, TEMPERATURE, PHOTOGRAPHS = 1000, 0.005, 0.1, 64
#: Labels of each class that a probe gets, and how often they are drawn.
LABELS, DRAWS, RIDGE = (1, 5, 0), 5, 0.1  # 0: all
#: Networks: how views change color (None: gray), and whether the loss knows labels.
ARMS: dict[str, tuple[float | None, bool]] = {
    "views, color kept": (0.0, False),
    "labels, color kept": (0.0, True),
    "views, channels scaled": (0.3, False),
    "views, gray": (None, False),
}
GRAY = torch.tensor([0.299, 0.587, 0.114])[:, None, None]


def cropped(x: Tensor) -> Tensor:
    """A random square of half to the whole side of each photograph, mirrored half of the time."""
    n = len(x)
    side, mirrored = torch.empty(n).uniform_(0.5, 1), 1 - 2 * torch.randint(2, (n,))
    grid = torch.zeros(n, 2, 3)
    grid[:, 0, 0], grid[:, 1, 1] = side * mirrored, side
    grid[:, :, 2] = (1 - side)[:, None] * torch.empty(n, 2).uniform_(-1, 1)
    places = F.affine_grid(grid, list(x.shape), align_corners=False)
    return F.grid_sample(x, places, padding_mode="reflection", align_corners=False)


def recolored(x: Tensor, strength: float | None) -> Tensor:
    """Each channel times exp(strength · normal); with None the gray of a photograph."""
    if strength is None:
        return (x * GRAY).sum(dim=1, keepdim=True).expand_as(x)
    return (x * (strength * torch.randn(len(x), 3, 1, 1)).exp()).clamp(0, 1)


def train(images: ImageSet, strength: float | None, labeled: bool, seed: int) -> nn.Module:
    """A network that learned from pairs of views, each photograph or each label a class."""
    torch.manual_seed(seed)
    pixels = to_float(images.images[:]).float()
    model = models.ConvNet(dim=64, channels=3, size=32).to(memory_format=torch.channels_last)
    loss, sampler = losses.SupConLoss(TEMPERATURE), PK(images.labels, 16, 4, seed=seed)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        rows = sampler(step) if labeled else np.random.default_rng((seed, step)).choice(
            len(pixels), PHOTOGRAPHS, replace=False
        )  # fmt: skip
        labels = torch.from_numpy(images.labels[rows] if labeled else rows)
        views = [recolored(cropped(pixels[rows]), strength) for _ in range(2)]
        return torch.cat(views), labels.repeat(2)

    return fitted(model, model.parameters(), loss, batch, STEPS)


def fitted(
    model: nn.Module,
    parameters: Any,
    loss: Callable[[Tensor, Tensor], Tensor],
    batch: Callable[[int], tuple[Tensor, Tensor]],
    steps: int,
) -> nn.Module:
    """Adam, whose rate falls linearly over the last 30 %."""
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    fall = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        fall.step()
    return model.eval()


@torch.no_grad()
def embedded(model: nn.Module, images: ImageSet, strength: float | None) -> NDArray[np.float32]:
    """Embeddings (N, d) of length 1; a network of gray views sees gray photographs."""
    pixels = to_float(images.images[:]).float()
    return F.normalize(model(recolored(pixels, None) if strength is None else pixels)).numpy()


def by_class(right: NDArray[Any], images: ImageSet) -> dict[str, float]:
    """The share of a class's queries that is right: (Q,) -> C of them."""
    names = np.array(images.class_names)[images.labels[images.queries]]
    return pd.Series(right, dtype=float).groupby(names).mean().round(4).to_dict()


def found(x: NDArray[np.float32], images: ImageSet) -> dict[str, float]:
    """Recall@1 of each class, searched for on another visit."""
    sets = images.retrieval_sets(x)
    scores = retrieval.by_query(**sets, scores=["recall_at_1"], metric="cosine")
    return by_class(scores["recall_at_1"].to_numpy(), images)


def drawn(images: ImageSet, count: int, seed: int) -> NDArray[np.int64]:
    """Rows of the gallery: so many of each class (0: all)."""
    asked = np.flatnonzero(np.asarray(images.queries))
    rows = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(images)), asked))
    each = pd.Series(rows).groupby(images.labels[rows]).cumcount().to_numpy()
    return rows[each < (count or len(rows))]


def probed(x: NDArray[np.float32], images: ImageSet, count: int) -> dict[str, float]:
    """Accuracy of each class on the other visit, of ridge regression on so many labels."""
    y, q, right = images.labels, images.queries, []
    for seed in range(DRAWS if count else 1):
        rows = drawn(images, count, seed)
        mean, own = x[rows].mean(axis=0), np.eye(images.num_classes)[y[rows]]
        z = x[rows] - mean
        weights = np.linalg.solve(z.T @ z + RIDGE * np.eye(z.shape[1]), z.T @ (own - own.mean(0)))
        scores = (x[q] - mean) @ weights + own.mean(axis=0)
        right.append(scores.argmax(axis=1) == y[q])
    return by_class(np.mean(right, axis=0), images)


def supervised(images: ImageSet, count: int, seed: int) -> dict[str, float]:
    """Accuracy of each class, of a network that learned from random weights on these labels."""
    torch.manual_seed(seed)
    pixels, y = to_float(images.images[:]).float(), images.labels
    rows = drawn(images, count, seed)
    model = models.ConvNet(dim=images.num_classes, channels=3, size=32)
    model = model.to(memory_format=torch.channels_last)

    def batch(_step: int) -> tuple[Tensor, Tensor]:
        own = rows[torch.randint(len(rows), (PHOTOGRAPHS,)).numpy()]
        return cropped(pixels[own]), torch.from_numpy(y[own])

    fitted(model, model.parameters(), F.cross_entropy, batch, STEPS)
    q = images.queries
    with torch.no_grad():
        return by_class(model(pixels[q]).argmax(dim=1).numpy() == y[q], images)


def rows_of(arm: str, fold: int) -> Iterator[dict[str, Any]]:
    """What is measured of one network: retrieval, then the probes."""
    test = data.load("grocery64", "test", fold=fold, side=32)
    strength, labeled = ARMS.get(arm, (0.0, False))
    if arm == "labels alone":
        for count in LABELS:
            yield {"measure": "probe", "labels": count, "by_class": supervised(test, count, fold)}
        return
    if arm == "color histogram":
        x = color_histogram(test.images[:]).numpy()
    elif arm == "untrained":
        torch.manual_seed(fold)
        x = embedded(models.ConvNet(dim=64, channels=3, size=32).eval(), test, 0.0)
    else:
        train_set = data.load("grocery64", "train", fold=fold, side=32)
        x = embedded(train(train_set, strength, labeled, seed=fold), test, strength)
    yield {"measure": "recall_at_1", "labels": 0, "by_class": found(x, test)}
    for count in LABELS:
        yield {"measure": "probe", "labels": count, "by_class": probed(x, test, count)}


def main() -> None:
    """Train what is missing, and write the table after each network."""
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame(columns=["arm", "fold"])
    torch.set_num_threads(1)
    for arm in ("color histogram", "untrained", *ARMS, "labels alone"):
        for fold in range(len(grocery.FOLDS)):
            if ((table["arm"] == arm) & (table["fold"] == fold)).any():
                continue
            about = {"arm": arm, "fold": fold}
            new = pd.DataFrame([about | row for row in rows_of(arm, fold)])
            new["mean"] = [round(float(np.mean([*each.values()])), 4) for each in new["by_class"]]
            new["by_class"] = new["by_class"].map(json.dumps)
            table = pd.concat([table, new])
            write_whole({PATH: partial(table.to_csv, index=False)})
            terminal.console.print(
                new.drop(columns="by_class").to_string(header=False, index=False)
            )


if __name__ == "__main__":
    main()
