"""How far each loss is from its oracles, as the tests of losses find it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dmlkit import ROOT, losses


def rows() -> list[dict[str, Any]]:
    """One row for each loss: its oracles, and the largest differences of value and gradient.

    Raises:
        RuntimeError: a test of losses fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "differences"
        command = [sys.executable, "-m", "pytest", "-q", "tests/losses", "--numprocesses", "auto"]
        command += ["-W", "ignore::UserWarning"]  # torch warns of hooks on what it compiles
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"DMLKIT_DIFFERENCES": str(file)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the tests of losses fail: {done.stdout[-2000:]}")
        found = [json.loads(line) for line in file.read_text().splitlines()]
    return [_row(entry.name, found) for entry in losses.entries()]


def _row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    made = type(losses.build(name, num_classes=4, dim=16)).__name__.lstrip("_")
    mine = [each for each in found if each["class"].lstrip("_") == made]
    tests = " ".join(each["test"] for each in mine)
    oracles = [word for word in ("loop", "library") if word in tests]
    return {
        "what": name,
        "oracle": " and ".join(oracles) or ("identities" if mine else "see its tests"),
        "comparisons": len(mine),
        "value": max((each["value"] for each in mine), default=None),
        "gradient": max((each["gradient"] for each in mine), default=None),
    }
