"""How much faster a sweep and the notebooks are on more processes of one machine.

``python -m benchmarks.scaling sweep 2 FOLDER`` makes one sweep; notebooks leave theirs in FOLDER.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course import reproduce
from dmlkit import ROOT, cache_folder, data, study
from dmlkit.training import Experiment

RUNS, STEPS = 8, 150
NOTEBOOKS = ("00", "03", "05", "14")

Row = dict[str, str | float]


def rows() -> list[Row]:
    """A sweep on 1, 2 and 4 processes and on 2 workers of Dask; notebooks, 1, 2 and 4 at a time."""
    data.load("glyphs", "train")  # drawn once: each case then finds it
    what = f"sweep, {RUNS} Runs of {STEPS} steps"
    found = [(what, f"{n} process{'es' * (n > 1)}", _child("sweep", n)) for n in (1, 2, 4)]
    found.append((what, "2 workers of Dask", _child("dask", 2)))
    what = f"notebooks {' '.join(NOTEBOOKS)}, profile smoke"
    found += [(what, f"{n} at a time", _child("notebooks", n)) for n in (1, 2, 4)]
    alone = {what: seconds for what, _, seconds in reversed(found)}  # the first of each
    return [
        {"what": what, "on": on, "s": seconds, "times faster than the first": alone[what] / seconds}
        for what, on, seconds in found
    ]


def _child(kind: str, number: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "glyphs").symlink_to(cache_folder() / "glyphs")
        environment = os.environ | {"DMLKIT_CACHE": folder, "OMP_NUM_THREADS": "1"}
        if kind == "sweep":
            environment["LOKY_MAX_CPU_COUNT"] = str(number)
        command = [sys.executable, "-m", "benchmarks.scaling", kind, str(number), folder]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    return float(json.loads(done.stdout.splitlines()[-1]))


def _seconds(kind: str, number: int, folder: Path) -> float:
    """With the start of the processes, as whoever waits sees it."""
    start = time.perf_counter()
    if kind == "notebooks":
        assert reproduce.reproduce(NOTEBOOKS, workers=number, build=folder / "build")
    elif kind == "sweep":
        study.sweep(Experiment(steps=STEPS), seed=range(RUNS), progress=False)
    else:
        from distributed import Client, LocalCluster

        how = {"n_workers": number, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**how) as cluster, Client(cluster) as client:
            pool = client.get_executor(pure=False)
            study.sweep(Experiment(steps=STEPS), pool, seed=range(RUNS), progress=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(_seconds(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
