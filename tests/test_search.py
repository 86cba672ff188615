"""An index against exact search, on disk and back; ``dmlkit search``: a Run, pictures, an index."""

import itertools
import os
import pickle
import shutil

import faiss
import faiss.contrib.torch_utils  # replaces Index.search, wherever a library imports it
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from dmlkit import data, retrieval, search, training
from dmlkit.cli import terminal
from dmlkit.cli.app import app
from dmlkit.retrieval import nearest_neighbors
from dmlkit.search import Index
from dmlkit.training import Experiment
from tests.data import trees
from tests.training.tiny import TINY

KINDS = ("flat", "ivfpq", "hnsw")
SMALL = {"flat": None, "ivfpq": "IVF12,PQ4x5np", "hnsw": "HNSW12,Flat"}
PICTURES = {"crop": 16, "resize": 18}


def clusters(count=1200, d=16, classes=40, seed=0):
    """Classes well apart, as a trained network makes them: float32 (N, d), (N,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    x = 3 * rng.normal(size=(classes, d))[labels] + rng.normal(size=(count, d))
    return x.astype(np.float32), labels


X, LABELS = clusters()
QUERIES, GALLERY = X[:100], X[100:]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 7, len(GALLERY)])
def test_flat_is_exact_search_bit_for_bit(metric, k):
    found = Index.build(GALLERY, "flat", metric).search(QUERIES, k)
    exact = nearest_neighbors(QUERIES, k, GALLERY, metric)
    np.testing.assert_array_equal(found[0], exact[0])
    np.testing.assert_array_equal(found[1], exact[1])


def test_flat_keeps_the_order_of_ties():
    copies = np.repeat(GALLERY[:5], 40, axis=0)[::-1].copy()
    found = Index.build(copies, metric="euclidean").search(GALLERY[:5], 60)
    exact = nearest_neighbors(GALLERY[:5], 60, copies)
    np.testing.assert_array_equal(found[0], exact[0])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_ivfpq_with_every_cell_and_nothing_rounded_off_is_exact(metric):
    """64 points, 64 centroids for each part: every embedding is its own centroid."""
    x = GALLERY[:64]
    index = Index.build(x, "ivfpq", metric, factory="IVF1,PQ2x6np")
    indices, found = index.search(QUERIES, 64)
    exact, values = nearest_neighbors(QUERIES, 64, x, metric)
    np.testing.assert_array_equal(indices[:, :10], exact[:, :10])
    np.testing.assert_allclose(found, values, rtol=1e-3, atol=1e-4)


def test_hnsw_that_keeps_everything_in_view_is_exact():
    found, _ = Index.build(GALLERY, "hnsw").search(QUERIES, 10, breadth=len(GALLERY))
    np.testing.assert_array_equal(found, nearest_neighbors(QUERIES, 10, GALLERY, "cosine")[0])


def test_ivfpq_finds_the_class_and_most_of_the_neighbors_when_codes_are_long():
    """Classes are 3·√(2·16) = 17 apart and √16 = 4 wide: far beyond the error of a 16 × 5-bit code,
    so the nearest item has the query's class; which item of it is the nearest is another matter."""
    index = Index.build(GALLERY, "ivfpq", "euclidean", factory="IVF12,PQ16x5np")
    places, _ = index.search(QUERIES, 1, breadth=12)
    assert (LABELS[100:][places[:, 0]] == LABELS[:100]).mean() > 0.95
    fine = index.recall(QUERIES, GALLERY)
    coarse = Index.build(GALLERY, "ivfpq", "euclidean", factory="IVF12,PQ1x5np")
    assert fine > coarse.recall(QUERIES, GALLERY)
    assert fine > 0.5  # ten by lot out of a class of 30, itself told apart, would give a third


