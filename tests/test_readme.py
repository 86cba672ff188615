"""Every shell and Python block of the README does what it says."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course import findings
from tests.training.tiny import share_glyphs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Some stand in a list.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README.replace("\n   ", "\n"), re.M | re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
]


def between(text: str, mark: str) -> str:
    return text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- /{mark} -->")[0]


def test_every_block_is_of_a_kind_that_is_executed_here():
    assert {language for language, _ in BLOCKS} == {"sh", "python", "bibtex"}
    assert {shlex.split(command)[0] for command in COMMANDS} == {"make"}


def test_python_blocks_saved_as_a_script(tmp_path, commands):
    blocks = [block for language, block in BLOCKS if language == "python"]
    (tmp_path / "script.py").write_text(
        "".join([*blocks, 'assert history["loss"].notna().all()\n'])
    )
    share_glyphs(tmp_path)
    done = commands.run(["script.py"], tmp_path, os.environ | {"DMLKIT_CACHE": str(tmp_path)})
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
    targets = re.findall(r"\]\(((?!https?:|#)[^)#]+)", README)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def test_what_benchmarks_found_is_that_of_their_results():
    from benchmarks.__main__ import IN_DOCS, RESULTS

    for mark, (page, written) in IN_DOCS.items():
        shown = between((ROOT / "docs" / page).read_text(), mark)
        assert shown.strip() == written(RESULTS.read_text()), mark
    assert between((ROOT / "docs" / "losses.md").read_text(), "losses").count("\n") > 20


def test_the_table_of_claims_is_that_of_the_committed_figures(committed_figures):
    """A verdict that flips, or loses its evidence, is said here on purpose or not at all."""
    from course import ledger
    from studies import claims

    shown = between((ROOT / "docs" / "ledger.md").read_text(), "claims")
    assert shown.strip() == ledger.markdown(claims.ledger(committed_figures)), (
        "after committing new figures: dmlkit claims --write docs/ledger.md, and README.md"
    )
    assert shown.startswith(between(README, "tally")), "the headline is not that of the ledger"


def test_numbers_and_pictures_are_those_of_the_committed_figures(committed_figures):
    paths = committed_figures.glob("*.json")
    records = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    texts = [README, *(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))]
    page = new_notebook(cells=[new_markdown_cell(text) for text in texts])
    assert list(findings.findings(README))
    assert list(findings.problems(page, "README, docs", records)) == []
    pictures = re.findall(r"!\[([^\]]*)\]\(figures/(\w+)\.png\)", README)
    assert len(pictures) == 2
    for alt, name in pictures:
        assert alt == records[name]["alt"], f"{name} has another alt text now"
