"""A notebook of the course in a process of its own, which judges answers where it stands."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, Self

import matplotlib
from nbformat import NotebookNode

from course import solutions
from course.grading.answers import Asked, Heard
from course.outputs import code, tags
from dmlkit import NUMERICS

# The environment is what a lesson needs: an answer's process, which is a copy of this, sees it.
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DMLKIT_DATA", "DMLKIT_CACHE", *NUMERICS)
_ONE_THREAD = ("OMP", "MKL", "OPENBLAS", "NUMBA")  # a process whose libraries have more cannot fork
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from course.grading.answers import serve
serve(int(sys.argv[2]))
"""


class Lesson:
    """The process of a notebook, which runs it cell by cell; ends with the ``with`` statement."""

    def __init__(self, source: NotebookNode, parameters: Mapping[str, Any]) -> None:
        self._cells, self._parameters, self._error = list(code(source)), parameters, ""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        home = self._folder.name
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {f"{library}_NUM_THREADS": "1" for library in _ONE_THREAD}
        environment |= {
            "HOME": home, "TMPDIR": home, "DMLKIT_FIGURES": home, "MPLBACKEND": "agg",
            "MPLCONFIGDIR": matplotlib.get_configdir(),  # its list of fonts takes long to make
            "LOKY_MAX_CPU_COUNT": "1", "NUMBA_THREADING_LAYER": "workqueue",
            "CUDA_VISIBLE_DEVICES": "",  # a GPU cannot be used in a fork
        }  # fmt: skip
        self._pipe, theirs = Pipe()
        path = json.dumps([each for each in sys.path if each])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _CODE, path, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=environment, cwd=home, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._pipe.close()
        self._folder.cleanup()

    def end(self) -> None:
        """End the process, with all judges and answers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def run_to(self, cell: str) -> str:
        """Run the cells that are above this one; give the error that ended the lesson, or ''."""
        while self._cells[0].id != cell and not self._error:
            ran = self._cells.pop(0)
            texts = [solutions.opened(ran.source)]  # so it reads no others
            if "parameters" in tags(ran):
                texts += [f"{name} = {value!r}" for name, value in self._parameters.items()]
            for text in texts:
                self._error = self._error or self._ask(("run", text)).error
        return self._error

    def judge(self, asked: Asked, cells: Sequence[str], checks: Sequence[str]) -> Heard:
        """What these checks say of an answer: of a student's cells, the last of which is it."""
        heard = self._ask(("judge", asked), list(cells), list(checks))
        return heard if heard and self._ask() is None else Heard("", "its check did not end")

    def _ask(self, *orders: Any) -> Any:
        with suppress(EOFError, OSError):
            for order in orders:
                self._pipe.send(order)
            return self._pipe.recv()
        return Heard("", "the end of its process")
