"""From a folder of one's own to a search that answers: each printed command runs as it is."""

import json
import os
import re
import shlex

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dmlkit import openset, search
from dmlkit.cli import practice, terminal
from dmlkit.cli.app import app
from tests.data import trees

CLASSES = 44
SMALL = [
    *("--steps", "3", "--device", "cpu", "--set", "model=convnet"),
    *("--set", 'data_args={"crop": 16, "resize": 16}', "--set", 'model_args={"widths": [4, 8]}'),
    *("--set", 'sampler_args={"classes": 4, "per_class": 2}', "--set", "dim=8"),
]


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(terminal, "console", Console(markup=False, width=200))
    return lambda *args: CliRunner().invoke(app, [*map(str, args)], env={"COLUMNS": "200"})


def printed(result):
    """The commands after "next:", as a shell would split them."""
    assert result.exit_code == 0, result.output
    lines = re.findall(r"^  (dmlkit .+)$", result.output.partition("next:")[2], re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]


@pytest.fixture
def photographs(tmp_path):
    """Of a folder whose name wants quotes."""
    names = " ".join(f"p{k:02d}" for k in range(CLASSES))
    return trees.classes(tmp_path / "my photographs", names, each=8)


@pytest.mark.timeout(600)
def test_each_command_that_is_printed_runs(invoke, photographs, tmp_path, monkeypatch):
    trained = invoke("train", "--data", "folder", "--root", photographs, *SMALL)
    assert "No visits are told" in trained.output
    assert "Expect less than this" in trained.output
    assert re.search(r"~2000\D+\d+\D+\d+\D+\d+", trained.output)
    assert "never seen in training, near copies counted (%)" in trained.output
    assert re.search(r"Recall@1 without near copies, the mean of \d+ classes", trained.output)
    lesson, final = printed(trained)
    assert lesson[:2] == ["reproduce", "26"]
    asked = invoke(*lesson, "--profile", "smoke", "--build", tmp_path / "build")
    assert asked.exit_code == 0, asked.output
    record = tmp_path / "build" / "smoke" / "26_search_and_deploy" / "figures" / "26_sweep.json"
    found = json.loads(next((tmp_path / "build").rglob(record.name)).read_text())["numbers"]
    assert any(name.startswith("fine-tuned, ") for name in found["at one in ten"])
    done = invoke(*final, "--device", "cpu")
    assert "on validation classes" in done.output
    assert "what to expect" not in done.output  # `train` says it, by other pictures apart
    assert "on 35 classes (20 % stay apart, to choose a threshold)" in done.output
    look, serve = printed(done)
    seen = invoke(*look)
    assert seen.exit_code == 0, seen.output
    assert len(re.findall(r"/\d\.png\W", seen.output)) == 5
    assert look[1] not in seen.output  # it is in the catalog, and finds others
    asked = []
    service = pytest.importorskip("dmlkit.service", reason="needs starlette and uvicorn")

    def server(catalog):
        picture = sorted(photographs.rglob("*.png"))[3].read_bytes()
        asked.append((catalog.health(), catalog.answer(picture)))
        return type("Server", (), {"run": lambda self, sockets: None})()

    monkeypatch.setattr(service, "server", server)
    half = invoke("serve", *final[1:], "--port", "0")
    assert "only products that did not train are searched" in half.output
    asked.clear()
    served = invoke(*serve, "--port", "0")
    assert served.exit_code == 0, served.output
    assert "only products" not in served.output
    assert "chosen by 72 strangers of 9 products" in served.output
    assert "These products were trained on" not in served.output
    assert re.search(r"known products: \d+ % are answered right, by \d+ of the", served.output)
    ((health, answer),) = asked
    assert (health["products"], health["pictures"]) == (CLASSES, 8 * CLASSES)
    assert answer["nearest"][0]["product"] == "p00"


