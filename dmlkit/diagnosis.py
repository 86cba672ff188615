"""What went wrong in a training, as its Run tells it: one line for each thing that is found."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from dmlkit import data
from dmlkit.data import ImageSet
from dmlkit.data.images import to_float
from dmlkit.data.pictures import Pictures
from dmlkit.retrieval import nearest_neighbors
from dmlkit.training import Run

#: Spread of embeddings, 0..1: even ones have 1, healthy trainings 0.3 to 1, collapsed ones 1e-4.
#: Structured clustering makes a narrow cone (0.013) with its classes well apart.
LEAST_SPREAD = 0.01
#: A share of the first gradients: below it a step teaches next to nothing.
DEAD = 0.01
#: Norms grew 1.1 to 7 times in healthy trainings. Ten times as long, an embedding turns ten times
#: less by the same step; gradients should fall.
MOST_GROWTH = 10.0
#: Root mean square of the differences of thumbnails, of tones 0..1: of one picture, saved twice.
SAME_PICTURE = 0.01
SAME_FEATURES = 0.95  # a cosine
_SIDE = 16  # pixels of a thumbnail


def diagnose(run: Run) -> list[str]:
    """What is wrong with a Run and its data, in words; nothing where both are healthy.

    Told are embeddings that have collapsed, gradients that have died, norms and gradients that blow
    up, classes of one image, and pictures that are both in training and in the test.
    """
    experiment = run.experiment
    splits = [
        data.load(experiment.data, split, **experiment.data_args)
        for split in ("train", experiment.split)
    ]
    lone = [line for images in splits for line in _classes_of_one(images)]
    return [*_collapse(run), *_dead_gradients(run), *_norms(run), *lone, *_seen_before(*splits)]


def _collapse(run: Run) -> Iterator[str]:
    """The variance's share of the mean squared length, 1 − ‖mean z‖² / mean ‖z‖²."""
    z = torch.from_numpy(run.embeddings).double()
    if run.experiment.metric == "cosine":
        z = F.normalize(z)
    spread = (z - z.mean(dim=0)).square().sum() / z.square().sum()
    recall = run.scores["recall_at_1"]
    if not spread > LEAST_SPREAD and recall <= 0.5:
        yield (
            f"the embeddings have collapsed: different images share {1 - spread:.2%} of their "
            f"squared length, and Recall@1 is {recall:.1%}. Mine semi-hard triplets instead of the "
            "hardest, lower lr, or raise the batch (notebook 03)."
        )


def _dead_gradients(run: Run) -> Iterator[str]:
    """To have nothing left to learn at the end is success, but for a third of the steps waste."""
    gradient = run.history["gradient_norm"].to_numpy()
    first, _ = _first_and_last(gradient)
    dead = float((gradient <= DEAD * first).mean())
    if dead > 1 / 3:
        yield (
            f"the gradients have died: in {dead:.0%} of the steps their norm was below {DEAD:.0%} "
            f"of the first ones ({first:.3g}). Raise the margin, train on more classes, mine "
            "harder triplets, or stop earlier (notebook 03)."
        )


def _norms(run: Run) -> Iterator[str]:
    for column, what in (("norm_mean", "embeddings"), ("gradient_norm", "gradients")):
        first, last = _first_and_last(run.history[column].to_numpy())
        if last > MOST_GROWTH * first:
            yield (
                f"the norms of {what} blow up: from {first:.3g} to {last:.3g}. Lower lr by 3 to 10 "
                "times, or add the spherical constraint (notebook 14)."
            )


