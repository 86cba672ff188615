"""SIGKILL at random points of all that takes long, and what comes of it: trainings, sweeps,
searches, a judgment, downloads and the making of figures.

Each is started again until it ends, and is then compared with one that nobody broke: the same files
and no others, Runs and figures that are equal bit for bit, no step trained again that a checkpoint
held, no Run trained again that was there, no process left. ``python -m benchmarks kills`` kills 200
times.
"""

import functools
import hashlib
import http.server
import inspect
import io
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
import numpy as np
import psutil
from nbformat.v4 import new_code_cell, new_notebook
from rich.console import Console

import dmlkit
import studies
from course import reproduce
from dmlkit import data, study, training, tuning
from dmlkit.data import download
from dmlkit.training import Trainer, loop
from studies.judge import judge, regime
from tests.extras.studies.tiny import TINY as RULES
from tests.training.tiny import TINY

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])  # else every attempt would import torch anew
PATIENCE = 600.0  # seconds, for processes to begin, and for those of one that was killed to end
PUBLISHED = bytes(range(256)) * 4096
SMALL = replace(TINY, steps=40, monitor_every=10)
LOSS = """from dmlkit.losses import ContrastiveLoss


class Mine(ContrastiveLoss):
    pass
"""
# A notebook that takes a second to make a figure, and what it writes of it.
CELLS = (
    'profile = "smoke"',
    """import json, os, pathlib, time

record = {"alt": "A line.", "caption": "", "numbers": {"recall": 0.8}}
record["provenance"] = {"notebook": "NAME", "profile": profile, "device": "cpu"}
figures = pathlib.Path(os.environ["DMLKIT_FIGURES"])
for letter in "picture":
    with (figures / "NAME.png").open("a") as file:
        file.write(letter)
    time.sleep(0.1)
(figures / "NAME.json").write_text(json.dumps(record))
print("made")""",
)

Row = dict[str, str | float]


def _train(folder: Path) -> None:
    training.run(SMALL, store=folder / "runs", device="cpu", progress=False)


def _sweep(_: Path) -> None:
    study.sweep(SMALL, device="cpu", progress=False, seed=range(6))


def _tune(folder: Path) -> None:
    """More trials than are drawn without a look at those before."""
    with ThreadPoolExecutor(1) as executor:
        quick = replace(SMALL, steps=4, monitor=())
        tuning.tune(
            folder / "study", ["contrastive"], 10, quick, executor, device="cpu", progress=False
        )


def _download(folder: Path) -> None:
    md5 = hashlib.md5(PUBLISHED, usedforsecurity=False).hexdigest()
    url = (folder / "url").read_text()
    download.fetch(download.File("published", md5, url), folder / "downloads")


def _study(folder: Path) -> tuple[studies.Protocol, tuple[studies.Table, studies.Table]]:
    rules = studies.protocol("rules", folder)
    trials = studies.Table(("arm", "search", "stage", "candidate"), folder / "trials.csv")
    return rules, (trials, studies.Table(("arm", "repetition"), folder / "evidence.csv"))


def _judge(folder: Path) -> None:
    os.chdir(folder)  # a Run is named by its loss, and that by its file
    study = regime(*_study(folder))
    with ThreadPoolExecutor(1) as executor:
        judge("mine.py:Mine", study, folder=folder, executor=executor, device="cpu", progress=False)


def _reproduce(folder: Path) -> None:
    said = io.StringIO()
    if not reproduce.reproduce(
        profile="ci", project=folder / "project", console=Console(file=said, width=200)
    ):
        raise RuntimeError(said.getvalue())


WORK: Mapping[str, Callable[[Path], None]] = {
    "training": _train,
    "sweep": _sweep,
    "tuning": _tune,
    "judgment": _judge,
    "download": _download,
    "reproduction": _reproduce,
}


def _prepare(name: str, folder: Path) -> None:
    """What a piece of work finds there."""
    if name == "judgment":
        (folder / "mine.py").write_text(LOSS)
        (folder / "rules.toml").write_text(RULES)
        rules, tables = _study(folder)
        arms = studies.chosen_arms(["contrastive"])
        with ThreadPoolExecutor(1) as executor:
            studies.follow(rules, arms, *tables, executor=executor, device="cpu", progress=False)
    if name == "reproduction":
        (folder / "project" / "notebooks").mkdir(parents=True)
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        metadata = {"kernelspec": kernel, "dmlkit": {"profiles": {"ci": {}}}}
        for notebook in ("00_first", "01_second"):
            cells = [new_code_cell(text.replace("NAME", notebook)) for text in CELLS]
            cells[0].metadata["tags"] = ["parameters"]
            for number, cell in enumerate(cells):
                cell["id"] = f"cell-{number}"  # else drawn at random
            path = folder / "project" / "notebooks" / f"{notebook}.ipynb"
            nbformat.write(new_notebook(cells=cells, metadata=metadata), path)


