"""The backbone that comes with the repository can be made anew."""

import numpy as np
import torch

from dmlkit import models
from studies.pretrain import pretrain

WIDTHS = (16, 32, 64, 192)


def test_what_is_written_is_what_a_model_starts_from(tmp_path, monkeypatch):
    path = pretrain(tmp_path / models.classifier_path(WIDTHS).name, steps=2, widths=WIDTHS)
    with np.load(models.classifier_path(WIDTHS)) as committed, np.load(path) as made:
        assert {n: committed[n].shape for n in committed} == {n: made[n].shape for n in made}
        weights = {name: made[name] for name in made}
    monkeypatch.setattr(models, "PRETRAINED", tmp_path)
    state = models.build(
        "convnet", dim=8, image=torch.zeros(1, 32, 32), pretrained=True, widths=WIDTHS
    ).state_dict()
    assert all(np.array_equal(state[name].numpy(), weights[name]) for name in weights)
