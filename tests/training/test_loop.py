"""Any model and loss train; a training goes on from whole steps; what blows up is seen."""

import warnings
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import nn

from dmlkit import data, losses, models, retrieval, training
from tests.training.tiny import TINY


def test_a_step_that_was_torn_is_no_checkpoint(tmp_path, monkeypatch):
    """Interrupted in the objective, BatchNorm's averages have moved already, and a memory too."""
    monkeypatch.setattr(training.trainer, "CHECKPOINT_SECONDS", 0)
    train = data.load("glyphs", "train", **TINY.data_args)

    def fit(stop=None, checkpoint=None):
        calls = []

        def mid_step(loss, arguments, value):
            calls.append(value)
            if len(calls) == stop:
                raise KeyboardInterrupt

        model, loss = training.build_model(TINY, train), losses.build("xbm", dim=8, size=64)
        loss.register_forward_hook(mid_step)
        history = training.fit(model, loss, train, TINY, checkpoint=checkpoint, progress=False)
        return history, model.state_dict(), len(calls)

    history, state, _ = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(5, tmp_path / "checkpoint")
    again = fit(checkpoint=str(tmp_path / "checkpoint"))
    assert again[2] == 8  # of 12: four were whole
    pd.testing.assert_frame_equal(again[0], history)
    torch.testing.assert_close(again[1], state, rtol=0, atol=0)


def test_an_interrupted_look_is_taken_by_the_next_attempt(tmp_path, monkeypatch):
    """Jupyter's Stop while a split is embedded: its score is in the history all the same."""
    train, val = (data.load("glyphs", split, **TINY.data_args) for split in ("train", "val"))

    def fit(checkpoint=None):
        model, loss = training.build_model(TINY, train), training.build_objective(TINY, train)
        splits = {"train": train, "val": val}
        options = {"device": "cpu", "checkpoint": checkpoint, "progress": False, "monitor": splits}
        return model, lambda: training.fit(model, loss, train, TINY, **options)

    expected = fit()[1]()
    retrieve, looks = retrieval.recall_at_k, []

    def interrupted(*args, **kwargs):
        looks.append(1)
        if len(looks) in (2, 5):  # once amid the run, once after its last step
            raise KeyboardInterrupt
        return retrieve(*args, **kwargs)

    monkeypatch.setattr(retrieval, "recall_at_k", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "checkpoint")[1]()
    pd.testing.assert_frame_equal(fit(tmp_path / "checkpoint")[1](), expected, check_exact=True)
    assert len(looks) == 6  # four, and the two that were cut short


def test_a_model_is_in_the_mode_that_it_was_after_an_interrupted_look():
    images = data.load("glyphs", "val", **TINY.data_args)
    model = training.build_model(TINY, images)

    def stop(module, arguments, embeddings):
        raise KeyboardInterrupt

    model.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        training.embed(model, images)
    assert model.training


def test_any_loss_of_the_reference_library_fits_as_it_is():
    train = data.load("glyphs", "train", **TINY.data_args)
    gently = replace(TINY, lr=1e-5)  # rounding differs, and large steps would magnify it
    histories = []
    for loss in (losses.ContrastiveLoss(), pml.ContrastiveLoss(pos_margin=0, neg_margin=0.5)):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = models.build("convnet", dim=8, image=train[0])
        histories.append(training.fit(model, loss, train, gently, device="cpu", progress=False))
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-4)


class Wrapped(nn.Module):
    """A network whose output has more than embeddings."""

    def __init__(self, net, wrap):
        super().__init__()
        self.net, self.wrap = net, wrap

    def forward(self, images):
        return self.wrap(self.net(images))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: (x, None, x[:, None]),
        lambda x: {"last_hidden_state": x[:, None], "pooler_output": x},
        lambda x: OrderedDict(hidden_states=(x, x), image_embeds=x),
    ],
    ids=["tuple", "dict", "Hugging Face"],
)
def test_the_one_embedding_of_a_networks_output_is_taken(wrap):
    train, found = data.load("glyphs", "train", **TINY.data_args), []
    for wrapping in (lambda x: x, wrap):
        model = Wrapped(training.build_model(TINY, train), wrapping)
        history = training.fit(model, losses.TripletLoss(), train, TINY, progress=False)
        found.append((history["loss"].to_numpy(), training.embed(model, train, np.int64(500))))
    for plain, wrapped in zip(*found, strict=True):
        np.testing.assert_array_equal(wrapped, plain)


@pytest.mark.parametrize(
    "wrap, came",
    [
        (lambda x: (x, x[:, :2]), r"tuple \{0: \(32, 8\), 1: \(32, 2\)\}"),
        (lambda x: {"logits": None}, r"dict \{'logits': 'NoneType'\}"),
        (lambda x: x.numpy(force=True), "ndarray"),
    ],
)
def test_an_output_that_could_mean_several_things_is_refused(wrap, came):
    train = data.load("glyphs", "train", **TINY.data_args)
    model = Wrapped(training.build_model(TINY, train), wrap)
    with pytest.raises(TypeError, match=rf"must give embeddings \(B, d\).* but gave {came}.*wrap"):
        training.fit(model, losses.TripletLoss(), train, TINY, progress=False)


