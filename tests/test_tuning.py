"""Equal budgets, on validation classes, resumable, and the same search when repeated."""

import errno
import json
import os
import re
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pandas as pd
import pytest

import dmlkit
from dmlkit import losses, training, tuning
from dmlkit.losses import table
from dmlkit.training import Experiment
from tests.training.tiny import TINY, share_glyphs

SMALL = replace(TINY, steps=3, monitor=())
NAMES = ("contrastive", "proxy_nca_pp")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Runs of these tests go elsewhere; Glyphs stay where they are."""
    share_glyphs(tmp_path)
    monkeypatch.setattr(dmlkit, "cache_folder", lambda: tmp_path)


def search(storage, trials, names=NAMES):
    with ThreadPoolExecutor(1) as executor:
        return tuning.tune(storage, names, trials, SMALL, executor, device="cpu", progress=False)


def test_every_loss_gets_the_same_number_of_trials_and_validation_alone(tmp_path, monkeypatch):
    seen = []
    run = training.run
    monkeypatch.setattr(training, "run", lambda e, **a: seen.append(e) or run(e, **a))
    found = search(tmp_path / "study", trials=2)
    assert found["loss"].value_counts().to_dict() == dict.fromkeys(NAMES, 2)
    assert {e.split for e in seen} == {"val"}
    assert {e.steps for e in seen} == {SMALL.steps}
    assert found["recall_at_1"].between(0, 1).all()


def test_a_broken_search_goes_on_and_a_repeated_one_is_the_same(tmp_path, monkeypatch):
    run, calls = training.run, []

    def breaks(experiment, **args):
        calls.append(experiment)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(experiment, **args)

    monkeypatch.setattr(training, "run", breaks)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "broken", 3, NAMES[:1])
    found = search(tmp_path / "broken", 3, NAMES[:1])
    assert found["trial"].tolist() == [0, 1, 2]  # the broken one is chosen once more
    assert [calls[1], len(calls)] == [calls[2], 4]
    monkeypatch.setattr(training, "run", run)
    for name in ("a", "b"):
        again = search(tmp_path / name, 3, NAMES[:1])
        same = ["loss", "trial", "settings", "recall_at_1", "run"]
        pd.testing.assert_frame_equal(found[same], again[same], check_exact=True)
    calls.clear()
    monkeypatch.setattr(training, "run", breaks)
    assert len(search(tmp_path / "a", 3, NAMES[:1])) == 3
    assert not calls  # what is done is not repeated


def test_a_search_goes_on_after_half_a_line_and_a_full_disk(tmp_path, monkeypatch):
    expected = search(tmp_path / "whole", 2, NAMES[:1])["settings"].tolist()
    storage, fsync = tmp_path / "study", os.fsync
    search(storage, 1, NAMES[:1])

    def full(descriptor):
        storage.write_bytes(storage.read_bytes()[:-9])  # what had room
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*the disk at /.*study'"):
        search(storage, 2, NAMES[:1])
    monkeypatch.setattr(os, "fsync", fsync)
    assert not storage.read_bytes().endswith(b"\n")
    assert search(storage, 2, NAMES[:1])["settings"].tolist() == expected


def test_a_damaged_search_is_named(tmp_path):
    storage = tmp_path / "study"
    search(storage, 1, NAMES[:1])
    storage.write_bytes(storage.read_bytes().replace(b"{", b"}", 1))
    with pytest.raises(OSError, match=f"{re.escape(str(storage))} cannot be read .*: delete it"):
        search(storage, 1, NAMES[:1])


def test_two_searches_of_one_file_are_one(tmp_path, monkeypatch):
    expected = search(tmp_path / "alone", 3, NAMES[:1])["settings"].tolist()
    with ThreadPoolExecutor(2) as both:
        futures = [both.submit(search, tmp_path / "study", 3, NAMES[:1]) for _ in range(2)]
    for future in futures:
        assert future.result()["settings"].tolist() == expected


class Killed(Executor):
    """Whose only process is killed by whatever it is given."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future


def test_a_worker_that_is_killed_is_told_of(tmp_path):
    with pytest.raises(RuntimeError, match=r"was killed .*goes on from .*study"):
        tuning.tune(tmp_path / "study", NAMES[:1], 1, SMALL, Killed(), progress=False)


def test_the_first_trial_is_the_default(tmp_path):
    found = search(tmp_path / "study", 1)
    first = json.loads(found.set_index("loss")["settings"]["proxy_nca_pp"])
    assert first == pytest.approx(
        {"lr": 5e-3, "loss_lr_factor": 10.0, "loss_args.temperature": 1 / 9}
    )


def test_a_training_that_diverges_scores_nothing(tmp_path, monkeypatch):
    def diverges(experiment, **args):
        raise training.DivergedError("the loss became nan")

    monkeypatch.setattr(training, "run", diverges)
    found = search(tmp_path / "study", 2, NAMES[:1])
    assert found["recall_at_1"].tolist() == [0.0, 0.0]
    assert found["run"].tolist() == ["diverged"] * 2


def test_the_recipe_is_the_best_trial(tmp_path):
    found = search(tmp_path / "study", 3)
    for name, recipe in tuning.recipes(found).items():
        mine = found[found["loss"] == name]
        best = mine[mine["recall_at_1"] == mine["recall_at_1"].max()].iloc[0]
        experiment = Experiment(loss=name, **recipe)
        chosen = {"lr": experiment.lr, "loss_lr_factor": experiment.loss_lr_factor}
        chosen |= {f"loss_args.{key}": value for key, value in experiment.loss_args.items()}
        assert json.loads(best["settings"]).items() <= chosen.items()


def test_what_is_tuned_is_what_was_registered_with_a_space_of_arguments_that_it_takes():
    found = tuning.spaces()
    registered = {entry.name: entry.space for entry in table.entries()}
    assert set(found) == {name for name, space in registered.items() if space is not None}
    assert found["prototypical"].keys() == {"lr"}  # an empty space: the rates alone
    assert not {"meta_class", "spherical_expansion"} & set(found)  # a member, and a wrapper
    for name, space in found.items():
        own = {key.removeprefix("loss_args.") for key in space if key.startswith("loss_args.")}
        assert own == registered[name].keys() <= losses.signature(name).keys()
        assert all(scale in ("log", "linear") and low < high for scale, low, high in space.values())


def test_losses_that_own_proxies_have_a_rate_for_them():
    of_proxies = {name for name, space in tuning.spaces().items() if "loss_lr_factor" in space}
    assert {"proxy_nca", "proxy_anchor", "soft_triple", "heated_up_softmax"} <= of_proxies
    assert not {"contrastive", "margin", "prototypical", "hyperbolic"} & of_proxies


def test_a_loss_without_a_space_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no search space for triplet; there are contrastive"):
        search(tmp_path / "study", 1, ("triplet",))
