"""What ``models.build("convnet", pretrained=True)`` starts from: a classifier of Glyphs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dmlkit import models, training
from dmlkit.files import write_whole
from dmlkit.training import Experiment

#: It tells 300 of Glyphs' development classes apart.
CLASSIFIER: Mapping[str, Any] = {
    "loss": "normalized_softmax",
    "sampler": "uniform",
    "sampler_args": {"size": 128},
    "augment": True,
    "steps": 2000,
    "split": "val",
    "data_args": {"part": "develop", "test_classes": 0},
}


def pretrain(
    path: Path | None = None,
    steps: int | None = None,
    widths: Sequence[int] = (8, 16, 32, 96),
) -> Path:
    """Train the classifier, and write its backbone, without the head, as arrays: forty seconds.

    ``steps`` are those of ``CLASSIFIER``, unless given; ``path`` is where ``models.build`` looks
    for a ConvNet of these ``widths``.
    """
    path = path or models.classifier_path(widths)
    experiment = Experiment(**CLASSIFIER, model_args={"widths": list(widths)})
    made = training.run(replace(experiment, steps=steps or experiment.steps))
    state = made.model().state_dict()

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez(file, **{n: v.numpy() for n, v in state.items() if not n.startswith("head.")})

    write_whole({path: write})
    return path
