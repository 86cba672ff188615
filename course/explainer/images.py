"""The images of the page: classes to train on and unseen ones, 16 pixels a side, as bytes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from course.explainer.step import CHANNELS, CLASSES, IMAGES, SIDE
from dmlkit import data, retrieval
from dmlkit.data.images import ImageSet

#: Unseen classes, and images of each, half of them of another visit where photographs have visits.
UNSEEN, OF_EACH = 10, 16
_COLORS = 4  # steps of each of red, green and blue in a histogram


@dataclass(frozen=True)
class Images:
    """Small images (N, C, 16, 16) uint8, class after class, gray or in color."""

    title: str
    about: str
    train: Tensor  # CLASSES · IMAGES of them
    unseen: Tensor  # UNSEEN · OF_EACH of classes that are not trained on
    names: tuple[str, ...]  # of the unseen classes
    visits: bool  # whether an image is searched for only in the other half of its class and others

    def recall(self, features: NDArray[Any]) -> float:
        """Recall@1 of unseen images (N, d) by cosine; with visits, among those of another visit."""
        labels = np.arange(UNSEEN).repeat(OF_EACH)
        if not self.visits:
            return retrieval.recall_at_k(features, labels, (1,), metric="cosine")[1]
        first = np.tile(np.arange(OF_EACH) < OF_EACH // 2, UNSEEN)
        halves = [(features[rows], labels[rows]) for rows in (first, ~first)]
        both = [
            retrieval.recall_at_k(*q, (1,), *g, metric="cosine")[1]
            for q, g in (halves, halves[::-1])
        ]
        return sum(both) / 2

    def lines(self) -> dict[str, float]:
        """Recall@1 without any training: of pixels, and of colors where there are some."""
        x = self.unseen.float()
        centered = x - x.mean((1, 2, 3), keepdim=True)
        found = {"raw pixels": self.recall(centered.flatten(1).numpy())}
        if x.shape[1] == CHANNELS:
            bins = (x * _COLORS / 256).long()  # (N, 3, 16, 16)
            place = (bins[:, 0] * _COLORS + bins[:, 1]) * _COLORS + bins[:, 2]
            colors = F.one_hot(place.flatten(1), _COLORS**3).float().mean(1)
            found["color histogram"] = self.recall(colors.sqrt().numpy())
        return found


def _cut(found: ImageSet, classes: Any, rows_of: Any) -> Tensor:
    """Some images of some classes, in their order, reduced to 16 pixels by their mean."""
    rows = np.concatenate([rows_of(np.flatnonzero(found.labels == c)) for c in classes])
    x = F.interpolate(found.images[torch.from_numpy(rows)].float(), size=SIDE, mode="area")
    return x.round().to(torch.uint8)


def glyphs() -> Images:
    """Characters in many fonts: the first classes of the course's training and validation."""
    train, val = data.load("glyphs", "train"), data.load("glyphs", "val")
    return Images(
        "glyphs",
        "Characters in the fonts of matplotlib, turned, bent and blurred.",
        _cut(train, range(CLASSES), lambda rows: rows[:IMAGES]),
        _cut(val, range(UNSEEN), lambda rows: rows[:OF_EACH]),
        tuple(name.title() for name in val.class_names[:UNSEEN]),
        visits=False,
    )


def groceries() -> Images:
    """Products in shops: every third validation class is unseen, all others are trained on."""
    every = data.load("grocery64", "train")
    val = data.load("grocery64", "val", validation=True)
    unseen = range(0, 3 * UNSEEN, 3)
    names = tuple(val.class_names[c] for c in unseen)
    trained = [c for c, name in enumerate(every.class_names) if name not in names]

    def of_both_visits(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        assert val.queries is not None  # a validation split has visits
        query, half = val.queries[rows], OF_EACH // 2
        return np.concatenate([rows[query][:half], rows[~query][:half]])

    def spread(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[np.linspace(0, len(rows) - 1, IMAGES).round().astype(int)]

    return Images(
        "groceries",
        "Products photographed in shops by Klasson, Zhang and Kjellström (2019, MIT license). A "
        "photograph is searched for among those of another visit to the shop.",
        _cut(every, trained[:CLASSES], spread),
        _cut(val, unseen, of_both_visits),
        tuple(name.replace("-", " ") for name in names),
        visits=True,
    )
