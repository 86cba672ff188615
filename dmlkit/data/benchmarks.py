"""Published data sets in their published formats and splits."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.io.matlab import MatReadError

from dmlkit.data import ImageSet
from dmlkit.data.download import checksum, fetch, unpack
from dmlkit.data.pictures import Pictures


class Listing(NamedTuple):
    """What a set's index files say: one entry a picture, in their order."""

    paths: Sequence[Path]
    ids: NDArray  # of classes; labels follow their order
    names: NDArray[np.str_]  # of classes
    groups: NDArray[np.str_]
    parts: NDArray[np.str_]  # train and test; or train, query and gallery


class Count(NamedTuple):
    """How large a split is."""

    images: int
    classes: int
    queries: int = 0


class File(NamedTuple):
    """A published file."""

    name: str
    md5: str
    url: str | None = None  # None: it has no stable public address


class Benchmark(NamedTuple):
    """How a set lies on disk, what should be in it, and where it comes from."""

    read: Callable[[Path, Path], Listing]  # from the folder that holds `pictures`, and the index
    pictures: str  # a folder
    listed_in: tuple[str, ...]  # a file, by the names it may have
    folders: tuple[str, ...]  # where both may lie, besides the root itself
    published: dict[str, Count]  # by split
    files: tuple[File, ...]
    source: str


