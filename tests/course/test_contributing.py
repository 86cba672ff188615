"""Whoever follows CONTRIBUTING.md word by word gets what it says, in a copy of the project."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from course import solutions
from dmlkit import exercises
from tests.commands import Commands
from tests.training.tiny import share_glyphs

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"# ([\w/]+\.py)(, at the end|, below: (.+))?\n")
NOT_COPIED = (".*", "build", "runs", "indices", "glyphs", "student", "__pycache__", "*.egg-info")

pytestmark = pytest.mark.filterwarnings("default")  # what runs here runs in other processes


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project, which the examples change one after the other."""
    folder = tmp_path_factory.mktemp("copy") / "dmlkit"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    return folder


def write(project: Path, block: str) -> bool:
    """Put a block where its first line says; False if that names no file."""
    if not (place := PLACE.match(block)):
        return False
    path, where, line = project / place[1], place[2], place[3]
    code = block[place.end() :]
    if not where:
        assert not path.exists(), f"{path} is there already"
        path.write_text(code)
        return True
    old = path.read_text()
    if line:
        assert len(re.findall(rf"^ *{re.escape(line)}$", old, re.MULTILINE)) == 1, line
        code = re.sub(rf"^( *{re.escape(line)}\n)", lambda m: m[1] + code, old, flags=re.MULTILINE)
    path.write_text(code if line else old + code)
    return True


def run(commands: Commands, project: Path, command: list[str], cache: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(project), "DMLKIT_CACHE": str(cache), "OMP_NUM_THREADS": "1",
        "DMLKIT_FIGURES": str(project / "figures"), "COLUMNS": "200", "MPLBACKEND": "agg",
    }  # fmt: skip
    done = commands.run(command, project, environment)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(line: str) -> list[str]:
    """The arguments that a line of the shell gives to Python."""
    first, *others = shlex.split(line)
    assert first in ("dmlkit", "python"), line
    return ["-m", "dmlkit", *others] if first == "dmlkit" else others


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("title", SECTIONS)
def test_a_worked_example(title, project, tmp_path, commands):
    share_glyphs(tmp_path)
    said = ""
    for language, block in BLOCK.findall(SECTIONS[title]):
        if language == "csv":
            with (project / "data" / "claims.csv").open("a") as file:
                file.write(block)
        elif language == "sh":
            for line in block.splitlines():
                said += run(commands, project, python(line), tmp_path)
        elif not write(project, block):
            said += run(commands, project, ["-c", block], tmp_path)
    EXPECTED[title](project, said)


def check_loss(project: Path, said: str) -> None:
    assert "squared_cosine, 3 steps" in said
    assert re.search(r"\n1 passed", said), "the doctest ran"


def check_data_set(project: Path, said: str) -> None:
    assert re.search(r"train +901 +5 +1", re.sub(r"[│┃]", " ", said))
    assert "digits, test classes, never seen in training" in said


def check_notebook(project: Path, said: str) -> None:
    assert "done       31_my_question" in said
    assert "31_my_question: " not in said, "its numbers in prose are those of its figure"
    assert (project / "figures" / "31_spread.png").exists()
    stub = solutions.STUB.replace('"', r"\"")
    notebook = (project / "notebooks" / "31_my_question.ipynb").read_text()
    answers = exercises.answers(project / "dmlkit" / "answers.json")
    assert sum(key.startswith("my_question/") for key in answers) == notebook.count(stub) == 2
    assert notebook.count(exercises.PASSES) == 2, "where the course answers"
    assert "31_my_question" in (project / "notebooks" / "index.ipynb").read_text()


def check_claim(project: Path, said: str) -> None:
    assert re.search(r"\bD1\b", said)
    ledger = (project / "docs" / "ledger.md").read_text()
    assert "## D1 · Squares help" in ledger
    assert "| from scratch, on drawings | *holds here* | +2.64 | [+1.85, +3.43] |" in ledger


EXPECTED = {
    "A loss": check_loss,
    "A data set": check_data_set,
    "A notebook": check_notebook,
    "A claim": check_claim,
}


def test_every_section_is_followed_and_every_block_is_of_a_kind_that_can_be():
    assert SECTIONS.keys() == EXPECTED.keys()
    assert {language for language, _ in BLOCK.findall(TEXT)} == {"python", "sh", "csv"}
