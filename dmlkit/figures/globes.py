"""A lit sphere with the regions of its proxies, and marks on it."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from dmlkit.figures.drawing import RIGHT, WRONG

Array = NDArray[np.float64]
#: Pale colors of regions.
PALE = ("#cfe3f5", "#f8d9e6", "#d8eccb", "#e6e0ec", "#f3ecc2", "#dcdcdc")
#: How a proxy, another class's proxy, a sample and a synthetic point are marked.
PROXY, OTHER = ({"marker": "*", "ms": ms, "color": ink} for ms, ink in ((14, "black"), (11, "0.3")))
SAMPLE, POINT = {"color": RIGHT, "ms": 10}, {"color": WRONG, "marker": "^", "ms": 9}


def place(polar: float | Array, azimuth: float | Array) -> Array:
    """A place on the sphere, in degrees from the north pole and around it: -> (..., 3).

    >>> place(90, 0).round(2).tolist()
    [1.0, 0.0, 0.0]
    """
    t, a = np.radians(polar), np.radians(azimuth)
    return np.stack([np.sin(t) * np.cos(a), np.sin(t) * np.sin(a), np.cos(t) + 0 * a], axis=-1)


def camera(near: Array, up: Array) -> Array:
    """Rows to the right, up and towards the reader, who looks at ``near``: (3,), (3,) -> (3, 3)."""
    near = near / np.linalg.norm(near)
    up = up - (up @ near) * near
    up = up / np.linalg.norm(up)
    return np.stack([np.cross(up, near), up, near])


def globe(axes: Axes, view: Array, proxies: Array, title: str = "") -> None:
    """A lit sphere, where every place has the tint of the nearest of up to six proxies (C, 3)."""
    x, y = np.meshgrid(np.linspace(-1, 1, 400), np.linspace(1, -1, 400))
    normal = np.stack([x, y, np.sqrt(np.clip(1 - x**2 - y**2, 0, None))], axis=-1)
    tint = np.array([to_rgb(ink) for ink in PALE])[(normal @ view @ proxies.T).argmax(axis=-1)]
    light = 0.75 + (12 * np.clip(normal @ (-0.45, 0.6, 0.66), 0, 1)).round() / 48  # few shades
    inside = x**2 + y**2 <= 1
    axes.imshow(np.dstack([tint * light[..., None], inside]), extent=(-1, 1, -1, 1))
    axes.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
    axes.set_axis_off()
    axes.set_title(title, fontweight="bold")


def line(axes: Axes, view: Array, points: Array, **style: Any) -> None:
    """Straight lines from point to point: (n, 3)."""
    axes.plot(*(points @ view.T)[:, :2].T, **style)


def mark(
    axes: Axes, view: Array, point: Array, name: str = "", up: float = 0.13, **style: Any
) -> None:
    """One point (3,), and its name above or below it."""
    x, y, _ = view @ point
    look: dict[str, Any] = {"marker": "o", "ms": 8, "mec": "white", "mew": 1, "zorder": 5}
    axes.plot(x, y, **look | style)
    axes.text(x, y + up, name, ha="center", va="center", fontsize=11, zorder=6)
