"""What the site draws: the forces of a loss."""

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from course import poster
from dmlkit.losses.forces import axes, build_at, value_and_forces

#: Room for the eight points of SEE; three parts and any prefix hold the plane.
_DIM = 12
#: Degrees of six points on the circle, two of each class.
_BATCH = np.array([0.0, 50.0, 110.0, 160.0, 230.0, 300.0])


def field(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Six points of three classes on the circle, and the force of a loss on each: (6, 2) both."""
    plane = axes(2, _DIM)  # (2, d)

    def on_circle(degrees: np.ndarray) -> torch.Tensor:
        turn = torch.deg2rad(torch.as_tensor(degrees))
        return torch.stack([turn.cos(), turn.sin()], dim=1) @ plane  # (n, d)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = build_at(name, on_circle(_BATCH.reshape(3, 2).mean(axis=1)))
        points = on_circle(_BATCH)
        force = value_and_forces(loss, points, torch.arange(3).repeat_interleave(2))[1]
    return (points @ plane.T).numpy(), (force @ plane.T).numpy()


def forces(name: str) -> Figure:
    """A loss on six points of three classes, and on a sample that is turned from its class."""
    fig = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = fig.subplots(1, 2, width_ratios=(2, 3))
    points, force = field(name)
    force = 0.6 * force / max(1e-12, np.linalg.norm(force, axis=1).max())
    left.add_patch(Circle((0, 0), 1, fill=False, color="0.7"))
    for i, marker in enumerate("os^"):
        x, f = points[2 * i : 2 * i + 2].T, force[2 * i : 2 * i + 2].T
        left.quiver(*x, *f, angles="xy", scale_units="xy", scale=1, width=0.012)
        left.plot(*x, marker, markersize=9, color=f"C{i}")
    left.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal")
    left.axis("off")
    right.axhline(0, color="0.6", lw=0.8)
    right.plot(poster.ANGLES, poster.forces(name), lw=2)
    right.set(xlabel="angle to its own class (°)", ylabel="force / largest")
    right.set_xticks(range(0, 91, 30))
    return fig
