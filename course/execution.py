"""Run notebooks by papermill, each in a process of its own, and tell what went wrong with one."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import nbformat
import psutil
from rich.console import Console
from rich.text import Text

from dmlkit.files import disk_of

# The whole of what a notebook's own process does; papermill is given JSON, so that no parameter
# changes its type on the way. For each output that a widget captures, nbclient would send a message
# to the kernel: where the reply that it waits for arrives meanwhile, it waits for ever (its issue
# 312). The message only keeps up a copy, in the kernel, of what is shown.
# A grammar of internationalized addresses, which no notebook has, would be read at each start, and
# takes as long as all the rest.
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
sys.modules["rfc3987_syntax"] = None
import papermill
from nbclient.output_widget import OutputWidget
OutputWidget.sync_state = lambda self: None
papermill.execute_notebook(**json.loads(sys.argv[1]))
"""
_TRACE_LINES = 25
_FULL_MB = 1.0  # less than a notebook with its figures takes
_ATTEMPTS = 2  # for a kernel that does not start; nothing else is tried again


@dataclass(frozen=True)
class Job:
    """One notebook to run."""

    name: str
    source: Path
    parameters: dict[str, Any]
    fingerprint: Callable[[], str]  # the hash of all that its figures depend on, as it is now
    build: Path
    cell_seconds: int | None = None  # what one cell may take, which then ends with an error

    @property
    def figures(self) -> Path:
        """Those of the last run that succeeded."""
        return self.build / "figures"

    @property
    def staging(self) -> Path:
        """Named by our process: what an earlier one left running must not write into ours."""
        return self.build / f"staging-{os.getpid()}" / self.name


@dataclass(frozen=True)
class Attempt:
    """The process of a notebook that runs, or has ended."""

    job: Job
    number: int
    inputs: str  # the job's fingerprint when it began: what is edited meanwhile counts as changed
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def run_all(
    jobs: Sequence[Job], workers: int, seconds: float, console: Console
) -> Iterator[tuple[Attempt, str]]:
    """Run jobs, ``workers`` at a time; yield each as it ends, with what went wrong, or ''.

    What a run made is in its job's ``staging`` folder. A run that takes more than ``seconds`` is
    ended, and so are all, with whatever they started, when the caller goes on no further.
    """
    waiting, running = [(job, 1) for job in jobs], list[Attempt]()
    threads = max(1, joblib.cpu_count() // workers)
    with console.status("") as status_line:  # shown on a terminal only
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running.append(_start(*waiting.pop(0), threads))
                progress = (f"{run.job.name}: {run.seconds:.0f} s" for run in running)
                status_line.update(Text(", ".join(progress)))  # of a string it reads the markup
                time.sleep(0.1)
                for run in list(running):
                    status = run.process.poll()
                    if status is None and run.seconds <= seconds:
                        continue
                    _kill(run)
                    running.remove(run)
                    if status and run.number < _ATTEMPTS and not _begun(run.job):
                        waiting.insert(0, (run.job, run.number + 1))
                    else:
                        yield run, _complaint(run, status)
        finally:
            for run in running:
                _kill(run)


def _start(job: Job, number: int, threads: int) -> Attempt:
    shutil.rmtree(job.staging, ignore_errors=True)
    (job.staging / "figures").mkdir(parents=True)
    inputs = job.fingerprint()
    order = {
        "input_path": str(job.source),
        "output_path": str(job.staging / "executed.ipynb"),
        "parameters": job.parameters,
        "kernel_name": "python3",
        "progress_bar": False,
        "cwd": str(job.source.parent),
        "execution_timeout": job.cell_seconds,
        "interrupt_on_timeout": True,
    }
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "NUMBA_NUM_THREADS": str(threads),  # UMAP would set torch's threads, too, to this number
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
    return Attempt(job, number, inputs, process)


def _kill(run: Attempt) -> None:
    """End a run with all it started: a kernel and its workers are in sessions of their own."""
    if run.process.poll() is None:  # else its id may be another's by now
        root = psutil.Process(run.process.pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        run.process.wait()
    if run.process.stdin:
        run.process.stdin.close()


def _complaint(run: Attempt, status: int | None) -> str:
    """What is wrong with a run that ended (``status`` None: was ended), or ''."""
    job, begun = run.job, _begun(run.job)
    # sys.exit() in a cell ends a notebook early, which papermill takes for success.
    if status == 0 and begun and not begun[-1].metadata.papermill.exception:
        return ""
    lines = []
    if begun:
        own = [cell for cell in begun if "injected-parameters" not in cell.metadata.get("tags", [])]
        total = len(nbformat.read(job.source, as_version=4).cells)
        lines += [f"cell {len(own)} of {total} of {job.source.name}:", begun[-1].source, ""]
    if status is None:
        lines.append(f"the time limit was reached after {run.seconds:.0f} s")
    errors = [o for o in begun[-1].get("outputs", []) if o.output_type == "error"] if begun else []
    for error in errors:
        trace = Text.from_ansi("\n".join(error.traceback)).plain.splitlines()
        lines += trace[-_TRACE_LINES:] or [f"{error.ename}: {error.evalue}"]
    if status is not None and not errors:
        log = (job.staging / "log.txt").read_text(errors="replace").splitlines()
        lines += [*log[-_TRACE_LINES:], f"papermill ended with exit status {status}"]
    disk, left = disk_of(job.staging)
    if left < _FULL_MB:  # what went wrong may have found no room in the log
        lines.append(f"make room on the disk at {disk}, which has {left:.1f} MB left")
    return "\n".join(lines)


def _begun(job: Job) -> list[nbformat.NotebookNode]:
    """Cells of the executed copy that began to run.

    Not those in which papermill reports an error; and its ``status`` is of no use, since it says
    "completed" of every cell after a dead kernel.
    """
    with suppress(OSError, ValueError):  # not there, or cut off in the middle of a write
        cells = nbformat.read(job.staging / "executed.ipynb", as_version=4).cells
        return [cell for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return []
