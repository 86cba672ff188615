"""The ways to install agree with each other, and the project says nothing of one machine."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[;]", line)[0].strip().lower() for line in requirements}


def test_environment_yml_is_in_step_with_pyproject():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert sorted(pip) == sorted([*PROJECT["dependencies"], "--editable ."])
    assert f"python{PROJECT['requires-python']}" in dependencies


def test_binder_has_the_same_packages_with_torch_for_the_cpu():
    dependencies = yaml.safe_load((ROOT / ".binder" / "environment.yml").read_text())[
        "dependencies"
    ]
    pip = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    index, *packages = pip
    assert index == "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert packages == PROJECT["dependencies"]
    (python,) = (entry for entry in dependencies if str(entry).startswith("python="))
    assert any(line.endswith(python.partition("=")[2]) for line in PROJECT["classifiers"])
    assert "pip install --no-deps --editable ." in (ROOT / ".binder" / "postBuild").read_text()


def test_every_page_on_the_project_says_the_same():
    """Version, license and authors: of the package, the citation, the changelog and the README."""
    import dmlkit

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}, "CFF 1.2 requires"
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["authors"] == PROJECT["authors"] == [{"name": "The dmlkit authors"}]
    assert citation["license"] == [PROJECT["license"], "CC-BY-4.0"]
    for work in citation["references"]:
        assert work.keys() >= {"type", "title", "authors", "year"}
        assert all(person.keys() == {"family-names", "given-names"} for person in work["authors"])
    readme, changelog = ((ROOT / f"{page}.md").read_text() for page in ("README", "CHANGELOG"))
    versions = {PROJECT["version"], dmlkit.__version__, str(citation["version"])}
    versions |= set(re.findall(r"version = \{(.+?)\}", readme))
    (last,) = re.findall(r"^## \[(\d.+?)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)[:1]
    assert versions == {last}
    assert citation["title"] in readme
    for name in PROJECT["license-files"]:
        assert (ROOT / name).exists()


def test_the_owners_packages_are_required():
    owners = "torch torchvision jupyterlab papermill matplotlib seaborn umap-learn faiss-cpu nbval"
    assert set(owners.split()) <= names(PROJECT["dependencies"])


def test_every_requirement_is_pinned_by_the_constraints():
    pinned = names((ROOT / "constraints.txt").read_text().splitlines())
    extras = [names(extra) for extra in PROJECT["optional-dependencies"].values()]
    assert names(PROJECT["dependencies"]).union(*extras) - {"dmlkit"} <= pinned


def test_extras_that_an_error_names_exist_and_are_in_dev():
    sources = "".join(path.read_text() for path in (ROOT / "dmlkit").rglob("*.py"))
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"pip install --editable '\.\[(\w+)\]'", sources))
    in_dev = extras["dev"][0].removeprefix("dmlkit[").removesuffix("]").split(",")
    assert {"vit"} <= named <= set(in_dev) <= extras.keys()


def test_constraints_take_a_torch_that_torchvision_can_be_imported_with():
    pin = re.search(r"^torch==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pin, "constraints.txt does not pin torch"
    assert tuple(map(int, pin.groups())) >= (2, 14)


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_file_names_a_path_of_a_machine():
    absolute = re.compile(r"(?<![\w.:/])/(?:work|tmp|root|home|Users)/\w")
    text = {".py", ".md", ".toml", ".ipynb", ".yml", ".json", ".txt", ".cff"}
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked()
        if path.suffix in text and path.parent != Path(__file__).parent  # tests make such paths up
        for match in absolute.finditer(path.read_text())
    ]
    assert not found


def test_the_package_is_found_from_the_folder_above_a_clone(tmp_path, commands):
    """A folder named dmlkit, the clone, must not stand in the way of the package."""
    (tmp_path / "dmlkit" / "dmlkit").mkdir(parents=True)  # as a clone has it
    done = subprocess.run(
        [sys.executable, "-c", "import dmlkit, course, studies.cli; print(dmlkit.__version__)"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == PROJECT["version"], done.stderr
    done = commands.run(["-c", "import dmlkit.losses, course, studies"], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr


def imported(notebook: Path) -> list[str]:
    """The import lines of a notebook that are of the project."""
    cells = nbformat.read(notebook, as_version=4).cells
    trees = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code"]
    nodes = [node for tree in trees for node in tree.body]
    ours = r"(from|import) (dmlkit|course|studies)\b"
    return [text for node in nodes if re.match(ours, text := ast.unparse(node))]


def test_the_modules_of_each_notebook_are_found_from_their_folder(commands):
    folder = ROOT / "notebooks"
    lines = sorted({line for path in folder.glob("*.ipynb") for line in imported(path)})
    done = commands.run(["-c", "\n".join(lines)], folder, os.environ)
    assert len(lines) > 20
    assert done.returncode == 0, done.stderr
