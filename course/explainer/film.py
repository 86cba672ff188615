"""The film for browsers that cannot train: two trainings at five steps, as one still picture."""

from itertools import islice

import torch

from course.explainer.images import OF_EACH, Images
from course.explainer.training import Settings, train

_STEPS = (1, 10, 30, 100, 200)
_COLORS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#7a4fbf", "#8c6d31", "#b3261e", "#5b5b66"),
)


def film(images: Images) -> str:
    """An SVG of unseen images on circles: above hard triplets, below semi-hard ones."""
    parts = []
    for row, (name, title) in enumerate(
        [("triplet_hard", "hardest negatives"), ("triplet_semihard", "semi-hard negatives")]
    ):
        run = islice(train(images, Settings(name, {"margin": 0.2}, dim=2)), max(_STEPS))
        for k, (_, points) in enumerate(run, start=1):
            if k in _STEPS:
                parts.append(_circle(points, _STEPS.index(k), row, f"step {k}"))
        parts.append(f'<text x="4" y="{16 + 160 * row}" font-weight="600">{title}</text>')
    drawn = "".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 320" font-family="sans-serif" '
        f'font-size="13"><rect width="720" height="320" fill="#fff"/>{drawn}</svg>'
    )


def _circle(points: torch.Tensor, column: int, row: int, label: str) -> str:
    """One circle of the film, an image a dot, each class on a ring of its own."""
    x, y, r = 72 + 144 * column, 88 + 160 * row, 48
    directions = torch.nn.functional.normalize(points[:, :2]).tolist()
    dots = []
    for i, (across, up) in enumerate(directions):
        c = i // OF_EACH
        lane = r + 1.4 * (c - 4.5)
        at = f'cx="{x + lane * across:.1f}" cy="{y - lane * up:.1f}"'
        dots.append(f'<circle {at} r="2.4" fill="{_COLORS[c]}"/>')
    ring = f'<circle cx="{x}" cy="{y}" r="{r}" fill="none" stroke="#ccc"/>'
    return (
        f'<g>{ring}{"".join(dots)}<text x="{x}" y="{y + 4}" text-anchor="middle">{label}</text></g>'
    )
