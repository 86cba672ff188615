"""The published sets: small trees in their layouts, and the published files where they are."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from dmlkit import retrieval, training
from dmlkit.data import benchmarks, download, load
from dmlkit.data.benchmarks import BENCHMARKS, Count, File
from dmlkit.data.download import DownloadError
from tests.data import trees

PUBLISHED = Path(os.environ.get("DMLKIT_DATA", "")) / "omniglot"
needs_published = pytest.mark.skipif(
    not (PUBLISHED / "images_background_small1.zip").is_file(),
    reason="$DMLKIT_DATA names no folder with Omniglot",
)


FULL = ("background", "evaluation")
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
    run = training.run(experiment, store=tmp_path / "runs", device="cpu", progress=False)
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
    monkeypatch.setitem(BENCHMARKS, name, BENCHMARKS[name]._replace(published=counts))
    MAKE[name](tmp_path)
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
def test_other_counts_are_refused_with_both_named(tmp_path, name):
    MAKE[name](tmp_path)
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
    index = benchmarks._located(name, root)[1]
    cut = index.read_bytes()[:-100]
    contents = {"empty": b"", "cut": cut, "foreign": b"one two\n" * 5, "no text": b"\xff\xfe\0"}
    index.write_bytes(contents[bad])
    message = f"{index.name} is not in the published format of {name}: ."
    if bad in ("empty", "cut"):  # a table may be shorter and still be a table
        message += f"|{name} train: expected"
    with pytest.raises(ValueError, match=message):
        load(name, "train", root)


@pytest.mark.parametrize("name", MAKE)
def test_what_is_not_there_comes_with_instructions(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"{name} needs .* in .*dmlkit data (get|check)"):
        load(name, root=tmp_path)
    if name != "cub":  # CUB has an address
        with pytest.raises(FileNotFoundError, match=r"^Take .* from .* into"):
            benchmarks.get(name, tmp_path, progress=False)


def packed(tree: Path, archive: Path) -> File:
    """The tree as an archive with an address."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(tree.rglob("*")):
            file.write(path, path.relative_to(tree))
    return File(archive.name, download.checksum(archive), archive.as_uri())


def test_get_fetches_verifies_and_unpacks_what_has_an_address(tmp_path, monkeypatch):
    trees.cub(tmp_path / "served" / "CUB_200_2011")
    root, file = tmp_path / "root", packed(tmp_path / "served", tmp_path / "CUB_200_2011.zip")
    served = BENCHMARKS["cub"]._replace(files=(file._replace(md5="0" * 32),))
    monkeypatch.setitem(BENCHMARKS, "cub", served)
    with pytest.raises(DownloadError, match="other bytes"):
        benchmarks.get("cub", root, progress=False)
    assert not list(root.iterdir())
    monkeypatch.setitem(BENCHMARKS, "cub", served._replace(files=(file,)))
    benchmarks.get("cub", root, progress=False)
    assert len(load("cub", "train", root, **SMALL)) == 9
    (tmp_path / file.name).unlink()
    (root / file.name).unlink()
    benchmarks.get("cub", root, progress=False)  # it is there: nothing is fetched


def test_get_verifies_and_unpacks_what_was_placed_by_hand(tmp_path, monkeypatch):
    trees.cars(tmp_path / "made")
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "made" / "cars_annos.mat").rename(root / "cars_annos.mat")
    with pytest.raises(FileNotFoundError, match=r"^Take car_ims.tgz \(MD5 d5c8.*and cars_annos"):
        benchmarks.get("cars", root, progress=False)
    images = packed(tmp_path / "made", root / "car_ims.zip")._replace(url=None)
    annos = File("cars_annos.mat", "0" * 32)
    by_hand = BENCHMARKS["cars"]._replace(files=(images, annos))
    monkeypatch.setitem(BENCHMARKS, "cars", by_hand)
    with pytest.raises(ValueError, match=r"annos\.mat is not the published file: .*expected 0000"):
        benchmarks.get("cars", root, progress=False)
    assert not (root / "cars").exists()
    annos = File("cars_annos.mat", download.checksum(root / "cars_annos.mat"))
    monkeypatch.setitem(BENCHMARKS, "cars", by_hand._replace(files=(images, annos)))
    benchmarks.get("cars", root, progress=False)
    assert load("cars", "test", root, **SMALL)[:].shape == (4, 3, 16, 16)