def _table(path: Path, columns: int, header: int = 0) -> list[list[str]]:
    """The lines of a text file below its header, in columns; the last one may hold spaces."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()[header:]
    return [line.strip().split(maxsplit=columns - 1) for line in lines if line.strip()]


def _cub(folder: Path, index: Path) -> Listing:
    """``images.txt``: id, path; ``image_class_labels.txt``: id, class 1..200."""
    classes = dict(_table(index.with_name("image_class_labels.txt"), 2))
    rows = _table(index, 2)
    if len(rows) != len(classes):
        raise ValueError(f"it lists {len(rows)} images, but {len(classes)} have a class")
    ids = np.array([int(classes[image]) for image, _ in rows])
    paths = [path for _, path in rows]
    names = [path.split("/")[0] for path in paths]  # 001.Black_footed_Albatross
    return Listing(
        paths=[folder / "images" / path for path in paths],
        ids=ids,
        names=np.array(names),
        groups=np.array([name.split("_")[-1].split(".")[-1] for name in names]),  # Albatross
        parts=np.where(ids <= 100, "train", "test"),
    )


def _cars(folder: Path, index: Path) -> Listing:
    """``cars_annos.mat``: annotations (relative_im_path, class 1..196, …) and class_names."""
    content = scipy.io.loadmat(index, squeeze_me=True, chars_as_strings=True)
    rows = np.atleast_1d(content["annotations"])
    ids = rows["class"].astype(np.int64)
    names = np.atleast_1d(content["class_names"])[ids - 1].astype(np.str_)
    return Listing(
        paths=[folder / str(path) for path in rows["relative_im_path"]],
        ids=ids,
        names=names,
        groups=np.array([name.split()[0] for name in names]),  # the make: AM, Acura, Aston, …
        parts=np.where(ids <= 98, "train", "test"),
    )


def _sop(folder: Path, index: Path) -> Listing:
    """``Ebay_train.txt``, ``Ebay_test.txt``: header; image, class, super-class, path."""
    halves = {"train": _table(index, 4, header=1)}
    halves["test"] = _table(index.with_name("Ebay_test.txt"), 4, header=1)
    rows = [row for half in halves.values() for row in half]
    paths = [path for *_, path in rows]
    groups = np.array([path.split("/")[0].removesuffix("_final") for path in paths])  # bicycle
    return Listing(
        paths=[folder / path for path in paths],
        ids=np.array([int(product) for _, product, _, _ in rows]),
        names=np.array([f"{kind}/{row[1]}" for kind, row in zip(groups, rows, strict=True)]),
        groups=groups,
        parts=np.repeat(list(halves), [len(half) for half in halves.values()]),
    )


def _inshop(folder: Path, index: Path) -> Listing:
    """``list_eval_partition.txt``: how many; header; path (it may hold spaces), item, part."""
    count, _, *lines = index.read_text(encoding="utf-8-sig").splitlines()
    rows = [line.strip().rsplit(maxsplit=2) for line in lines if line.strip()]
    if len(rows) != int(count):
        raise ValueError(f"its first line says {count.strip()} pictures, but {len(rows)} follow")
    items = np.array([item for _, item, _ in rows])
    return Listing(
        paths=[folder / path for path, _, _ in rows],
        ids=items,
        names=items,
        groups=np.array([path.split("/")[-3] for path, _, _ in rows]),  # img/WOMEN/Dresses/item/…
        parts=np.array([part for _, _, part in rows]),
    )


BENCHMARKS = {
    "cub": Benchmark(
        read=_cub,
        pictures="images",
        listed_in=("images.txt",),
        folders=("cub", "CUB_200_2011", "cub/CUB_200_2011"),
        published={"train": Count(5864, 100), "test": Count(5924, 100)},
        files=(
            File(
                "CUB_200_2011.tgz",
                "97eceeb196236b17998738112f37df78",
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            ),
        ),
        source="data.caltech.edu/records/65de6-vp158",
    ),
    "cars": Benchmark(
        read=_cars,
        pictures="car_ims",
        listed_in=("cars_annos.mat",),
        folders=("cars", "cars196"),
        published={"train": Count(8054, 98), "test": Count(8131, 98)},
        files=(
            File("car_ims.tgz", "d5c8f0aa497503f355e17dc7886c3f14"),
            File("cars_annos.mat", "b407c6086d669747186bd1d764ff9dbc"),
        ),
        source="whoever kept them: their home, ai.stanford.edu/~jkrause/cars, has closed,",
    ),
    "sop": Benchmark(
        read=_sop,
        pictures="bicycle_final",
        listed_in=("Ebay_train.txt",),
        folders=("sop", "Stanford_Online_Products", "sop/Stanford_Online_Products"),
        published={"train": Count(59551, 11318), "test": Count(60502, 11316)},
        files=(File("Stanford_Online_Products.zip", "7f73d41a2f44250d4779881525aea32e"),),
        source="cvgl.stanford.edu/projects/lifted_struct",
    ),
    "inshop": Benchmark(
        read=_inshop,
        pictures="img",
        listed_in=tuple(f"{at}list_eval_partition.txt" for at in ("Eval/", "Anno/", "")),
        folders=(
            *("inshop", "inshop/Img", "Img"),
            *("In-shop Clothes Retrieval Benchmark", "In-shop Clothes Retrieval Benchmark/Img"),
        ),
        published={"train": Count(25882, 3997), "test": Count(26830, 3985, queries=14218)},
        files=(),  # their checksums are not published
        source="mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
    ),
}

# What a foreign or damaged index makes the readers raise.
_MISREAD: tuple[type[Exception], ...] = (OSError, LookupError, ValueError, TypeError)
_MISREAD += (NotImplementedError, zlib.error, MatReadError)  # of scipy.io


def load(
    name: str,
    split: str,
    root: Path,
    check: bool = True,
    validation: bool = False,
    class_split: int = 0,
    crop: int = 224,
    resize: int = 256,
    keep_aspect: bool = False,
    flip: bool = True,
    scale: Sequence[float] | None = None,
) -> ImageSet:
    """CUB-200-2011, Cars-196, Stanford Online Products or In-Shop, split by class as published.

    | name | images (classes) that train | that test | groups |
    |---|---|---|---|
    | cub | 5,864 (1–100) | 5,924 (101–200) | last word of the bird's name |
    | cars | 8,054 (1–98) | 8,131 (99–196) | first word of the make |
    | sop | 59,551 (11,318) | 60,502 (11,316) | twelve kinds of products |
    | inshop | 25,882 (3,997) | 14,218 queries, 12,612 in their gallery (3,985) | kinds of clothes |

    With ``validation`` half of the training classes, drawn by ``class_split``, still train, and
    the others are the split "val". Images are ``Pictures``: see there for ``crop``, ``resize``,
    ``keep_aspect``, ``flip`` and ``scale``. ``check`` compares counts, and wants every file there.

    Raises FileNotFoundError where the index or a picture is missing, ValueError where the index is
    not in the published format or a count is another.
    Sources: Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset" (2011); Krause et al., "3D Object
    Representations for Fine-Grained Categorization" (2013); Oh Song et al., "Deep Metric Learning
    via Lifted Structured Feature Embedding" (2016), which fixed the splits of the first three; Liu
    et al., "DeepFashion" (2016).
    """
    folder, index = _located(name, root)
    try:
        listing = BENCHMARKS[name].read(folder, index)
    except _MISREAD as error:
        raise ValueError(f"{index} is not in the published format of {name}: {error}") from error
    half = subset(listing, (listing.parts == "train") == (split != "test"))
    if check:
        queries = int((half.parts == "query").sum())
        wrong = miscounted(name, split, Count(len(half.ids), len(np.unique(half.ids)), queries))
        if wrong:
            raise ValueError(f"{wrong}; pass check=False if they are meant to differ")
        _check_files(name, half.paths)
    return image_set(
        by_class(half, split, validation, class_split),
        crop=crop, resize=resize, keep_aspect=keep_aspect, flip=flip, scale=scale,
    )  # fmt: skip


def miscounted(name: str, split: str, found: Count) -> str:
    """What is wrong with the counts of a split, validation classes included; or nothing.

    >>> miscounted("cub", "train", Count(images=5863, classes=100))
    'cub train: expected 5864 images of 100 classes, found 5863 images of 100 classes'
    """
    half = "test" if split == "test" else "train"
    expected = BENCHMARKS[name].published[half]
    if found == expected:
        return ""
    return f"{name} {half}: expected {_said(expected)}, found {_said(found)}"


def _said(count: Count) -> str:
    queries = f", {count.queries} of them queries" if count.queries else ""
    return f"{count.images} images of {count.classes} classes{queries}"


def _check_files(name: str, paths: Sequence[Path]) -> None:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name} lists {len(missing)} pictures that are not there, the first is {missing[0]}: "
            f"`dmlkit data check {name}` names them"
        )


def subset(listing: Listing, rows: NDArray[np.bool_]) -> Listing:
    """Some of the pictures."""
    return Listing(list(compress(listing.paths, rows)), *(part[rows] for part in listing[1:]))


def by_class(half: Listing, split: str, validation: bool, class_split: int) -> Listing:
    """A split of the test or training half: all of it, or with ``validation`` half its classes."""
    if split == "val" and not validation:
        raise ValueError(
            "there is a val split only with validation=True, which takes half of the training "
            "classes out of train"
        )
    if split == "test" or not validation:
        return half
    classes = np.unique(half.ids)
    order = np.random.default_rng(class_split).permutation(len(classes))
    trains = np.isin(half.ids, classes[order[: (len(classes) + 1) // 2]])
    return subset(half, trains == (split == "train"))


def image_set(listing: Listing, **transform: Any) -> ImageSet:
    """The pictures of a listing with labels in the order of its ids."""
    _, first, labels = np.unique(listing.ids, return_index=True, return_inverse=True)
    queries = listing.parts == "query"
    return ImageSet(
        images=Pictures(listing.paths, **transform),
        labels=labels.astype(np.int64),
        groups=listing.groups,
        class_names=tuple(map(str, listing.names[first])),
        queries=queries if queries.any() else None,
    )


# Getting them -----------------------------------------------------------------------------------


def _located(name: str, root: Path) -> tuple[Path, Path]:
    """The folder that holds a set's folder of pictures, and the file that lists them."""
    benchmark = BENCHMARKS[name]
    places = [root, *(root / folder for folder in benchmark.folders)]
    indices = [place / index for place in places for index in benchmark.listed_in]
    index = next(filter(Path.is_file, indices), None)
    if index:
        for folder in (index.parent, *places):  # best beside the index
            if (folder / benchmark.pictures).is_dir():
                return folder, index
    raise FileNotFoundError(
        f"{name} needs {benchmark.listed_in[0]} and the folder {benchmark.pictures} in {root} or "
        f"{places[1]} (or name another root, or set $DMLKIT_DATA). {instructions(name, root)}"
    )


