"""The published sets: small trees in their layouts, and the published files where they are."""

import hashlib
import zipfile

import pytest

from dmlkit import retrieval, training
from dmlkit.data import benchmarks, load
from dmlkit.data.benchmarks import BENCHMARKS, Count
from tests.data import trees

SMALL = {"crop": 16, "resize": 18, "check": False}


@pytest.mark.parametrize("place", ["", "cub", "CUB_200_2011", "cub/CUB_200_2011"])
def test_cub(tmp_path, place):
    trees.cub(tmp_path / place)
    (tmp_path / "images").mkdir(exist_ok=True)  # another set's, perhaps
    train, test = (load("cub", split, tmp_path, **SMALL) for split in ("train", "test"))
    assert train.class_names == tuple(f"{c:03d}.Long_billed_Bird{c}" for c in (1, 2, 100))
    assert test.class_names == tuple(f"{c:03d}.Long_billed_Bird{c}" for c in (101, 200))
    assert list(train.labels) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert list(test.groups) == ["Bird101"] * 3 + ["Bird200"] * 3
    assert train.images.paths[4].name == "A bird_2_1.jpg"
    pixels = train.images[:]  # gray-scale and CMYK among them
    assert pixels.shape == (9, 3, 16, 16)
    assert (pixels[1, 0] == pixels[1, 2]).all()
    assert not (pixels[2, 0] == pixels[2, 2]).all()


@pytest.mark.parametrize("place", ["", "cars", "cars196"])
def test_cars(tmp_path, place):
    folder = trees.cars(tmp_path / place)
    train, test = (load("cars", split, tmp_path, **SMALL) for split in ("train", "test"))
    assert train.class_names == ("Make1 Model 1 2012", "Make98 Model 98 2012")
    assert test.class_names == ("Make99 Model 99 2012", "Make196 Model 196 2012")
    assert list(test.labels) == [0, 0, 1, 1]
    assert set(test.groups) == {"Make99", "Make196"}
    assert test.images.paths[0] == folder / "car_ims" / "000005.jpg"
    assert test.images[:].shape == (4, 3, 16, 16)


@pytest.mark.parametrize("place", ["", "sop", "Stanford_Online_Products"])
def test_sop(tmp_path, place):
    trees.sop(tmp_path / place)
    train, test = (load("sop", split, tmp_path, **SMALL) for split in ("train", "test"))
    assert train.class_names == ("bicycle/1", "chair/2")
    assert test.class_names == ("bicycle/11319", "chair/11320", "bicycle/11321")
    assert list(test.labels) == [0, 0, 1, 1, 2, 2]
    assert list(train.groups) == ["bicycle", "bicycle", "chair", "chair"]
    assert train.images.paths[0].suffix == ".JPG"
    assert test.images[:].shape == (6, 3, 16, 16)


@pytest.mark.parametrize("index", ["Eval", "Anno", ""])
@pytest.mark.parametrize("img", ["img", "Img/img"])
@pytest.mark.parametrize("place", ["", "inshop"])
def test_inshop(tmp_path, index, img, place):
    trees.inshop(tmp_path / place, index, img)
    train, test = (load("inshop", split, tmp_path, **SMALL) for split in ("train", "test"))
    assert train.class_names == ("id_00000002", "id_00000007")
    assert test.class_names == ("id_00000001", "id_00000009")
    assert train.queries is None
    assert list(test.queries) == [True, False, False, False, False, True]
    assert list(test.labels) == [0, 0, 0, 1, 1, 1]
    assert set(test.groups) == {"Blouses Shirts"}
    assert test.images[:].shape == (6, 3, 16, 16)


def test_queries_are_scored_in_their_gallery(tmp_path):
    trees.inshop(tmp_path)
    experiment = training.Experiment(
        data="inshop",
        data_args={"root": str(tmp_path), **SMALL},
        sampler_args={"classes": 2, "per_class": 2},
        model_args={"widths": [4, 8]},
        dim=4,
        steps=2,
        monitor=("test",),
    )
    run = training.run(experiment, store=tmp_path / "runs", device="cpu")
    q = load("inshop", "test", tmp_path, **SMALL).queries
    f, y = run.embeddings, run.labels
    expected = retrieval.evaluate(f[q], y[q], f[~q], y[~q], metric="cosine")
    assert len(f) == 6
    assert run.scores == expected
    assert run.history["test_recall_at_1"].iloc[-1] == expected["recall_at_1"]
    assert "recall_at_1" in training.baselines(experiment)["raw pixels"]


