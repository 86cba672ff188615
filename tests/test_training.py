"""Experiment -> Run: the same every time, resumed exactly, complete on disk or not there."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_metric_learning import losses as pml

from dmlkit import data, losses, models, retrieval, training
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


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs"


def run(experiment, store, **args):
    return training.run(experiment, store=store, device="cpu", progress=False, **args)


def assert_same_run(a, b):
    pd.testing.assert_frame_equal(a.history, b.history)
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert a.scores == b.scores


def test_the_same_experiment_gives_the_same_run_bit_for_bit(tmp_path):
    first = run(TINY, tmp_path / "a")
    torch.rand(7)  # the caller's own random numbers have no say
    second = run(TINY, tmp_path / "b")
    assert not first.loaded
    assert not second.loaded
    assert_same_run(first, second)
    assert_different = run(replace(TINY, seed=1), tmp_path / "b")
    assert not np.array_equal(first.embeddings, assert_different.embeddings)


def test_training_leaves_the_callers_random_state_and_threads_alone(store):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    run(TINY, store)
    assert torch.equal(torch.rand(4), expected)
    assert torch.get_num_threads() == threads


def test_a_run_that_is_there_is_loaded_and_is_what_was_trained(store):
    trained, loaded = run(TINY, store), run(TINY, store)
    assert (trained.loaded, loaded.loaded) == (False, True)
    assert_same_run(trained, loaded)
    assert list(trained.history["step"]) == list(range(1, 13))
    assert trained.history["val_recall_at_1"].notna().sum() == 2
    assert trained.history.drop(columns="val_recall_at_1").notna().all(axis=None)
    images = data.load("glyphs", "test", **TINY.data_args)
    embedded = training.embed(trained.model(), images)
    np.testing.assert_allclose(embedded, trained.embeddings, rtol=1e-5, atol=1e-6)
    assert not list(store.glob("*.checkpoint"))


def test_a_run_keeps_what_its_objective_learnt(store):
    experiment = replace(TINY, loss="normalized_softmax")
    train = data.load("glyphs", "train", **TINY.data_args)
    objective = training.build_objective(experiment, train)
    untrained = objective.loss.proxies.clone()
    model = training.build_model(experiment, train)
    training.fit(model, objective, train, experiment, progress=False)
    kept = run(experiment, store).objective().loss.proxies
    assert torch.equal(kept, objective.loss.proxies)
    assert not torch.equal(kept, untrained)


@pytest.mark.parametrize("metric", ["hamming", {"name": "poincare", "c": 1.0}])
def test_a_run_is_scored_by_its_metric(store, metric):
    result = run(replace(TINY, metric=metric), store)
    expected = retrieval.evaluate(result.embeddings, result.labels, metric=metric)
    assert result.scores == expected
    assert result.scores != retrieval.evaluate(result.embeddings, result.labels)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_an_interrupted_run_goes_on_to_the_very_same_result(tmp_path, monkeypatch, optimizer):
    experiment = replace(TINY, optimizer=optimizer, lr=0.01, constraint={"weight": 0.1})
    unbroken = run(experiment, tmp_path / "unbroken")
    advance, store = training.Trainer.advance, tmp_path / "broken"

    def interrupted(trainer):
        if trainer.step == 7:
            raise KeyboardInterrupt
        advance(trainer)

    monkeypatch.setattr(training.Trainer, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, store)
    assert len(list(store.glob("*.checkpoint"))) == 1
    steps = []

    def counted(trainer):
        steps.append(trainer.step)
        advance(trainer)

    monkeypatch.setattr(training.Trainer, "advance", counted)
    resumed = run(experiment, store)
    assert steps == [7, 8, 9, 10, 11]
    assert_same_run(unbroken, resumed)


def test_a_killed_process_resumes_from_its_last_checkpoint(tmp_path):
    experiment = replace(TINY, steps=300, monitor=())
    script = (
        "import json, sys; from pathlib import Path; from dmlkit import training;"
        "training.CHECKPOINT_SECONDS = 0.05; "
        "training.run(training.Experiment(**json.loads(sys.argv[1])), store=Path(sys.argv[2]),"
        "device='cpu', progress=False)"
    )
    fields = json.dumps(training.asdict(experiment))
    store = tmp_path / "killed"
    child = subprocess.Popen([sys.executable, "-c", script, fields, str(store)])
    deadline = time.monotonic() + 120
    while not list(store.glob("*.checkpoint")):
        assert child.poll() is None, "the child ended before its first checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not [path for path in store.iterdir() if path.is_dir() and (path / "run.json").exists()]
    assert_same_run(run(experiment, store), run(experiment, tmp_path / "unbroken"))


def test_a_second_process_may_not_train_the_same_run(store, monkeypatch):
    score = training._score

    def while_training(*args):
        with pytest.raises(training.RunInProgressError, match="another process is training Run"):
            run(TINY, store)
        return score(*args)

    monkeypatch.setattr(training, "_score", while_training)
    assert not run(TINY, store).loaded


def test_a_diverging_run_stops_with_the_step_named_and_leaves_nothing(store):
    experiment = replace(TINY, optimizer="sgd", lr=1e4, constraint={"weight": 1.0}, steps=60)
    with pytest.raises(training.DivergedError, match=r"became (nan|inf) at step \d+ of 60.*lr"):
        run(experiment, store)
    assert not [path for path in store.iterdir() if path.is_dir()]


def test_a_damaged_run_names_its_folder_and_what_to_do(store):
    path = run(TINY, store).path
    (path / "run.json").write_text("{")
    with pytest.raises(OSError, match=f"{path.name}.*delete that folder"):
        run(TINY, store)


def test_a_disk_that_fills_up_leaves_no_half_run(store, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        run(TINY, store)
    assert not [path for path in store.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"loss": "tripplet"}, ValueError, "unknown loss 'tripplet'; there are contrastive"),
        ({"loss_args": {"magrin": 1}}, TypeError, "takes margin.*not magrin"),
        ({"data": "cub201"}, ValueError, "cub201.*glyphs"),
        ({"split": "testing"}, ValueError, "testing.*train.*val.*test"),
        ({"model": "vgg"}, ValueError, "unknown model 'vgg'; there are convnet"),
        ({"model_args": {"depth": 3}}, TypeError, "takes dim.*not depth"),
        ({"sampler": "kp"}, ValueError, "unknown sampler 'kp'; there are pk"),
        ({"optimizer": "adma"}, ValueError, "unknown optimizer 'adma'; there are adam"),
        ({"metric": "manhattan"}, ValueError, "manhattan"),
    ],
)
def test_bad_names_are_refused_with_what_there_is(store, change, error, message):
    with pytest.raises(error, match=message):
        run(replace(TINY, **change), store)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"lr": np.float32(0.1)}, TypeError),
        ({"loss_args": {"margin": float("nan")}}, TypeError),
        ({"data_args": {"seed": {1}}}, TypeError),
        ({"steps": 0}, ValueError),
        ({"dim": -1}, ValueError),
    ],
)
def test_an_experiment_is_json_literals(change, error):
    with pytest.raises(error, match=next(iter(change))):
        replace(TINY, **change)


def test_an_experiment_survives_json():
    again = Experiment(**json.loads(json.dumps(training.asdict(TINY))))
    assert again == TINY
    assert again.hash() == TINY.hash()


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_a_device_that_is_not_there_is_refused(store, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("a GPU is there")
    with pytest.raises(ValueError, match=device):
        training.run(TINY, store=store, device=device, progress=False)


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


def test_training_learns():
    """Glyphs of unseen classes come nearer to their own kind, well beyond the untrained net."""
    experiment = replace(TINY, steps=60, model_args={"widths": [8, 16, 16, 16]}, dim=32)
    untrained = training.baselines(experiment)["untrained network"]["recall_at_1"]
    assert run_anywhere(experiment) > untrained + 0.1


def run_anywhere(experiment):
    train = data.load("glyphs", "train", **experiment.data_args)
    model = training.build_model(experiment, train)
    training.fit(model, losses.TripletLoss(), train, experiment, device="cpu", progress=False)
    images = data.load("glyphs", "test", **experiment.data_args)
    embeddings = training.embed(model, images)
    return training.retrieval.recall_at_k(embeddings, images.labels, [1], metric="cosine")[1]
