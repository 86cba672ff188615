"""``dmlkit search``: a Run, a folder of pictures, an index that knows when it is out of date."""

import itertools
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from dmlkit import data, retrieval, search, terminal, training
from dmlkit.cli import app
from dmlkit.index import Index
from dmlkit.training import Experiment
from tests.data import trees
from tests.training.tiny import TINY

PICTURES = {"crop": 16, "resize": 18}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of pictures, and two Runs of it in a cache of this module's own."""
    return tmp_path_factory.mktemp("search")


@pytest.fixture(autouse=True)
def _cache(place, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(place / "cache"))
    monkeypatch.setattr(
        terminal, "console", Console(markup=False, width=300)
    )  # so that no path is broken


@pytest.fixture(scope="module")
def runs(place):
    folder = trees.classes(place / "pictures", each=6)
    made = []
    for seed in range(2):
        experiment = Experiment(
            data="folder",
            data_args={"root": str(folder), "test_share": 0.5, **PICTURES},
            model_args={"widths": [4, 8]},
            sampler_args={"classes": 2, "per_class": 2},
            dim=8,
            steps=2,
            seed=seed,
        )
        store = place / "cache" / "runs"
        made.append(training.run(experiment, store=store, device="cpu", progress=False))
    return made


@pytest.fixture
def pictures(place, runs):
    return place / "pictures"


def invoke(*args):
    return CliRunner().invoke(app, ["search", *map(str, args)], env={"COLUMNS": "300"})


def test_a_picture_of_the_folder_finds_itself_and_its_class(runs, pictures, tmp_path):
    image = pictures / "bee" / "3.png"
    common = ("--run", runs[0].path.name, "--pictures", pictures, "--device", "cpu")
    first = invoke(image, *common, "--count", 3, "--panel", tmp_path / "found.png")
    assert first.exit_code == 0, first.output
    top = next(line for line in first.output.splitlines() if "bee" in line)
    assert "1.000" in top
    assert str(image) in top
    assert "flat index of 24 pictures, built, kept in" in first.output
    with Image.open(tmp_path / "found.png") as shown:
        assert shown.format == "PNG"
    assert "loaded from" in invoke(image, *common).output


def test_what_is_found_is_what_the_model_says(runs, pictures, tmp_path):
    """The same by hand: the Run's own model, pictures and exact search."""
    run, image = runs[0], pictures / "ant" / "0.png"
    gallery = search.gallery(run, pictures)
    index, built = search.index(run, gallery, tmp_path / "my.index", device="cpu")
    found = search.nearest(run, gallery, index, image, k=4, device="cpu")
    paths = sorted(pictures.rglob("*.png"))
    seen = data.pictures.Pictures(paths, **PICTURES)
    with torch.inference_mode():
        x = run.model()(training.to_float(seen[:])).numpy()
    query = x[[paths.index(image)]]
    expected, cosines = retrieval.nearest_neighbors(query, 4, x, "cosine")
    assert built
    assert found["picture"].tolist() == [str(paths[i]) for i in expected[0]]
    assert found["class"].tolist() == [paths[i].parent.name for i in expected[0]]
    np.testing.assert_allclose(found["cosine"], cosines[0], atol=1e-5)


