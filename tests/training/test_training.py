"""Experiment -> Run: the same every time, resumed exactly, complete on disk or not there."""

import functools
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
import torchvision
from pytorch_metric_learning import losses as pml
from torch import nn

from dmlkit import ROOT, data, losses, models, retrieval, training
from dmlkit.training import Experiment, devices

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


def test_evidence_that_was_kept_is_found_by_its_hash():
    """Named when Experiment had fewer fields: what ci trains again must still be that training."""
    kept = pd.read_csv(ROOT / "data" / "evidence" / "12_comparison.csv")
    row = kept[(kept["part"] == "equal") & (kept["loss"] == "meta_class") & (kept["k"] == 1)]
    again = Experiment(loss="meta_class", seed=1, steps=280, data_args={"class_split": 1})
    assert row["hash"].item() == again.hash()
    for field in (
        {"backbone_lr_factor": 0.1},
        {"frozen_steps": 1},
        {"compile": True},
        {"devices": 2},
    ):
        assert replace(again, **field).hash() != again.hash()


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


def test_a_step_that_was_torn_is_no_checkpoint(tmp_path, monkeypatch):
    """Interrupted in the objective, BatchNorm's averages have moved already, and a memory too."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
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
    again = fit(checkpoint=tmp_path / "checkpoint")
    assert again[2] == 8  # of 12: four were whole
    pd.testing.assert_frame_equal(again[0], history)
    torch.testing.assert_close(again[1], state, rtol=0, atol=0)


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


def test_what_killed_processes_left_of_a_run_is_removed_before_it_trains(tmp_path):
    name = run(TINY, tmp_path / "first").path.name
    store = tmp_path / "second"
    (store / f"{name}.x7a_").mkdir(parents=True)
    (store / f"{name}.x7a_" / "model.pt").write_bytes(b"half")
    (store / f"{name}.checkpoint.123").write_bytes(b"half")
    (store / f"{name[:-1]}.checkpoint").write_bytes(b"another Run's")
    assert not run(TINY, store).loaded
    assert {path.name for path in store.iterdir()} - {f"{name}.lock"} == {
        name,
        f"{name[:-1]}.checkpoint",
    }


def test_a_pretrained_run_is_known_by_the_weights_that_it_starts_from(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    placed = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    placed.parent.mkdir(parents=True)
    experiment = replace(
        TINY, model="resnet18", model_args={"pretrained": True}, steps=1, monitor=()
    )
    paths = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        torch.save(torchvision.models.resnet18().state_dict(), placed)
        found = run(experiment, tmp_path / "runs")
        assert len(found.provenance["weights"]) == 12
        paths.append((found.path, found.loaded))
    assert paths[0] == (paths[2][0], False)
    assert paths[1] != paths[0]
    assert [loaded for _, loaded in paths] == [False, False, True]
    assert list(training.baselines(experiment)) == ["raw pixels", "pretrained network"]


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
        ({"devices": 0}, ValueError),
        ({"frozen_steps": -1}, ValueError),
        ({"backbone_lr_factor": -0.1}, ValueError),
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


class TwoParts(nn.Module):
    """A backbone and a head."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(1024, 8), nn.Tanh())
            self.head = nn.Linear(8, 8)

    def forward(self, images):
        return self.head(self.body(images))


def moved(experiment):
    """How far backbone, head and proxies moved, at every step."""
    train = data.load("glyphs", "train", **TINY.data_args)
    model, loss = TwoParts(), losses.NormalizedSoftmaxLoss(train.num_classes, 8)
    nn.init.normal_(loss.proxies, generator=torch.Generator().manual_seed(0))
    fabric = training.open_fabric(experiment, "cpu")
    trainer = training.Trainer(experiment, model, loss, train, fabric)
    parameters = [model.body[1].weight, model.head.weight, loss.proxies]
    distances = []
    for _ in range(experiment.steps):
        before = [parameter.detach().clone() for parameter in parameters]
        trainer.advance()
        pairs = zip(parameters, before, strict=True)
        distances.append([(new.detach() - old).abs().max().item() for new, old in pairs])
    return np.array(distances)  # (steps, 3)


