"""Run the notebooks of the course with papermill, keep their figures, and check their numbers.

Every notebook has a cell tagged ``parameters``, whose defaults are the profile ``ci``, and looks up
what the others set. What a whole run made is kept in ``build/<profile>/<notebook>``. That of ``ci``
is committed: its figures also reach ``figures/``, and the notebook keeps what it showed, as
``course.outputs`` tells.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import nbformat
import papermill
from filelock import FileLock, Timeout
from rich.console import Console
from rich.text import Text

import dmlkit
from course import book, findings, outputs, solutions
from course.check import compare, is_made, pictures
from course.execution import Job, run_all
from dmlkit import exercises, numerics
from dmlkit.checks import check_choice
from dmlkit.figures import versions
from dmlkit.files import write_whole

PROFILES = ("smoke", "ci", "full")

# What figures depend on besides their notebook: a change of it makes them anew.
_INPUTS = (
    *("dmlkit/**/*.py", "studies/**/*.py", "pyproject.toml", "data/*.csv"),
    *("data/reported/*", "data/tuning/*", "data/evidence/*", "data/studies/*", "data/pretrained/*"),
    "data/features/*",
)
# What a notebook says of the modules that draw for it: no other lesson's is an input.
_DRAWS = re.compile(r"dmlkit\.lessons(?:\.| import )(\w+)")


def reproduce(
    notebooks: Sequence[str] = (),
    profile: str = "smoke",
    workers: int | None = None,
    check: bool = False,
    timeout_minutes: float = 120,
    parameters: Mapping[str, Any] | None = None,
    build: Path | None = None,
    project: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Run notebooks and keep their figures; True if everything that was asked for was done.

    ``notebooks`` names them (``"00"``, ``"00_start_here"``); none means the whole course, in order.
    ``parameters`` override the profile's, in every notebook named; figures made so stay in
    ``build/``, the folder (by default the project's) of all that runs leave, by profile. A notebook
    is skipped if nothing that its figures depend on has changed. With ``check`` (profile ``ci``)
    nothing is published: ``course.check`` holds the committed figures against those made. A
    notebook that fails or takes longer than ``timeout_minutes`` leaves what its last run made as
    it was, and the others go on.

    ``workers`` notebooks run at a time and share the cores: by default two, which leaves no core
    idle between sweeps, and the last of the course, which is the longest, first. Kernels inherit
    the environment: with ``$DMLKIT_SCHEDULER`` their sweeps train on that cluster.

    Raises, before anything runs:
        ValueError: unknown notebook, profile or parameter.
        RuntimeError: another process is reproducing the same profile.
    """
    project, console = project or dmlkit.ROOT, console or Console()
    if check and profile != "ci":
        raise ValueError(f"check compares with figures/, made by 'ci', not by {profile!r}")
    folder = (build or project / "build").resolve() / profile
    sources = find_notebooks(project / "notebooks", notebooks)
    jobs = [plan(source, profile, parameters or {}, folder) for source in sources]
    with _alone(folder):
        good = _make(jobs, workers, 60 * timeout_minutes, console)
        if check:
            return _agrees(good, project / "figures", console) and good == jobs
        if profile == "ci" and not parameters:
            good = [job for job in good if _publish(job, project, console)]
    return good == jobs


def find_notebooks(folder: Path, names: Sequence[str]) -> list[Path]:
    """Notebooks by name or number; none named: all that have a number, in order."""
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    course = [stem for stem in known if stem[:1].isdigit()]
    found = {}
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        matches = [s for s in known if s == stem] or [s for s in course if s.split("_")[0] == stem]
        if len(matches) != 1:
            raise ValueError(f"no notebook is called {name!r}; there are: {', '.join(known)}")
        found[matches[0]] = known[matches[0]]
    return list(found.values()) or [known[stem] for stem in course]


def plan(source: Path, profile: str, given: Mapping[str, Any], build: Path) -> Job:
    """Read a notebook, and settle its parameters and the hash of all that its figures depend on.

    Its outputs and its prose are no part of the hash.
    """
    notebook = nbformat.read(source, as_version=4)
    check_choice(PROFILES, profile=profile)
    parameters = {"profile": profile, **given}
    known = papermill.inspect_notebook(str(source))
    if unknown := parameters.keys() - known.keys():
        there = ", ".join(known) or "none"
        raise ValueError(f"{source.name} has no parameter {unknown.pop()!r}; it has: {there}")
    cells = [[solutions.opened(c.source), outputs.tags(c)] for c in outputs.code(notebook)]
    around = [
        versions(),
        numerics.describe(),
        *map(os.environ.get, ("DMLKIT_DATA", "DMLKIT_VECTORS")),
    ]
    digest = hashlib.sha256(json.dumps([cells, parameters, *around]).encode())
    draws = {"__init__", *_DRAWS.findall("\n".join(c.source for c in outputs.code(notebook)))}
    inputs = (path for pattern in _INPUTS for path in dmlkit.ROOT.glob(pattern))
    for path in sorted(p for p in inputs if p.parent.name != "lessons" or p.stem in draws):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return Job(source.stem, source, parameters, build, digest.hexdigest())


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


