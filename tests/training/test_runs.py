"""Experiment -> Run: the same every time, resumed exactly, complete on disk or not there."""

import functools
import json
import os
import pickle
import re
import shutil
import tempfile
import time
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from dmlkit import data, retrieval, training
from dmlkit.training import Experiment
from tests.training.tiny import (
    TINY,
    assert_same_run,
    before_each_step,
    flipped,
    interrupt_before,
    run,
)

DIVERGING = replace(TINY, optimizer="sgd", lr=1e6, constraint={"weight": 1.0}, steps=60)


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
    assert torch.equal(kept, objective.loss.proxies.cpu())  # a GPU trains it there
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
    store = tmp_path / "broken"
    interrupt_before(monkeypatch, step=7)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, store)
    assert len(list(store.glob("*.checkpoint"))) == 1
    steps = []
    before_each_step(monkeypatch, steps.append)
    resumed = run(experiment, store)
    assert steps == [7, 8, 9, 10, 11]
    assert_same_run(unbroken, resumed)


def train_with_many_checkpoints(experiment, store):
    training.trainer.CHECKPOINT_SECONDS = 0.05
    training.run(experiment, store=store, device="cpu", progress=False)


def test_a_killed_process_resumes_from_its_last_checkpoint(tmp_path, monkeypatch, forks):
    experiment = replace(TINY, steps=300, monitor=())
    store = tmp_path / "killed"
    child = forks.Process(target=train_with_many_checkpoints, args=(experiment, store))
    child.start()
    deadline = time.monotonic() + 240
    while not list(store.glob("*.checkpoint")):
        assert child.is_alive(), "the child ended before its first checkpoint"
        assert time.monotonic() < deadline, "no checkpoint came within four minutes"
        time.sleep(0.01)
    child.kill()
    child.join(60)
    begun = []
    before_each_step(monkeypatch, begun.append)
    assert not [path for path in store.iterdir() if path.is_dir() and (path / "run.json").exists()]
    resumed = run(experiment, store)
    assert begun[0] > 0
    assert_same_run(resumed, run(experiment, tmp_path / "unbroken"))


def test_a_second_process_may_not_train_the_same_run(store, tmp_path):
    name = run(TINY, tmp_path / "elsewhere").path.name
    store.mkdir()
    refused = pytest.raises(training.RunInProgressError, match="another process is training Run")
    with FileLock(store / f"{name}.lock"), refused:
        run(TINY, store)
    assert not run(TINY, store).loaded


def test_a_training_that_diverged_is_known_and_not_tried_again(store, monkeypatch):
    message = r"(loss|norm_mean|gradient_norm) became (nan|inf).* at step \d+ of 60 \(loss Triplet"
    with pytest.raises(training.DivergedError, match=message):
        run(DIVERGING, store)
    assert not [path for path in store.iterdir() if path.is_dir()]
    assert not list(store.glob("*.checkpoint"))
    (kept,) = store.glob("*.diverged")
    facts = json.loads(kept.read_text())
    assert Experiment(**facts["experiment"]) == DIVERGING
    assert facts["provenance"]["device"] == "cpu"
    taken = []
    before_each_step(monkeypatch, taken.append)
    with pytest.raises(training.DivergedError, match=f"{message}.*{kept.name}: delete it to train"):
        run(DIVERGING, store)
    assert not taken
    kept.unlink()
    with pytest.raises(training.DivergedError, match=message):
        run(DIVERGING, store)
    assert taken


def test_a_trained_model_needs_only_the_folder_of_its_run(store, monkeypatch):
    """Neither training images nor the weights that it began from."""
    experiment = replace(TINY, loss="normalized_softmax", steps=1, monitor=())
    pretrained = {"model": "resnet18", "model_args": {"pretrained": False}}
    small, large = run(experiment, store), run(replace(experiment, **pretrained), store)
    train = data.load("glyphs", "train", **TINY.data_args)
    assert small.image_shape == train[0].shape
    assert small.num_classes == train.num_classes

    def gone(*args, **kwargs):
        raise AssertionError("the data set was loaded")

    monkeypatch.setattr(data, "load", gone)
    for found in (small, large):
        batch = training.to_float(torch.stack([train[i] for i in range(4)]))
        assert found.model()(batch).shape == (4, 8)
        assert found.objective().loss.proxies.shape == (40, 8)
    asked = replace(large, experiment=replace(large.experiment, model_args={"pretrained": True}))
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", gone)
    assert asked.model()(batch).shape == (4, 8)


def test_a_damaged_checkpoint_is_named_and_trained_anew(store, tmp_path, monkeypatch):
    expected = run(TINY, tmp_path / "whole")
    store.mkdir()
    checkpoint = store / f"{expected.path.name}.checkpoint"
    interrupt_before(monkeypatch, step=7)
    with pytest.raises(KeyboardInterrupt):
        run(TINY, store)
    monkeypatch.undo()
    whole = checkpoint.read_bytes()
    for content in (b"half", flipped(whole, 4 * len(whole))):
        checkpoint.write_bytes(content)
        with pytest.warns(UserWarning, match=f"{checkpoint.name} cannot be read.*begins anew"):
            found = run(TINY, store)
        assert_same_run(found, expected)
        shutil.rmtree(found.path)


