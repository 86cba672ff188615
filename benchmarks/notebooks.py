"""Peak memory and time of every notebook, by profile, two at a time as `make figures` runs them.

Only when it is asked for: it takes as long as both profiles do.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from course.reproduce import find_notebooks
from dmlkit import ROOT

PROFILES = ("smoke", "ci")
LOOK_SECONDS = 0.5

Row = dict[str, str | float | None]


def rows() -> list[Row]:
    """One row for each notebook: what it held at most with all its processes, and how long."""
    names = [path.stem for path in find_notebooks(ROOT / "notebooks", ())]
    made: dict[str, Row] = {name: {"what": name} for name in names}
    for profile in PROFILES:
        for name, (peak, seconds) in watched(profile).items():
            made[name] |= {f"{profile}: MB": peak, f"{profile}: s": seconds}
    return list(made.values())


def watched(profile: str) -> dict[str, tuple[float, float]]:
    """Peak in MB and seconds of each notebook, from an empty cache for its Runs."""
    peaks: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dmlkit", "reproduce", "--profile", profile]
        command += ["--build", f"{folder}/build"] + ["--check"] * (profile == "ci")
        environment = os.environ | {"DMLKIT_CACHE": f"{folder}/cache"}
        process = psutil.Popen(command, cwd=ROOT, env=environment)
        while process.poll() is None:
            for name, mb in _held(process):
                peaks[name] = max(peaks[name], mb)
            time.sleep(LOOK_SECONDS)
        stamps = Path(folder, "build", profile).glob("*.stamp.json")
        seconds = {
            path.name.split(".")[0]: json.loads(path.read_text())["seconds"] for path in stamps
        }
    return {name: (peaks[name], seconds[name]) for name in seconds}


def _held(process: psutil.Popen) -> list[tuple[str, float]]:
    """Each notebook that runs, and the MB of its process and all that it started.

    Pages that several processes share are shared out among them (PSS).
    """
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in process.children():
            name = re.search(r"staging-\d+/(\w+)/executed", " ".join(child.cmdline()))
            if name:
                tree = [child, *child.children(recursive=True)]
                found.append((name[1], sum(map(_pss, tree))))
    return found


def _pss(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.memory_full_info().pss / 2**20
    return 0.0