def test_published_validation_divides_the_training_classes(tmp_path):
    trees.cub(tmp_path, (1, 2, 3, 4, 5, 101))
    args = SMALL | {"validation": True}
    whole = load("cub", "train", tmp_path, **SMALL)
    held_out = set()
    for class_split in range(5):
        train, val, test = (
            load("cub", split, tmp_path, class_split=class_split, **args)
            for split in ("train", "val", "test")
        )
        assert (train.num_classes, val.num_classes, test.num_classes) == (3, 2, 1)
        assert sorted(train.class_names + val.class_names) == sorted(whole.class_names)
        assert (len(train), len(val)) == (9, 6)
        held_out.add(val.class_names)
    assert len(held_out) > 1
    with pytest.raises(ValueError, match="val split only with validation=True"):
        load("cub", "val", tmp_path, **SMALL)


MAKE = {"cub": trees.cub, "cars": trees.cars, "sop": trees.sop, "inshop": trees.inshop}
COUNTS = {  # of the small trees
    "cub": (Count(9, 3), Count(6, 2)),
    "cars": (Count(4, 2), Count(4, 2)),
    "sop": (Count(4, 2), Count(6, 3)),
    "inshop": (Count(4, 2), Count(6, 2, queries=2)),
}


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture(params=MAKE)
def small(request, tmp_path, monkeypatch):
    """The name of a set that has just the size of its small tree, and its root."""
    name = request.param
    counts = dict(zip(("train", "test"), COUNTS[name], strict=True))
    MAKE[name](tmp_path)
    known = md5(tmp_path / "cars_annos.mat") if name == "cars" else None
    small = BENCHMARKS[name]._replace(published=counts, index_md5=known)
    monkeypatch.setitem(BENCHMARKS, name, small)
    return name, tmp_path


def test_the_published_counts():
    """As the papers give them; In-Shop's gallery is what its queries leave."""
    sizes = {name: {k: tuple(v) for k, v in b.published.items()} for name, b in BENCHMARKS.items()}
    assert sizes == {
        "cub": {"train": (5864, 100, 0), "test": (11788 - 5864, 100, 0)},
        "cars": {"train": (8054, 98, 0), "test": (16185 - 8054, 98, 0)},
        "sop": {"train": (59551, 11318, 0), "test": (120053 - 59551, 22634 - 11318, 0)},
        "inshop": {"train": (25882, 3997, 0), "test": (14218 + 12612, 7982 - 3997, 14218)},
    }


@pytest.mark.parametrize("name", MAKE)
def test_other_counts_are_refused_with_both_named(tmp_path, name, monkeypatch):
    MAKE[name](tmp_path)
    monkeypatch.setitem(BENCHMARKS, name, BENCHMARKS[name]._replace(index_md5=None))
    for half, found in zip(("train", "test"), COUNTS[name], strict=True):
        wanted = BENCHMARKS[name].published[half]
        message = f"{name} {half}: expected {wanted.images} images of {wanted.classes} classes.*"
        message += f"found {found.images} images of {found.classes} classes.*check=False"
        with pytest.raises(ValueError, match=message):
            load(name, half, tmp_path)


def test_right_counts_pass_and_a_missing_picture_does_not(small):
    name, root = small
    train = load(name, "train", root)
    assert len(load(name, "val", root, validation=True)) < len(train)
    gone = train.images.paths[1]
    gone.unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} lists 1 pictures .*{gone.name}"):
        load(name, "train", root, class_split=1)
    load(name, "test", root)


def test_other_bytes_of_cars_annotations_are_refused(tmp_path):
    trees.cars(tmp_path)
    with pytest.raises(ValueError, match=r"cars_annos\.mat is not the published file: its MD5 is"):
        load("cars", "train", tmp_path)


@pytest.mark.parametrize("name", MAKE)
def test_what_is_not_there_comes_with_instructions(tmp_path, name):
    how = "`dmlkit data get cub --root .*` fetches it" if name == "cub" else "Take .* from .* into"
    with pytest.raises(FileNotFoundError, match=f"{name} needs .* in .*{how}"):
        load(name, root=tmp_path)
    if name != "cub":  # CUB has an address
        with pytest.raises(FileNotFoundError, match=r"Take .* from .* into"):
            benchmarks.get(name, tmp_path)


def test_get_fetches_and_unpacks_what_has_an_address(tmp_path, monkeypatch):
    trees.cub(tree := tmp_path / "served" / "CUB_200_2011")
    root = tmp_path / "root"

    def fetch(file, folder):
        assert (file, folder) == (BENCHMARKS["cub"].source, root)
        folder.mkdir()
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for path in tree.rglob("*"):
                archive.write(path, path.relative_to(tree.parent))
        return folder / "a.zip"

    monkeypatch.setattr(benchmarks, "fetch", fetch)
    benchmarks.get("cub", root)
    assert len(load("cub", "train", root, **SMALL)) == 9
    benchmarks.get("cub", root)  # it is there: nothing is fetched


@pytest.mark.parametrize("name", ["glyphs", "folder", "mnist"])
def test_get_knows_what_it_can_get(tmp_path, name):
    with pytest.raises(ValueError, match=f"one of cub, cars, .* but is '{name}'"):
        benchmarks.get(name, tmp_path)