@pytest.mark.parametrize("file", ["checkpoint.pt", "embeddings.npz"])
def test_a_byte_of_a_run_that_was_flipped_is_seen(store, file):
    path = run(replace(TINY, loss="normalized_softmax"), store).path
    assert {each.name for each in path.iterdir()} == {
        "run.json", "history.csv", "embeddings.npz", "checkpoint.pt"
    }  # fmt: skip

    def read():
        found = training.load_run(path)
        states = [module.state_dict() for module in (found.model(), found.objective())]
        return [found.embeddings, found.labels, states]

    expected, whole = read(), (path / file).read_bytes()
    with zipfile.ZipFile(path / file) as parts:
        contents = [(part.header_offset + 200, part.file_size) for part in parts.infolist()]
    start, size = max(contents, key=lambda each: each[1])  # within the largest array
    refused = pytest.raises(OSError, match=rf"{path.name}.* cannot be read .*delete that Run")
    for byte in np.random.default_rng(0).integers(start, start + size - 200, size=10):
        (path / file).write_bytes(flipped(whole, 8 * byte))
        with refused:
            read()
    for bit in np.random.default_rng(1).integers(8 * len(whole), size=60):
        (path / file).write_bytes(flipped(whole, bit))
        with suppress(OSError):  # or it says nothing: between two arrays, say
            torch.testing.assert_close(read(), expected, rtol=0, atol=0)
    for content in (b"", whole[:-1]):
        (path / file).write_bytes(content)
        with refused:
            read()
    (path / file).unlink()
    with refused:
        read()


@pytest.mark.parametrize("file", ["run.json", "history.csv"])
def test_a_digit_of_a_run_that_was_changed_is_seen(store, file):
    path = run(TINY, str(store)).path
    whole = (path / file).read_bytes()
    assert training.load_run(str(path)).scores == run(TINY, store).scores
    digits = [8 * i for i, byte in enumerate(whole) if chr(byte).isdigit()]
    for bit in np.random.default_rng(0).choice(digits, 30, replace=False):
        changed = flipped(whole, bit)  # to its neighbor, 8 to 9 and 9 to 8
        with suppress(ValueError):  # 10 became 00
            if file == "run.json" and json.loads(changed) == json.loads(whole):
                continue  # a float's 17th digit need not make another float
        (path / file).write_bytes(changed)
        with pytest.raises(OSError, match=rf"{path.name} cannot be read .*delete that Run"):
            training.load_run(path)
    (path / file).write_bytes(whole)
    facts = json.loads((path / "run.json").read_text())
    del facts["sha256"]  # as older Runs are
    (path / "run.json").write_text(json.dumps(facts))
    assert training.load_run(path).scores == facts["scores"]


def test_no_advice_is_given_that_would_run_the_code_of_a_file(store):
    found = run(TINY, store)
    torch.save(print, found.path / "checkpoint.pt")
    (found.path / "embeddings.npz").write_bytes(pickle.dumps(print))
    for read in (found.model, lambda: training.load_run(found.path)):
        with pytest.raises(OSError, match=r"delete that Run to train it anew$") as caught:
            read()
        assert not re.search("unsafely|weights_only=False|arbitrary", str(caught.value))
        assert caught.value.__suppress_context__


def test_a_folder_that_is_no_run_is_not_to_be_deleted(tmp_path):
    with pytest.raises(OSError, match=r"is no Run: it has no run\.json$"):
        training.load_run(str(tmp_path))


@pytest.mark.parametrize(
    "owner, name",
    [(torch, "save"), (retrieval, "evaluate"), (np, "savez"), (Path, "rename")],
    ids=["a checkpoint is written", "it is scored", "it is packed", "it is published"],
)
def test_ctrl_c_at_each_stage_leaves_no_half_and_the_next_attempt_goes_on(
    store, tmp_path, monkeypatch, owner, name
):
    """Between steps, in a step and in a look: see test_loop."""
    unbroken = run(TINY, tmp_path / "unbroken")
    act, calls = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        result = act(*args, **kwargs)
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(training.trainer, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(TINY, store)
    runs = [path.name for path in store.iterdir() if (path / "run.json").exists()]
    assert runs == [unbroken.path.name] * (name == "rename")
    assert_same_run(run(TINY, store), unbroken)
    left = {path.name.removeprefix(unbroken.path.name) for path in store.iterdir()}
    assert {"", ".lock"} <= left <= {"", ".lock", ".checkpoint"}


@contextmanager
def powerless():
    """As a user who owns none of the files that root has made: root may write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no users as POSIX has them")
def test_runs_are_loaded_from_a_folder_that_cannot_be_written_to():
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs"
        run(TINY, store)
        Path(folder).chmod(0o555)
        store.chmod(0o555)
        try:
            with powerless():
                assert run(TINY, store).loaded
                with pytest.raises(PermissionError, match="runs"):
                    run(replace(TINY, seed=1), store)
        finally:
            Path(folder).chmod(0o755)
            store.chmod(0o755)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"loss_args": {"magrin": 1}}, TypeError, "takes margin.*not magrin"),
        ({"data": "cub201"}, ValueError, "glyphs.*cub201"),
        ({"model": "vgg"}, ValueError, "model must be one of convnet, .*'vgg'"),
        ({"model_args": {"depth": 3}}, TypeError, "takes dim.*not depth"),
    ],
)
def test_bad_names_are_refused_with_what_there_is(store, change, error, message):
    with pytest.raises(error, match=message):
        run(replace(TINY, **change), store)


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_a_device_that_is_not_there_is_refused(store, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("a GPU is there")
    with pytest.raises(ValueError, match=device):
        training.run(TINY, store=store, device=device, progress=False)


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


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_a_model_of_another_precision_is_trained_and_scored(store, precision):
    result = run(replace(TINY, precision=precision, steps=6), store)
    assert np.isfinite(list(result.scores.values())).all()
    assert result.embeddings.dtype == np.float32
