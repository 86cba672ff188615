"""Launch links are those of the repository's own address, and none where it has none."""

import re
import subprocess

import nbformat
import pytest

import dmlkit
from course import launch
from course.student import copies


@pytest.fixture
def origin(tmp_path, monkeypatch):
    """A project in git, with one notebook."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "notebooks").mkdir()
    cells = [
        nbformat.v4.new_markdown_cell("# 00 · One\n\n[lesson](00_one.ipynb)"),
        nbformat.v4.new_code_cell("1 + 1"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, tmp_path / "notebooks" / "00_one.ipynb")
    (tmp_path / "README.md").write_bytes((dmlkit.ROOT / "README.md").read_bytes())
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)

    def add(address: str) -> None:
        subprocess.run(["git", "remote", "add", "origin", address], cwd=tmp_path, check=True)

    return add


def test_without_an_origin_there_are_no_links_and_no_cell(origin, tmp_path):
    assert launch.repository() == ""
    assert launch.badges("notebooks/00_one.ipynb", launch.repository()) == ""
    (copy,) = copies(tmp_path / "student")
    assert len(nbformat.read(copy, as_version=4).cells) == 2
    with pytest.raises(ValueError, match="no origin on GitHub"):
        launch.write(tmp_path / "launch", launch.repository())


@pytest.mark.parametrize(
    "address", ["git@github.com:owner/name.git", "https://token@github.com/owner/name"]
)
def test_with_an_origin_every_notebook_can_be_launched(origin, tmp_path, address):
    origin(address)
    assert launch.repository() == "owner/name"
    badges = launch.badges("notebooks/00_one.ipynb", launch.repository())
    colab = "https://colab.research.google.com/github/owner/name/blob/launch/notebooks/00_one.ipynb"
    assert f"[open in Colab]({colab})" in badges
    assert badges.count("](https://") == 3
    launch.write(tmp_path / "launch", launch.repository())
    copy = tmp_path / "launch" / "notebooks" / "00_one.ipynb"
    (student,) = copies(tmp_path / "student")
    for path in (copy, student):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code"]
        source = notebook.cells[1].source
        assert "github.com/owner/name.git" in source
        assert "constraints" not in source.partition("\n")[2], "it installs loosely"
        assert "token" not in source
    readme = (tmp_path / "launch" / "README.md").read_text()
    assert "actions/workflows/tests.yml/badge.svg" in readme
    assert "https://owner.github.io/name/" in readme
    assert "(https://raw.githubusercontent.com/owner/name/HEAD/figures/24_neighbors.png)" in readme
    assert f"[lesson]({colab})" in nbformat.read(copy, as_version=4).cells[0].source
    assert not re.search(r"\]\((?!https?:|#)", readme), "each link has an address"


def test_pictures_and_links_of_a_page_are_found_from_anywhere():
    index = nbformat.read(dmlkit.ROOT / "notebooks" / "index.ipynb", as_version=4)
    page = "\n".join(cell.source for cell in index.cells)
    found = launch.absolute(page, "notebooks", "owner/name")
    assert not re.search(r"\]\((?!https?:|#)|src=\"(?!https?:|data:)", found)
    assert "HEAD/figures/small_00.svg" in found


def test_the_cell_does_nothing_where_dmlkit_is(origin):
    code = launch.bootstrap("owner/name").source
    plain = code.replace("!git", "raise OSError  # git").replace("%pip", "raise OSError  # pip")
    exec(compile(plain, "bootstrap", "exec"), {})