def instructions(name: str, root: Path) -> str:
    """How a set comes to lie in a folder.

    >>> print(instructions("sop", Path("here")))
    Take Stanford_Online_Products.zip (MD5 7f73d41a2f44250d4779881525aea32e) from
    cvgl.stanford.edu/projects/lifted_struct into here; then `dmlkit data get sop --root here`
    verifies and unpacks it
    """
    benchmark = BENCHMARKS[name]
    get = f"`dmlkit data get {name} --root {root}`"
    if not benchmark.files:
        return (
            f"Take Eval/list_eval_partition.txt and Img/img.zip from {benchmark.source} into "
            f"{root / benchmark.folders[0]}, and unpack img.zip there, so that the folders Eval "
            f"and img lie beside each other; then `dmlkit data check {name} --root {root}`"
        )
    if all(file.url for file in benchmark.files):
        return f"{get} fetches it"
    files = " and ".join(f"{file.name} (MD5 {file.md5})" for file in benchmark.files)
    return f"Take {files} from {benchmark.source} into {root}; then {get} verifies and unpacks it"


def get(name: str, root: Path, progress: bool = True) -> None:
    """Put a set in place: fetch what has an address, verify it, unpack it; what is there stays.

    Raises:
        ValueError: the set is none that can be fetched, or a file is not the published one.
        FileNotFoundError: a file has no stable public address; says how to come by it.
        OSError: the transfer failed, or what is there is in the way.
    """
    if name == "omniglot":
        (root / name).mkdir(parents=True, exist_ok=True)
        for file in _OMNIGLOT.values():
            place = root if (root / file.name).is_file() else root / name
            fetch(str(file.url), place / file.name, file.md5, progress=progress)
        return
    if name not in BENCHMARKS:
        raise ValueError(
            f"{name!r} is not fetched: there are omniglot, {', '.join(BENCHMARKS)}; "
            "glyphs are made, and a folder is your own"
        )
    try:
        _located(name, root)
        return
    except FileNotFoundError:
        files = BENCHMARKS[name].files
    root.mkdir(parents=True, exist_ok=True)
    if any(not file.url and not (root / file.name).is_file() for file in files) or not files:
        raise FileNotFoundError(instructions(name, root))
    paths = [_verified(file, root / file.name, progress) for file in files]
    for path in paths:
        if path.suffix in (".tgz", ".zip"):
            unpack(path, root / BENCHMARKS[name].folders[0])


