"""Run the notebooks of the course with papermill, keep their figures, and check their numbers.

Every notebook has a cell tagged ``parameters``, whose defaults are the profile ``smoke``; the other
profiles are in the notebook's own metadata, ``{"dmlkit": {"profiles": {"ci": {...}, ...}}}``. A
notebook runs in a process of its own and writes its figures into a staging folder; they reach
``build/<profile>/figures`` (and ``figures/`` for ``ci``) when the whole notebook has succeeded.
"""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import nbformat
import papermill
import psutil
from filelock import FileLock, Timeout
from rich.console import Console
from rich.text import Text

import dmlkit
from dmlkit import claims, numerics
from dmlkit.check import compare
from dmlkit.figures import versions
from dmlkit.files import write_whole

PROFILES = ("smoke", "ci", "full")

# The whole of what a notebook's own process does; papermill is given JSON, so that no parameter
# changes its type on the way. For each output that a widget captures, nbclient would send a message
# to the kernel: where the reply that it waits for arrives meanwhile, it waits for ever (its issue
# 312). The message only keeps up a copy, in the kernel, of what is shown.
# Standard input is a pipe that only we hold: it ends when we do, by whatever signal, and the
# process then ends all that it started (a kernel and its workers are in sessions of their own).
PAPERMILL = """
import json, os, sys, threading, psutil
def end_with_parent():
    os.read(0, 1)
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    os._exit(1)
threading.Thread(target=end_with_parent, daemon=True).start()
import papermill
from nbclient.output_widget import OutputWidget
OutputWidget.sync_state = lambda self: None
papermill.execute_notebook(**json.loads(sys.argv[1]))
"""
# What notebooks read besides the package: a change of it makes their figures anew.
_READ = (
    *("data/*.csv", "data/reported/*", "data/tuning/*", "data/evidence/*"),
    *("recipes/*", "pyproject.toml"),
)
_TRACE_LINES = 25
_ATTEMPTS = 2  # for a kernel that does not start; nothing else is tried again


@dataclass(frozen=True)
class _Job:
    """One notebook to run."""

    name: str
    source: Path
    parameters: dict[str, Any]
    inputs: str  # hash of all that the figures depend on
    build: Path

    @property
    def figures(self) -> Path:
        return self.build / "figures"

    @property
    def staging(self) -> Path:
        """Named by our process: what an earlier one left running must not write into ours."""
        return self.build / f"staging-{os.getpid()}" / self.name

    def stamp(self) -> dict[str, Any]:
        """What the last run that succeeded left: inputs, seconds, hashes of its figures."""
        with suppress(OSError, ValueError):
            return dict(json.loads((self.build / f"{self.name}.stamp.json").read_text()))
        return {}


@dataclass(frozen=True)
class _Run:
    """The process of a notebook that runs."""

    job: _Job
    attempt: int
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)


