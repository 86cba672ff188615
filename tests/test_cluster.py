"""Sweeps on Dask: a real scheduler and two worker processes, one of them killed on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from distributed import LocalCluster
from typer.testing import CliRunner

import dmlkit
from dmlkit import cli, data, study, training
from dmlkit import cluster as dask
from tests.course import test_reproduce
from tests.training.tiny import TINY, assert_same_run, share_glyphs

# What a worker does besides: it notes every step that it trained, saves a checkpoint after each,
# and at step 6 of the Experiment that the file ``stop`` names, the first to come waits for its end.
PRELOAD = """
import functools, os, time
from pathlib import Path

def dask_setup(worker):
    from dmlkit import training

    notes, advance = Path(os.environ["NOTES"]), training.Trainer.advance

    @functools.wraps(advance)  # watched, not changed: a Run keeps its name
    def noted(self):
        name, step = self.experiment.hash(), self.step
        stop = notes / "stop"
        if step == 6 and stop.exists() and stop.read_text() == name:
            try:
                with (notes / "victim").open("x") as file:
                    file.write(f"{os.getpid()}")
            except FileExistsError:
                pass
            else:
                time.sleep(600)
        advance(self)
        with (notes / "steps").open("a") as file:
            file.write(f"{name} {step} {os.getpid()}\\n")

    training.Trainer.advance, training.loop.CHECKPOINT_SECONDS = noted, 0.0
"""


NEW = 500  # a seed that no test trained before: what is on disk needs no cluster


@dataclass(frozen=True)
class Cluster:
    address: str
    cache: Path
    notes: Path

    @property
    def client(self) -> Any:
        return dask.connect(self.address)

    def steps(self) -> list[tuple[str, int, int]]:
        """Every step trained on a worker so far: Experiment, number, process."""
        lines = (self.notes / "steps").read_text().splitlines()
        return [(name, int(step), int(pid)) for name, step, pid in map(str.split, lines)]

    def runs(self) -> set[str]:
        """All that the store holds, but for locks, which stay."""
        return {path.name for path in self.cache.glob("runs/*") if path.suffix != ".lock"}

    def idle(self) -> bool:
        states = self.client.run_on_scheduler(
            lambda dask_scheduler: [task.state for task in dask_scheduler.tasks.values()]
        )
        return not set(states) - {"erred", "memory"}


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come about within two minutes"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers, as a user starts them; Glyphs are those of the other tests."""
    data.load("glyphs", "train", **TINY.data_args)  # made, if they are not there
    folder = tmp_path_factory.mktemp("cluster")
    cache, notes = folder / "cache", folder / "notes"
    notes.mkdir()
    (notes / "steps").touch()
    share_glyphs(cache)
    (folder / "preload.py").write_text(PRELOAD)
    environment = {**os.environ, "DMLKIT_CACHE": str(cache), "NOTES": str(notes)}
    environment["PYTHONPATH"] = str(Path(dmlkit.__file__).parent.parent)
    options = ["--nthreads", "1", "--memory-limit", "0", "--preload", "preload.py"]
    options += ["--no-nanny", "--no-dashboard", "--local-directory", str(folder)]
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as scheduler:
        address = scheduler.scheduler_address
        order = [sys.executable, "-m", "dask", "worker", address, "--host", "127.0.0.1", *options]
        with (folder / "log").open("w") as log:
            workers = [
                subprocess.Popen(order, cwd=folder, env=environment, stdout=log, stderr=log)
                for _ in range(2)
            ]
        try:
            found = Cluster(address, cache, notes)
            found.client.wait_for_workers(2, timeout=120)
            yield found
            found.client.close()
        finally:
            dask.connect.cache_clear()
            for worker in workers:
                worker.kill()
                worker.wait(60)