def test_the_index_follows_the_pictures(runs, pictures, tmp_path):
    folder, path = tmp_path / "copy", tmp_path / "my.index"
    for name in ("ant/0.png", "ant/1.png", "bee/0.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((pictures / name).read_bytes())

    def size():
        index, built = search.index(runs[0], search.gallery(runs[0], folder), path, device="cpu")
        return len(index), built

    assert [size(), size()] == [(3, True), (3, False)]
    trees.picture(folder / "bee" / "1.png", seed=5)
    assert [size(), size()] == [(4, True), (4, False)]
    (folder / "ant" / "1.png").unlink()
    assert [size(), size()] == [(3, True), (3, False)]
    os.utime(folder / "ant" / "0.png", ns=(1, 1))  # another content of the same length, say
    assert [size(), size()] == [(3, True), (3, False)]


def test_an_index_without_a_stamp_or_of_fewer_pictures_is_built_anew(runs, pictures, tmp_path):
    run, path = runs[0], tmp_path / "my.index"
    gallery = search.gallery(run, pictures)
    x = np.random.default_rng(0).normal(size=(len(gallery.names), run.experiment.dim))
    for count, facts in ((24, {}), (23, {"stamp": gallery.stamp})):
        Index.build(x[:count], facts={"run": run.path.name} | facts).save(path)
        index, built = search.index(run, gallery, path, device="cpu")
        assert (len(index), built) == (24, True)


def test_the_index_of_another_run_is_refused(runs, pictures, tmp_path):
    arguments = (pictures / "ant" / "0.png", "--pictures", pictures, "--device", "cpu")
    arguments += ("--index", tmp_path / "my.index")
    assert invoke(*arguments, "--run", runs[0].path).exit_code == 0
    before = (tmp_path / "my.index").read_bytes()
    result = invoke(*arguments, "--run", runs[1].path)
    assert result.exit_code == 1
    assert f"an index of Run {runs[0].path.name}, not of {runs[1].path.name}" in result.stderr
    assert "Traceback" not in result.output
    assert (tmp_path / "my.index").read_bytes() == before


def test_another_kind_is_built_anew_and_says_how_exact_it_is(runs, pictures, tmp_path):
    arguments = (pictures / "ant" / "0.png", "--pictures", pictures, "--device", "cpu")
    arguments += ("--run", runs[0].path, "--index", tmp_path / "my.index")
    assert "exact" not in invoke(*arguments).output
    for how in ("built, kept in", "loaded from"):
        result = invoke(*arguments, "--index-type", "hnsw")
        assert f"hnsw index of 24 pictures, {how}" in result.output
        assert "it finds 100.0% of the exact 10 nearest" in result.output  # 24 fit into its view
    result = invoke(*arguments, "--index-type", "ivfpq")
    assert result.exit_code == 1
    assert "cannot be learned from 24 embeddings" in result.stderr
    assert Index.load(tmp_path / "my.index").kind == "hnsw"


def test_without_a_folder_the_runs_own_split_is_searched(runs, pictures):
    result = invoke(pictures / "ant" / "0.png", "--run", runs[0].path, "--device", "cpu")
    assert "flat index of 12 pictures" in result.output, result.output
    gallery = search.gallery(runs[0], split="train")
    assert len(gallery.names) == 12
    assert not set(gallery.names) & set(search.gallery(runs[0]).names)


def test_a_run_of_grey_characters_reads_ink_on_paper(place, tmp_path, monkeypatch):
    """A drawing of the split itself, as a file with white paper, finds itself."""
    monkeypatch.delenv("DMLKIT_CACHE")  # Glyphs from the shared cache
    experiment = Experiment(
        data_args=TINY.data_args,
        sampler_args={"classes": 8, "per_class": 2},
        steps=2,
    )
    run = training.run(experiment, store=tmp_path / "runs", device="cpu", progress=False)
    gallery = search.gallery(run)
    index, _ = search.index(run, gallery, tmp_path / "my.index", device="cpu")
    drawn = gallery.images[7][0].numpy()
    for name, pixels in (("ink.png", 255 - drawn), ("light.png", drawn)):
        Image.fromarray(pixels).save(tmp_path / name)
        found = search.nearest(run, gallery, index, tmp_path / name, k=2, device="cpu")
        assert found["place"][0] == 7
        assert found["cosine"][0] == pytest.approx(1, abs=1e-5)
        assert found["picture"][0] == "test 7"
    assert len(search.gallery(run, tmp_path).names) == 2  # gray files in a folder


def test_pictures_that_were_moved_are_found_where_they_are_now(
    runs, pictures, tmp_path, monkeypatch
):
    e = runs[0].experiment
    gone = replace(e, data_args=dict(e.data_args) | {"root": str(tmp_path / "gone")})
    run = replace(runs[0], experiment=gone)
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="not where they were: say by --root"):
        search.gallery(run)
    monkeypatch.setenv("DMLKIT_DATA", str(pictures))
    assert search.gallery(run).names == search.gallery(runs[0]).names


