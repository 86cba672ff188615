"""Re-rank the first results of a search by local matches: are the same parts in the same places?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

#: Guesses at how one picture lies in another, and how far off a match may be, in sides of a picture.
GUESSES, OFF = 200, 0.1
#: A guess neither shrinks nor enlarges by more than this.
SCALE = 2.5


class Points(NamedTuple):
    """Parts of a picture: where they are, in sides of it, and what is there."""

    at: Tensor  # (N, 2), x and y in 0..1
    what: Tensor  # (N, d), of length 1


def points(fmap: Tensor) -> Points:
    """The cells of a feature map as points: (C, H, W) -> H·W of them, without the map's mean.

    >>> points(torch.rand(8, 2, 3)).at[:4].tolist()  # x first
    [[0.1666666716337204, 0.25], [0.5, 0.25], [0.8333333134651184, 0.25], [0.1666666716337204, 0.75]]
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


def matches(a: Points, b: Points, off: float = OFF) -> Tensor:
    """Matches of two pictures that agree on how one lies in the other: (K, 2) places in a and b."""
    found = mutual(a.what, b.what)
    kept = consistent(a.at[found[:, 0]], b.at[found[:, 1]], off)
    return found[torch.from_numpy(kept)]