def test_what_comes_after_features(invoke, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat([f"c{k:02d}" for k in range(16)], 6)
    x = np.repeat(rng.normal(size=(16, 12)), 6, axis=0) + 0.7 * rng.normal(size=(96, 12))
    visits = np.tile(["a", "a", "a", "b", "b", "b"], 16)
    split = np.where(np.arange(96) < 48, "train", "test")
    where = tmp_path / "mine.npz"
    paths = np.array([f"{label}/{i}.jpg" for i, label in enumerate(labels)])
    np.savez(where, features=x, labels=labels, visits=visits, split=split, paths=paths)
    trained = invoke(
        *("train", "--data", "features", "--root", where, "--steps", 20, "--device", "cpu"),
        *("--set", 'sampler_args={"classes": 4, "per_class": 2}'),
    )
    assert "untouched features" in trained.output
    assert not re.search("near copies counted|without near copies", trained.output)
    assert "No visits are told" not in trained.output
    *_, final = printed(trained)
    done = invoke(*final, "--device", "cpu", "--steps", 20)
    assert "on 16 classes: Run" in done.output  # those of the file's own test, too; none apart
    serve, export = printed(done)
    assert serve[0] == "serve"
    onnx = pytest.importorskip("onnxruntime", reason="needs onnx")
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    file = tmp_path / export[-1]
    assert invoke(*export[:-1], file).exit_code == 0
    run = search.find_run(export[1])
    session = onnx.InferenceSession(file.read_bytes())
    for rows in (x[:5], x[:1]):
        (z,) = session.run(None, {"pixels": rows.astype("f")[:, :, None, None]})
        np.testing.assert_allclose(z, run.embeddings[: len(rows)], atol=1e-4)
    x[7].astype("<f4").tofile(tmp_path / "query.bin")
    look = invoke("search", tmp_path / "query.bin", "--run", export[1], "--root", where)
    assert look.exit_code == 0, look.output
    assert re.search(r"1\.000\W+c01\W+c01/7\.jpg", look.output)


def test_steps_stay_unless_others_are_better_beyond_luck(invoke, photographs, monkeypatch):
    """By a training whose embeddings are made up: of 6 steps they are the classes, else noise."""
    trained = invoke("train", "--data", "folder", "--root", photographs, *SMALL)
    run = search.find_run(re.findall(r"^Run (\S+),", trained.output, re.MULTILINE)[0])
    monkeypatch.setenv("DMLKIT_DATA", str(photographs))
    real = practice.training.run

    def made_up(good):
        def run(experiment, **how):
            done = real(experiment, **how)
            noise = np.random.default_rng(experiment.steps).normal(size=(len(done.labels), 99))
            x = np.eye(99)[done.labels] + (0.01 if experiment.steps in good else 30) * noise
            object.__setattr__(done, "embeddings", x.astype(np.float32))
            return done

        return run

    for good, steps in (({6}, 6), ({1}, 1), ({3, 6}, 3), (set(), 3)):
        monkeypatch.setattr(practice.training, "run", made_up(good))
        found, share, rows = practice.chosen(run, "cpu")
        assert (found, share) == (steps, 1.0)
        assert [row[0] for row in rows] == ["3", "1", "6"]


def test_expectations_without_visits_are_of_pictures_apart():
    from dmlkit import data, diagnosis

    images = data.load("glyphs", "test", test_classes=20, test_per_class=8)
    x = images.images.flatten(1).numpy().astype(np.float32)
    x[1] = x[0]  # a burst of two
    apart, word = practice.unlinked(images, x)
    assert "Expect less" in word
    found = practice.expectation(apart, x, "cosine")
    np.testing.assert_array_equal(apart.queries, diagnosis.apart(images, x).queries)
    assert practice.unlinked(apart, x) == (apart, "")
    one = images.labels < 0  # a class of two pictures, twice
    one[[0, 1, 8, 9]] = True
    few = data.ImageSet(
        images.images[one], images.labels[one] // images.labels[8], images.groups[one], ("a", "b")
    )
    same, why = practice.unlinked(few, x[one])
    assert same is few
    assert "near copies count" in why
    with pytest.raises(ValueError, match="near copies are all"):
        practice.expectation(same, x[one], "cosine")
    assert apart.queries[0] == apart.queries[1]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for label in range(20):
        rows = np.flatnonzero(images.labels == label)
        s = unit[rows] @ unit[rows].T - 2 * np.eye(len(rows))
        assert (apart.queries[rows[s.argmax(axis=1)]] == apart.queries[rows]).all()
    met = openset.meet(**apart.retrieval_sets(x))
    assert found.recall_at_1[found.products == 20].item() == pytest.approx(
        met.weights @ (met.own > met.stranger)
    )
    assert os.linesep not in word
