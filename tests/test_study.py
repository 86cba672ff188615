"""Sweeps are grids of Runs through any executor; differences are paired; intervals are exact."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from scipy import stats

import dmlkit
from dmlkit import data, progress, study, training, workers
from dmlkit.training import loop
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
        return study.sweep(TINY, executor, device="cpu", progress=False, **axes)


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


class Bar:
    """What a progress bar was told."""

    def __init__(self, *, total, initial, unit, desc, disable, leave):
        self.total, self.n, self.seen, self.titles = total, initial, [initial], [desc]
        assert (unit, leave) == ("step", False)
        self.disable = disable

    def set_description(self, title, refresh):
        self.titles.append(title)

    def update(self, steps):
        self.n += steps
        self.seen.append(self.n)

    def close(self):
        self.titles.append("closed")


@pytest.fixture
def bars(monkeypatch, tmp_path):
    """The bars of sweeps, of which every step leaves a checkpoint."""
    tiny.share_glyphs(tmp_path)
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)
    monkeypatch.setattr(progress.Steps, "PAUSE_SECONDS", 0.01)
    made = []
    monkeypatch.setattr(progress, "tqdm", lambda **how: made.append(Bar(**how)) or made[-1])
    return made


@pytest.mark.parametrize("cores", [1, 2])
def test_the_bar_of_a_sweep_moves_within_a_run(bars, monkeypatch, cores):
    def until_the_bar_moves(step):
        end = time.monotonic() + 60
        while step == 7 and bars[-1].n % TINY.steps == 0 and time.monotonic() < end:
            time.sleep(0.01)

    tiny.before_each_step(monkeypatch, until_the_bar_moves)
    runs = [replace(TINY, seed=seed) for seed in (9, 10, 11)]
    with ThreadPoolExecutor(1) as threads:
        executor = None if cores == 1 else threads
        alone(monkeypatch, cores)
        study.train(runs[:1], executor, device="cpu")
        study.train(runs, executor, device="cpu")
        study.train(runs, executor, device="cpu")
        study.train(runs, executor, device="cpu", progress=False)
    first, second = bars[:2]
    assert (first.total, first.seen[0], first.seen[-1]) == (12, 0, 12)
    assert (second.total, second.seen[0], second.seen[-1]) == (36, 12, 36)
    for bar in (first, second):
        assert bar.seen == sorted(bar.seen)
        assert any(n % 12 for n in bar.seen)
    assert second.titles == ["runs 1/3", "runs 2/3", "runs 3/3", "closed"]
    assert [bar.disable for bar in bars] == [False, False, True, True]


def test_the_bar_counts_what_was_done_and_is_through_with_a_run_that_fails(bars, monkeypatch):
    begun, whole = (replace(TINY, seed=seed) for seed in (12, 13))
    with monkeypatch.context() as patch:
        tiny.interrupt_before(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            training.run(begun, device="cpu", progress=False)
    training.run(whole, device="cpu", progress=False)
    failing = replace(TINY, model="nope", steps=100)
    with pytest.raises(RuntimeError, match="1 of 3 Runs failed"), ThreadPoolExecutor(1) as one:
        study.train([begun, whole, failing], one, device="cpu")
    (bar,) = bars
    assert (bar.total, bar.seen[0], bar.seen[-1]) == (124, 112, 124)  # that fails at once
    assert not {*range(113, 119)} & {*bar.seen}  # of the first 12 steps, 7 were done


def train(*experiments, executor=None):
    with ThreadPoolExecutor(1) as threads:
        return study.train(experiments, executor or threads, device="cpu", progress=False)


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
        RuntimeError, match=r"1 of 2 Runs failed; .*experiments\[1\]: unknown model"
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

from dmlkit import study, training
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
    return [run.loaded for run in study.train(experiments, device="cpu", progress=False)]


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
    return study.default_executor().submit(os.getpid).result(timeout=240)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(600, exit=True)  # whatever it waits for then
    # A test run in the background of a script ignores SIGINT, and so would this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    facts = {"first": train(0)}
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
    monkeypatch.setattr(study, "default_executor", lambda: pytest.fail("another process"))
    state = torch.random.get_rng_state()
    failing = replace(TINY, model="nope")
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed; .*unknown model"):
        study.train([failing, TINY], device="cpu", progress=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    (here,) = study.train([TINY], device="cpu", progress=False)
    assert here.loaded
    tiny.assert_same_run(here, elsewhere)


def test_with_one_core_a_sweep_goes_on_where_it_was_stopped(monkeypatch):
    alone(monkeypatch)
    runs = [replace(TINY, seed=seed) for seed in (1, 2)]
    with monkeypatch.context() as patch:
        tiny.interrupt_before(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            study.train(runs, device="cpu", progress=False)
    steps = []
    tiny.before_each_step(monkeypatch, steps.append)
    assert [run.loaded for run in study.train(runs, device="cpu", progress=False)] == [False] * 2
    assert steps == [*range(7, 12), *range(12)]


class Killed(Executor):
    """Whose processes are killed by whatever they are given."""

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        return future


def test_a_sweep_whose_processes_are_killed_each_time_says_so(monkeypatch):
    began = []
    monkeypatch.setattr(study, "default_executor", lambda: began.append(1) or Killed())
    with pytest.raises(RuntimeError, match=r"2 of 2 Runs failed; .*was killed .*call again"):
        study.sweep(TINY, device="cpu", progress=False, seed=[0, 1])
    assert len(began) == 2  # once more, and then no more
    with pytest.raises(RuntimeError, match=r"1 of 1 Runs failed; .*was killed .*call again"):
        train(TINY, executor=Killed())


def test_sweep_finishes_the_others_before_it_reports_a_failure():
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed.*'model': 'nope'.*unknown model"):
        sweep(model=["nope", "convnet"], loss=["contrastive"])
    assert sweep(loss=["contrastive"])["loaded"].all()


@pytest.mark.parametrize("axes", [{"color": ["red"]}, {"seed": []}])
def test_sweep_refuses_an_axis_that_means_nothing(axes):
    with pytest.raises(ValueError, match=next(iter(axes))):
        sweep(**axes)


def test_without_a_scheduler_the_default_is_one_pool_of_processes_for_the_session(monkeypatch):
    monkeypatch.setenv("DMLKIT_SCHEDULER", "")
    pool = study.default_executor()
    assert isinstance(pool, ProcessPoolExecutor)
    assert study.default_executor() is pool


def test_compare_pairs_by_seed_as_scipy_does():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        [{"loss": name, "seed": s, "split": c, "recall_at_1": random.random()}
         for name in "abc" for s in range(4) for c in range(2)]
    ).sample(frac=1, random_state=1)  # fmt: skip
    result = study.compare(frame, "loss", "a", pair=["seed", "split"])
    assert list(result.index) == ["b", "c"]
    wide = frame.pivot(index=["seed", "split"], columns="loss", values="recall_at_1")
    expected = stats.ttest_rel(wide["b"], wide["a"]).confidence_interval(0.95)
    np.testing.assert_allclose(result.loc["b", ["low", "high"]].astype(float), expected)
    assert result.loc["b", "n"] == 8


def test_an_interval_of_repetitions_that_overlap_is_wider():
    x = np.random.default_rng(1).normal(size=7)
    independent, overlapping = study.interval(x), study.interval(x, overlap=0.25)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    np.testing.assert_allclose(independent[["low", "high"]], expected)
    wider = (overlapping["high"] - x.mean()) / (independent["high"] - x.mean())
    assert wider == pytest.approx(np.sqrt((1 / 7 + 0.25) / (1 / 7)))
    with pytest.raises(ValueError, match="overlap must be a number from 0 to inf, but is nan"):
        study.interval(x, overlap=float("nan"))


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_sign_flips_of_an_interval_of_values_are_exact_to_sixteen_and_drawn_above(alternative):
    x = np.random.default_rng(4).normal(0.4, 1, size=17)
    exact = stats.permutation_test(
        (x[:13],), np.sum, permutation_type="samples", n_resamples=np.inf, alternative=alternative
    ).pvalue
    assert study.sign_flips(x[:13], alternative) == pytest.approx(exact)
    every = stats.permutation_test(
        (x,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True,
        alternative=alternative, batch=4096,
    ).pvalue  # fmt: skip
    assert study.sign_flips(x, alternative) == pytest.approx(every, abs=5 * 0.5 / 100_000**0.5)
    assert study.sign_flips(x, alternative) == study.sign_flips(x, alternative)
    assert study.sign_flips(np.full(20, 0.1)) == 1e-5  # never 0
    assert study.sign_flips([0.1, 0.2, 0.3] * 3) == 2 / 2**9  # though sums are rounded


def test_sign_flips_refuse_what_they_cannot_test():
    with pytest.raises(ValueError, match=r"alternative must be .* but is 'less'"):
        study.sign_flips([0.1], "less")
    for values in ([], [[0.1]], [float("nan")]):
        with pytest.raises(ValueError, match=r"values must be (finite )?numbers"):
            study.sign_flips(values)


def decided(ratio: float, n: int) -> float:
    """How often an effect of the margin, 1, is found, or one of 0 found to be within ± 1."""
    x = np.random.default_rng(5).normal(size=(4000, n)) * ratio
    error = x.std(1, ddof=1) / np.sqrt(n)
    found = np.abs(x.mean(1) + 1) > stats.t.ppf(0.975, n - 1) * error
    none = np.abs(x.mean(1)) + stats.t.ppf(0.95, n - 1) * error < 1
    return min(found.mean(), none.mean())


@pytest.mark.parametrize("ratio", [0.6, 2.0])
def test_so_many_repetitions_decide_and_one_fewer_do_not(ratio):
    n = study.repetitions(sd=ratio, margin=1.0)
    assert decided(ratio, n) > 0.79
    assert decided(ratio, n - 1) < 0.81
    with pytest.raises(ValueError, match="margin must be above 0"):
        study.repetitions(ratio, 0.0)


def test_holm_is_that_of_the_pairs_of_which_one_can_be_true():
    """Both of a pair are tested, yet no more than m of the 2m hypotheses are paid for."""
    p = np.array([[0.016, 0.9], [0.9, 0.016], [0.016, np.nan]])
    assert study.holm(p).tolist() == [[True, False], [False, True], [True, False]]
    assert not study.holm(p * 1.1).any()
    assert not study.holm(np.full((2, 2), np.nan)).any()


def test_compare_refuses_what_has_no_partner():
    frame = pd.DataFrame({"loss": ["a", "b"], "seed": [0, 1], "recall_at_1": [0.5, 0.6]})
    with pytest.raises(ValueError, match="nothing to pair with"):
        study.compare(frame, "loss", "a")
    with pytest.raises(ValueError, match="no loss 'z'; there are a, b"):
        study.compare(pd.concat([frame, frame.assign(seed=[1, 0])]), "loss", "z")


def test_ranks_share_ties():
    frame = pd.DataFrame(
        {"loss": list("abc") * 2, "seed": [0] * 3 + [1] * 3, "r": [0.9, 0.9, 0.1, 0.9, 0.8, 0.1]}
    )
    assert study.ranks(frame, "loss", "r")["mean"].to_dict() == {"a": 1.25, "b": 1.75, "c": 3.0}


def test_step_times_calls_all_in_turn_and_counts_no_warm_up():
    called, seconds = [], iter(range(100))
    steps = {
        name: lambda name=name: called.append((name, torch.get_num_threads())) for name in "ab"
    }
    times = study.step_times(steps, rounds=3, warm_up=1, clock=lambda: next(seconds))
    assert called == [("a", 1), ("b", 1)] * 4
    assert times.columns.tolist() == ["a", "b"]
    assert (times.to_numpy() == np.ones((3, 2))).all()


def test_step_times_measures_work():
    wait = {"asleep": lambda: time.sleep(0.05), "awake": lambda: sum(range(10**5))}
    assert (study.step_times(wait, 2)["asleep"] < 0.04).all()  # processor time
    assert (study.step_times(wait, 2, clock=time.perf_counter)["asleep"] >= 0.05).all()


@pytest.mark.parametrize("steps, rounds", [({}, 1), ({"a": list}, 0)])
def test_step_times_refuses_what_has_no_time(steps, rounds):
    with pytest.raises(ValueError, match="rounds of 1 or more"):
        study.step_times(steps, rounds)


def test_a_script_that_would_begin_anew_in_each_process_is_told_how_not_to(tmp_path, commands):
    script = tmp_path / "script.py"
    script.write_text("from dmlkit import study\nstudy.default_executor()\n")
    done = commands.run([str(script)], dmlkit.ROOT, os.environ)
    assert done.returncode == 1
    assert f"RuntimeError: {script} trains in other processes" in done.stderr
    assert 'below a line `if __name__ == "__main__":`' in done.stderr
    assert "BrokenProcessPool" not in done.stderr