def _verified(file: File, path: Path, progress: bool) -> Path:
    if file.url:
        return fetch(file.url, path, file.md5, progress=progress)
    found = checksum(path)
    if found != file.md5:
        raise ValueError(
            f"{path} is not the published file: its MD5 is {found}, expected {file.md5}"
        )
    return path


# Omniglot ---------------------------------------------------------------------------------------

_OMNIGLOT = {
    part: File(
        name, md5, f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}"
    )
    for part, name, md5 in (
        ("small1", "images_background_small1.zip", "e704a628b5459e08445c13499850abc4"),
        ("small2", "images_background_small2.zip", "b75a71a51d3b13f821f212756fe481fd"),
        ("background", "images_background.zip", "68d2efa1b9178cc56df9314c21c6e718"),
        ("evaluation", "images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811"),
    )
}
_TESTED_ON = {"small1": "small2", "small2": "small1", "background": "evaluation"}
_HELD_OUT = 4  # with validation=True, every fourth training character is held out

_Characters = dict[tuple[str, str], list[zipfile.ZipInfo]]  # (alphabet, character) -> drawings


def omniglot(
    split: str,
    root: Path,
    check: bool = True,
    train_on: str = "small1",
    validation: bool = False,
    test_alphabets: tuple[str, ...] | None = None,
    size: int = 32,
) -> ImageSet:
    """Omniglot: train on one archive, test on the alphabets that only another one holds.

    ``train_on="small1"`` trains on 136 characters (2,720 drawings) and tests on 106 (2,120) of
    Japanese, Sanskrit and Tagalog; ``"small2"`` trains on 156 (3,120) and tests on 86 (1,720);
    ``"background"`` is the full set: 964 (19,280) of 30 alphabets, tested on 659 (13,180) of 20.
    With ``validation`` every fourth training character makes up the split "val" and leaves
    "train". ``test_alphabets`` picks among the test alphabets. Images are (1, size, size) uint8,
    ink 255 on 0. Groups are alphabets; the attribute ``drawer`` is the person's number, 1..20.

    ``omniglot(...)`` reads ``images_background_small1.zip`` and ``..._small2.zip``, or
    ``images_background.zip`` and ``images_evaluation.zip``, in ``root`` or ``root/omniglot``;
    ``check`` compares their MD5. Raises FileNotFoundError where one is missing, ValueError where
    one is corrupted, and where test alphabets or images are also training ones: both small
    archives hold Greek and Latin. Source: Lake, Salakhutdinov & Tenenbaum, "Human-level
    concept learning through probabilistic program induction" (2015).
    """
    if train_on not in _TESTED_ON:
        raise ValueError(f"train_on must be one of {', '.join(_TESTED_ON)}, not {train_on!r}")
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    if split == "val" and not validation:
        raise ValueError(
            "omniglot has a val split only with validation=True, which takes every fourth "
            "training character out of train"
        )
    archive, characters = _open(_find(root, train_on), train_on, check)
    if split == "test":
        training, test_on = characters, _TESTED_ON[train_on]
        archive, characters = _open(_find(root, test_on), test_on, check)
        characters = _unseen(characters, training, test_alphabets)
    elif validation:
        held_out = split == "val"
        characters = {
            key: drawings
            for i, (key, drawings) in enumerate(characters.items())
            if (i % _HELD_OUT == _HELD_OUT - 1) == held_out
        }
    return _decode(archive, characters, size)


