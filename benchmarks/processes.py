"""What a piece of work takes in a process of its own: seconds, and MB at the peak (Linux only)."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dmlkit import ROOT


def child(module: str, *args: object) -> dict[str, float]:
    """What a module prints, run with these arguments."""
    command = [sys.executable, "-m", module, *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def print_measured(warm_up: Callable[[], object], work: Callable[[], object]) -> None:
    """Print seconds and megabytes that some work needs beyond what a first, small one loaded."""
    warm_up()
    before, start = _memory("VmRSS"), time.perf_counter()
    work()
    taken = {"s": time.perf_counter() - start, "mb": _memory("VmHWM") - before}
    print(json.dumps(taken))


def _memory(field: str) -> float:
    """A size of this process in MB. Unlike ru_maxrss it does not begin with the parent's peak."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024
