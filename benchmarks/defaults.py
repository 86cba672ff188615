"""What each loss reaches at its default settings: Recall@1 on unseen classes of Glyphs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlkit import losses, sweeps
from dmlkit.training import Experiment

SEEDS = 3  # class sets, weights and batches, as in notebook 25


def rows() -> Iterator[dict[str, Any]]:
    """One row for each loss: mean and standard deviation over seeds, in percent."""
    names = [entry.name for entry in losses.entries()]
    made = [
        Experiment(loss=name, seed=k, data_args={"class_split": k})
        for name in names
        for k in range(SEEDS)
    ]
    runs = sweeps.train(made)
    for i, name in enumerate(names):
        mine = runs[i * SEEDS : (i + 1) * SEEDS]
        scores = [100 * run.scores["recall_at_1"] if run else 0.0 for run in mine]
        deviation = float(np.std(scores, ddof=1))
        yield {"what": name, "recall_at_1": float(np.mean(scores)), "deviation": deviation}
