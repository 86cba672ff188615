"""The network that the study of transfer starts from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmlkit import models, training
from dmlkit.files import write_whole
from dmlkit.training import Experiment

#: What the backbone of the study of transfer was trained as.
CLASSIFIER: Mapping[str, Any] = {
    "loss": "normalized_softmax",
    "sampler": "uniform",
    "sampler_args": {"size": 128},
    "augment": True,
    "steps": 2000,
    "split": "val",
    "data_args": {"part": "develop", "test_classes": 0},
}


def pretrain(device: str = "auto") -> Path:
    """Train the classifier that the study of transfer starts from, and write its backbone.

    It tells the training classes of Glyphs apart, which have nothing to do with Omniglot's.
    """
    made = training.run(Experiment(**CLASSIFIER), device=device)
    state = {
        name: value.numpy()
        for name, value in made.model().state_dict().items()
        if not name.startswith("head.")
    }

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez(file, **state)

    models.GLYPHS_CONVNET.parent.mkdir(exist_ok=True)
    write_whole({models.GLYPHS_CONVNET: write})
    return models.GLYPHS_CONVNET
