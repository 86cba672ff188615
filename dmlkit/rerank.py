"""Re-rank the first results of a search by local matches: are the same parts in the same places?"""

import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from dmlkit import data, retrieval, search, statistics, training
from dmlkit.data import ImageSet
from dmlkit.files import StrPath, write_whole
from dmlkit.search import Gallery
from dmlkit.training import Run
from dmlkit.training.scoring import embed_batches

#: Guesses at how one picture lies in another; how far off a match may be, in sides of a picture.
GUESSES, OFF = 200, 0.1
#: Cells a side that a map must have to say where something is.
CELLS = 16
#: What ``choose`` tries: points of cosine a match, and the fewest matches that count.
WEIGHTS, TRUSTS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02), (0, 8, 16, 24, 32, 48, 64)
#: How many results are re-ranked, and queries measured.
FIRST, MEASURED = 10, 200
#: Beside a Run: what re-ranking its results brings.
KEPT = "rerank.json"
#: A guess neither shrinks nor enlarges by more than this.
SCALE = 2.5


class Points(NamedTuple):
    """Parts of a picture: where they are, in sides of it, and what is there."""

    at: Tensor  # (N, 2), x and y in 0..1
    what: Tensor  # (N, d), of length 1


def points(fmap: Tensor) -> Points:
    """The cells of a feature map as points: (C, H, W) -> H·W of them, without the map's mean.

    >>> points(torch.rand(8, 2, 2)).at.tolist()  # x first
    [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    """
    _, height, width = fmap.shape
    y, x = torch.meshgrid(
        (torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij"
    )
    cells = fmap.flatten(1).T.float()  # (H W, C)
    return Points(torch.stack([x, y], dim=2).flatten(0, 1), F.normalize(cells - cells.mean(dim=0)))


def mutual(a: Tensor, b: Tensor) -> Tensor:
    """Which rows are each other's nearest by cosine: (N, d), (M, d), of length 1 -> (K, 2).

    >>> mutual(torch.eye(3), torch.eye(3)[[2, 0, 0]])
    tensor([[0, 1],
            [2, 0]])
    """
    s = a @ b.T  # (N, M)
    there, back = s.argmax(dim=1), s.argmax(dim=0)
    own = torch.arange(len(a))
    kept = back[there] == own
    return torch.stack([own[kept], there[kept]], dim=1)


def consistent(p: Tensor, q: Tensor, off: float = OFF, seed: int = 0) -> NDArray[np.bool_]:
    """Which matches agree on one shift, turn and scale: places (K, 2), (K, 2) -> (K,).

    With places as complex numbers such a map is q ≈ a p + b. Two matches guess it, a = (q₁ − q₂)/
    (p₁ − p₂); the guess with the most matches that are less than ``off`` away is taken.
    Source: Fischler and Bolles 1981, "Random Sample Consensus".

    >>> p = torch.rand(9, 2)
    >>> q = 0.5 * p + 0.1
    >>> q[0] += 0.4
    >>> consistent(p, q).astype(int)
    array([0, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    z, w = (x.double().numpy() @ np.array([1, 1j]) for x in (p, q))
    if len(z) < 2:
        return np.zeros(len(z), bool)
    i, j = np.random.default_rng(seed).integers(len(z), size=(2, GUESSES))
    apart = np.abs(z[i] - z[j]) > off
    i, j = i[apart], j[apart]
    a = (w[i] - w[j]) / (z[i] - z[j])
    fit = (np.abs(a) < SCALE) & (np.abs(a) > 1 / SCALE)
    if not fit.any():
        return np.zeros(len(z), bool)
    a, i = a[fit, None], i[fit]
    near = np.abs(a * (z - z[i, None]) + w[i, None] - w) < off  # (guesses, K)
    return near[near.sum(axis=1).argmax()]


def matches(a: Points, b: Points, off: float = OFF, seed: int = 0) -> Tensor:
    """Matches of two pictures that agree on how one lies in the other: (K, 2) places in a and b."""
    found = mutual(a.what, b.what)
    kept = consistent(a.at[found[:, 0]], b.at[found[:, 1]], off, seed)
    return found[torch.from_numpy(kept)]


class Rule(NamedTuple):
    """When matches are trusted: from ``trust`` of them on, each adds ``weight`` to the cosine."""

    weight: float
    trust: float

    def scores(self, cosines: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
        """Of cosines (Q, k) and numbers of matches (Q, k): (Q, k).

        >>> Rule(0.01, 8).scores(np.array([[0.9, 0.8]]), np.array([[7, 20]]))
        array([[0.9, 1. ]])
        """
        return cosines + self.weight * np.where(counts >= self.trust, counts, 0)


def choose(
    cosines: NDArray[Any],
    counts: NDArray[Any],
    right: NDArray[np.bool_],
    classes: NDArray[Any],
) -> Rule:
    """The rule with the best Recall@1, the mean of classes (Q,), of those tried: all (Q, k).

    Of equally good ones the smallest weight, and the fewest matches, are taken.
    """

    def recall(rule: Rule) -> float:
        first = rule.scores(cosines, counts).argmax(axis=1)
        hits = pd.Series(right[np.arange(len(right)), first])
        return round(float(hits.groupby(classes).mean().mean()), 9)

    return max((Rule(*each) for each in product(WEIGHTS, TRUSTS)), key=recall)


#: Chosen on all groceries, for the 28 × 28 cells of EfficientNet-Lite0's map: notebook 30.
RULE, OF_CELLS = Rule(0.01, 48), 28 * 28


def rule(cells: int) -> Rule:
    """``RULE`` for maps of so many cells, by the share of them that match.

    >>> rule(196)
    Rule(weight=0.04, trust=12.0)
    """
    return Rule(RULE.weight * OF_CELLS / cells, RULE.trust * cells / OF_CELLS)


# A Run, and pictures


def feature_maps(model: nn.Module, images: Tensor) -> Tensor:
    """The last map of a network with ``CELLS`` cells a side: (B, C, H, W) -> (B, C', H', W').

    Raises ValueError for a network without one, as transformers and heads are.
    """
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and min(output.shape[2:]) >= CELLS:
            kept[:] = [output.float().cpu()]

    hooks = [each.register_forward_hook(keep) for each in _layers(model)]
    try:
        embed_batches(model, [images])
    finally:
        for hook in hooks:
            hook.remove()
    if not kept:
        raise ValueError(
            f"re-ranking needs a map of {CELLS} cells a side or more, which this network does not "
            f"make of pictures of {images.shape[2]} × {images.shape[3]} pixels"
        )
    return kept[0]


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """Those that follow each other: of blocks with branches, the whole block."""
    for child in getattr(model, "backbone", model).children():
        yield from _layers(child) if isinstance(child, nn.Sequential) else [child]


class Matcher:
    """A Run's network, which matches pictures; ValueError where it cannot."""

    def __init__(self, run: Run, device: str = "auto") -> None:
        if run.image_shape[1:] == (1, 1):
            raise ValueError(
                f"re-ranking needs photographs, but Run {run.path.name} is of features"
            )
        if run.experiment.metric != "cosine":
            raise ValueError(
                f"re-ranking adds matches to cosines, but Run {run.path.name} is searched by "
                f"{run.experiment.metric}"
            )
        self.run = run
        self.model = run.model().to(training.device_type(device))

    def points(self, images: Tensor) -> list[Points]:
        """Of pictures (B, C, H, W), as the Run sees them."""
        return [points(each) for each in feature_maps(self.model, images)]

    def reranked(
        self, gallery: Gallery, picture: StrPath, found: pd.DataFrame
    ) -> tuple[pd.DataFrame, float]:
        """What ``search.nearest`` found, anew in the order of ``rule``, and the seconds it took.

        A column ``matches``, before the cosine, says how many there are.
        """
        start, rows = time.perf_counter(), found["place"].to_numpy()
        own, *others = self.points(
            torch.cat([search.as_seen(self.run, [picture])[0:1], gallery.images.images[rows]])
        )
        counts = np.array([len(matches(own, each)) for each in others])
        scores = rule(len(own.at)).scores(found["cosine"].to_numpy(), counts)
        order = np.argsort(-scores, kind="stable")
        anew = found.iloc[order].reset_index(drop=True)
        anew.insert(3, "matches", counts[order])
        return anew, time.perf_counter() - start

    def measured(self, most: int = MEASURED) -> dict[str, Any]:
        """What re-ranking brings on classes that the Run never trained on; kept beside the Run.

        Up to ``most`` queries, drawn by seed 0, are searched for. ``before`` and ``after`` are
        Recall@1, the mean of classes, and ``low`` and ``high`` the 95 % interval over classes of
        its ``gain``, all in percent. Nothing is chosen on them.
        """
        images = held_out(self.run)
        asked, there, first, cosines = _searched(images, training.embed(self.model, images), most)
        counts = self._counts(images, asked, there[first])
        label = images.labels[asked]
        right = images.labels[there[first]] == label[:, None]
        cells = len(self.points(images.images[asked[:1]])[0].at)
        best = rule(cells).scores(cosines, counts).argmax(axis=1)
        hits = pd.DataFrame({"before": right[:, 0], "after": right[np.arange(len(best)), best]})
        means = 100 * hits.groupby(label).mean()
        gain = statistics.interval(means["after"] - means["before"])
        told = {"queries": len(asked), "classes": len(means), **means.mean(), "gain": gain["mean"],
                "low": gain["low"], "high": gain["high"], "rule": RULE}  # fmt: skip
        write_whole({self.run.path / KEPT: lambda beside: beside.write_text(json.dumps(told))})
        return told

    def kept(self) -> dict[str, Any] | None:
        """What was ``measured`` before, by the same rule."""
        file = self.run.path / KEPT
        told = json.loads(file.read_text()) if file.exists() else {}
        return told if told.get("rule") == [*RULE] else None

    def _counts(
        self, images: ImageSet, asked: NDArray[np.intp], first: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Matches of queries (Q,) with their first results (Q, k), all by their rows."""
        seen: dict[int, Points] = {}
        counts = np.zeros(first.shape, int)
        rounds = zip(asked.tolist(), first.tolist(), strict=True)
        for i, (query, found) in enumerate(tqdm(rounds, "matching", len(asked), unit="query")):
            if new := [row for row in (query, *found) if row not in seen]:
                seen.update(zip(new, self.points(images.images[new]), strict=True))
            counts[i] = [len(matches(seen[query], seen[row])) for row in found]
        return counts


def held_out(run: Run) -> ImageSet:
    """The classes that a Run is scored on; of a final training those that it kept apart.

    Raises ValueError where it kept none.
    """
    split, args = run.experiment.split, run.experiment.data_args
    if split == "train" and not args.get("test_share"):
        raise ValueError(
            f"Run {run.path.name} trained on all of its classes, so none is left to measure on"
        )
    return data.load(run.experiment.data, "test" if split == "train" else split, **args)


def _searched(images: ImageSet, x: NDArray[np.float32], most: int) -> tuple[NDArray[Any], ...]:
    """Rows of some queries (Q,) and of the gallery (G,); the first results (Q, k), as places in the
    gallery, and their cosines."""
    every = np.arange(len(images))
    alone = images.queries is None  # each is searched for in all others
    asked = every if images.queries is None else np.flatnonzero(images.queries)
    there = every if images.queries is None else np.flatnonzero(~images.queries)
    asked = np.sort(np.random.default_rng(0).permutation(asked)[:most])
    k = min(FIRST, len(there) - alone)
    first, cosines = retrieval.nearest_neighbors(
        x[asked], k, x[there], "cosine", asked if alone else None
    )
    return asked, there, np.asarray(first), np.asarray(cosines)