@pytest.fixture(autouse=True)
def _environment(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is one that shares the cluster's store."""
    monkeypatch.setenv("DMLKIT_CACHE", str(cluster.cache))
    monkeypatch.setenv("DMLKIT_SCHEDULER", cluster.address)


def sweep(**axes: Any) -> pd.DataFrame:
    return study.sweep(TINY, device="cpu", progress=False, **axes)


def locally(folder: Path, monkeypatch: pytest.MonkeyPatch, **axes: Any) -> pd.DataFrame:
    """The same sweep in this process, into a store of its own."""
    share_glyphs(folder)
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setenv("DMLKIT_CACHE", str(folder))
        return study.sweep(TINY, executor, device="cpu", progress=False, **axes)


def test_a_sweep_on_workers_is_the_local_one_and_is_loaded_the_next_time(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes: dict[str, Any] = {"loss": ["triplet_semihard", "proxy_nca"], "seed": [1, 2]}
    before = len(cluster.steps())
    there, here = sweep(**axes), locally(tmp_path, monkeypatch, **axes)
    pd.testing.assert_frame_equal(there.drop(columns="seconds"), here.drop(columns="seconds"))
    assert not there["loaded"].any()
    assert len(cluster.steps()) == before + 4 * TINY.steps  # on workers: nobody else notes them
    again = study.sweep(
        TINY, cluster.client.get_executor(pure=False), device="cpu", progress=False, **axes
    )
    assert again["loaded"].all()
    assert again["run"].tolist() == there["run"].tolist()


def test_a_failure_on_a_worker_is_reported_with_its_cause() -> None:
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed.*'model': 'nope'.*unknown model"):
        sweep(model=["nope", "convnet"], seed=[1])


def test_an_interrupt_cancels_what_has_not_begun(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    before = cluster.runs()
    with monkeypatch.context() as patch:
        patch.setattr(study, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(seed=range(100, 160))
    wait_for(cluster.idle)
    frame = sweep(seed=[3])  # behind what had begun
    assert len(cluster.runs() - before) < 60
    assert not frame["loaded"].any()


def test_workers_that_would_train_other_runs_are_named(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.client.run(os.getpid)

    def change(threads: int, other: dict[str, str]) -> Callable[..., None]:
        def changed(dask_worker: Any) -> None:
            from dmlkit import cluster

            dask_worker.state.nthreads = threads
            cluster.what_names_runs().update(other)

        return changed

    mine = dask.what_names_runs()
    other = {"torch": "2.0", "sources of dmlkit": "abc", "device": "tpu"}
    cluster.client.run(change(4, other), workers=[second])
    try:
        with pytest.raises(RuntimeError) as caught:
            sweep(seed=[NEW])
    finally:
        cluster.client.run(change(1, mine), workers=[second])
    message = str(caught.value)
    assert message.startswith(f"1 of 2 Dask workers at {cluster.address} would not train")
    facts = [f"{name} {value}, not {mine[name]}" for name, value in other.items()]
    for expected in (*facts, "4 threads, not 1", second, "--nthreads 1"):
        assert expected in message
    assert first not in message

    def hide() -> None:
        sys.modules["hidden"] = sys.modules["dmlkit.cluster"]
        sys.modules["dmlkit.cluster"] = None

    def show() -> None:
        sys.modules["dmlkit.cluster"] = sys.modules.pop("hidden")

    cluster.client.run(hide, workers=[first])
    try:
        with pytest.raises(RuntimeError, match=rf"1 of 2 (?s:.*){first}: .*dmlkit\.cluster"):
            sweep(seed=[NEW])
    finally:
        cluster.client.run(show, workers=[first])

    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="2 of 2 Dask workers") as caught:
        sweep(seed=[NEW])
    assert f"whose store is {tmp_path / 'runs'}" in str(caught.value)
    assert f"its store {cluster.cache / 'runs'} is another folder" in str(caught.value)
    assert not list((tmp_path / "runs").iterdir())
    monkeypatch.setenv("DMLKIT_CACHE", str(cluster.cache))
    assert len(sweep(seed=[NEW])) == 1


def test_a_scheduler_without_workers_or_lost_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "ANSWER_SECONDS", 1)
    local = LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    monkeypatch.setenv("DMLKIT_SCHEDULER", local.scheduler_address)
    with pytest.raises(RuntimeError, match=r"has no workers\. Start workers with `dask worker"):
        sweep(seed=[NEW + 1])
    executor = dask.connect(local.scheduler_address).get_executor(pure=False)
    seeds = [NEW + 1, NEW + 2]
    with ThreadPoolExecutor(1) as background:
        swept = background.submit(study.sweep, TINY, executor, progress=False, seed=seeds)
        wait_for(lambda: len(local.scheduler.tasks) == 2)
        local.close()
        with pytest.raises(RuntimeError, match=r"2 of 2 Runs failed.*the cluster was lost"):
            swept.result(timeout=120)
    with pytest.raises(ConnectionError, match="no Dask scheduler answers"):
        sweep(seed=[NEW + 1])


def test_an_address_that_nobody_answers_is_an_error_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dask, "ANSWER_SECONDS", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for command in (["reproduce", "00"], ["tune"]):
        result = CliRunner().invoke(cli.app, [*command, "--scheduler", address])
        assert result.exit_code == 1
        assert f"no Dask scheduler answers at '{address}' within 1 s" in result.stderr
        assert "Traceback" not in result.output


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = CliRunner().invoke(cli.app, ["reproduce", "--scheduler", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "pip install --editable '.[cluster]'" in result.stderr


def test_tuning_searches_on_workers(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLKIT_SCHEDULER")  # the option says it
    monkeypatch.chdir(tmp_path)  # which is not where the workers stand
    before = len(cluster.steps())
    small = json.dumps(TINY.data_args)
    arguments = ["tune", "contrastive", "--trials", "2", "--steps", "3", "--device", "cpu"]
    arguments += ["--scheduler", cluster.address, "--storage", "found.log", "--output", "found"]
    arguments += ["--set", f"data_args={small}"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "found" / "trials.csv")) == 2
    assert len(cluster.steps()) == before + 2 * 3


def test_reproduce_trains_the_sweeps_of_a_notebook_on_workers(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLKIT_SCHEDULER")  # the option says it
    monkeypatch.setenv("PYTHONPATH", str(Path(dmlkit.__file__).parent.parent))
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    cell = f"""
import json, pathlib
from dmlkit import study, training
base = training.Experiment(**json.loads({json.dumps(asdict(TINY))!r}))
frame = study.sweep(base, device=device, progress=False, seed=[30, 31])
pathlib.Path("../rows.json").write_text(frame[["seed", "run", "loaded"]].to_json())
"""
    test_reproduce.write(tmp_path, "00_toy", cell, test_reproduce.FIGURE.format("00_toy"))
    before = len(cluster.steps())
    arguments = ["reproduce", "--profile", "smoke", "--scheduler", cluster.address]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    rows = pd.read_json(tmp_path / "rows.json")
    assert not rows["loaded"].any()
    assert set(rows["run"]) <= cluster.runs()
    trained = Counter(name for name, _, _ in cluster.steps()[before:])
    assert trained == {replace(TINY, seed=seed).hash(): TINY.steps for seed in (30, 31)}


def test_a_killed_worker_loses_nothing_and_nothing_is_trained_twice(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every Run is asked for twice, so that one worker may wait for the lock of the killed one.
    axes: dict[str, Any] = {"asked": {"once": {}, "again": {}}, "seed": [20, 21, 22]}
    names = {seed: replace(TINY, seed=seed).hash() for seed in axes["seed"]}
    (cluster.notes / "stop").write_text(names[20])
    before, victim = cluster.runs(), cluster.notes / "victim"
    with ThreadPoolExecutor(1) as background:
        swept = background.submit(sweep, **axes)
        killed = int(wait_for(lambda: swept.done() or (victim.exists() and victim.read_text())))
        assert not swept.done()
        os.kill(killed, signal.SIGKILL)
        there = swept.result(timeout=120)
    here = locally(tmp_path, monkeypatch, **axes)
    told = ["seconds", "loaded"]
    pd.testing.assert_frame_equal(there.drop(columns=told), here.drop(columns=told))
    assert cluster.runs() - before == set(there["run"])  # no half Run, no checkpoint, no mark
    for seed in names:
        stores = (folder / "runs" for folder in (cluster.cache, tmp_path))
        a, b = (training.run(replace(TINY, seed=seed), device="cpu", store=s) for s in stores)
        assert a.loaded
        assert_same_run(a, b)

    steps = [step for step in cluster.steps() if step[0] in names.values()]
    once = {(name, step): 1 for name in names.values() for step in range(TINY.steps)}
    assert Counter((name, step) for name, step, _ in steps) == once
    of_killed = [step for name, step, pid in steps if name == names[20] and pid == killed]
    assert of_killed == list(range(6))  # another went on from the checkpoint
