"""Run notebooks by papermill, each in a process of its own, and tell what went wrong with one."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import nbformat
import psutil
from rich.text import Text

from course import kernels

# The whole of what a notebook's own process does; papermill is given JSON, so that no parameter
# changes its type on the way. Standard input is a pipe that only we hold: it ends when we do, by
# whatever signal, and the process then ends all that it started (a kernel and its workers are in
# sessions of their own). Of many, all kernels are forked from one process.
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
if "DMLKIT_KERNELS" in os.environ:
    from course.kernels import Forked
    from jupyter_client.provisioning import local_provisioner
    local_provisioner.launch_kernel = Forked
papermill.execute_notebook(**json.loads(sys.argv[1]))
"""
_TRACE_LINES = 25


@dataclass(frozen=True)
class Job:
    """One notebook to run."""

    name: str
    source: Path
    parameters: dict[str, Any]
    build: Path
    inputs: str = ""  # the hash of all that its figures depend on

    @property
    def kept(self) -> Path:
        """What the last run that succeeded left: ``executed.ipynb``, ``figures`` and ``inputs``."""
        return self.build / self.name

    @property
    def failed(self) -> Path:
        """The same of the last run, if that failed."""
        return self.build / f"{self.name}.failed"

    @property
    def staging(self) -> Path:
        """Named by our process: what an earlier one left running must not write into ours."""
        return self.build / f"staging-{os.getpid()}" / self.name


def run_all(jobs: Sequence[Job], workers: int, seconds: float) -> Iterator[tuple[Job, float, str]]:
    """Run jobs, ``workers`` at a time; yield each as it ends, its seconds and what went wrong.

    What a run made is in its job's ``staging`` folder. A run that takes more than ``seconds`` is
    ended, and so are all, with whatever they started, when the caller goes on no further. Only a
    kernel that does not start is tried again, once.
    """
    waiting = [(job, 1) for job in jobs]
    running: list[tuple[Job, int, subprocess.Popen[bytes], float]] = []
    threads = str(max(1, joblib.cpu_count() // workers))
    around = {
        "OMP_NUM_THREADS": threads,
        "NUMBA_NUM_THREADS": threads,  # UMAP would set torch's threads, too, to this number
        "LOKY_MAX_CPU_COUNT": threads,  # what joblib.cpu_count() answers
        **os.environ,
    }
    around.pop("MPLBACKEND", None)  # a kernel then draws inline
    forked = kernels.forking(around) if len(jobs) > 2 else nullcontext(around)
    with forked as around:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    job, attempt = waiting.pop(0)
                    running.append((job, attempt, _start(job, around), time.monotonic()))
                time.sleep(0.1)
                for run in list(running):
                    job, attempt, process, began = run
                    status, took = process.poll(), time.monotonic() - began
                    if status is None and took <= seconds:
                        continue
                    _kill(process)
                    running.remove(run)
                    if status and attempt == 1 and not begun(job):
                        waiting.insert(0, (job, 2))
                    else:
                        yield job, took, _complaint(job, status)
        finally:
            for _, _, process, _ in running:
                _kill(process)


def _start(job: Job, around: Mapping[str, str]) -> subprocess.Popen[bytes]:
    shutil.rmtree(job.staging, ignore_errors=True)
    (job.staging / "figures").mkdir(parents=True)
    (job.staging / "inputs").write_text(job.inputs)
    order = {
        "input_path": str(job.source), "output_path": str(job.staging / "executed.ipynb"),
        "parameters": job.parameters, "cwd": str(job.source.parent), "kernel_name": "python3",
        "progress_bar": False,
    }  # fmt: skip
    environment = {
        **around,
        "DMLKIT_FIGURES": str(job.staging / "figures"),
        "JUPYTER_PREFER_ENV_PATH": "1",  # python3 is the running Python, whatever the user has
        "JUPYTER_RUNTIME_DIR": str(job.staging / "jupyter"),
        "IPYTHONDIR": str(job.staging / "ipython"),  # no personal start-up files
    }
    with (job.staging / "log.txt").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", PAPERMILL, json.dumps(order)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=job.source.parent, env=environment,
            start_new_session=True,  # Ctrl-C reaches only us, and we end the whole tree
        )  # fmt: skip


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a run with all it started: a kernel and its workers are in sessions of their own."""
    if process.poll() is None:  # else its id may be another's by now
        root = psutil.Process(process.pid)
        for each in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
    if process.stdin:
        process.stdin.close()


def begun(job: Job) -> list[nbformat.NotebookNode]:
    """Cells that began to run. (Papermill's "status" is "completed" even after a dead kernel.)"""
    with suppress(OSError, ValueError):  # not there, or cut off in the middle of a write
        cells = nbformat.read(job.staging / "executed.ipynb", as_version=4).cells
        return [cell for cell in cells if cell.metadata.get("papermill", {}).get("start_time")]
    return []


def _complaint(job: Job, status: int | None) -> str:
    """What is wrong with a run that ended (``status`` None: was ended), or ''."""
    cells = begun(job)
    # sys.exit() in a cell ends a notebook early, which papermill takes for success.
    if status == 0 and cells and not cells[-1].metadata.papermill.exception:
        return ""
    lines = []
    if cells:
        own = [c for c in cells if "injected-parameters" not in c.metadata.get("tags", [])]
        lines += [f"cell {len(own)} of {job.source.name}:", cells[-1].source, ""]
    if status is None:
        lines.append("the time limit was reached")
    errors = [o for o in cells[-1].get("outputs", []) if o.output_type == "error"] if cells else []
    for error in errors:
        trace = Text.from_ansi("\n".join(error.traceback)).plain.splitlines()
        lines += trace[-_TRACE_LINES:] or [f"{error.ename}: {error.evalue}"]
    if status is not None and not errors:
        log = (job.staging / "log.txt").read_text(errors="replace").splitlines()
        lines += [*log[-_TRACE_LINES:], f"papermill ended with exit status {status}"]
    return "\n".join(lines)