def _child(name: str, folder: Path, begun: threading.Event) -> None:
    """One attempt, in a process of its own, which logs the steps that it begins and saves."""
    os.environ |= {"DMLKIT_CACHE": str(folder), "DMLKIT_SCHEDULER": ""}
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    advance, save = inspect.unwrap(Trainer.advance), inspect.unwrap(Trainer.save)

    def log(trainer: Trainer, what: str) -> None:
        with (folder / "log").open("a") as file:
            file.write(f"{what} {trainer.experiment.hash()} {trainer.step}\n")

    @functools.wraps(advance)  # so that Runs keep their names
    def begin_and_advance(trainer: Trainer) -> None:
        log(trainer, "begun")
        advance(trainer)

    @functools.wraps(save)
    def save_and_tell(trainer: Trainer, path: Path) -> None:
        save(trainer, path)
        log(trainer, "saved")

    Trainer.advance, Trainer.save = begin_and_advance, save_and_tell  # type: ignore[method-assign, assignment]
    loop.CHECKPOINT_SECONDS = 0.05
    begun.set()
    WORK[name](folder)


@dataclass
class Series:
    """Attempts at one piece of work in one folder, until one ends by itself."""

    name: str
    folder: Path
    url: str
    faults: list[str] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)  # that are there, and their inodes

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "url").write_text(self.url)
        data.load("glyphs", "train", **SMALL.data_args)  # made, if they are not there
        (self.folder / "glyphs").symlink_to((dmlkit.cache_folder() / "glyphs").resolve())
        _prepare(self.name, self.folder)

    def attempt(self, after: float | None = None, a_worker: bool = False) -> bool:
        """Whether it was killed so many seconds after it began, or one of its workers was."""
        with (self.folder / "log").open("a") as file:
            file.write("attempt - 0\n")
        begun = CONTEXT.Event()
        process = CONTEXT.Process(target=_child, args=(self.name, self.folder, begun))
        process.start()
        begun.wait(PATIENCE)
        process.join(after)
        killed = process.is_alive()
        if killed:
            assert process.pid is not None
            self._kill(psutil.Process(process.pid), a_worker)
        process.join()
        errors = self.folder / "errors"
        text = errors.read_text()[-2000:] if errors.exists() else ""
        errors.unlink(missing_ok=True)
        # A notebook whose kernel was killed has failed, and says so; the next attempt runs it.
        told = killed and a_worker and "Kernel died" in text
        if process.exitcode not in (0, -9, *[1] * told):
            self.faults.append(f"{self.name} ended with {process.exitcode}: {text}")
        self._check_runs()
        return killed

    def _kill(self, process: psutil.Process, a_worker: bool) -> None:
        """A process with all that it started, which have to go by themselves; or one of these."""
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = process.children(recursive=True)
            workers = [one for one in family if one.ppid() != process.pid]
            if a_worker and workers:
                workers[0].kill()
                return
        with suppress(psutil.NoSuchProcess):
            process.kill()
        left = psutil.wait_procs(family, timeout=PATIENCE)[1]
        self.faults += [f"{one} outlived its {self.name}" for one in left]

    def _check_runs(self) -> None:
        for path in self.folder.glob("runs/*/SHA256SUMS"):
            run = path.parent
            if "." not in run.name:
                inode = run.stat().st_ino
                if self.runs.setdefault(run.name, inode) != inode:
                    self.faults.append(f"Run {run.name} was there, and was trained again")

    def check_against(self, unbroken: "Series") -> None:
        """Note every difference from one that nobody broke, and what was trained twice."""
        if self.files() != unbroken.files():
            self.faults.append(f"files {sorted(self.files() ^ unbroken.files())}")
            return
        for name in self.runs:
            ours, theirs = (each.content(name) for each in (self, unbroken))
            unlike = [file for file in theirs if ours[file] != theirs[file]]
            self.faults += [f"{name}/{file} is another" for file in unlike]
        if self.name == "tuning":
            columns = ["loss", "trial", "settings", "recall_at_1", "run"]
            tables = [tuning.table(each.folder / "study")[columns] for each in (self, unbroken)]
            if not tables[0].equals(tables[1]):
                self.faults.append(f"another search: {tables[0]}")
        for part in ("figures", "notebooks"):
            for file in self.folder.glob(f"project/{part}/*"):
                whole = (unbroken.folder / file.relative_to(self.folder)).read_bytes()
                if file.read_bytes() != whole:
                    self.faults.append(f"{file.name} is another")
        for file in self.folder.glob("downloads/*"):
            if file.read_bytes() != PUBLISHED:
                self.faults.append(f"{file.name} is another")
        self._check_log()

    def content(self, name: str) -> dict[str, object]:
        """A Run's files, whose sums are checked; the embeddings' archive has a date."""
        with chdir(self.folder):  # where its loss is
            path = Path("runs") / name
            run = training.load_run(path)
            run.model()
            run.objective()
            facts = json.loads((path / "run.json").read_text())
            texts = ("history.csv", "model.pt", "objective.pt")
            return {
                **{name: (path / name).read_bytes() for name in texts},
                "embeddings.npz": (run.embeddings.tobytes(), run.labels.tobytes()),
                "run.json": {name: value for name, value in facts.items() if name != "seconds"},
            }

    def files(self) -> set[str]:
        """All that is kept, by its path within the folder."""
        own = ("log", "errors", "url", "glyphs")
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}
        return {path for path in found if not path.startswith(own)}

    def _check_log(self) -> None:
        saved: dict[str, int] = {}
        seen: set[str] = set()
        for line in (self.folder / "log").read_text().splitlines():
            what, experiment, step = line.split()
            if what == "attempt":
                seen = set()
            elif what == "saved":
                saved[experiment] = int(step)
            elif experiment not in seen:
                seen.add(experiment)
                if int(step) < saved.get(experiment, 0):
                    self.faults.append(f"step {step} of {experiment} was in a checkpoint")


