"""The command line does what was asked and ends with 0, or says why not and ends with 1."""

import json
import os
import re
import shutil

import nbformat
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import dmlkit
from course import ledger
from dmlkit import ROOT, training
from dmlkit.cli import settings, terminal
from dmlkit.cli.app import app
from dmlkit.data import benchmarks
from studies import claims
from tests.data import trees

FEW = '{"train_classes": 40, "val_classes": 20, "test_classes": 20}'
TINY = [
    *("--steps", "3", "--device", "cpu", "--set", f"data_args={FEW}"),
    *("--set", 'sampler_args={"classes": 8, "per_class": 2}'),
]


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Glyphs come from the shared cache, Runs go to a folder of this test's own."""
    real = training.run
    folder = tmp_path / "of [/b] runs"  # a name that could be taken for markup
    monkeypatch.setattr(training, "run", lambda e, **args: real(e, store=folder, **args))

    def invoked(*args, columns=200):  # so wide that no label is broken
        monkeypatch.setattr(terminal, "console", Console(markup=False, width=columns))
        return CliRunner().invoke(app, [*args], env={"COLUMNS": f"{columns}"})

    return invoked


def test_train_prints_the_run_beside_its_baselines_and_loads_it_the_next_time(invoke, tmp_path):
    first, second = (invoke("train", "--loss", "contrastive", *TINY) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    for label in ("raw pixels", "untrained network", "contrastive, 3 steps", "recall_at_1"):
        assert label in first.output
    assert "trained in" in first.output
    assert "loaded from" in second.output
    assert f"kept in {tmp_path}/of [/b] runs" in first.output
    (start,) = (tmp_path / "of [/b] runs").glob("*/")
    args = ("train", "--loss", "contrastive", *TINY, "--steps", "6")
    longer = invoke(*args, "--start", str(start))
    assert " 3/6 " in longer.output  # where it begins
    assert "loaded from" in invoke(*args).output  # rates were constant so far: it is the same Run


def test_a_score_on_photographs_of_the_package_is_told_beside_what_is_known_of_them(invoke):
    result = invoke("train", "--recipe", "grocery64", "--steps", "2")
    assert result.exit_code == 0, result.output
    assert "color histogram" in result.output
    assert re.search(r"beside: chance \d+\.\d, coarse class alone 86\.\d, unt", result.output)
    assert "next:" not in result.output  # they are not one's own
    ((run, store),) = re.findall(r"^Run (\S+), .+ kept in (.+)$", result.output, re.MULTILINE)
    refused = invoke("final", f"{store}/{run}")
    assert refused.exit_code == 1
    assert "expected a Run of one's own pictures (folder, list, features), but" in refused.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "--loss", "nope"], "loss must be one of contrastive, "),
        (["train", "--loss", "dreml"], "studies.dreml trains an ensemble"),
        (["train", "--data", "nope"], "'nope'"),
        (["judge", "my.py"], "unknown loss 'my.py'"),
        (["train", "--device", "tpu"], "unknown device 'tpu'; there are auto, cpu, cuda"),
        (["train", "--set", "lr"], "a setting is --set NAME=VALUE, but this is --set 'lr'"),
        (["train", "--set", "lr=fast"], "lr must be a number from 0 to inf"),
        (["train", "--set", "data_args.crop=3"], "crop"),
        (["train", "--set", 'sampler_args={"classes": 999}'], "classes"),
        (["train", "--loss", "[/b]"], ", but is '[/b]'"),
        (["train", "--set", "hue=1"], "Experiment takes loss, loss_args"),
        (
            ["train", "--recipe", "nope"],
            "no recipe 'nope': there are grocery64, photos_features, photos_grocery_lite0",
        ),
        (["train", "--recipe", "see_cub_vit_s", "--root", "nowhere"], "`dmlkit data get cub"),
        (["train", "--data", "omniglot", "--root", "nowhere"], "images_background_small1.zip"),
        (["data", "check", "omniglot", "--root", "nowhere"], "images_background_small1.zip"),
        (["data", "check", "cub", "--root", "nowhere"], "`dmlkit data get cub --root nowhere`"),
        (["data", "check", "mnist"], "data must be one of glyphs"),
        (["data", "check", "cub", "--set", "size=3"], "data set 'cub' takes validation"),
        (["data", "get", "glyphs"], "name must be one of cub, cars"),
        (
            ["reproduce", "--profile", "nope"],
            "profile must be one of smoke, ci, full, but is 'nope'",
        ),
        (["reproduce", "99"], "no notebook is called '99'"),
        (["reproduce", "00", "--set", "hue=1"], "no parameter 'hue'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_and_ends_with_1(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_seed_below_0_is_refused_by_its_option(invoke):
    result = invoke("train", "--seed", "-1")
    assert result.exit_code == 2
    assert "Invalid value for '--seed'" in result.stderr


def test_settings_may_be_written_as_python_writes_them():
    found = settings.literals(["augment=True", "constraint=None", "compile=false", "metric=cosine"])
    expected = {"augment": True, "constraint": None, "compile": False, "metric": "cosine"}
    assert found == expected


def test_a_warning_is_a_line_without_our_code(commands, tmp_path):
    code = """
import warnings
from dmlkit.cli.app import app

@app.command()
def skip():
    warnings.warn("something was skipped")

app(["skip"])
"""
    done = commands.run(["-c", code], tmp_path, os.environ)
    assert done.stderr == "warning: something was skipped\n"


def test_the_help_says_what_set_sets(invoke):
    for command, what in (
        (["train"], "a field of Experiment"), (["judge"], "an argument of the loss"),
        (["grade"], "a parameter of the notebooks"), (["data", "check"], "an argument of the data"),
    ):  # fmt: skip
        assert what in invoke(*command, "--help").output


def test_python_runs_the_package_as_the_command(commands):
    done = commands.run(["-m", "dmlkit", "claims", "--nope"], ROOT, os.environ)
    assert done.returncode == 2
    assert "Usage: dmlkit claims" in done.stderr


def test_the_commands_are_these(invoke):
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    groups = {group.name for group in app.registered_groups}
    expected = "train final serve export data search"
    expected += " reproduce student slides grade claims site study judge"
    assert commands | groups == set(expected.split())


def test_data_check_counts_the_splits(invoke):
    result = invoke("data", "check", "glyphs")
    assert result.exit_code == 0
    assert "12000" in result.output


def test_data_check_says_what_is_wrong(invoke, tmp_path, monkeypatch):
    root = trees.cub(tmp_path / "cub")
    result = invoke("data", "check", "cub", "--root", str(tmp_path))
    assert result.exit_code == 1
    assert "cub train: expected 5864 images of 100 classes, found 9 images of 3" in result.stderr
    counts = {"train": benchmarks.Count(9, 3), "test": benchmarks.Count(6, 2)}
    small = benchmarks.BENCHMARKS["cub"]._replace(published=counts)
    monkeypatch.setitem(benchmarks.BENCHMARKS, "cub", small)
    bad = trees.truncate(next((root / "images").rglob("*_2.jpg")))
    result = invoke("data", "check", "cub", "--root", str(tmp_path))
    assert result.exit_code == 1
    assert f"{bad} cannot be read" in result.stderr


def test_data_check_of_a_folder(invoke, tmp_path):
    def check(root):
        trees.classes(root)
        bad = trees.truncate(root / "ant" / "0.png") if root.name == "bad" else None
        asked = ("data", "check", "folder", "--root", str(root), "--set", "validation=true")
        return invoke(*asked), bad

    result, _ = check(tmp_path / "good")
    assert result.exit_code == 0, result.output
    rows = re.findall(r"(train|test|val)\D+(\d+)\D+(\d+)", result.output)
    assert rows == [("train", "4", "1"), ("val", "4", "1"), ("test", "8", "2")]
    result, bad = check(tmp_path / "bad")
    assert result.exit_code == 1
    assert str(bad) in result.output


def test_data_get_fetches_and_checks_or_says_what_to_do(invoke, tmp_path, monkeypatch):
    result = invoke("data", "get", "sop", "--root", str(tmp_path))
    assert result.exit_code == 1
    assert "Take Stanford_Online_Products.zip (MD5 7f73d41a2f44250d4779881525aea32e)" in (
        result.stderr
    )
    asked = []
    monkeypatch.setattr(benchmarks, "get", lambda *args: asked.append(args))
    counts = {"train": benchmarks.Count(9, 3), "test": benchmarks.Count(6, 2)}
    small = benchmarks.BENCHMARKS["cub"]._replace(published=counts)
    monkeypatch.setitem(benchmarks.BENCHMARKS, "cub", small)
    trees.cub(tmp_path / "cub")
    result = invoke("data", "get", "cub", "--root", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert asked == [("cub", tmp_path)]
    assert "test" in result.output


@pytest.mark.filterwarnings(
    "ignore:1 .ant. in .* both train and test:UserWarning", "ignore:identical files:UserWarning"
)
@pytest.mark.parametrize(
    "folders, title",
    [
        (
            {"": "ant bee cat dog"},
            "folder, test classes, never seen in training, near copies counted (%)",
        ),
        (
            {"train": "ant bee", "test": "cat dog"},
            "test classes, never seen in training, near copies counted (%)",
        ),
        ({"train": "ant bee", "test": "ant dog"}, "folder, test classes, near copies counted (%)"),
    ],
)
def test_train_on_a_folder_of_pictures(invoke, tmp_path, folders, title):
    for part, names in folders.items():
        trees.classes(tmp_path / "pictures" / part, names)
    result = invoke(
        *("train", "--data", "folder", "--steps", "2", "--device", "cpu"),
        *("--set", 'data_args={"crop": 16, "resize": 16}'),
        *("--set", 'sampler_args={"classes": 2, "per_class": 2}'),
        *("--set", 'model_args={"widths": [4, 8]}', "--root", str(tmp_path / "pictures")),
    )
    assert result.exit_code == 0, result.output
    assert "untrained network" in result.output
    assert title in result.output


def test_batches_fit_to_the_classes_of_a_folder(invoke, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / "empty"))
    trees.classes(tmp_path / "few")
    small = ("--set", 'data_args={"crop": 16, "resize": 16}', "--steps", "2", "--device", "cpu")
    small += ("--set", 'model_args={"widths": [4, 8]}')
    result = invoke("train", "--data", "folder", *small)
    assert result.exit_code == 1
    assert "to hold one folder per class, with pictures" in result.stderr
    assert "--root FOLDER" in result.stderr
    result = invoke("train", "--data", "folder", "--root", str(tmp_path / "few"), *small)
    assert result.exit_code == 0, result.output
    assert "batches of 2 classes instead of 32: folder has no more to train on" in result.output
    trees.truncate(trees.classes(tmp_path / "bad") / "ant" / "0.png")
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    result = invoke("train", "--data", "folder", "--root", str(tmp_path / "bad"), *small)
    assert result.exit_code == 1
    assert "1 of 16 pictures is unreadable" in result.stderr


def test_a_warning_of_every_split_is_printed_once(commands, tmp_path):
    root = trees.classes(tmp_path / "pictures", "ant bee Ant")
    command = ["-m", "dmlkit", "data", "check", "folder", "--root", str(root)]
    done = commands.run(command, tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("hyphens alone: 1 (Ant and ant)") == 1


@pytest.mark.filterwarnings("ignore:1 of 16 pictures is unreadable")
def test_neither_a_black_picture_nor_a_bad_file_ends_a_training(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    root = trees.classes(tmp_path / "pictures")
    for name in ("ant", "bee", "cat", "dog"):
        Image.new("RGB", (9, 9)).save(root / name / "1.png")
    trees.truncate(root / "dog" / "0.png")
    with (
        pytest.warns(UserWarning, match=r"nothing but zeros is left: 2 of [78], as .*1\.png"),
        pytest.warns(UserWarning, match="identical files in .* in two classes"),
    ):
        result = invoke(
            *("train", "--data", "folder", "--root", str(root), "--unreadable", "skip"),
            *("--set", 'data_args={"crop": 16, "resize": 16}', "--steps", "2", "--device", "cpu"),
            *("--set", "model=convnet"),
        )
    assert result.exit_code == 0, result.output
    assert "near copies" in result.output
    assert "Training" in result.output


def test_train_on_features_and_on_a_list(invoke, tmp_path):
    x = np.random.default_rng(0).normal(size=(24, 9))
    x[::4] = 0
    labels = np.repeat([f"c{k}" for k in range(6)], 4)
    np.savez(tmp_path / "mine.npz", features=x, labels=labels)
    with pytest.warns(UserWarning, match="nothing but zeros is left: 3 of 12, as row"):
        result = invoke(
            *("train", "--data", "features", "--root", str(tmp_path / "mine.npz")),
            *("--device", "cpu", "--steps", "2", "--set", "data_args.class_split=1"),
        )
    assert result.exit_code == 0, result.output
    assert "untouched features" in result.output
    assert "random head" in result.output
    root = trees.classes(tmp_path / "pictures")
    lines = [f"{path.relative_to(root)},{path.parent.name}" for path in root.rglob("*.png")]
    (root / "list.csv").write_text("\n".join(["path,label", *lines]))
    result = invoke(
        *("train", "--data", "list", "--root", str(root / "list.csv"), "--set", "model=convnet"),
        *("--set", 'data_args={"crop": 16, "resize": 16}', "--steps", "2", "--device", "cpu"),
    )
    assert result.exit_code == 0, result.output
    assert "list, test classes, never seen in training" in result.output


def test_what_differs_from_the_start_is_named_and_nothing_is_left_behind(invoke, tmp_path):
    assert invoke("train", *TINY).exit_code == 0
    (start,) = (tmp_path / "of [/b] runs").glob("*/")
    result = invoke("train", *TINY, "--start", str(start), "--steps", "4", "--set", "lr=0.1")
    assert result.exit_code == 1
    told = f"lr was 0.005 there, and is 0.1: set it as in {start.name}, or leave the start out"
    assert told in result.stderr
    assert not list((tmp_path / "of [/b] runs").glob("*.checkpoint"))


def test_names_are_printed_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "console", Console(markup=False, emoji=False))
    terminal.print_table("of :apple: [b]", ["a"], [[":apple:/[b].png"]])
    shown = capsys.readouterr().out
    assert "of :apple: [b]" in shown
    assert ":apple:/[b].png" in shown


def test_claims_prints_the_ledger_whole_in_80_columns(invoke):
    found = claims.ledger()
    shown = invoke("claims", columns=80).output
    assert ledger.tally(found) in " ".join(shown.split())
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line.split()[0] for line in shown.splitlines() if re.match(r"[ABC]\d", line)]
    assert rows == list(found["claim"])


def test_claims_are_written_between_the_marks_of_a_file(invoke, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- claims -->\nold\n<!-- /claims -->\nafter\n")
    for _ in range(2):  # the second time changes nothing
        assert invoke("claims", "--write", str(page)).exit_code == 0
        table = ledger.markdown(claims.ledger())
        expected = f"before\n<!-- claims -->\n{table}\n<!-- /claims -->\nafter\n"
        assert page.read_text() == expected
    page.write_text("no marks")
    result = invoke("claims", "--write", str(page))
    assert result.exit_code == 1
    assert "needs a line <!-- claims -->" in result.output
    assert page.read_text() == "no marks"


def test_student_copies_have_no_solutions_and_are_notebooks_that_find_the_figures(
    invoke, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = invoke("student")
    assert result.exit_code == 0
    folder = tmp_path / "student" / "notebooks"
    copies = sorted(folder.glob("[0-9]*.ipynb"))
    assert copies
    assert {"index.ipynb", "glossary.ipynb"} <= {path.name for path in folder.iterdir()}
    for path in copies:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not [cell for cell in notebook.cells if cell.get("outputs")]
        text = json.dumps(json.loads(path.read_text()))
        assert "SOLUTION" not in text
        stubs = [cell for cell in notebook.cells if "your turn" in cell.source]
        assert len(stubs) >= 2
        for stub in stubs:
            assert not stub.metadata.get("jupyter", {}).get("source_hidden"), stub.source
            assert "hide-input" not in stub.metadata.get("tags", []), stub.source
        targets = re.findall(r"\]\(((?:\.\./|\w+\.ipynb)[^)#]*)\)", text)
        assert targets
        assert not [name for name in targets if not (path.parent / name).exists()]
        read = re.findall(r"ROOT / \\?\"([\w./]+)", text)  # of the published data
        assert not [name for name in read if not (tmp_path / "student" / name).exists()]


def test_a_student_s_folder_is_a_project_to_an_installed_package(invoke, tmp_path, commands):
    """Without the checkout, what notebooks read by dmlkit.ROOT is found beside them."""
    assert invoke("student", str(tmp_path / "student")).exit_code == 0
    shutil.copytree(ROOT / "dmlkit", tmp_path / "site" / "dmlkit")
    code = "import dmlkit; print(dmlkit.ROOT)"
    done = commands.run(
        ["-c", code],
        tmp_path / "student" / "notebooks",
        os.environ | {"PYTHONPATH": str(tmp_path / "site")},
    )
    assert done.stdout.split() == [str(tmp_path / "student")], done.stderr


def test_student_does_not_write_into_the_project(invoke, tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", tmp_path / "notebooks")
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    result = invoke("student", str(tmp_path))
    assert result.exit_code == 1
    assert "is the project itself" in result.stderr