@pytest.mark.parametrize("name", ["glyphs", "folder", "mnist"])
def test_get_knows_what_it_can_get(tmp_path, name):
    with pytest.raises(ValueError, match=f"'{name}' is not fetched: there are omniglot, cub, cars"):
        benchmarks.get(name, tmp_path)


# Omniglot


def drawing(seed: int) -> bytes:
    """A 105 x 105 one-bit PNG with a dark square, 21 px wide, on white, at a random place."""
    paper = np.full((105, 105), 255, dtype=np.uint8)
    y, x = np.random.default_rng(seed).integers(0, 84, size=2)
    paper[y : y + 21, x : x + 21] = 0
    file = io.BytesIO()
    Image.fromarray(paper).convert("1").save(file, "PNG")
    return file.getvalue()


def archive(root: Path, part: str, alphabets: dict[str, int], seed: int) -> None:
    """Two drawings of each character, in the layout of the published files."""
    folder = f"images_{part}" if part in FULL else f"images_background_{part}"
    with zipfile.ZipFile(root / f"{folder}.zip", "w") as file:
        file.writestr(f"{folder}/", "")
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                seed += 1
                for drawer in (1, 2):
                    name = f"character{character:02d}/{seed:04d}_{drawer:02d}.png"
                    file.writestr(f"{folder}/{alphabet}/{name}", drawing(2 * seed + drawer))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    archive(tmp_path, "small1", {"Greek": 3, "Korean": 5}, seed=0)
    archive(tmp_path, "small2", {"Greek": 3, "Sanskrit": 4, "Tagalog": 2}, seed=100)
    return tmp_path


def test_train_takes_one_archive_and_test_what_the_other_has_alone(root):
    train = load("omniglot", "train", root, check=False)
    test = load("omniglot", "test", root, check=False)
    assert (len(train), train.num_classes, set(train.groups)) == (16, 8, {"Greek", "Korean"})
    assert (len(test), test.num_classes, set(test.groups)) == (12, 6, {"Sanskrit", "Tagalog"})
    assert test.class_names[0] == "Sanskrit/character01"
    assert [test.class_names[label].split("/")[0] for label in test.labels] == list(test.groups)
    assert list(test.attributes["drawer"]) == [1, 2] * 6


def test_the_other_direction(root):
    train = load("omniglot", "train", root, check=False, train_on="small2")
    test = load("omniglot", "test", root, check=False, train_on="small2")
    assert set(train.groups) == {"Greek", "Sanskrit", "Tagalog"}
    assert set(test.groups) == {"Korean"}


def test_the_full_set(root):
    archive(root, "background", {"Greek": 3, "Korean": 5}, seed=0)
    archive(root, "evaluation", {"Tibetan": 4, "Atlantean": 2}, seed=200)
    train, test = (
        load("omniglot", split, root, check=False, train_on="background")
        for split in ("train", "test")
    )
    assert set(train.groups) == {"Greek", "Korean"}
    assert set(test.groups) == {"Tibetan", "Atlantean"}
    with pytest.raises(ValueError, match="expected 68d2efa1b9178cc56df9314c21c6e718"):
        load("omniglot", "train", root, train_on="background")


def test_get_fetches_all_archives(root, tmp_path, monkeypatch):
    parts = {}
    for part in ("small1", "small2"):
        path = root / f"images_background_{part}.zip"
        parts[part] = File(path.name, download.checksum(path), path.as_uri())
    monkeypatch.setattr(benchmarks, "_OMNIGLOT", parts)
    target = tmp_path / "target"
    benchmarks.get("omniglot", target, progress=False)
    assert len(load("omniglot", "train", target)) == 16
    monkeypatch.setattr(benchmarks, "_OMNIGLOT", {"small1": parts["small1"]._replace(url="no:")})
    benchmarks.get("omniglot", root, progress=False)  # those that lie in the root stay there
    assert not list((root / "omniglot").iterdir())


def test_archives_may_lie_in_a_folder_of_their_own(root):
    (root / "omniglot").mkdir()
    for path in root.glob("*.zip"):
        path.rename(root / "omniglot" / path.name)
    assert len(load("omniglot", "train", root, check=False)) == 16