def test_the_pictures_are_looked_for_where_the_run_was_trained_on_them(tmp_path, monkeypatch):
    """Also when $DMLKIT_DATA is another folder by then; what --root says counts more."""
    here, there = trees.classes(tmp_path / "here", each=6), tmp_path / "there"
    for name, value in (("DMLKIT_CACHE", tmp_path / "cache"), ("DMLKIT_DATA", tmp_path)):
        monkeypatch.setenv(name, str(value))
    arguments = [
        "train",
        "--data",
        "folder",
        "--steps",
        "2",
        "--device",
        "cpu",
        "--root",
        str(here),
    ]
    for setting in (
        {"data_args": PICTURES}, {"model_args": {"widths": [4, 8]}}, {"dim": 8},
        {"sampler_args": {"classes": 2, "per_class": 2}},
    ):  # fmt: skip
        arguments += [f"--set={name}={json.dumps(value)}" for name, value in setting.items()]
    trained = CliRunner().invoke(app, arguments)
    assert trained.exit_code == 0, trained.output
    (run,) = (tmp_path / "cache" / "runs").glob("*/run.json")
    image = next(here.rglob("*.png"))

    def asked(*more: object) -> str:
        monkeypatch.setenv("DMLKIT_DATA", str(tmp_path))
        result = invoke(image, "--run", run.parent, "--device", "cpu", *more)
        assert result.exit_code == 0, result.output
        return result.output

    assert str(here / "") in asked()
    shutil.copytree(here, there)
    assert f"{there}/" in asked("--root", there)


def test_every_unreadable_picture_among_many_is_named(runs, tmp_path):
    folder = trees.classes(tmp_path / "of [/b] pictures")
    bad = [trees.truncate(folder / name / "1.png") for name in ("ant", "bee")]
    found = invoke(folder / "ant" / "0.png", "--run", runs[0].path, "--pictures", folder)
    assert found.exit_code == 1
    assert "2 pictures are unreadable" in found.stderr
    assert all(str(path) in found.stderr for path in bad)
    for path in bad:
        path.unlink()
    found = invoke(folder / "ant" / "0.png", "--run", runs[0].path, "--pictures", folder)
    assert found.exit_code == 0, found.output
    assert f"{folder}/ant/0.png" in found.output


def test_a_long_title_of_a_panel_is_within_the_picture(runs, pictures, tmp_path):
    heights = []
    for name in ("ant", "ant of the genus Lasius that lives below stones in the garden"):
        folder = tmp_path / str(len(name))
        shutil.copytree(pictures / "ant", folder / name)
        png = folder / "found.png"
        asked = (pictures / "ant" / "0.png", "--run", runs[0].path, "--pictures", folder)
        assert invoke(*asked, "--panel", png, "--device", "cpu").exit_code == 0
        with Image.open(png) as shown:
            heights.append(shown.height)
            edge = np.asarray(shown.convert("L"))[0]
        assert edge.min() == 255  # no letter is cut
    assert heights[1] > heights[0] + 30


def test_titles_of_a_panel_are_whole(runs, pictures):
    names = ["Yellow-headed Blackbird of $x^2", "ant"]
    found = pd.DataFrame({"place": [0, 1], "class": names, "cosine": [0.9, -0.5]})
    figure = search.panel(runs[0], search.gallery(runs[0]), pictures / "ant" / "0.png", found)
    figure.canvas.draw()
    (axes,) = figure.axes
    titles = [label.get_text() for label in axes.get_xticklabels()]
    assert titles[0] == "query\n"
    for title, name, value in zip(titles[1:], names, ("0.90", "-0.50"), strict=True):
        assert " ".join(title.replace(r"\$", "$").split()) == f"{name} {value}"
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"--run": "nothing"}, "there is no Run 'nothing'"),
        ({"--run": ""}, "there is no Run ''"),
        ({"--run": "*"}, "there is no Run '*'"),
        ({"--run": "[0-9a-f]*"}, "there is no Run '[0-9a-f]*'"),
        ({"--run": "?" * 25}, "there is no Run '????"),
        ({"--pictures": "nowhere"}, "nowhere is no folder"),
        ({"--pictures": "{empty}"}, "there is no picture"),
        ({"--split": "train"}, "not both"),
        ({"--index-type": "annoy"}, "must be one of flat, ivfpq, hnsw, but is 'annoy'"),
        ({"--device": "tpu"}, "unknown device 'tpu'"),
        ({"image": "missing.png"}, "missing.png cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(runs, pictures, tmp_path, change, message):
    (tmp_path / "empty").mkdir()
    given = {"image": pictures / "ant" / "0.png", "--run": runs[0].path, "--pictures": pictures}
    given |= {"--index": tmp_path / "my.index"}
    given |= {name: value.format(empty=tmp_path / "empty") for name, value in change.items()}
    image = given.pop("image")
    result = invoke(image, *(part for pair in given.items() for part in pair))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
