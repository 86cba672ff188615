"""What this machine offers dmlkit, what is missing, and how to mend that."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from dmlkit import ROOT, cache_folder, figures, numerics

#: Of free disk: a course's Runs and figures take a third of it.
GIGABYTES = 3
#: Modules that an extra of the project brings, by the extra's name.
EXTRAS = {"tune": "optuna", "cluster": "distributed", "vit": "timm"}


def facts() -> dict[str, str]:
    """Versions, numerics, cores, GPU and folders, by name."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none (the CPU will do)"
    return figures.versions() | {
        "numerics": numerics.describe(),
        "cores": str(os.cpu_count()),
        "GPU": gpu,
        "project": str(ROOT),
        "cache": str(cache_folder()),
        "DMLKIT_DATA": os.environ.get("DMLKIT_DATA", "not set: data/"),
    }


def complaints() -> Iterator[str]:
    """Each thing that keeps dmlkit from working, with what to do about it."""
    data = os.environ.get("DMLKIT_DATA")
    if data and not Path(data).is_dir():
        yield f"DMLKIT_DATA is {data}, which is no folder: unset it, or make it one of data sets"
    folder = cache_folder().absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):  # rights alone do not tell
            pass
    except OSError:
        yield f"{folder} cannot be written to: set DMLKIT_CACHE to a folder that can"
        return
    if shutil.disk_usage(folder).free < GIGABYTES * 1e9:
        yield (
            f"less than {GIGABYTES} GB are free in {folder}: make room, or set DMLKIT_CACHE to a "
            "folder on another disk"
        )


def hints() -> Iterator[str]:
    """What is not there and need not be, with how to come by it."""
    if not (ROOT / "notebooks").is_dir():
        yield (
            f"the course is not in {ROOT}: for `reproduce`, `student`, `claims` and recipes, run "
            "dmlkit in the project's folder"
        )
    for extra, module in EXTRAS.items():
        if not find_spec(module):
            yield f"{module} is not installed: pip install --editable '.[{extra}]'"
