"""What asks for the training set is shown it, through wrappers, and a restart goes on the same."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from dmlkit import data, losses, training
from dmlkit.data.pictures import Pictures
from dmlkit.losses.spherical import SphericalConstraint
from tests.data.trees import picture
from tests.training.tiny import TINY

SEES = replace(
    TINY,
    loss="htl",
    loss_args={"refresh_every": 5},
    sampler="neighbors",
    sampler_args={"groups": 2, "group_size": 4, "per_class": 4, "refresh_every": 3},
    monitor=(),
)


class Seeing(losses.EmbeddingLoss):
    """A triplet loss that keeps what it is shown."""

    refresh_every = 5

    def __init__(self):
        super().__init__()
        self.inner = losses.TripletLoss()
        self.seen = []

    def refresh(self, embeddings, labels):
        self.seen.append((embeddings, labels))

    def equation(self, embeddings, labels):
        return self.inner(embeddings, labels)


@pytest.fixture(scope="module")
def train():
    return data.load("glyphs", "train", **TINY.data_args)


def trainer(train, loss, experiment=TINY):
    model = training.build_model(experiment, train)
    fabric = training.open_fabric(experiment, "cpu")
    return training.Trainer(experiment, model, loss, train, fabric)


def test_a_loss_is_shown_the_training_set_as_the_model_sees_it_at_that_step(train):
    loss = Seeing()
    trained = trainer(train, loss)
    for step in range(12):
        before = trained.embed(train)
        trained.advance()
        if step % 5 == 0:
            embeddings, labels = loss.seen[-1]
            np.testing.assert_array_equal(embeddings.numpy(), before)
            np.testing.assert_array_equal(labels.numpy(), train.labels)
            assert embeddings.device.type == labels.device.type == "cpu"
    assert len(loss.seen) == 3
    assert trained.model.training


def test_nothing_is_embedded_for_those_that_do_not_ask(train, monkeypatch):
    monkeypatch.setattr(training.Trainer, "embed", None)
    trainer(train, losses.TripletLoss()).advance()
    with pytest.raises(TypeError):
        trainer(train, Seeing()).advance()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda loss: training.Objective(loss, SphericalConstraint()),
        lambda loss: losses.MultiScaleLoss(loss, parts=2),
    ],
    ids=["objective", "multi-scale"],
)
def test_it_reaches_what_is_wrapped(train, wrapped):
    objective = wrapped(losses.build("htl", num_classes=40))
    before = [b.clone() for name, b in objective.named_buffers() if name.endswith("margins")]
    trainer(train, objective).advance()
    after = [b for name, b in objective.named_buffers() if name.endswith("margins")]
    assert before
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("stop", [1, 3, 5, 8])
def test_interrupted_between_refreshes_it_goes_on_bit_for_bit(train, tmp_path, monkeypatch, stop):
    """Margins are of step 0 or 5, neighbors of 0, 3 or 6; at 3 and 5 a refresh is to come."""

    def fit(checkpoint=None):
        model = training.build_model(SEES, train)
        objective = training.build_objective(SEES, train)
        history = training.fit(
            model, objective, train, SEES, device="cpu", checkpoint=checkpoint, progress=False
        )
        return history, model.state_dict(), objective.state_dict()

    history, model, objective = fit()
    advance = training.Trainer.advance

    def interrupted(trained):
        if trained.step == stop:
            raise KeyboardInterrupt
        advance(trained)

    with monkeypatch.context() as patch:
        patch.setattr(training.Trainer, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "checkpoint")
    resumed = fit(tmp_path / "checkpoint")
    pd.testing.assert_frame_equal(resumed[0], history)
    torch.testing.assert_close(resumed[1:], (model, objective), rtol=0, atol=0)


def test_a_refresh_that_is_interrupted_leaves_no_checkpoint_of_half_of_it(
    train, tmp_path, monkeypatch
):
    def interrupt(sampler, embeddings, labels):
        raise KeyboardInterrupt

    monkeypatch.setattr(data.batches.Neighbors, "refresh", interrupt)
    with pytest.raises(KeyboardInterrupt):
        training.fit(
            training.build_model(SEES, train),
            training.build_objective(SEES, train),
            train,
            SEES,
            device="cpu",
            checkpoint=tmp_path / "checkpoint",
            progress=False,
        )
    assert not (tmp_path / "checkpoint").exists()


class Brightness(nn.Module):
    """The mean of a picture's channels, times something that learns."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, images):
        return images.mean(dim=(2, 3)) * self.weight


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.batches = []

    def forward(self, embeddings, labels):
        self.batches.append((embeddings.detach(), labels))
        return embeddings.square().mean()


def test_pictures_read_ahead_are_those_of_the_refreshed_sampler(tmp_path):
    """Each picture is of one color: what a step sees must be what its labels say."""
    labels = np.repeat(np.arange(8), 3)
    paths = [picture(tmp_path / f"{i}.png", seed=label) for i, label in enumerate(labels)]
    images = Pictures(paths, crop=8, resize=8, flip=False)
    train = data.ImageSet(images, labels, labels.astype(str), tuple("abcdefgh"))
    shown = images[np.arange(24)].float().mean(dim=(2, 3)) / 255
    experiment = replace(
        SEES,
        sampler_args={"groups": 1, "group_size": 3, "per_class": 2, "refresh_every": 2},
        steps=6,
        lr=1e-9,
    )
    loss = Noting()
    training.fit(Brightness(), loss, train, experiment, device="cpu", progress=False)
    assert len(loss.batches) == 6
    for embeddings, of in loss.batches:
        torch.testing.assert_close(embeddings, shown[3 * of], rtol=1e-5, atol=1e-5)
    sampler = training.build_sampler(experiment, train)
    sampler.refresh(shown, torch.from_numpy(labels))
    for step, (_, of) in enumerate(loss.batches):
        np.testing.assert_array_equal(labels[sampler(step)], of.numpy())