def _make(jobs: Sequence[Job], workers: int | None, seconds: float, console: Console) -> list[Job]:
    """Run what has changed, say how each went, and give the jobs whose figures are there now."""
    to_run = [job for job in jobs if not is_run(job)]
    for job in jobs:
        if job not in to_run:
            console.print(Text(f"unchanged  {job.name}"))
    order, failed = to_run if workers else sorted(to_run, key=_minutes, reverse=True), []
    for job, took, complaint in run_all(order, workers or min(2, joblib.cpu_count()), seconds):
        others = {r["provenance"]["notebook"] for r in _records(job.staging / "figures").values()}
        if not complaint and others - {job.name}:
            complaint = f"figures.begin_notebook names another notebook: {', '.join(others)}"
        word = "failed   " if complaint else "done     "
        console.print(Text(f"{word}  {job.name}  {took:.0f} s"))
        shutil.rmtree(job.failed, ignore_errors=True)
        if not complaint:
            shutil.rmtree(job.kept, ignore_errors=True)
        job.staging.rename(job.failed if complaint else job.kept)
        if complaint:
            failed.append(job)
            console.print(Text(f"{complaint}\nas far as it ran: {job.failed}"), soft_wrap=True)
    return [job for job in jobs if job not in failed]


def _minutes(job: Job) -> float:
    """How long the machine works, as the notebook says: the long ones first, so no core waits."""
    found = book.STUDY.search(nbformat.read(job.source, as_version=4).cells[0].source)
    return float(found["works"]) if found else 0.0


def _inputs(folder: Path) -> str:
    """What was hashed for the run that left a folder; '' if there was none."""
    path = folder / "inputs"
    return path.read_text() if path.exists() else ""


def moved(job: Job) -> Iterator[str]:
    """What the last run says otherwise than the notebook: see ``outputs.moved``."""
    source, ran = (
        nbformat.read(path, as_version=4) for path in (job.source, job.kept / "executed.ipynb")
    )
    return outputs.moved(source, ran, job.kept / "figures")


def is_run(job: Job) -> bool:
    """Whether nothing that its figures depend on has changed since the last run."""
    return _inputs(job.kept) == job.inputs


def _records(folder: Path) -> dict[str, Any]:
    """The JSON of every figure in a folder."""
    paths = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def _own(records: Mapping[str, Any], job: Job) -> dict[str, Any]:
    return {n: r for n, r in records.items() if r["provenance"]["notebook"] == job.name}


def _publish(job: Job, project: Path, console: Console) -> bool:
    """Put a run's figures, outputs and answers where git has them: all of them, or nothing."""
    figures, answers = project / "figures", project / "dmlkit" / exercises.ANSWERS.name
    source, ran = (
        nbformat.read(path, as_version=4) for path in (job.source, job.kept / "executed.ipynb")
    )
    try:
        notebook = outputs.kept(source, ran, job.kept / "figures")
    except ValueError as error:
        console.print(Text(f"not published: {job.name}: {error}"), soft_wrap=True)
        return False
    before = [path for name in _own(_records(figures), job) for path in figures.glob(f"{name}.*")]
    new = job.kept / "figures"
    left = [name for name, record in _records(new).items() if not is_made(record)]
    files = [path for path in new.iterdir() if path.is_file()]  # vectors are not committed
    made = {figures / path.name: path for path in files if path.stem not in left}
    copies = {target: partial(shutil.copyfile, path) for target, path in made.items()}
    known = exercises.answers(answers) if answers.exists() else {}
    found = solutions.packed(notebook, job.name, known)
    texts = {job.source: nbformat.writes(notebook) + "\n"}
    if found != known:
        texts[answers] = solutions.written(found)
    write = partial(Path.write_text, encoding="utf-8")
    write_whole(copies | {path: partial(write, data=text) for path, text in texts.items()})
    for path in before:
        if path not in made and path.stem not in left:
            path.unlink()
    for line in findings.problems(notebook, job.name, _records(figures)):
        console.print(Text(line), soft_wrap=True)
    return True


def _agrees(jobs: Sequence[Job], figures: Path, console: Console) -> bool:
    """Compare what notebooks made with what is published, and print every difference."""
    course = _records(figures)
    committed = {name: record for job in jobs for name, record in _own(course, job).items()}
    made = {n: r for job in jobs for n, r in _records(job.kept / "figures").items()}
    failures, notes = compare(committed, made, course)
    for job in jobs:
        notebook = nbformat.read(job.source, as_version=4)
        failures += pictures(_own(course, job), outputs.pictures(notebook), figures)
        failures += findings.problems(notebook, job.name, course)
        failures += [f"{job.name}: {line}" for line in moved(job)]
    summary = f"{len(failures)} differences from figures/" if failures else "no drift"
    console.print(Text("\n".join([*failures, *notes, summary])), soft_wrap=True)
    return not failures