def reproduce(
    notebooks: Sequence[str] = (),
    profile: str = "smoke",
    workers: int | None = None,
    check: bool = False,
    force: bool = False,
    timeout_minutes: float = 120,
    parameters: Mapping[str, Any] | None = None,
    build: Path | None = None,
    project: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Run notebooks and keep their figures; True if everything that was asked for was done.

    ``notebooks`` names them (``"00"``, ``"00_start_here"``); none means the whole course, in order.
    ``parameters`` override the profile's, in every notebook named; figures made so stay in
    ``build/``. A notebook is skipped if nothing that its figures depend on has changed, unless
    ``force``. With ``check`` (profile ``ci`` only) nothing is published: the figures are compared
    with those in ``figures/``, as ``dmlkit.check`` tells. What a notebook makes on its way is kept
    in the folder ``build`` (default: ``build/`` of the project), by profile.

    ``workers`` notebooks run at a time and share the cores. One is the default, since a sweep fills
    every core by itself, and a measured time counts only on a machine that does nothing else.
    Kernels inherit the environment: with ``$DMLKIT_SCHEDULER`` their sweeps train on that cluster
    (see ``study.cluster_executor``).

    A notebook that fails or takes longer than ``timeout_minutes`` leaves earlier figures as they
    were, and the others go on. Before anything runs:

    Raises:
        ValueError: unknown notebook, profile or parameter; a file that is no notebook.
        TypeError: a parameter that is no JSON literal.
        RuntimeError: another process is reproducing the same profile.
    """
    project, console = project or dmlkit.ROOT, console or Console()
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}: expected one of {', '.join(PROFILES)}")
    if check and profile != "ci":
        raise ValueError(f"check compares with figures/, made by 'ci', not by {profile!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: expected 1 or more")
    if not timeout_minutes > 0:
        raise ValueError(f"timeout_minutes is {timeout_minutes}: expected more than 0")
    sources = find_notebooks(project / "notebooks", notebooks)
    folder = (build or project / "build").resolve() / profile
    jobs = [plan(source, profile, parameters or {}, project, folder) for source in sources]
    failed = set()
    with _alone(folder):
        to_run = [job for job in jobs if force or not _is_unchanged(job)]
        for job in jobs:
            if job not in to_run:
                console.print(Text(f"unchanged  {job.name}"))
        for job, complaint in _run_all(to_run, workers or 1, 60 * timeout_minutes, console):
            if complaint:
                failed.add(job.name)
                console.print(Text(complaint), soft_wrap=True)
        succeeded = [job for job in jobs if job.name not in failed]
        if check:
            return _agrees(succeeded, project / "figures", console) and not failed
        if profile == "ci" and not parameters:
            for job in succeeded:
                publish(job.name, job.figures, project / "figures")
            _say_if_claims_moved(project, console)
    return not failed


def _say_if_claims_moved(project: Path, console: Console) -> None:
    """The README holds a table of claims, which is written from the figures on purpose only."""
    readme = project / "README.md"
    if readme.exists() and "<!-- claims -->" in (text := readme.read_text(encoding="utf-8")):
        table = claims.markdown(claims.verdicts(project / "figures"))
        if table not in text:
            line = "the README's table of claims is not that of figures/ now; to write it anew: "
            console.print(Text(line + "dmlkit claims --write README.md"), soft_wrap=True)


def _agrees(jobs: Sequence[_Job], published: Path, console: Console) -> bool:
    """Compare what notebooks made with what is published, and print every difference."""
    course = _figures(published)
    names = {job.name for job in jobs}
    committed = {n: r for n, r in course.items() if r["provenance"]["notebook"] in names}
    made: dict[str, Any] = {}
    for job in jobs:
        made |= _figures(job.figures, job.name)
    outcome = compare(committed, made, course)
    failures = outcome.failures + [
        f"{name}: the committed {name}.png is missing"
        for name in committed
        if not (published / f"{name}.png").exists()
    ]
    summary = f"{len(failures)} differences from figures/" if failures else "no drift"
    console.print(Text("\n".join([*failures, *outcome.notes, summary])), soft_wrap=True)
    return not failures


def find_notebooks(folder: Path, names: Sequence[str]) -> list[Path]:
    """Notebooks by name or number; none named: all that have a number, in order."""
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    course = {stem: path for stem, path in known.items() if stem[:1].isdigit()}
    if not names and not course:
        raise ValueError(f"there are no notebooks in {folder}")
    found = {}
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        matches = [s for s in known if s == stem] or [s for s in course if s.split("_")[0] == stem]
        if len(matches) != 1:
            raise ValueError(f"no notebook is called {name!r}; there are: {', '.join(known)}")
        found[matches[0]] = known[matches[0]]
    return list((found or course).values())


def plan(source: Path, profile: str, given: Mapping[str, Any], project: Path, build: Path) -> _Job:
    """Read a notebook, settle its parameters, and hash what its figures depend on."""
    try:
        notebook = nbformat.read(source, as_version=4)
    except (ValueError, nbformat.reader.NotJSONError) as error:
        raise ValueError(f"{source} is not a notebook: {error}") from error
    profiles = notebook.metadata.get("dmlkit", {}).get("profiles", {})
    if profile != "smoke" and profile not in profiles:
        raise ValueError(f"{source.name} has no profile {profile!r} in metadata.dmlkit.profiles")
    parameters = {"profile": profile, **profiles.get(profile, {}), **given}
    known = papermill.inspect_notebook(str(source))
    for key, value in parameters.items():
        if key not in known:
            there = ", ".join(known) or "none"
            raise ValueError(f"{source.name} has no parameter {key!r}; it has: {there}")
        if not _is_literal(value):
            kind = type(value).__name__
            raise TypeError(f"parameter {key!r} is {value!r}, a {kind}: expected a JSON literal")
    cells = [[c.cell_type, c.source, c.metadata.get("tags", [])] for c in notebook.cells]
    data = os.environ.get("DMLKIT_DATA")
    settings = [cells, parameters, versions(), numerics.describe(), data]
    digest = hashlib.sha256(json.dumps(settings).encode())
    package = Path(dmlkit.__file__).parent
    read = [path for pattern in _READ for path in project.glob(pattern) if path.is_file()]
    for path in sorted([*package.rglob("*.py"), *read]):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return _Job(source.stem, source, parameters, digest.hexdigest(), build)


def _is_literal(value: Any) -> bool:
    """Exact types only: papermill writes a tuple as a string, and fails at a NumPy scalar."""
    if type(value) is list:
        return all(map(_is_literal, value))
    if type(value) is dict:
        return all(type(key) is str and _is_literal(item) for key, item in value.items())
    return type(value) in (str, int, bool, type(None)) or (
        type(value) is float and math.isfinite(value)
    )


@contextmanager
def _alone(build: Path) -> Iterator[None]:
    """Hold the build folder of a profile; no staging folder, ours or older, outlives that."""
    build.mkdir(parents=True, exist_ok=True)
    lock = FileLock(build / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RuntimeError(f"another process is reproducing into {build}: wait for it") from None
    try:
        yield
    finally:
        for staging in build.glob("staging-*"):
            shutil.rmtree(staging, ignore_errors=True)
        lock.release()


def _run_all(
    jobs: Sequence[_Job], workers: int, seconds: float, console: Console
) -> Iterator[tuple[_Job, str]]:
    """Run jobs, ``workers`` at a time; yield each as it ends, with what went wrong, or ''."""
    waiting, running = [(job, 1) for job in jobs], list[_Run]()
    with console.status("") as status_line:  # shown on a terminal only
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running.append(_start(*waiting.pop(0), max(1, joblib.cpu_count() // workers)))
                status_line.update(", ".join(map(_progress, running)))
                time.sleep(0.1)
                for run in list(running):
                    elapsed, name = time.monotonic() - run.began, run.job.name
                    status = run.process.poll()
                    if status is None and elapsed <= seconds:
                        continue
                    _kill(run)
                    running.remove(run)
                    if status and run.attempt < _ATTEMPTS and not _begun(run.job):
                        waiting.insert(0, (run.job, run.attempt + 1))
                        continue
                    complaint = _settle(run.job, status, elapsed)
                    word = "failed   " if complaint else "done     "
                    console.print(Text(f"{word}  {name}  {elapsed:.0f} s"))
                    yield run.job, complaint
        finally:
            for run in running:
                _kill(run)


def _progress(run: _Run) -> str:
    before = run.job.stamp().get("seconds")
    about = f" of about {before:.0f} s" if before else " s"
    return f"{run.job.name}: {time.monotonic() - run.began:.0f}{about}"


def _start(job: _Job, attempt: int, threads: int) -> _Run:
    shutil.rmtree(job.staging, ignore_errors=True)
    (job.staging / "figures").mkdir(parents=True)
    order = {
        "input_path": str(job.source),
        "output_path": str(job.staging / "executed.ipynb"),
        "parameters": job.parameters,
        "kernel_name": "python3",
        "progress_bar": False,
        "cwd": str(job.source.parent),
    }
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "LOKY_MAX_CPU_COUNT": str(threads),  # what joblib.cpu_count() answers
        **os.environ,
        "DMLKIT_FIGURES": str(job.staging / "figures"),
        "JUPYTER_PREFER_ENV_PATH": "1",  # python3 is the running Python, whatever the user has
        "JUPYTER_RUNTIME_DIR": str(job.staging / "jupyter"),  # goes with the staging folder
        "IPYTHONDIR": str(job.staging / "ipython"),  # no personal start-up files
    }
    environment.pop("MPLBACKEND", None)  # a kernel then draws inline
    with (job.staging / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PAPERMILL, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=job.source.parent,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only us, and we end the whole tree
        )
    return _Run(job, attempt, process)


def _kill(run: _Run) -> None:
    """End a run with all it started: a kernel and its workers are in sessions of their own."""
    if run.process.poll() is None:  # else its id may be another's by now
        root = psutil.Process(run.process.pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        run.process.wait()
    if run.process.stdin:
        run.process.stdin.close()


def _settle(job: _Job, status: int | None, seconds: float) -> str:
    """Keep what a run that succeeded made; else keep its partial copy and say what went wrong."""
    executed, staged = job.staging / "executed.ipynb", job.staging / "figures"
    failed = job.build / f"{job.name}.failed.ipynb"
    complaint = _complaint(job, status, seconds)
    if complaint:
        if executed.exists():
            os.replace(executed, failed)
            complaint += f"\nas far as it ran: {failed}"
        return complaint
    publish(job.name, staged, job.figures)
    os.replace(executed, job.build / f"{job.name}.ipynb")
    failed.unlink(missing_ok=True)
    hashes = {path.name: _hash(path) for path in sorted(staged.iterdir())}
    stamp = {"inputs": job.inputs, "seconds": round(seconds, 1), "figures": hashes}
    content = json.dumps(stamp, indent=1).encode()
    write_whole({job.build / f"{job.name}.stamp.json": partial(Path.write_bytes, data=content)})
    return ""


def _complaint(job: _Job, status: int | None, seconds: float) -> str:
    """What is wrong with a run that ended (``status`` None: was ended), or ''."""
    begun = _begun(job)
    # sys.exit() in a cell ends a notebook early, which papermill takes for success.
    if status == 0 and begun and not begun[-1].metadata.papermill.exception:
        records = _figures(job.staging / "figures").values()
        others = {record["provenance"]["notebook"] for record in records} - {job.name}
        return (
            f"figures.begin_notebook names another notebook: {', '.join(others)}" if others else ""
        )
    lines = []
    if begun:
        own = [cell for cell in begun if "injected-parameters" not in cell.metadata.get("tags", [])]
        total = len(nbformat.read(job.source, as_version=4).cells)
        lines += [f"cell {len(own)} of {total} of {job.source.name}:", begun[-1].source, ""]
    if status is None:
        lines.append(f"the time limit was reached after {seconds:.0f} s")
    errors = [o for o in begun[-1].get("outputs", []) if o.output_type == "error"] if begun else []
    for error in errors:
        trace = Text.from_ansi("\n".join(error.traceback)).plain.splitlines()
        lines += trace[-_TRACE_LINES:] or [f"{error.ename}: {error.evalue}"]
    if status is not None and not errors:
        log = (job.staging / "log.txt").read_text(errors="replace").splitlines()
        lines += [*log[-_TRACE_LINES:], f"papermill ended with exit status {status}"]
    return "\n".join(lines)


def _begun(job: _Job) -> list[nbformat.NotebookNode]:
    """Cells of the executed copy that began to run.

    Not those in which papermill reports an error; and its ``status`` is of no use, since it says
    "completed" of every cell after a dead kernel.
    """
    with suppress(OSError, ValueError):  # not there, or cut off in the middle of a write
        cells = nbformat.read(job.staging / "executed.ipynb", as_version=4).cells
        return [cell for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return []


def _is_unchanged(job: _Job) -> bool:
    """Whether the inputs are those of the last run, and its figures are there as it left them."""
    stamp = job.stamp()
    if stamp.get("inputs") != job.inputs or not (job.build / f"{job.name}.ipynb").exists():
        return False
    kept = {job.figures / name: value for name, value in stamp["figures"].items()}
    return all(path.exists() and _hash(path) == value for path, value in kept.items())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _figures(folder: Path, notebook: str | None = None) -> dict[str, Any]:
    """The JSON of every figure in a folder, or of those that one notebook made."""
    records = {}
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if notebook in (None, record["provenance"]["notebook"]):
                records[path.stem] = record
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not the record of a figure: {error!r}") from error
    return records


def publish(notebook: str, source: Path, target: Path) -> None:
    """Put a notebook's figures where they belong, and take away those that it no longer makes."""
    names = _figures(source, notebook)
    gone = _figures(target, notebook).keys() - names
    target.mkdir(parents=True, exist_ok=True)
    files = [f"{name}{ending}" for name in names for ending in (".png", ".json")]
    write_whole({target / file: partial(shutil.copyfile, source / file) for file in files})
    for name in gone:
        for ending in (".png", ".json"):
            (target / f"{name}{ending}").unlink(missing_ok=True)
