"""Run the notebooks of the course with papermill, keep their figures, and check their numbers.

Every notebook has a cell tagged ``parameters``, whose defaults are the profile ``smoke``; the other
profiles are in the notebook's own metadata, ``{"dmlkit": {"profiles": {"ci": {...}, ...}}}``. A
notebook runs in a process of its own and writes its figures into a staging folder; they reach
``build/<profile>/figures`` when the whole notebook has succeeded. Those of ``ci`` are committed:
they also reach ``figures/``, and the notebook itself keeps its pictures and what it printed, as
``course.outputs`` tells.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from course import findings, integrity, ledger, outputs
from course.check import compare
from course.execution import Attempt, Job, run_all
from dmlkit import claims, numerics
from dmlkit.figures import versions
from dmlkit.files import write_whole

PROFILES = ("smoke", "ci", "full")

# What notebooks read besides the package: a change of it makes their figures anew.
_READ = (
    *("data/*.csv", "data/reported/*", "data/tuning/*", "data/evidence/*", "data/studies/*"),
    *("data/pretrained/*", "pyproject.toml"),
)


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
    is skipped if nothing that its figures depend on has changed. With ``check``
    (profile ``ci`` only) nothing is published: the figures are compared with those in ``figures/``,
    as ``course.check`` tells. A notebook that fails or takes longer than ``timeout_minutes`` leaves
    earlier figures as they were, and the others go on.

    ``workers`` notebooks run at a time and share the cores. By default two do, which leaves no core
    idle between sweeps, the last of the course first, which is the longest. Times are in figures
    as one thread's processor time, taken in turn (``study.step_times``): others do not count.
    Kernels inherit the environment: with ``$DMLKIT_SCHEDULER`` their sweeps train on that cluster.

    Before anything runs:

    Raises:
        ValueError: unknown notebook, profile or parameter; a file that is no notebook.
        TypeError: a parameter that is no JSON literal.
        RuntimeError: another process is reproducing the same profile.
    """
    project, console = project or dmlkit.ROOT, console or Console()
    _check_arguments(profile, workers, check, timeout_minutes)
    sources = find_notebooks(project / "notebooks", notebooks)
    folder = (build or project / "build").resolve() / profile
    jobs = [plan(source, profile, parameters or {}, project, folder) for source in sources]
    with _alone(folder):
        good = _make(jobs, workers, 60 * timeout_minutes, console)
        if check:
            return _agrees(good, project, console) and good == jobs
        if profile == "ci" and not parameters:
            good = [job for job in good if _commit(job, project / "figures", console)]
            _say_if_claims_moved(project, console)
            _say_if_findings_moved(good, project / "figures", console)
    return good == jobs


def _check_arguments(profile: str, workers: int | None, check: bool, minutes: float) -> None:
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}: expected one of {', '.join(PROFILES)}")
    if check and profile != "ci":
        raise ValueError(f"check compares with figures/, made by 'ci', not by {profile!r}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: expected 1 or more")
    if not minutes > 0:
        raise ValueError(f"timeout_minutes is {minutes}: expected more than 0")


def _make(jobs: Sequence[Job], workers: int | None, seconds: float, console: Console) -> list[Job]:
    """Run what has changed, say how each went, and give the jobs whose figures are there now."""
    to_run = [job for job in jobs if not _is_unchanged(job)]
    failed = []
    for job in jobs:
        if job not in to_run:
            console.print(Text(f"unchanged  {job.name}"))
    order = to_run if workers else to_run[::-1]
    number = workers or min(2, joblib.cpu_count())
    for run, problem in run_all(order, number, seconds, console):
        complaint = _settle(run, problem)
        word = "failed   " if complaint else "done     "
        console.print(Text(f"{word}  {run.job.name}  {run.seconds:.0f} s"))
        if complaint:
            failed.append(run.job)
            console.print(Text(complaint), soft_wrap=True)
    return [job for job in jobs if job not in failed]


def _commit(job: Job, figures: Path, console: Console) -> bool:
    """Put the figures of a run and its outputs where git has them: all of them, or nothing."""
    source, ran = (
        nbformat.read(path, as_version=4) for path in (job.source, job.build / f"{job.name}.ipynb")
    )
    try:
        written = outputs.kept(source, ran, job.figures)
    except ValueError as error:
        console.print(Text(f"not published: {job.name}: {error}"), soft_wrap=True)
        return False
    text = nbformat.writes(written) + "\n"
    writer = partial(Path.write_text, data=text, encoding="utf-8")
    publish(job.name, job.figures, figures, {job.source: writer})
    return True


def _say_if_findings_moved(jobs: Sequence[Job], figures: Path, console: Console) -> None:
    """Name every number in the prose of these notebooks that is no longer that of its figure."""
    records = _figures(figures)
    for job in jobs:
        notebook = nbformat.read(job.source, as_version=4)
        for line in findings.problems(notebook, job.name, records):
            console.print(Text(line), soft_wrap=True)


def _say_if_claims_moved(project: Path, console: Console) -> None:
    """The README holds a table of claims, which is written from the figures on purpose only."""
    readme = project / "README.md"
    if readme.exists() and "<!-- claims -->" in (text := readme.read_text(encoding="utf-8")):
        table = ledger.markdown(claims.verdicts(project / "figures"))
        if table not in text:
            line = "the README's table of claims is not that of figures/ now; to write it anew: "
            console.print(Text(line + "dmlkit claims --write README.md"), soft_wrap=True)


