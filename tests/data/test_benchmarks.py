"""The published sets: small trees in their layouts, and the published files where they are."""

import zipfile
from pathlib import Path

import pytest
import scipy.io

from dmlkit import retrieval, training
from dmlkit.data import annotations, benchmarks, download, faults, load
from dmlkit.data.benchmarks import BENCHMARKS, Count
from dmlkit.data.download import File
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


def test_a_single_annotation_is_a_list_of_one(tmp_path):
    trees.cars(tmp_path, (99,))
    content = scipy.io.loadmat(tmp_path / "cars_annos.mat")
    parts = {"annotations": content["annotations"][:, :1], "class_names": content["class_names"]}
    scipy.io.savemat(tmp_path / "cars_annos.mat", parts)
    assert len(load("cars", "test", tmp_path, **SMALL)) == 1


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


@pytest.fixture(params=MAKE)
def small(request, tmp_path, monkeypatch):
    """The name of a set that has just the size of its small tree, and its root."""
    name = request.param
    counts = dict(zip(("train", "test"), COUNTS[name], strict=True))
    MAKE[name](tmp_path)
    known = download.checksum(tmp_path / "cars_annos.mat") if name == "cars" else None
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


@pytest.mark.parametrize("bad", ["empty", "cut", "foreign", "no text"])
def test_a_foreign_or_damaged_index_is_named(small, bad):
    name, root = small
    names = [Path(name).name for name in BENCHMARKS[name].listed_in]
    (index,) = (path for path in root.rglob("*") if path.name in names)
    cut = index.read_bytes()[:-100]
    contents = {"empty": b"", "cut": cut, "foreign": b"one two\n" * 5, "no text": b"\xff\xfe\0"}
    index.write_bytes(contents[bad])
    message = f"{index.name} is not in the published format of {name}: ."
    if bad in ("empty", "cut"):  # a table may be shorter and still be a table
        message += f"|{name} train: expected"
    if name == "cars":
        message = r"cars_annos\.mat is not the published file: its MD5 is .*pass check=False"
    with pytest.raises(ValueError, match=message):
        load(name, "train", root)
    if name == "cars":
        message = r"cars_annos\.mat is not in the published format of cars: \S"
        with pytest.raises(ValueError, match=message):
            load(name, "train", root, check=False)


def test_a_file_that_ends_or_keeps_the_process_that_reads_it_is_an_error_of_ours(
    tmp_path, monkeypatch
):
    trees.cars(tmp_path)
    script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    (tmp_path / "segfault.py").write_text(script)
    monkeypatch.setattr(annotations, "__file__", str(tmp_path / "segfault.py"))
    with pytest.raises(ValueError, match=r"cars_annos\.mat .* ended a process by signal 11: it is"):
        load("cars", "train", tmp_path, **SMALL)
    (tmp_path / "segfault.py").write_text("while True: pass")
    monkeypatch.setattr(annotations, "SECONDS", 0.5)
    with pytest.raises(ValueError, match=r"cars_annos\.mat .* cannot be read within 0\.5 s"):
        load("cars", "train", tmp_path, **SMALL)


def test_reading_cars_imports_nothing_from_the_working_folder(tmp_path, monkeypatch):
    trees.cars(tmp_path)
    (tmp_path / "scipy.py").write_text("open('ran', 'w').close()")
    (tmp_path / "json.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert len(load("cars", "train", tmp_path, **SMALL)) == 4
    assert not (tmp_path / "ran").exists()


def test_other_bytes_of_cars_annotations_are_a_fault(small):
    name, root = small
    if name == "cars":
        assert faults.inspect(name, "train", root) == ({"images": 4, "classes": 2, "groups": 2}, [])
        path = root / "cars_annos.mat"
        content = scipy.io.loadmat(path)
        scipy.io.savemat(path, {k: content[k] for k in ("annotations", "class_names")})
        path.write_bytes(b"MATLAB 5.0 MAT-file, of another day" + path.read_bytes()[35:])
        _, wrong = faults.inspect(name, "train", root, class_split=1)
        assert [line.split(":")[0] for line in wrong] == [f"{path} is not the published file"]


@pytest.mark.parametrize("name", ["sop", "inshop"])
@pytest.mark.parametrize("check", [True, False])
def test_a_product_in_train_and_test_is_refused(tmp_path, name, check):
    folder = MAKE[name](tmp_path)
    if name == "sop":
        path, old, new = folder / "Ebay_test.txt", " 11320 ", " 2 "
    else:
        path = folder / "Eval" / "list_eval_partition.txt"
        old, new = "id_00000009 gallery", "id_00000007 gallery"
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())
    message = r"class (2|id_00000007) is both in train and in test, and 1 are"
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=rf"published format of {name}: {message}"):
            load(name, split, tmp_path, **SMALL | {"check": check})


def test_a_picture_in_train_and_test_is_refused(tmp_path):
    folder = trees.sop(tmp_path)
    path = folder / "Ebay_test.txt"
    path.write_text(path.read_text().replace("chair_final/111011320_0", "chair_final/11102_0"))
    with pytest.raises(ValueError, match=r"picture .*11102_0\.JPG is both in train and in test"):
        load("sop", "test", tmp_path, **SMALL)


def test_a_part_that_there_is_not_is_refused(tmp_path):
    path = trees.inshop(tmp_path) / "Eval" / "list_eval_partition.txt"
    path.write_bytes(path.read_bytes().replace(b" query", b" querry"))
    with pytest.raises(ValueError, match="format of inshop: unknown parts querry"):
        load("inshop", "test", tmp_path, **SMALL)


@pytest.mark.parametrize("name", MAKE)
def test_what_is_not_there_comes_with_instructions(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"{name} needs .* in .*dmlkit data (get|check)"):
        load(name, root=tmp_path)
    if name != "cub":  # CUB has an address
        with pytest.raises(FileNotFoundError, match=r"^Take .* from .* into"):
            benchmarks.get(name, tmp_path)


def packed(tree: Path, archive: Path) -> File:
    """The tree as an archive with an address."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(tree.rglob("*")):
            file.write(path, path.relative_to(tree))
    return File(archive.name, download.checksum(archive), archive.as_uri())


def test_get_fetches_verifies_and_unpacks_what_has_an_address(tmp_path, monkeypatch):
    trees.cub(tmp_path / "served" / "CUB_200_2011")
    root, file = tmp_path / "root", packed(tmp_path / "served", tmp_path / "CUB_200_2011.zip")
    served = BENCHMARKS["cub"]._replace(archive=file._replace(md5="0" * 32))
    monkeypatch.setitem(BENCHMARKS, "cub", served)
    with pytest.raises(OSError, match=r"cannot fetch file.*is not the published file"):
        benchmarks.get("cub", root)
    assert not list(root.iterdir())
    monkeypatch.setitem(BENCHMARKS, "cub", served._replace(archive=file))
    benchmarks.get("cub", root)
    assert len(load("cub", "train", root, **SMALL)) == 9
    (tmp_path / file.name).unlink()
    (root / file.name).unlink()
    benchmarks.get("cub", root)  # it is there: nothing is fetched


@pytest.mark.parametrize("name", ["glyphs", "folder", "mnist"])
def test_get_knows_what_it_can_get(tmp_path, name):
    with pytest.raises(ValueError, match=f"'{name}' is not fetched: there are omniglot, cub, cars"):
        benchmarks.get(name, tmp_path)
