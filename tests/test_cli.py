"""The command line does what was asked and ends with 0, or says why not and ends with 1."""

import json

import nbformat
import pytest
from typer.testing import CliRunner

from dmlkit import training
from dmlkit.cli import app

TINY = [
    *("--steps", "3", "--device", "cpu", "--set", 'data_args={"train_classes": 40}'),
    *("--set", 'sampler_args={"classes": 8, "per_class": 2}'),
]


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Glyphs come from the shared cache, Runs go to a folder of this test's own."""
    real = training.run
    monkeypatch.setattr(training, "run", lambda e, **args: real(e, store=tmp_path, **args))
    return lambda *args: CliRunner().invoke(app, [*args], env={"COLUMNS": "200"})


def test_train_prints_the_run_beside_its_baselines_and_loads_it_the_next_time(invoke):
    first, second = (invoke("train", "--loss", "contrastive", *TINY) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    for label in ("raw pixels", "untrained network", "contrastive, 3 steps", "recall_at_1"):
        assert label in first.output
    assert "trained in" in first.output
    assert "loaded from" in second.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "--loss", "nope"], "unknown loss 'nope'; there are contrastive"),
        (["train", "--data", "nope"], "no data set 'nope': there are glyphs"),
        (["train", "--device", "tpu"], "unknown device 'tpu'; there are auto, cpu, cuda"),
        (["train", "--set", "lr"], "a setting is NAME=VALUE, but this is 'lr'"),
        (["train", "--set", "colour=1"], "colour"),
        (["train", "--data", "omniglot", "--root", "nowhere"], "images_background_small1.zip"),
        (["data", "omniglot", "--root", "nowhere"], "images_background_small1.zip"),
        (["reproduce", "--profile", "nope"], "unknown profile 'nope'"),
        (["reproduce", "99"], "no notebook is called '99'"),
        (["reproduce", "00", "--set", "colour=1"], "no parameter 'colour'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_and_ends_with_1(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_data_counts_the_splits(invoke):
    result = invoke("data", "glyphs")
    assert result.exit_code == 0
    assert "12000" in result.output


def test_doctor_tells_versions(invoke):
    result = invoke("doctor")
    assert result.exit_code == 0
    assert "torch" in result.output


def test_student_copies_have_no_solutions_and_are_notebooks(invoke, tmp_path):
    result = invoke("student", str(tmp_path / "copies"))
    assert result.exit_code == 0
    copies = sorted((tmp_path / "copies").glob("*.ipynb"))
    assert copies
    for path in copies:
        nbformat.validate(nbformat.read(path, as_version=4))
        text = json.dumps(json.loads(path.read_text()))
        assert "SOLUTION" not in text
        assert text.count("your turn") >= 2