def _find(root: Path, part: str) -> Path:
    name = _OMNIGLOT[part].name
    for path in (root / name, root / "omniglot" / name):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"Omniglot needs {name} in {root} or {root / 'omniglot'}: `dmlkit data get omniglot` takes "
        "it from github.com/brendenlake/omniglot; or name another folder as root or in $DMLKIT_DATA"
    )


def _open(path: Path, part: str, check: bool) -> tuple[zipfile.ZipFile, _Characters]:
    """The archive and its drawings by character, in the order of their names."""
    content = path.read_bytes()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if check and md5 != _OMNIGLOT[part].md5:
        raise ValueError(
            f"{path} is not the published file: its MD5 is {md5}, expected {_OMNIGLOT[part].md5}. "
            "Fetch it again, or pass check=False if it is meant to differ"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is no readable zip archive ({error}): fetch it again") from error
    characters: _Characters = {}
    for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
        parts = entry.filename.split("/")
        if len(parts) == 4 and parts[-1].endswith(".png"):  # archive/alphabet/character/drawing
            characters.setdefault((parts[1], parts[2]), []).append(entry)
    return archive, characters


def _unseen(
    characters: _Characters, training: _Characters, alphabets: tuple[str, ...] | None
) -> _Characters:
    """The characters of ``alphabets`` (default: all that training lacks), refused if they leak."""
    seen = {alphabet for alphabet, _ in training}
    present = {alphabet for alphabet, _ in characters}
    wanted = present - seen if alphabets is None else set(alphabets)
    if wanted - present:
        raise ValueError(
            f"no alphabet {', '.join(sorted(wanted - present))} in the test archive: "
            f"it holds {', '.join(sorted(present))}"
        )
    if wanted & seen:
        raise ValueError(
            f"this split leaks: {', '.join(sorted(wanted & seen))} is in training too; "
            f"only {', '.join(sorted(present - seen))} is unseen"
        )
    chosen = {key: drawings for key, drawings in characters.items() if key[0] in wanted}
    known = {(entry.CRC, entry.file_size) for drawings in training.values() for entry in drawings}
    leaked = [e.filename for d in chosen.values() for e in d if (e.CRC, e.file_size) in known]
    # One drawing among thousands may equal another by chance.
    if len(leaked) > sum(map(len, chosen.values())) / 100:
        raise ValueError(
            f"this split leaks: {len(leaked)} test images are copies of training images, "
            f"the first is {leaked[0]}"
        )
    return chosen


def _decode(archive: zipfile.ZipFile, characters: _Characters, size: int) -> ImageSet:
    entries = [entry for drawings in characters.values() for entry in drawings]
    counts = [len(drawings) for drawings in characters.values()]
    images = np.empty((len(entries), 1, size, size), dtype=np.uint8)
    for image, entry in zip(images, entries, strict=True):
        try:
            drawing = Image.open(io.BytesIO(archive.read(entry))).convert("L")
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{entry.filename} cannot be read ({error})") from error
        shrunk = drawing.resize((size, size), Image.Resampling.BOX)
        image[0] = 255 - np.asarray(shrunk)  # the files hold dark ink on white
    names = tuple(f"{alphabet}/{character}" for alphabet, character in characters)
    labels = np.repeat(np.arange(len(names)), counts)
    return ImageSet(
        images=torch.from_numpy(images),
        labels=labels,
        groups=np.repeat([alphabet for alphabet, _ in characters], counts),
        class_names=names,
        attributes={"drawer": np.array([int(e.filename[-6:-4]) for e in entries])},
    )
