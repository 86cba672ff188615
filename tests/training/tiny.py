"""The smallest Experiment that trains, and what tests do with it."""

import numpy as np
import pandas as pd

from dmlkit import training
from dmlkit.training import Experiment

TINY = Experiment(
    data_args={"train_classes": 40},
    sampler_args={"classes": 8, "per_class": 4},
    model_args={"widths": [4, 8, 8, 8]},
    dim=8,
    steps=12,
    monitor=("val",),
    monitor_every=6,
)


def run(experiment, store, **args):
    return training.run(experiment, store=store, device="cpu", progress=False, **args)


def assert_same_run(a, b):
    pd.testing.assert_frame_equal(a.history, b.history)
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert a.scores == b.scores
