"""Lesson 22: twelve points of three classes in the plane, moved as UMAP moves them."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable

#: Weights of the graph: 0.6 within a class, 0.15 for one pair of neighboring classes each.
JOINED = torch.block_diag(*[0.6 * (1 - torch.eye(4, dtype=torch.float64))] * 3)
for i, j in ((3, 4), (7, 8)):
    JOINED[i, j] = JOINED[j, i] = 0.15
FEW = 5 * 2 / 12  # UMAP draws 5 points to repel for each weight; here as many weights to all
START = ((1.4, 0.4), (-2.2, 1.7), (-0.6, -2.6), (2.4, -1.6), (-2.9, -0.4), (0.3, 2.5),
         (2.8, 1.5), (-1.5, -1.3), (0.2, 0.6), (-0.9, 2.9), (1.1, -2.4), (-3.0, -2.1))  # fmt: skip


def forces(_choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Where each point moves, Σ_j force_ij (y_j − y_i), and mean distances on the map."""
    a = JOINED.to(points)
    away = points[None] - points[:, None]  # (12, 12, 2), from i to j
    r2 = away.square().sum(dim=2)
    other = 1 - torch.eye(len(points), dtype=points.dtype)
    force = (2 * a / (1 + r2) - 2 * FEW * (1 - a) / ((0.01 + r2) * (1 + r2))) * other
    own, r = (a > 0.5).to(points), (r2 + 1e-12).sqrt()
    return {
        "move": (force[:, :, None] * away).sum(dim=1).clamp(-4, 4),
        "joined": (r * own).sum() / own.sum(),
        "others": (r * (other - own)).sum() / (other - own).sum(),
    }


EXPLORABLE = Explorable(
    figure="22_layout",
    alt="Twelve points of three classes in the plane, with lines between joined ones and an arrow "
    "on each that shows where it moves. You drag them, or let them move.",
    discover="Joined points gather into an island, wherever they begin. A point that is carried "
    "away comes back, because its weights reach over any distance.",
    choices=(
        Choice(
            "weights", "weights within classes",
            "Let the points move until islands stand. Then drag one point into another island, and "
            "let them move again. Where does it go?",
        ),
    ),
    points=lambda: [
        {"name": f"point {i % 4 + 1} of class {'ABC'[i // 4]}", "label": "ABC"[i // 4],
         "kind": f"c{i // 4}"} for i in range(12)
    ],
    start=START,
    data=lambda: {"joined": JOINED.tolist(), "few": FEW},
    formula=forces,
    readouts={"joined": "Mean distance within classes", "others": "between classes"},
)  # fmt: skip
