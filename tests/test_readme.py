"""Every shell and Python block of the README does what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
]


def test_every_block_is_of_a_kind_that_is_executed_here():
    assert {language for language, _ in BLOCKS} == {"sh", "python", "bibtex"}
    assert {shlex.split(command)[0] for command in COMMANDS} == {"make", "dmlkit"}


def test_python_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("dmlkit.training.dmlkit.cache_folder", lambda: tmp_path)
    namespace = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(block, namespace)
    assert namespace["history"]["loss"].notna().all()
    assert list(namespace["frame"]["seed"]) == [0, 1, 0, 1]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("dmlkit")])
def test_dmlkit_commands(command, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "dmlkit.cli", *shlex.split(command)[1:]],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make")])
def test_make_commands_exist(command):
    """`make test` runs this very test, so make only tells what it would do."""
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"MAKEFLAGS": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_local_link_leads_somewhere():
    targets = re.findall(r"\]\(((?!https?:)[^)#]+)\)", README)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_the_table_of_losses_is_that_of_the_benchmarks():
    from benchmarks.__main__ import BETWEEN, RESULTS, losses_in_short

    shown = README.partition(BETWEEN[0])[2].partition(BETWEEN[1])[0]
    assert shown.strip() == losses_in_short(RESULTS.read_text())
    assert shown.count("\n") > 20


def test_the_table_of_claims_is_that_of_the_figures():
    """A verdict that flips, or loses its evidence, is said here on purpose or not at all.

    Where a part hangs on timings (tolerance 1 or more), it may become or cease to be undecided.
    """
    from dmlkit import claims

    shown = README.partition("<!-- claims -->\n")[2].partition("<!-- /claims -->")[0]
    made = claims.markdown(claims.verdicts())
    for old, new in zip(shown.splitlines(), made.splitlines(), strict=True):
        figures = re.findall(r"figures/(\w+)\.png", old)
        kept = [json.loads((ROOT / "figures" / f"{name}.json").read_text()) for name in figures]
        if old != new and any(each["tolerance"]["default"] >= 1 for each in kept):
            changes = [_count(new, v) - _count(old, v) for v in ("reproduced", "contradicted")]
            assert changes[0] * changes[1] >= 0, f"{old} has become {new}"
            cells = [line.split(" | ") for line in (old, new)]
            old, new = (each[:2] + each[5:] for each in cells)  # not verdict, parts, after Holm
        assert old == new


def _count(line: str, verdict: str) -> int:
    found = re.search(rf"(\d+) {verdict}", line)
    return int(found[1]) if found else 0
