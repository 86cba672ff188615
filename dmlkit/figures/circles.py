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
    axes: Axes,
    x: Tensor,
    proxies: Tensor,
    labels: Tensor,
    held_out: Tensor,
    pictures: Tensor,
    margin: float = 0.0,
) -> None:
    """Draw directions x (N, 2) around proxies (C, 2), C up to ten, with a picture of each class.

    A sector has the color of the class whose proxy is nearer than every other by the ``margin`` (an
    angle in radians); gray is where none is. A dot has the color of its class, labels (N,); those
    that were ``held_out`` of the training, bool (N,), are rings farther out. Pictures (C, 1, H, W)
    hold ink from 0 to 1.
    """
    u, v = np.meshgrid(*2 * [np.linspace(-1, 1, 401)])
    place = torch.from_numpy(np.stack([u, v], axis=-1)).float().view(-1, 2)
    theta, order = (F.normalize(place) @ proxies.T).clamp(-1, 1).acos().sort(dim=1)
    paint = 1 - 0.45 * (1 - np.array([to_rgb(ink) for ink in INKS])[order[:, 0]])
    paint[(theta[:, 1] - theta[:, 0] < margin).numpy()] = 0.55
    paint = paint.reshape(401, 401, 3)
    paint[np.hypot(u, v) > 0.98] = 1
    axes.imshow(paint, extent=(-1, 1, -1, 1), origin="lower", interpolation="bilinear")
    off = 1.02 + 0.1 * (np.arange(len(x)) * 0.618 % 1)  # so that no dot hides another
    held, inks = held_out.numpy(), np.array(INKS)[labels]
    a, b = (off + 0.15 * held) * x.numpy().T
    axes.scatter(a[~held], b[~held], s=5, c=inks[~held], lw=0)
    axes.scatter(a[held], b[held], s=11, facecolors="none", edgecolors=inks[held], lw=0.8)
    for k, (a, b) in enumerate(proxies.tolist()):
        arrow = {"arrowstyle": "-|>", "color": "black", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (0.98 * a, 0.98 * b), (0, 0), arrowprops=arrow)
        box = axes.inset_axes((1.5 * a - 0.2, 1.5 * b - 0.2, 0.4, 0.4), transform=axes.transData)
        ink = (2.4 * pictures[k, 0] - 0.6).clamp(0, 1)  # no noise of the paper
        box.imshow(np.dstack([np.tile(to_rgb(INKS[k]), (*ink.shape, 1)), ink]))
        box.set_axis_off()
    axes.set(xlim=(-1.72, 1.72), ylim=(-1.72, 1.72), aspect="equal")
    axes.set_axis_off()
