"""The README is short, and every command and Python block of it does what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course import book, findings
from dmlkit import losses
from tests.training.tiny import share_glyphs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Some stand in a list.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README.replace("\n  ", "\n"), re.M | re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
]
MAKE = [command for command in COMMANDS if command.startswith("make")]


def between(text: str, mark: str) -> str:
    return text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- /{mark} -->")[0]


def test_every_block_is_of_a_kind_that_is_executed_here():
    assert {language for language, _ in BLOCKS} == {"sh", "python"}
    assert {shlex.split(command)[0] for command in COMMANDS} == {"make", "source", "dmlkit"}


def test_it_is_read_in_minutes():
    assert len(re.sub(r"<!--.*?-->", "", README).split()) <= 700
    first = README.partition("\n## ")[0]
    found = [first.find(part) for part in ("24_neighbors.png", "**Deep metric", "%**", "make lab")]
    assert found == sorted(found)
    assert -1 not in found
    assert f"a library of {len(losses.entries())} losses" in first
    assert not re.findall(r"github\.com/(?!KevinMusgrave/|OML-Team/)(?!\))\S+", README)


def test_python_blocks_saved_as_a_script(tmp_path, commands):
    blocks = [block for language, block in BLOCKS if language == "python"]
    (tmp_path / "script.py").write_text(
        "".join([*blocks, 'assert history["loss"].notna().all()\n'])
    )
    share_glyphs(tmp_path)
    done = commands.run(["script.py"], tmp_path, os.environ | {"DMLKIT_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of this repository, before `make`."""
    folder = tmp_path_factory.mktemp("clone")
    done = subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), "dmlkit"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"not a git checkout: {done.stderr}")
    return folder / "dmlkit"


def test_a_clone_is_set_up_and_its_index_is_opened(clone):
    for command in ("make lab", "make lab TORCH=cpu"):
        done = subprocess.run(
            [*shlex.split(command), "--dry-run"], cwd=clone, capture_output=True, text=True,
            env=os.environ | {"MAKEFLAGS": "", "MAKELEVEL": "0"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "-m venv .venv" in done.stdout
        assert ("whl/cpu" in done.stdout) == ("TORCH" in command)
        assert done.stdout.rstrip().endswith("notebooks/index.ipynb")
    assert (clone / "notebooks" / "index.ipynb").exists()


@pytest.mark.parametrize("command", MAKE)
def test_make_commands_exist(command):
    """`make test` runs this very test, so make only tells what it would do."""
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"MAKEFLAGS": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
def test_students_copies_are_graded(commands, tmp_path):
    folder = tmp_path / "anna"
    done = commands.run(["-m", "dmlkit", "student", str(folder)], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    copies = sorted((folder / "notebooks").glob("[0-9]*.ipynb"))
    assert len(copies) > 20
    for copy in copies[1:]:
        copy.unlink()
    done = commands.run(["-m", "dmlkit", "grade", str(folder)], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    assert re.search(r"anna\W+00_start_here\W+open\W+open", done.stdout)


def test_jupyterlab_takes_the_index():
    command = [sys.executable, "-m", "jupyter", "lab", "--version"]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_every_local_link_leads_somewhere():
    targets = re.findall(r"\]\(((?!https?:|#)[^)#]+)", README)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_what_benchmarks_found_is_that_of_their_results():
    from benchmarks.__main__ import IN_DOCS, RESULTS

    for mark, (page, written) in IN_DOCS.items():
        shown = between((ROOT / "docs" / page).read_text(), mark)
        assert shown.strip() == written(RESULTS.read_text()), mark
    assert between((ROOT / "docs" / "losses.md").read_text(), "losses").count("\n") > 20


def test_the_table_of_the_course_is_that_of_the_notebooks():
    shown = between(README, "course").strip()
    assert shown == book.table(book.course()), "run python -m course.book"


def test_what_is_said_of_claims_is_that_of_the_committed_figures(committed_figures):
    """A verdict that flips, or loses its evidence, is said here on purpose or not at all."""
    from course import ledger
    from studies import claims

    found = claims.ledger(committed_figures)
    shown = between((ROOT / "docs" / "ledger.md").read_text(), "claims")
    assert shown.strip() == ledger.markdown(found), (
        "after committing new figures: dmlkit claims --write docs/ledger.md"
    )
    assert between(README, "in-short").strip() == ledger.in_short(found), (
        "after committing new figures: dmlkit claims --write README.md"
    )


def test_numbers_and_pictures_are_those_of_the_committed_figures(committed_figures):
    paths = committed_figures.glob("*.json")
    records = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    texts = [README, *(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))]
    page = new_notebook(cells=[new_markdown_cell(text) for text in texts])
    assert list(findings.findings(README))
    assert list(findings.problems(page, "README, docs", records)) == []
