"""Weights between those at the start and those that were learned (WiSE-FT)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dmlkit import data, training
from tests.training import tiny
from tests.training.tiny import TINY

PLAIN = replace(TINY, steps=6, monitor=(), lr_decay=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = tmp_path_factory.mktemp("runs")
    return {share: tiny.run(replace(PLAIN, blend=share), store) for share in (0.0, 0.25, 1.0)}


def test_a_blend_is_on_the_line_and_is_what_the_run_scores(runs):
    learned, start = runs[1.0].model().state_dict(), runs[0.0].model().state_dict()
    for name, value in runs[0.25].model().state_dict().items():
        if value.is_floating_point():
            expected = 0.75 * start[name] + 0.25 * learned[name]
            torch.testing.assert_close(value, expected)
    images = data.load("glyphs", "test", **PLAIN.data_args)
    for run in runs.values():
        np.testing.assert_array_equal(training.embed(run.model(), images), run.embeddings)
    assert not np.allclose(runs[0.25].embeddings, runs[1.0].embeddings)


def test_the_start_is_the_untrained_network(runs):
    found = training.untrained(PLAIN, "cpu")["untrained network"]
    np.testing.assert_array_equal(runs[0.0].embeddings, found)


def test_a_run_can_be_blended_without_training_anew(runs):
    again = runs[1.0].blended(0.25).state_dict()
    for name, value in runs[0.25].model().state_dict().items():
        torch.testing.assert_close(value, again[name])


def test_an_interrupted_training_is_blended_once(runs, tmp_path, monkeypatch):
    tiny.interrupt_before(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        tiny.run(replace(PLAIN, blend=0.25), tmp_path)
    monkeypatch.undo()
    tiny.assert_same_run(tiny.run(replace(PLAIN, blend=0.25), tmp_path), runs[0.25])
    # and one whose process ended between its last checkpoint and its publication
    experiment, path = replace(PLAIN, blend=0.25), tmp_path / "checkpoint"
    images = data.load("glyphs", "train", **PLAIN.data_args)
    for _ in range(2):
        model = training.build.build_model(experiment, images)
        loss = training.build.build_objective(experiment, images)
        training.fit(model, loss, images, experiment, checkpoint=path, progress=False, device="cpu")
        for name, value in runs[0.25].model().state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value)


def test_the_best_is_not_blended():
    with pytest.raises(ValueError, match="blend must be 1"):
        replace(TINY, keep_best=True, blend=0.5)