@pytest.mark.parametrize("kind, factory", [("ivfpq", "IVF20,PQ16x8np"), ("hnsw", "HNSW4,Flat")])
def test_a_broader_search_never_finds_less(kind, factory):
    x = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)  # no classes: harder
    index = Index.build(x, kind, "euclidean", factory)
    exact = nearest_neighbors(x[::10], 10, x)[0]
    found = [index.search(x[::10], 10, breadth)[0] for breadth in (1, 5, 20)]
    little, more, much = ((f[:, :, None] == exact[:, None]).any(1).mean() for f in found)
    assert little < more <= much + 0.02


def test_recall_counts_the_exact_neighbors_that_were_found():
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    index = Index.build(np.array([[0.0], [1.0], [10.0], [2.0]]), metric="euclidean")
    # Of 0.1: exact 0, 1, 2; but in the index the item 3 is where 2 should be, and the other way.
    assert index.recall(np.array([[0.1]]), x, k=3) == pytest.approx(2 / 3)


def test_recall_of_queries_that_are_in_the_gallery():
    """The index has 10 in the place of 1: of 0 in the first place it finds 2, of 10 it finds 2."""
    x = np.array([[0.0], [1.0], [2.0], [10.0]])
    index = Index.build(np.array([[0.0], [10.0], [2.0], [1.0]]), metric="euclidean")
    assert index.recall(x[[0, 3]], x, k=2, own=[0, -1]) == 0.5
    with pytest.raises(ValueError, match="gallery: these are the queries"):
        index.recall(x, x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_index_whatever_the_threads(kind):
    contents = []
    before = faiss.omp_get_max_threads()
    try:
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            index = Index.build(GALLERY, kind, factory=SMALL[kind], seed=3)
            assert faiss.omp_get_max_threads() == threads
            contents.append(faiss.serialize_index(index.faiss))
    finally:
        faiss.omp_set_num_threads(before)
    np.testing.assert_array_equal(*contents)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_answers_the_same(kind, tmp_path):
    index = Index.build(GALLERY, kind, factory=SMALL[kind])
    index.run, index.items = "a", [("é", "b", "c")]
    index.remove(np.array([3]))
    path = tmp_path / "deep" / "my.index"
    index.save(str(path))
    index.save(path)  # over an old one
    loaded = Index.load(str(path))
    for name in ("kind", "metric", "run", "items", "removed"):
        assert getattr(loaded, name) == getattr(index, name)
    assert len(loaded) == len(index) == len(GALLERY) - 1
    for mine, theirs in zip(index.search(QUERIES, 5), loaded.search(QUERIES, 5), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [file.name for file in path.parent.iterdir()] == ["my.index"]


@pytest.mark.parametrize(
    "write",
    [
        lambda file: file.write(pickle.dumps(print)),
        lambda file: np.save(file, QUERIES),
        lambda file: np.savez(file, about=np.array(print)),
        lambda file: np.savez(file, about="{}", index=QUERIES),
        lambda file: None,
    ],
    ids=["a pickle", "an array", "an object", "another table", "empty"],
)
def test_what_is_no_index_is_refused_without_bad_advice(write, tmp_path):
    with (tmp_path / "my.index").open("wb") as file:
        write(file)
    with pytest.raises(ValueError, match=r"my\.index is not as Index\.save writes it") as caught:
        Index.load(tmp_path / "my.index")
    assert "unsafely" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(FileNotFoundError):
        Index.load(tmp_path / "nothing")


@pytest.mark.parametrize("kind", KINDS)
def test_numpys_integers_are_numbers(kind):
    index, same = (
        Index.build(GALLERY, kind, factory=SMALL[kind], seed=seed) for seed in (np.int64(3), 3)
    )
    found, expected = index.search(QUERIES, np.int32(5), np.int64(9)), same.search(QUERIES, 5, 9)
    np.testing.assert_array_equal(found, expected)


def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "my.index"

    def broken(file, **arrays):
        file.write(b"half of it")
        raise KeyboardInterrupt

    Index.build(GALLERY[:50]).save(path)
    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(KeyboardInterrupt):
        Index.build(GALLERY).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["my.index"]
    assert len(Index.load(path)) == 50


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_added_is_found_and_what_is_removed_is_not(kind):
    index = Index.build(GALLERY, kind, "euclidean", SMALL[kind])
    index.add(QUERIES)
    if kind == "ivfpq":  # whose codes are coarse
        places = index.search(QUERIES, 50, breadth=12)[0]
        assert (places == len(GALLERY) + np.arange(100)[:, None]).any(1).mean() > 0.9
    else:
        assert (index.search(QUERIES, 1)[0][:, 0] == len(GALLERY) + np.arange(100)).all()
    index.remove(range(len(GALLERY), len(GALLERY) + 100))
    assert len(index) == len(GALLERY)
    places, distances = index.search(QUERIES, 5, breadth=2000)
    assert places.max() < len(GALLERY)
    before = Index.build(GALLERY, kind, "euclidean", SMALL[kind]).search(QUERIES, 5, 2000)
    assert (places == before[0]).mean() > 0.95
    if kind == "flat":
        np.testing.assert_array_equal(places, before[0])
        np.testing.assert_array_equal(distances, before[1])


def test_tensors_in_tensors_out():
    index = Index.build(torch.from_numpy(GALLERY))
    indices, cosines = index.search(torch.from_numpy(QUERIES), 3)
    assert isinstance(indices, torch.Tensor)
    assert isinstance(cosines, torch.Tensor)
    np.testing.assert_array_equal(indices, index.search(QUERIES, 3)[0])


COPIES = np.vstack([np.repeat(GALLERY[:1], 600, axis=0), GALLERY[1:]])  # cut others off in hnsw


@pytest.mark.parametrize(
    "kind, factory, rows",
    [("ivfpq", "IVF40,PQ4x5np", GALLERY), ("hnsw", "HNSW4,Flat", COPIES)],
)
def test_a_search_looks_further_until_it_has_k(kind, factory, rows):
    index = Index.build(rows, kind, "euclidean", factory)
    for k in (500, len(rows)):
        places, distances = index.search(QUERIES[:5], k, breadth=1)
        assert all(len(set(row)) == k for row in places.tolist())
        assert places.min() >= 0
        assert np.isfinite(distances).all()
    nearby = index.search(QUERIES, 10, breadth=1)[0]
    assert (nearby != index.search(QUERIES, 10, breadth=2000)[0]).any()  # no further than needed
    index.remove(range(300))
    places, _ = index.search(QUERIES[:5], len(rows) - 300, breadth=1)
    assert (np.sort(places) == np.arange(300, len(rows))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_an_index_is_refused_and_changes_nothing(kind):
    index = Index.build(GALLERY, kind, "euclidean", SMALL[kind])
    index.items = [(str(i),) for i in range(len(GALLERY))]
    index.remove(5)
    for call, message in (
        (lambda: index.search(QUERIES[:, :4], 1), "queries: expected as many columns .* 16, got 4"),
        (lambda: index.add(QUERIES[:, :4]), "embeddings: expected as many columns .* 16, got 4"),
        (lambda: index.add(1e20 * QUERIES), r"between 1e-16 and 1e16, got up to 1e\+21"),
        (lambda: index.add(QUERIES), "items: expected one for each .* got 0 for 100 embeddings"),
        (lambda: index.add(QUERIES[:3], [("a",)]), "items: .* got 1 for 3 embeddings, and 1100"),
        (lambda: index.remove([4, 1100]), "places: expected some of 0 to 1099 .* got 1100"),
        (lambda: index.remove([-1]), "places: .* got -1"),
        (lambda: index.remove([5, 6]), "places: .* not removed yet, got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert (len(index), index.faiss.ntotal, len(index.items)) == (1099, 1100, 1100)
    index.add(QUERIES[:2], [("a",), ("b",)])
    assert index.items[1100:] == [("a",), ("b",)]
    nameless = Index.build(GALLERY[:50])
    with pytest.raises(ValueError, match=r"items: .* got 2 for 2 embeddings, and 0 for the 50"):
        nameless.add(QUERIES[:2], [("a",), ("b",)])


def test_what_cannot_be_is_refused():
    for change in ({"kind": "annoy"}, {"metric": "hamming"}):
        with pytest.raises(ValueError, match="must be one of"):
            Index.build(GALLERY, **change)
    for k in (0, len(GALLERY) + 1):
        with pytest.raises(ValueError, match=f"k: expected 1 to {len(GALLERY)}"):
            Index.build(GALLERY).search(QUERIES, k)


# A Run, and pictures


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


def test_a_picture_of_the_folder_finds_others_and_its_copy(runs, pictures, tmp_path):
    image = tmp_path / "query.png"
    image.write_bytes((pictures / "bee" / "3.png").read_bytes())
    common = ("--run", runs[0].path.name, "--pictures", pictures, "--device", "cpu")
    first = invoke(image, *common, "--count", 3, "--panel", tmp_path / "found.png")
    assert first.exit_code == 0, first.output
    top = next(line for line in first.output.splitlines() if "bee" in line)
    assert "1.000" in top
    assert str(pictures / "bee" / "3.png") in top
    assert "flat index of 24 pictures, 24 of them new, kept in" in first.output
    with Image.open(tmp_path / "found.png") as shown:
        assert shown.format == "PNG"
    own = invoke(pictures / "bee" / "3.png", *common, "--count", 3).output
    assert "24 pictures, 0 of them new" in own
    assert str(pictures / "bee" / "3.png") not in own  # which is asked for
    assert own.count(f"{pictures}/") == 3


def test_what_is_found_is_what_the_model_says(runs, pictures, tmp_path):
    """The same by hand: the Run's own model, pictures and exact search."""
    run, image = runs[0], pictures / "ant" / "0.png"
    gallery = search.gallery(search.find_run(run.path), str(pictures))
    index, new = search.index(run, gallery, str(tmp_path / "my.index"), device="cpu")
    found = search.nearest(run, gallery, index, str(image), k=np.int64(4), device="cpu")
    assert search.panel(run, gallery, str(image), found)
    paths = sorted(pictures.rglob("*.png"))
    seen = data.pictures.Pictures([str(path) for path in paths], **PICTURES)
    assert seen.digest() == data.pictures.Pictures(paths, **PICTURES).digest()
    with torch.inference_mode():
        x = run.model()(training.to_float(seen[:])).numpy()
    query = x[[paths.index(image)]]
    expected, cosines = retrieval.nearest_neighbors(query, 4, x, "cosine")
    assert new == 24
    assert found["picture"].tolist() == [str(paths[i]) for i in expected[0]]
    assert found["class"].tolist() == [paths[i].parent.name for i in expected[0]]
    np.testing.assert_allclose(found["cosine"], cosines[0], atol=1e-5)


def test_the_index_follows_the_pictures(runs, pictures, tmp_path):
    folder, path = tmp_path / "copy", tmp_path / "my.index"
    for name in ("ant/0.png", "ant/1.png", "bee/0.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((pictures / name).read_bytes())

    def sizes():
        for _ in range(2):
            gallery = search.gallery(runs[0], folder)
            index, new = search.index(runs[0], gallery, path, device="cpu")
            found = search.nearest(runs[0], gallery, index, folder / "ant" / "0.png", 9, "cpu")
            assert sorted(found["picture"]) == sorted(name for name, *_ in gallery.items)
            assert found["picture"][0] == str(folder / "ant" / "0.png")
            yield len(index), new

    assert list(sizes()) == [(3, 3), (3, 0)]
    trees.picture(folder / "bee" / "1.png", seed=5)
    assert list(sizes()) == [(4, 1), (4, 0)]
    (folder / "ant" / "1.png").unlink()
    assert list(sizes()) == [(3, 0), (3, 0)]
    os.utime(folder / "ant" / "0.png", ns=(1, 1))  # another content of the same length, say
    assert list(sizes()) == [(3, 1), (3, 0)]


def test_what_cannot_be_read_is_left_out_of_an_index(runs, pictures, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(pictures, folder)
    trees.truncate(folder / "ant" / "0.png")
    arguments = (folder / "ant" / "1.png", "--pictures", folder, "--device", "cpu")
    arguments += ("--run", runs[0].path, "--index", tmp_path / "my.index")
    with pytest.warns(
        UserWarning, match=r"1 of 24 pictures is unreadable: .*ant/0\.png.* left out"
    ):
        result = invoke(*arguments)
    assert "flat index of 23 pictures, 23 of them new" in result.output
    (folder / "bee" / "9.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"2 of 2 pictures are unreadable: .* left out"):
        result = invoke(*arguments)
    assert "flat index of 23 pictures, 0 of them new" in result.output
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.warns(UserWarning, match="25 of 25"):
        assert "of 25 none can be read" in invoke(*arguments[1:], pictures / "ant" / "1.png").stderr


def test_a_folder_is_read_as_training_reads_it(runs, pictures, tmp_path):
    folder = tmp_path / "pictures"
    shutil.copytree(pictures / "ant", folder / "train" / "ant" / "below")
    shutil.copytree(pictures / "cat", folder / "train" / ".cache")
    (folder / "train" / "._0.png").write_bytes(b"what macOS leaves behind")
    (folder / "test").mkdir()
    (folder / "test" / "bee").symlink_to(pictures / "bee")
    trained = [data.load("folder", part, folder, check=False) for part in ("train", "test")]
    expected = [str(path) for images in trained for path in images.images.paths]
    assert len(expected) == 12
    assert [name for name, *_ in search.gallery(runs[0], folder).items] == expected


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


def test_another_kind_is_built_anew(runs, pictures, tmp_path):
    arguments = (pictures / "ant" / "0.png", "--pictures", pictures, "--device", "cpu")
    arguments += ("--run", runs[0].path, "--index", tmp_path / "my.index")
    for kind in ("flat", "hnsw"):
        result = invoke(*arguments, "--index-type", kind)
        assert f"{kind} index of 24 pictures, 24 of them new" in result.output
    result = invoke(*arguments, "--index-type", "ivfpq")
    assert result.exit_code == 1
    assert "Number of training points (24)" in result.stderr
    assert Index.load(tmp_path / "my.index").kind == "hnsw"


def test_without_a_folder_the_runs_own_split_is_searched(runs, pictures):
    result = invoke(pictures / "ant" / "0.png", "--run", runs[0].path, "--device", "cpu")
    assert "flat index of 12 pictures" in result.output, result.output
    gallery = search.gallery(runs[0], split="train")
    assert len(gallery.items) == 12
    assert not set(gallery.items) & set(search.gallery(runs[0]).items)


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
    (tmp_path / "drawn" / "one").mkdir(parents=True)
    for name, pixels in (("ink.png", 255 - drawn), ("light.png", drawn)):
        name = f"drawn/one/{name}"
        Image.fromarray(pixels).save(tmp_path / name)
        found = search.nearest(run, gallery, index, tmp_path / name, k=2, device="cpu")
        assert found["place"][0] == 7
        assert found["cosine"][0] == pytest.approx(1, abs=1e-5)
        assert found["picture"][0] == "test 7"
    assert len(search.gallery(run, tmp_path / "drawn").items) == 2  # gray files in a folder


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
    names = ["Yellow-headed Blackbird of the north", "ant"]
    found = pd.DataFrame({"place": [0, 1], "class": names, "cosine": [0.9, -0.5]})
    figure = search.panel(runs[0], search.gallery(runs[0]), pictures / "ant" / "0.png", found)
    figure.canvas.draw()
    (axes,) = figure.axes
    titles = [label.get_text() for label in axes.get_xticklabels()]
    assert titles[0] == "query\n"
    for title, name, value in zip(titles[1:], names, ("0.90", "-0.50"), strict=True):
        assert " ".join(title.split()) == f"{name} {value}"
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"--run": "nothing"}, "'nothing' is no Run's folder"),
        ({"--run": ""}, "'' is no Run's folder, and begins no single Run's name"),
        ({"--pictures": "nowhere"}, "nowhere"),
        ({"--pictures": "{empty}"}, "to hold one folder per class"),
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
