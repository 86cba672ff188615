"""Sweeps are grids of Runs through any executor, and go on after a Stop or a killed process."""

import io
import json
import os
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
import tqdm

import dmlkit
from dmlkit import data, sweeps, training, workers
from tests.training import tiny
from tests.training.tiny import TINY


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Glyphs are shared with the other tests; Runs go to a folder of this test's own."""
    real = training.run
    monkeypatch.setattr(
        training, "run", lambda e, **args: real(e, **(args | {"store": tmp_path / "runs"}))
    )


def sweep(**axes):
    with ThreadPoolExecutor(1) as executor:
        return sweeps.sweep(TINY, executor, device="cpu", progress=False, **axes)


def test_sweep_is_one_row_a_run_in_the_order_of_the_grid():
    methods = {"plain": {}, "wide": {"loss": "contrastive", "loss_args": {"negative_margin": 1}}}
    frame = sweep(method=methods, seed=[3, 5])
    assert list(zip(frame["method"], frame["seed"], strict=True)) == [
        ("plain", 3), ("plain", 5), ("wide", 3), ("wide", 5),
    ]  # fmt: skip
    assert frame["run"].nunique() == 4
    assert frame["recall_at_1"].between(0, 1).all()
    assert not frame["loaded"].any()
    again = sweep(method=methods, seed=[3, 5])
    assert again["loaded"].all()
    pd.testing.assert_series_equal(frame["recall_at_1"], again["recall_at_1"])


def alone(monkeypatch, cores=1):
    """A machine of so many cores, and no cluster."""
    monkeypatch.setattr(workers.joblib, "cpu_count", lambda: cores)
    monkeypatch.setenv("DMLKIT_SCHEDULER", "")


def test_the_bar_counts_the_steps_of_what_is_trained(monkeypatch):
    class Bar(tqdm.tqdm):
        def __init__(self, **how):
            super().__init__(**how, file=io.StringIO())
            bars.append((self, self.disable))

    bars = []
    train(TINY)
    monkeypatch.setattr(sweeps, "tqdm", Bar)
    with ThreadPoolExecutor(1) as thread:
        for progress in (True, False, True):
            runs = [TINY, replace(TINY, seed=13), replace(TINY, seed=14, steps=2 + progress)]
            sweeps.train(runs, thread, device="cpu", progress=progress)
    (shown, disabled), silent = bars  # there is none where all is loaded
    assert (disabled, shown.total, shown.n, silent[1]) == (False, 15, 15, True)


def train(*experiments, executor=None):
    with ThreadPoolExecutor(1) as threads:
        return sweeps.train(experiments, executor or threads, device="cpu", progress=False)


def test_train_gives_runs_in_their_order_and_none_for_one_that_diverged(monkeypatch):
    real = training.run

    def run(experiment, **args):
        if experiment.seed == 7:
            raise training.DivergedError("the loss became nan")
        return real(experiment, **args)

    monkeypatch.setattr(training, "run", run)
    one, diverged, two = train(*(replace(TINY, seed=seed) for seed in (4, 7, 2)))
    assert diverged is None
    assert [one.experiment.seed, two.experiment.seed] == [4, 2]
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed; .*'seed': 7}: the loss became"):
        sweep(seed=[2, 7])
    assert all(run.loaded for run in train(one.experiment, two.experiment))


def test_train_raises_what_is_no_divergence():
    with pytest.raises(
        RuntimeError, match=r"1 of 2 Runs failed; .*experiments\[1\]: model must be one of"
    ):
        train(TINY, replace(TINY, model="nope"))
    assert train(TINY)[0].loaded


def test_what_is_on_disk_needs_no_executor():
    (trained,) = train(TINY)
    gone = ThreadPoolExecutor(1)
    gone.shutdown()
    (loaded,) = train(TINY, executor=gone)
    assert (trained.loaded, loaded.loaded) == (False, True)
    np.testing.assert_array_equal(trained.embeddings, loaded.embeddings)
    with pytest.raises(RuntimeError, match="after shutdown"):
        train(replace(TINY, seed=1), executor=gone)