def _first_and_last(values: np.ndarray) -> tuple[float, float]:
    """The medians of the first and of the last tenth."""
    tenth = -(-len(values) // 10)
    return float(np.median(values[:tenth])), float(np.median(values[-tenth:]))


def _classes_of_one(images: ImageSet) -> Iterator[str]:
    lone = np.flatnonzero(np.bincount(images.labels) == 1)
    if len(lone):
        some = ", ".join(images.class_names[label] for label in lone[:5])
        yield (
            f"{len(lone)} of {images.num_classes} classes have one image, as {some}: it has no "
            "positive, and as a query it is always a miss (notebook 05)."
        )


def near_copies(images: ImageSet) -> np.ndarray:
    """Pictures that are nearly the same: (n, 2) places in the set, a query's and its nearest one's.

    That is the nearest in the gallery, or of all others where the set has no queries. Pixels are
    compared as thumbnails, and features by cosine (see ``training.frozen``): near copies that were
    taken seconds apart are found by these alone.

    >>> from dmlkit import data
    >>> len(near_copies(data.load("glyphs", "test")))
    0
    """
    x, most = _compared(images)
    sets = images.retrieval_sets(x)
    same, nearest = _close(sets["embeddings"], sets.get("gallery"), most)
    every, queries = np.arange(len(x)), images.queries
    searched, found = (every, every) if queries is None else (every[queries], every[~queries])
    return np.stack([searched[same], found[nearest]], axis=1)


def _seen_before(train: ImageSet, test: ImageSet) -> Iterator[str]:
    (x, most), (y, _) = _compared(test), _compared(train)
    same, nearest = _close(x, y, most)
    if len(same):
        pairs = ", ".join(f"{i} and {j}" for i, j in zip(same[:5], nearest[:5], strict=True))
        yield (
            f"{len(same)} of {len(test)} test images are nearly the same as a training image (test "
            f"and train {pairs}): scores on them measure memory. Leave them out (notebook 01)."
        )


def _close(x: np.ndarray, y: np.ndarray | None, most: float) -> tuple[Any, Any]:
    """The rows of x that have one of y (else of x) within a distance, and that one's place."""
    places, distances = nearest_neighbors(x, 1, y)
    same = np.flatnonzero(distances[:, 0] <= most)
    return same, places[same, 0]


def _compared(images: ImageSet) -> tuple[np.ndarray, float]:
    """All pictures as rows, and the distance up to which two are nearly the same."""
    if isinstance(images.images, Pictures):
        small: Tensor = images.images.thumbnails(_SIDE)
    elif images.images.shape[2:] == (1, 1):  # features
        return F.normalize(images.images.flatten(1)).numpy(), (2 - 2 * SAME_FEATURES) ** 0.5
    else:
        small = F.adaptive_avg_pool2d(to_float(images.images).float(), _SIDE)
    rows = small.flatten(1).numpy()  # (N, C · 16 · 16), tones 0..1
    return rows, SAME_PICTURE * rows.shape[1] ** 0.5


def apart(images: ImageSet, features: np.ndarray) -> ImageSet:
    """The set, of which no visits are known, with queries whose nearest copies are not searched.

    Each picture stays on one side with the nearest one of its class, by the cosine of features
    (N, F). Pictures that are so linked count as one burst; a class's bursts are in the gallery and
    queries by turns, in the order of their first pictures. A class of one burst is in the gallery
    alone. Raises ValueError where all are.

    On the groceries this promised a Recall@1 of 65 to 70 % where another visit gave 61 %, and all
    pictures as each other's gallery 95 %.
    """
    queries = in_turns(images.labels, features)
    if not queries.any():
        raise ValueError(
            f"all {images.num_classes} classes are one burst of near copies each: expected a "
            "class with two, of which one is searched for in the other"
        )
    return replace(images, queries=queries)


def in_turns(labels: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Which of pictures, by labels (N,) and features (N, F), are queries of ``apart``: (N,) bool.

    >>> in_turns(np.array([0, 0, 0, 0]), np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]]))
    array([False, False,  True,  True])
    """
    x = features / np.linalg.norm(features, axis=1, keepdims=True).clip(min=1e-12)
    queries = np.zeros(len(x), bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        cosines = x[rows] @ x[rows].T
        np.fill_diagonal(cosines, -2)
        links = cosines == cosines.max(axis=1, keepdims=True)
        queries[rows] = connected_components(links, directed=False)[1] % 2 == 1
    return queries