def test_validation_divides_the_training_characters(root):
    whole = load("omniglot", "train", root, check=False)
    train = load("omniglot", "train", root, check=False, validation=True)
    val = load("omniglot", "val", root, check=False, validation=True)
    assert (train.num_classes, val.num_classes) == (6, 2)
    assert sorted(train.class_names + val.class_names) == sorted(whole.class_names)
    with pytest.raises(ValueError, match="val split only with validation=True"):
        load("omniglot", "val", root, check=False)


def test_ink_is_high_and_its_amount_is_kept(root):
    images = load("omniglot", "train", root, check=False).images
    assert images.shape == (16, 1, 32, 32)
    assert (images.amax(dim=(1, 2, 3)) == 255).all()
    share = images.double().mean(dim=(1, 2, 3)) / 255
    # Averaging over boxes keeps the mean, but for boxes being whole pixels: at most 1 of 21 a side.
    np.testing.assert_allclose(share, 21**2 / 105**2, rtol=2 / 21)
    larger = load("omniglot", "train", root, check=False, size=105).images
    assert set(np.unique(larger)) == {0, 255}


def test_a_split_that_shares_an_alphabet_is_refused(root):
    with pytest.raises(ValueError, match="leaks: Greek is in training too"):
        load("omniglot", "test", root, check=False, test_alphabets=["Greek", "Tagalog"])
    chosen = load("omniglot", "test", root, check=False, test_alphabets=["Tagalog"])
    assert set(chosen.groups) == {"Tagalog"}


def test_a_split_that_shares_images_under_another_name_is_refused(root):
    archive(root, "small2", {"Hellenic": 3}, seed=0)  # the drawings of small1's Greek
    with pytest.raises(ValueError, match="leaks: 6 test images are copies"):
        load("omniglot", "test", root, check=False)


@pytest.mark.parametrize(
    "args, message",
    [
        ({"train_on": "small3"}, "must be one of small1, small2, background, not 'small3'"),
        ({"test_alphabets": ["Klingon"]}, "no alphabet Klingon in the test archive.*Sanskrit"),
        ({"test_alphabets": []}, "the split is empty"),
        ({"size": 0}, "size must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_named(root, args, message):
    with pytest.raises(ValueError, match=message):
        load("omniglot", "test", root, check=False, **args)


def test_a_missing_archive_says_where_it_belongs_and_comes_from(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"small1\.zip in .*data get omniglot.*brendenlake"):
        load("omniglot", root=tmp_path)


def test_a_foreign_archive_is_refused(root):
    with pytest.raises(ValueError, match=r"MD5 is .*, expected e704a628b5459e08445c13499850abc4"):
        load("omniglot", root=root)


def test_a_damaged_archive_is_refused(root):
    path = root / "images_background_small1.zip"
    content = bytearray(path.read_bytes())
    start = content.index(b"IDAT") + 8  # inside the pixels of the first drawing
    content[start] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"small1.*cannot be read"):
        load("omniglot", root=root, check=False)
    path.write_bytes(content[:-30])
    with pytest.raises(ValueError, match="no readable zip archive"):
        load("omniglot", "train", root, False, validation=True)
    (root / "images_background_small2.zip").write_bytes(b"")
    with pytest.raises(ValueError, match=r"small2.*no readable zip archive"):
        load("omniglot", "train", root, False, train_on="small2")


@needs_published
@pytest.mark.parametrize(
    "train_on, train, test, unseen",
    [
        ("small1", (136, 2720), (106, 2120), {"Japanese_(katakana)", "Sanskrit", "Tagalog"}),
        ("small2", (156, 3120), (86, 1720), {"Balinese", "Early_Aramaic", "Korean"}),
    ],
)
def test_published_counts(train_on, train, test, unseen):
    trained = load("omniglot", "train", train_on=train_on)
    tested = load("omniglot", "test", train_on=train_on)
    assert (trained.num_classes, len(trained)) == train
    assert (tested.num_classes, len(tested)) == test
    assert set(tested.groups) == unseen
    assert {"Greek", "Latin"} <= set(trained.groups)
    for images in (trained, tested):
        assert (np.bincount(images.labels) == 20).all()
        np.testing.assert_array_equal(images.attributes["drawer"].reshape(-1, 20)[0], range(1, 21))


@needs_published
def test_the_published_archives_share_images_of_greek_and_latin():
    with pytest.raises(ValueError, match="leaks: Greek, Latin is in training too"):
        load("omniglot", "test", test_alphabets=["Greek", "Latin", "Sanskrit"])