SESSION = """
import faulthandler, functools, json, os, signal, sys, threading, time
from dataclasses import replace
from pathlib import Path

import torch

from dmlkit import sweeps, training
from dmlkit.training import Experiment

told, small = Path(sys.argv[1]), Experiment(**json.loads(sys.argv[2]))
advance = training.Trainer.advance


@functools.wraps(advance)  # so that Runs keep their names
def held(trainer):
    # From seed 3 on, a training says who trains, and waits until it may.
    seed = trainer.experiment.seed
    if seed >= 3:
        (told.parent / f"{os.getpid()}").write_text(f"{os.getpid()}")
        (told.parent / f"{os.getpid()}").replace(told.parent / f"{seed}.begun")
        wait_for(told.parent / f"{seed}.may")
    advance(trainer)


training.Trainer.advance = held  # in the workers too: they import this file


def wait_for(path):
    deadline = time.monotonic() + 240
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not come within four minutes")
        time.sleep(0.01)


def let(*seeds):
    for seed in seeds:
        (told.parent / f"{seed}.may").touch()


def train(*seeds):
    experiments = [replace(small, seed=seed) for seed in seeds]
    return [run.loaded for run in sweeps.train(experiments, device="cpu", progress=False)]


def when_training_began(seed, act):
    def wait():
        begun = told.parent / f"{seed}.begun"
        wait_for(begun)
        act(int(begun.read_text()))
    threading.Thread(target=wait).start()


def kill_and_let(pid):
    os.kill(pid, signal.SIGKILL)
    let(*range(3, 8))


def worker():
    return sweeps.default_executor().submit(os.getpid).result(timeout=240)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(600, exit=True)  # whatever it waits for then
    # A test run in the background of a script ignores SIGINT, and so would this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    facts = {"first": train(0)}
    (there,) = sweeps.train([small], device="cpu", progress=False)
    here = training.run(small, device="cpu", store=told.parent / "here", progress=False)
    a, b = there.model().state_dict(), here.model().state_dict()
    facts["as here"] = (
        there.path.name == here.path.name, all(torch.equal(a[name], b[name]) for name in b)
    )
    before = worker()
    try:
        os.killpg(0, signal.SIGINT)  # as Jupyter's Stop of another cell
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    time.sleep(1)
    facts["after Stop"] = (train(0, 1), os.kill(before, 0))
    os.kill(before, signal.SIGKILL)
    facts["one killed at rest"] = train(0, 2)
    when_training_began(3, kill_and_let)
    facts["one killed at work"] = train(*range(8))
    when_training_began(20, lambda pid: os.kill(os.getpid(), signal.SIGINT))
    try:
        train(20, 21, 22, 23)
    except KeyboardInterrupt:
        facts["stopped"] = int((told.parent / "20.begun").read_text())
    let(20, 21)
    facts["after it was stopped"] = train(20, 21)
    facts["pids"] = [os.getpid(), worker()]
    told.write_text(json.dumps(facts))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.timeout(900)  # seven groups of processes import torch
def test_a_session_outlives_stops_and_killed_workers_and_leaves_none_behind(tmp_path):
    data.load("glyphs", "train", **TINY.data_args)  # made, if they are not there
    tiny.share_glyphs(tmp_path)
    script, told = tmp_path / "session.py", tmp_path / "facts.json"
    script.write_text(SESSION)
    root = str(Path(dmlkit.__file__).parent.parent)
    environment = {**os.environ, "DMLKIT_CACHE": str(tmp_path), "PYTHONPATH": root}
    environment |= {"DMLKIT_SCHEDULER": "", "LOKY_MAX_CPU_COUNT": "2"}
    small = json.dumps(asdict(replace(TINY, steps=1, monitor=())))
    log = tmp_path / "errors"
    with log.open("w") as errors:
        session = subprocess.Popen(
            [sys.executable, script, told, small], env=environment, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        session.wait(timeout=660)
    finally:
        session.kill()  # its workers then end by themselves
        session.wait(timeout=60)
    assert told.exists(), log.read_text()
    facts = json.loads(told.read_text())
    assert facts["first"] == [False]
    assert facts["as here"] == [True, True]
    assert facts["after Stop"] == [[True, False], None]
    assert facts["one killed at rest"] == [True, False]
    assert facts["one killed at work"] == [True] * 3 + [False] * 5
    assert facts["after it was stopped"] == [False, False]
    deadline = time.monotonic() + 120
    while left := [pid for pid in (facts["stopped"], *facts["pids"]) if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.1)


def test_with_one_core_no_other_process_trains_and_a_run_is_the_same(monkeypatch, tmp_path):
    (elsewhere,) = train(TINY)
    (tmp_path / "runs" / elsewhere.path.name).rename(tmp_path / "elsewhere")
    alone(monkeypatch)
    monkeypatch.setattr(workers, "default_executor", lambda: pytest.fail("another process"))
    state = torch.random.get_rng_state()
    failing = replace(TINY, model="nope")
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed; .*model must be one of"):
        sweeps.train([failing, TINY], device="cpu", progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    (here,) = sweeps.train([TINY], device="cpu", progress=False)
    assert here.loaded
    tiny.assert_same_run(here, elsewhere)


def test_with_one_core_a_sweep_goes_on_where_it_was_stopped(monkeypatch):
    alone(monkeypatch)
    runs = [replace(TINY, seed=seed) for seed in (1, 2)]
    with monkeypatch.context() as patch:
        tiny.interrupt_before(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            sweeps.train(runs, device="cpu", progress=False)
    steps = []
    tiny.before_each_step(monkeypatch, steps.append)
    assert [run.loaded for run in sweeps.train(runs, device="cpu", progress=False)] == [False] * 2
    assert steps == [*range(7, 12), *range(12)]


class Killed(Executor):
    """Whose processes are killed by whatever they are given."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future