def test_a_model_without_parameters_embeds():
    images = data.load("glyphs", "test", **TINY.data_args)
    expected = images.images.flatten(1).numpy() / np.float32(255)
    np.testing.assert_array_equal(training.embed(nn.Flatten(), images), expected)


def test_training_learns():
    """Glyphs of unseen classes come nearer to their own kind, well beyond the untrained net."""
    many = {"train_classes": 40}  # and a hundred to test on
    larger = {"model_args": {"widths": [8, 16, 16, 16]}, "dim": 32}
    experiment = replace(TINY, data_args=many, steps=60, **larger)
    untrained = training.baselines(experiment)["untrained network"]["recall_at_1"]
    assert run_anywhere(experiment) > untrained + 0.1


def run_anywhere(experiment):
    train = data.load("glyphs", "train", **experiment.data_args)
    model = training.build_model(experiment, train)
    training.fit(model, losses.TripletLoss(), train, experiment, device="cpu", progress=False)
    images = data.load("glyphs", "test", **experiment.data_args)
    embeddings = training.embed(model, images)
    return retrieval.recall_at_k(embeddings, images.labels, [1], metric="cosine")[1]


def fit(experiment, loss=None):
    train = data.load("glyphs", "train", **TINY.data_args)
    model = training.build_model(experiment, train)
    loss = loss or training.build_objective(experiment, train)
    return training.fit(model, loss, train, experiment, device="cpu", progress=False)


@pytest.mark.parametrize("loss", ["triplet_semihard", "contrastive", "margin", "ranked_list"])
def test_what_blows_up_ends_a_training_though_its_loss_stays_finite(loss):
    experiment = replace(TINY, loss=loss, optimizer="sgd", lr=1e30, steps=30)
    with pytest.raises(training.DivergedError, match=r"norm_mean became nan.* at step 2 of 30"):
        fit(experiment)


@pytest.mark.parametrize(
    "loss, lr", [("multi_similarity", 1e18), ("lifted_structure", 1e3), ("triplet_semihard", 1e18)]
)
def test_norms_and_gradients_that_overflow_end_a_training(loss, lr):
    experiment = replace(TINY, loss=loss, optimizer="sgd", lr=lr, steps=60)
    with pytest.raises(training.DivergedError, match=r"norm_mean became|gradient_norm became"):
        fit(experiment)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_the_last_update_blows_up_is_seen(optimizer):
    experiment = replace(TINY, optimizer=optimizer, lr=1e30, lr_decay=0, steps=1, monitor=())
    message = r"(norm is (nan|inf)|is not finite) after step 1 of 1 \(loss TripletLoss"
    with pytest.raises(training.DivergedError, match=message):
        fit(experiment)


class Proxies(nn.Module):
    """A loss whose own parameters alone blow up, in the last step."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, embeddings, labels):
        return embeddings.square().mean() + self.scale * 3e38


def test_a_parameter_of_the_loss_that_blows_up_is_seen():
    experiment = replace(TINY, optimizer="sgd", lr=1e-3, loss_lr_factor=1e6, steps=1, lr_decay=0)
    with pytest.raises(training.DivergedError, match=r"parameter scale is not finite after step 1"):
        fit(experiment, Proxies())


def test_monitoring_names_what_diverged_and_not_a_score():
    train = data.load("glyphs", "train", **TINY.data_args)
    experiment = replace(TINY, optimizer="sgd", lr=1e30, lr_decay=0, steps=9, monitor_every=1)
    model = training.build_model(experiment, train)
    with pytest.raises(training.DivergedError, match=r"norm is (nan|inf) after step 1 of 9"):
        training.fit(
            model, losses.TripletLoss(), train, experiment, device="cpu", progress=False,
            monitor={"train": train},
        )  # fmt: skip


def test_embeddings_that_are_all_zero_are_finite_and_misses():
    """Their spread, std/mean, is 0/0 in the limit: no training has diverged, a look ends none."""

    class Zero(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1024, 8))

        def forward(self, images):
            return images.flatten(1) @ self.weight

    class Square(nn.Module):
        def forward(self, embeddings, labels):
            return embeddings.square().sum()

    train = data.load("glyphs", "train", **TINY.data_args)
    experiment, how = replace(TINY, steps=2, monitor_every=1), {"device": "cpu", "progress": False}
    with warnings.catch_warnings(record=True, action="default") as told:
        history = training.fit(Zero(), Square(), train, experiment, monitor={"train": train}, **how)
    assert (history["norm_spread"] == 0).all()
    assert (history["train_recall_at_1"] == 0).all()
    (line,) = told
    assert f"nothing but zeros is left: {len(train)} of {len(train)}, as row 0" in str(line.message)
