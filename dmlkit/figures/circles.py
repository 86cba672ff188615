"""Proxies and images on a circle: where each class is content, and where none is."""

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from torch import Tensor

#: A color for each of ten classes.
INKS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#d55e00", "#8f6bb3", "#8a8a2b", "#7a4a2a", "#c0304a"),
)


def circle(
    axes: Axes, x: Tensor, proxies: Tensor, labels: Tensor, pictures: Tensor, margin: float = 0.0
) -> None:
    """Draw directions x (N, 2) around proxies (C, 2), C up to ten, with a picture of each class.

    A sector has the color of the class whose proxy is nearer than every other by the ``margin`` (an
    angle in radians); gray is where none is. A dot has the color of its class, labels (N,); a cross
    marks one whose nearest proxy is another's. Pictures (C, 1, H, W) hold ink from 0 to 1.
    """
    u, v = np.meshgrid(*2 * [np.linspace(-1, 1, 401)])
    place = torch.from_numpy(np.stack([u, v], axis=-1)).float().view(-1, 2)
    theta, order = _angles(place, proxies).sort(dim=1)
    paint = 1 - 0.45 * (1 - np.array([to_rgb(ink) for ink in INKS])[order[:, 0]])
    paint[(theta[:, 1] - theta[:, 0] < margin).numpy()] = 0.55
    paint = paint.reshape(401, 401, 3)
    paint[np.hypot(u, v) > 0.98] = 1
    axes.imshow(paint, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear")
    wrong = (_angles(x, proxies).argmin(dim=1) != labels).numpy()
    off = (1.05 + 0.18 * (np.arange(len(x)) * 0.618 % 1))[:, None]  # so that no dot hides another
    places, inks = off * x.numpy(), np.array(INKS)[labels]
    a, b = places.T
    axes.scatter(a[~wrong], b[~wrong], s=6, c=inks[~wrong], lw=0)
    axes.scatter(a[wrong], b[wrong], s=26, c=inks[wrong], marker="x", lw=1.4)
    for k, (a, b) in enumerate(proxies.tolist()):
        arrow = {"arrowstyle": "-|>", "color": "black", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (0.98 * a, 0.98 * b), (0, 0), arrowprops=arrow)
        box = axes.inset_axes((1.5 * a - 0.2, 1.5 * b - 0.2, 0.4, 0.4), transform=axes.transData)
        ink = (2.4 * pictures[k, 0] - 0.6).clamp(0, 1)  # no noise of the paper
        box.imshow(np.dstack([np.tile(to_rgb(INKS[k]), (*ink.shape, 1)), ink]))
        box.set_axis_off()
    axes.set(xlim=(-1.72, 1.72), ylim=(-1.72, 1.72), aspect="equal")
    axes.set_axis_off()


def _angles(x: Tensor, proxies: Tensor) -> Tensor:
    return (F.normalize(x) @ proxies.T).clamp(-1, 1).acos()