def test_a_sweep_whose_processes_are_killed_each_time_says_so(monkeypatch):
    began = []
    alone(monkeypatch, cores=2)
    monkeypatch.setattr(workers, "default_executor", lambda: began.append(1) or Killed())
    with pytest.raises(RuntimeError, match=r"2 of 2 Runs failed; .*terminated abruptly"):
        sweeps.sweep(TINY, device="cpu", progress=False, seed=[0, 1])
    assert len(began) == 2  # once more, and then no more
    with pytest.raises(RuntimeError, match=r"1 of 1 Runs failed; .*terminated abruptly"):
        train(TINY, executor=Killed())


def test_sweep_finishes_the_others_before_it_reports_a_failure():
    with pytest.raises(
        RuntimeError, match=r"1 of 2 Runs failed.*'model': 'nope'.*model must be one of"
    ):
        sweep(model=["nope", "convnet"], loss=["contrastive"])
    assert sweep(loss=["contrastive"])["loaded"].all()


@pytest.mark.parametrize("axes", [{"color": ["red"]}, {"seed": []}])
def test_sweep_refuses_an_axis_that_means_nothing(axes):
    with pytest.raises(ValueError, match=next(iter(axes))):
        sweep(**axes)


def test_step_times_calls_all_in_turn_and_counts_no_warm_up():
    called, seconds = [], iter(range(100))
    steps = {
        name: lambda name=name: called.append((name, torch.get_num_threads())) for name in "ab"
    }
    times = sweeps.step_times(steps, rounds=3, warm_up=1, clock=lambda: next(seconds))
    assert called == [("a", 1), ("b", 1)] * 4
    assert times.columns.tolist() == ["a", "b"]
    assert (times.to_numpy() == np.ones((3, 2))).all()


def test_step_times_measures_work():
    wait = {"asleep": lambda: time.sleep(0.05), "awake": lambda: sum(range(10**5))}
    assert (sweeps.step_times(wait, 2)["asleep"] < 0.04).all()  # processor time
    assert (sweeps.step_times(wait, 2, clock=time.perf_counter)["asleep"] >= 0.05).all()
