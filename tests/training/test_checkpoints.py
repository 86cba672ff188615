"""Checkpoints: whose they are, whole or refused, and what goes on from one."""

import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from dmlkit import data, losses, training
from dmlkit.training.checkpoints import read_checkpoint
from tests.training.tiny import TINY, assert_same_run, flipped, run

CONSTANT = replace(TINY, lr_decay=0)


def test_no_bit_of_a_checkpoint_can_flip_unseen(tmp_path):
    """A changed byte is refused, unless it is one that says nothing (between two parts, say)."""
    path = tmp_path / "checkpoint"
    train = data.load("glyphs", "train", **TINY.data_args)
    model, loss = training.build_model(TINY, train), training.build_objective(TINY, train)
    fabric = training.open_fabric(TINY, "cpu")
    trainer = training.Trainer(TINY, model, loss, train, fabric)
    trainer.advance()
    trainer.save(path)
    expected, whole = read_checkpoint(path), path.read_bytes()
    assert expected["step"] == 1
    unseen = 0
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=200):
        path.write_bytes(flipped(whole, bit))
        try:
            found = read_checkpoint(path)
        except Exception:  # zip files are refused in many ways
            continue
        unseen += 1
        for part in ("model", "objective", "record"):
            torch.testing.assert_close(found[part], expected[part], rtol=0, atol=0, equal_nan=True)
    assert unseen < 50
    for length in (0, 31, 32, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(zipfile.BadZipFile):
            read_checkpoint(path)


def fit(experiment, path, loss=None, **changes):
    train = data.load("glyphs", "train", **(TINY.data_args | changes))
    model = training.build_model(experiment, train)
    how = {"device": "cpu", "checkpoint": path, "progress": False}
    how["monitor"] = {"val": data.load("glyphs", "val", **TINY.data_args)}
    history = training.fit(model, loss or losses.TripletLoss(), train, experiment, **how)
    return history, model.state_dict()


@pytest.mark.parametrize(
    "change, loss, images, said",
    [
        ({"lr": 1e-3}, None, {}, "lr was 0.005 there, and is 0.001"),
        ({"seed": 1}, None, {}, "seed was 0 there, and is 1"),
        ({"optimizer": "sgd"}, None, {}, "optimizer was adam"),
        ({"sampler": "uniform", "sampler_args": {}}, None, {}, "sampler(_args)? was"),
        ({"dim": 4}, None, {}, "dim was 8 there, and is 4"),
        ({}, losses.TripletLoss(margin=0.3), {}, r"TripletLoss\(.*0.2.*0.3"),
        ({}, losses.ContrastiveLoss(), {}, r"Triplet.* there, and is Contrastive"),
        ({}, None, {"seed": 1}, "training set was"),
        ({"steps": 3}, None, {}, "of step 4, but steps is 3"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, change, loss, images, said):
    path = tmp_path / "checkpoint"
    fit(replace(TINY, steps=4), path)
    kept = path.read_bytes()
    with pytest.raises(ValueError, match=said):
        fit(replace(TINY, steps=4, **change) if "steps" not in change else replace(TINY, **change),
            path, loss, **images)  # fmt: skip
    assert path.read_bytes() == kept


def test_a_training_goes_on_for_more_steps_as_if_it_had_never_ended(tmp_path):
    fit(replace(CONSTANT, steps=6), tmp_path / "short")
    found = fit(CONSTANT, tmp_path / "short")
    expected = fit(CONSTANT, tmp_path / "whole")
    pd.testing.assert_frame_equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
    falling = replace(CONSTANT, lr_decay=0.3)
    fit(falling, tmp_path / "falling")
    with pytest.warns(UserWarning, match="step 12 of 12, which differs from step 12 of 18"):
        fit(replace(falling, steps=18), tmp_path / "falling")


def test_a_run_trained_on_is_the_longer_run_or_says_where_it_began(store):
    start = run(replace(CONSTANT, steps=6), store)
    found = run(CONSTANT, store, start=start)
    expected = run(CONSTANT, store / "unbroken")
    assert found.path.name == expected.path.name
    assert_same_run(found, expected)

    falling = run(TINY, store)
    with pytest.warns(UserWarning, match="it will not be the training of that many steps"):
        longer = run(replace(TINY, steps=18), store, start=falling)
    assert longer.provenance["start"] == falling.path.name
    assert len(longer.history) == 18
    assert longer.path.name != run(replace(TINY, steps=18), store).path.name
    told = rf"lr was 0\.005 there, and is 0\.001: set it as in {falling.path.name}"
    with pytest.raises(ValueError, match=told):
        run(replace(TINY, lr=1e-3), store, start=falling)


def test_the_best_step_by_validation_is_kept(store):
    """It is the Run that ended there, to the bit; where all looks are equal, the first."""
    looked = replace(CONSTANT, monitor_every=2, steps=16, keep_best=True, lr=0.05)
    found = run(looked, store)
    recalls = found.history.set_index("step")["val_recall_at_1"].dropna()
    best = int(recalls.idxmax())
    assert best < 16  # else nothing is shown
    short = run(replace(looked, keep_best=False, steps=best), store)
    np.testing.assert_array_equal(found.embeddings, short.embeddings)
    assert found.scores == short.scores
    for one, other in ((found.model(), short.model()), (found.objective(), short.objective())):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
