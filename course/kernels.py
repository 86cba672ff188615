"""Kernels forked from one process that has imported what takes seconds.

``python -m course.kernels FD`` is that process: it forks a kernel for each order that comes to the
listening socket FD. Nothing of the project is imported before, nor Matplotlib, which looks for the
kernel that it is in. A kernel ends with the process that ordered it, and all ends with standard
input.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

#: Where ``Forked`` finds the listening socket.
VARIABLE = "DMLKIT_KERNELS"
_SLOW = (
    *("faiss", "ipykernel.kernelapp", "lightning_fabric", "pandas", "scipy.stats"),
    *("sklearn.metrics", "torch._dynamo", "torchvision"),
)


@contextmanager
def forking(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Start the process, and give the environment in which ``Forked`` finds it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder) / "kernels")
        listener.bind(path)
        listener.listen()
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "course.kernels", str(listener.fileno())],
            stdin=subprocess.PIPE, pass_fds=[listener.fileno()], env=dict(environment),
            start_new_session=True,  # Ctrl-C reaches only us
        ):  # fmt: skip
            yield {**environment, VARIABLE: path}


class Forked:
    """A kernel as jupyter_client's provisioner launches it: like a ``Popen``, but forked."""

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: str = "", **_: Any) -> None:
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(os.environ[VARIABLE])
        socket.send_fds(self.line, [b" "], [1])  # what it prints goes where ours goes
        order = {"command": command[2:], "env": dict(env), "cwd": str(cwd or Path.cwd())}
        self.line.sendall(json.dumps(order).encode() + b"\n")
        self.pid = int(self.line.makefile().readline())

    def poll(self) -> int | None:
        """1 once it has ended: how, nobody knows."""
        return 1 if select.select([self.line], [], [], 0)[0] else None

    def wait(self) -> int:
        """Until it ends."""
        select.select([self.line], [], [])
        return 1

    def send_signal(self, number: int) -> None:
        """Of the system's signals, one."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Politely."""
        self.send_signal(signal.SIGTERM)


def _ordered(listener: socket.socket) -> socket.socket:
    """Fork for each order, and give it to the child; the parent ends here with standard input."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        line, _ = listener.accept()
        if not os.fork():
            listener.close()
            return line
        line.close()
    os._exit(0)


def _become(line: socket.socket) -> None:
    """Be the kernel that was ordered."""
    os.setsid()
    _, (log,), *_ = socket.recv_fds(line, 1, 1)
    for number, end in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(end, number)
    order = json.loads(line.makefile().readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.sendall(f"{os.getpid()}\n".encode())
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = order["command"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with(line: socket.socket) -> None:
    line.recv(1)  # nothing is ever sent: it returns when the other end is closed
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    os._exit(1)


if __name__ == "__main__":
    os.environ["JPY_PARENT_PID"] = "1"  # a kernel then neither watches its parent nor greets
    for name in _SLOW:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    gc.freeze()  # else each kernel would copy all of this to look for garbage in it
    _become(_ordered(socket.socket(fileno=int(sys.argv[1]))))