def test_the_backbone_has_a_learning_rate_of_its_own():
    plain = replace(TINY, optimizer="sgd", lr=0.1, lr_decay=0, steps=1)
    factor = moved(replace(plain, backbone_lr_factor=0.25)) / moved(plain)
    np.testing.assert_allclose(factor, [[0.25, 1, 1]], rtol=1e-3)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_backbone_rests_while_it_warms_up(optimizer):
    args = {"momentum": 0.9} if optimizer == "sgd" else {}
    found = moved(
        replace(TINY, optimizer=optimizer, optimizer_args=args, frozen_steps=3, steps=5, lr_decay=0)
    )
    assert (found[:3, 0] == 0).all()
    assert (found[3:, 0] > 0).all()
    assert (found[:, 1:] > 0).all()
    if optimizer == "adam":  # whose first step, with nothing averaged yet, is lr in size
        np.testing.assert_allclose(found[3, 0], TINY.lr, rtol=1e-3)


@pytest.mark.parametrize("change", [{"frozen_steps": 1}, {"backbone_lr_factor": 0.1}])
def test_a_model_in_one_part_has_no_backbone_to_treat_apart(change):
    train = data.load("glyphs", "train", **TINY.data_args)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 8))
    with pytest.raises(ValueError, match="Sequential has no attribute 'head'"):
        training.fit(model, losses.TripletLoss(), train, replace(TINY, **change), device="cpu")


def test_a_compiled_model_trains_and_is_kept_like_any_other(store, monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    compiled, plain = run(replace(TINY, compile=True), store), run(TINY, store)
    assert graphs
    np.testing.assert_allclose(compiled.embeddings, plain.embeddings, rtol=1e-3, atol=1e-4)
    assert compiled.model().state_dict().keys() == plain.model().state_dict().keys()


def test_monitoring_is_in_the_precision_of_training_and_scoring_in_that_of_the_model(store):
    experiment = replace(TINY, precision="bf16-mixed", steps=2)
    images = data.load("glyphs", "train", **TINY.data_args)
    model, seen = training.build_model(experiment, images), []
    model.head.register_forward_hook(lambda head, inputs, output: seen.append(output.dtype))
    fabric = training.open_fabric(experiment, "cpu")
    trainer = training.Trainer(experiment, model, losses.TripletLoss(), images, fabric)
    trainer.advance()
    found = trainer.embed(images)
    assert set(seen) == {torch.bfloat16}
    assert found.dtype == np.float32
    result = run(experiment, store)
    again = training.embed(result.model(), data.load("glyphs", "test", **TINY.data_args))
    np.testing.assert_allclose(again, result.embeddings, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_a_model_of_another_precision_is_trained_and_scored(store, precision):
    result = run(replace(TINY, precision=precision, steps=6), store)
    assert np.isfinite(list(result.scores.values())).all()
    assert result.embeddings.dtype == np.float32


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
def test_a_step_is_seeded_as_torch_seeds(device):
    torch.empty(1, device=device)  # a GPU is in use by the first step
    with devices.own_random_state():
        torch.manual_seed(7)
        expected = torch.rand(3, device=device)
        devices.seed(7)
        assert torch.equal(torch.rand(3, device=device), expected)


def test_a_run_is_named_by_what_its_sources_do_not_by_how_they_read():
    code = training._code("def f():\n    return 1")
    assert training._code('"""Why."""\ndef f():\n    """One."""\n    return 1  # one') == code
    assert training._code("def f():\n    return 2") != code


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("change", [{}, {"loss": "proxy_anchor", "constraint": {"weight": 0.1}}])
def test_a_step_never_makes_the_host_wait_for_the_gpu(precision, change):
    experiment = replace(TINY, precision=precision, augment=True, **change)
    train = data.load("glyphs", "train", **TINY.data_args)
    model = training.build_model(experiment, train)
    objective = training.build_objective(experiment, train)
    fabric = training.open_fabric(experiment, "cuda")
    trainer = training.Trainer(experiment, model, objective, train, fabric)
    trainer.advance()  # loads kernels, allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
    return retrieval.recall_at_k(embeddings, images.labels, [1], metric="cosine")[1]