def _agrees(jobs: Sequence[Job], project: Path, console: Console) -> bool:
    """Compare what notebooks made with what is published, and print every difference."""
    published = project / "figures"
    course = _figures(published)
    names = {job.name for job in jobs}
    committed = {n: r for n, r in course.items() if r["provenance"]["notebook"] in names}
    made: dict[str, Any] = {}
    fresh: dict[str, Path] = {}
    for job in jobs:
        of_job = _figures(job.figures, job.name)
        made |= of_job
        fresh |= {name: job.figures / f"{name}.png" for name in of_job}
    numbers = compare(committed, made, course)
    files = integrity.verify(committed, made, published, fresh)
    failures = [*numbers.failures, *files.failures, *_strays(course, project)]
    summary = f"{len(failures)} differences from figures/" if failures else "no drift"
    lines = [*failures, *numbers.notes, *files.notes, summary]
    console.print(Text("\n".join(lines)), soft_wrap=True)
    return not failures


def _strays(course: Mapping[str, Any], project: Path) -> Iterator[str]:
    """Name what no notebook makes, though it is published."""
    notebooks = {path.stem for path in (project / "notebooks").glob("*.ipynb")}
    for name, record in course.items():
        if (notebook := record["provenance"]["notebook"]) not in notebooks:
            yield f"{name}: its notebook {notebook!r} is not there"
    for ending in ("png", "gif"):
        for file in sorted((project / "figures").glob(f"*.{ending}")):
            if file.stem not in course:
                yield f"{file.stem}: committed {file.name} has no {file.stem}.json beside it"


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


def plan(source: Path, profile: str, given: Mapping[str, Any], project: Path, build: Path) -> Job:
    """Read a notebook and settle its parameters."""
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
    inputs = partial(_inputs, source, parameters, project)
    return Job(source.stem, source, parameters, inputs, build)


def _inputs(source: Path, parameters: Mapping[str, Any], project: Path) -> str:
    """The hash of all that a notebook's figures depend on; outputs and prose are no part.

    Nothing where a file is just being saved: its notebook then runs, and says what it meets.
    """
    with suppress(OSError, ValueError):
        cells = nbformat.read(source, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        own = [[cell.source, cell.metadata.get("tags", [])] for cell in code]
        data = os.environ.get("DMLKIT_DATA")
        settings = [own, parameters, versions(), numerics.describe(), data]
        digest = hashlib.sha256(json.dumps(settings).encode())
        package = Path(dmlkit.__file__).parent
        read = [path for pattern in _READ for path in project.glob(pattern) if path.is_file()]
        for path in sorted([*package.rglob("*.py"), *read]):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()
    return ""


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


def _settle(run: Attempt, complaint: str) -> str:
    """Keep what a run that succeeded made; else keep its partial copy and say what went wrong."""
    job = run.job
    executed, staged = job.staging / "executed.ipynb", job.staging / "figures"
    failed = job.build / f"{job.name}.failed.ipynb"
    records = () if complaint else _figures(staged).values()
    if others := {record["provenance"]["notebook"] for record in records} - {job.name}:
        complaint = f"figures.begin_notebook names another notebook: {', '.join(others)}"
    if complaint:
        with suppress(OSError, ValueError):  # not there, or cut off in the middle of a write
            nbformat.read(executed, as_version=4)
            os.replace(executed, failed)
            complaint += f"\nas far as it ran: {failed}"
        return complaint
    publish(job.name, staged, job.figures)
    os.replace(executed, job.build / f"{job.name}.ipynb")
    failed.unlink(missing_ok=True)
    hashes = {path.name: _hash(path) for path in sorted(staged.iterdir())}
    stamp = {"inputs": run.inputs, "seconds": round(run.seconds, 1), "figures": hashes}
    content = json.dumps(stamp, indent=1).encode()
    write_whole({job.build / f"{job.name}.stamp.json": partial(Path.write_bytes, data=content)})
    return ""


def _is_unchanged(job: Job) -> bool:
    """Whether the inputs are those of the last run, and its figures are there as it left them."""
    try:
        stamp = json.loads((job.build / f"{job.name}.stamp.json").read_text())
    except (OSError, ValueError):  # there is none, or it was cut off
        return False
    if stamp["inputs"] != job.fingerprint() or not (job.build / f"{job.name}.ipynb").exists():
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


def publish(
    notebook: str,
    source: Path,
    target: Path,
    beside: Mapping[Path, Callable[[Path], object]] | None = None,
) -> None:
    """Put a notebook's figures where they belong, and take away those that it no longer makes.

    The files ``beside`` (path: what writes it) are written with them, or nothing is.
    """
    names = _figures(source, notebook)
    gone = _figures(target, notebook).keys() - names
    target.mkdir(parents=True, exist_ok=True)
    films = [f"{name}.gif" for name, record in names.items() if "film" in record]
    files = [f"{name}{ending}" for name in names for ending in (".png", ".json")] + films
    copies = {target / file: partial(shutil.copyfile, source / file) for file in files}
    write_whole({**copies, **(beside or {})})
    for name in gone | names.keys():
        for file in (f"{name}{ending}" for ending in (".png", ".json", ".gif")):
            if file not in files:
                (target / file).unlink(missing_ok=True)
