"""Commands as they are typed, each in a process of its own, but torch is imported once for all.

For tests of what a command does; those of what it finds in a fresh process start one themselves.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Imports what takes seconds, and then forks for each order that it reads. Nothing of the project is
# imported before the fork, so that every command finds the files as they are then.
_SERVER = """
import atexit, gc, json, os, runpy, sys, threading, traceback

import faiss, lightning_fabric, matplotlib.pyplot, nbformat, pandas, scipy.stats, sklearn.metrics
import torch._dynamo, typer

gc.freeze()  # else each command would copy all of this to look for garbage in it
own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
for line in sys.stdin:
    order = json.loads(line)
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, (name, how) in enumerate(
    ((os.devnull, os.O_RDONLY), (order["out"], os.O_WRONLY), (order["err"], os.O_WRONLY))
):
    os.dup2(os.open(name, how), number)
os.chdir(order["cwd"])
os.environ.clear()
os.environ.update(order["env"])
sys.path[:] = [
    order["cwd"],
    *filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep)),
    *(path for path in sys.path if path and path not in own),
]
sys.stdin = open(0)
how, *arguments = order["command"]
status = 1
try:
    if how == "-c":
        code, *arguments = arguments
        sys.argv = [how, *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif how == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [how, *arguments]
        runpy.run_path(how, run_name="__main__")
    status = 0
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else int(end.code is not None)
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
except BaseException:
    traceback.print_exc()
# As Python ends, but that it would take down every module, which takes two seconds.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""


class Commands:
    """Runs commands as ``subprocess.run`` does, one after the other."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Python's own arguments, ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …``.

        What a library reads from the environment when it is loaded (dmlkit.NUMERICS, threads) is
        that of this process, whatever ``env`` says.
        """
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, start_new_session=True,
            )  # fmt: skip
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            out.touch()
            err.touch()
            order = {
                "command": list(command), "cwd": str(cwd), "env": dict(env),
                "out": str(out), "err": str(err),
            }  # fmt: skip
            try:
                print(json.dumps(order), file=self._server.stdin, flush=True)
                status = int(self._server.stdout.readline())
            except BaseException:  # a time limit, too: its command must not answer the next order
                self.close()
                raise
            return subprocess.CompletedProcess(command, status, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the server, and the command that it waits for."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            with self._server:
                self._server = None
