"""Every command that the project documents is known, and runs as it stands."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import documented
from tests.documented import ROOT, TABLE
from tests.training.tiny import share_glyphs

LISTS = ("here", "elsewhere", "weekly", "by_hand")
FOUND = documented.documented()


def test_every_documented_command_is_in_one_list():
    listed = [command for name in LISTS for command in TABLE[name]]
    assert len(listed) == len(set(listed))
    assert {command: FOUND[command] for command in FOUND.keys() - set(listed)} == {}, "not tried"
    assert set(listed) - FOUND.keys() == set(), "documented nowhere"


@pytest.mark.parametrize("what, test", (TABLE["pages"] | TABLE["elsewhere"]).items())
def test_another_test_runs_it(what, test):
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_what_is_not_run_here_says_why():
    assert all(TABLE[name][command] for name in ("weekly", "by_hand") for command in TABLE[name])
    assert "make documented" in (ROOT / ".github/workflows/weekly.yml").read_text()


def test_what_pip_is_asked_for_is_an_extra_of_the_project():
    """To install it wants a network; that its name is known does not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = {
        extra for command in FOUND for extra in re.findall(r"pip install .*\[(\w+)\]", command)
    }
    assert "photos" in asked
    assert asked <= project["optional-dependencies"].keys()


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clean clone, photographs of a reader's own in it."""
    folder = documented.clone(tmp_path_factory.mktemp("clone"))
    random = np.random.default_rng(0)
    for name in ("apple", "pear", "plum", "quince"):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = random.integers(0, 255, (48, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{i}.png")
    share_glyphs(folder / "data")
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", TABLE["here"])
def test_it_runs_as_it_stands(command, clone, commands):
    about = TABLE["here"][command]
    typed = documented.filled(command, about.get("names", {}))
    environment = os.environ | {"PYTHONPATH": str(clone), "COLUMNS": "200", "MPLBACKEND": "agg"}
    for name in ("DMLKIT_CACHE", "DMLKIT_DATA", "DMLKIT_FIGURES"):
        environment.pop(name, None)
    first, *others = shlex.split(typed)
    if first in ("dmlkit", "python") and "|" not in typed:
        done = commands.run(["-m", "dmlkit"] * (first == "dmlkit") + others, clone, environment)
    else:
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", typed], cwd=clone, env=environment, capture_output=True, text=True
        )
    assert done.returncode == about.get("status", 0), f"{done.stdout}\n{done.stderr}"