class _Slowly(http.server.BaseHTTPRequestHandler):
    """The published file, over a second."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PUBLISHED)))
        self.end_headers()
        size = len(PUBLISHED) // 50
        with suppress(ConnectionError):  # who asked was killed
            for start in range(0, len(PUBLISHED), size):
                self.wfile.write(PUBLISHED[start : start + size])
                time.sleep(0.02)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def _published() -> Iterator[str]:
    """The URL of a file, for as long as this lasts."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Slowly) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/published"
        finally:
            server.shutdown()
            thread.join()


def hammer(name: str, kills: int, seconds: float = 600.0, seed: int = 0) -> tuple[Row, list[str]]:
    """Kill one kind of work so often, or for so long; a row of what was done, and all faults."""
    CONTEXT.set_forkserver_preload(["benchmarks.kills"])
    random, began = np.random.default_rng(seed), time.monotonic()
    done, series, faults = 0, 0, []
    with tempfile.TemporaryDirectory() as place, _published() as url:
        unbroken = Series(name, Path(place) / "unbroken", url)
        first = CONTEXT.Process(target=int)  # with it starts what forks them all, and imports torch
        first.start()
        first.join()
        start = time.monotonic()
        unbroken.attempt()
        takes = time.monotonic() - start
        while done < kills and time.monotonic() - began < seconds:
            series += 1
            broken = Series(name, Path(place) / "broken", url)
            for _ in range(min(int(random.integers(1, 6)), kills - done)):
                if not broken.attempt(random.uniform(0, takes), bool(random.integers(2))):
                    break  # it ended before it was killed
                done += 1
            broken.attempt()
            broken.check_against(unbroken)
            faults += broken.faults
            shutil.rmtree(broken.folder)
    row: Row = {"what": name, "kills": done, "series": series, "faults": len(faults)}
    return row | {"seconds": time.monotonic() - began}, [*unbroken.faults, *faults]


def rows(kills: int = 200, seconds: float = 1800.0) -> list[Row]:
    """Kills shared out among all kinds of work, and the seconds as well."""
    found = []
    for name in WORK:
        row, faults = hammer(name, -(-kills // len(WORK)), seconds / len(WORK))
        print(row, *faults, sep="\n", flush=True)
        found.append(row)
    return found
