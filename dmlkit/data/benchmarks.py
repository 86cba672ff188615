"""CUB-200-2011, Cars-196, Stanford Online Products and In-Shop, as they are published."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmlkit.checks import check_count, check_flag
from dmlkit.data import annotations, omniglot
from dmlkit.data.archives import unpack
from dmlkit.data.download import File, fetch, verify
from dmlkit.data.images import ImageSet
from dmlkit.data.listing import Listing
from dmlkit.data.untrusted import read_text


class Count(NamedTuple):
    """How large a split is."""

    images: int
    classes: int
    queries: int = 0

    def __str__(self) -> str:
        queries = f", {self.queries} of them queries" if self.queries else ""
        return f"{self.images} images of {self.classes} classes{queries}"


class Benchmark(NamedTuple):
    """How a set lies on disk, what should be in it, and where it comes from."""

    read: Callable[[Path, Path], Listing]  # from the folder that holds `pictures`, and the index
    pictures: str  # a folder
    listed_in: tuple[str, ...]  # a file, by the names it may have
    folders: tuple[str, ...]  # where both may be, besides the root itself
    published: dict[str, Count]  # by split
    source: str  # what to take from where
    archive: File | None = None  # of all, where it has a stable public address
    index_md5: str | None = None  # of the file that lists the pictures, where it is known


def _table(path: Path, columns: int, header: int = 0) -> list[list[str]]:
    """The lines of a text file below its header, in columns; the last one may hold spaces."""
    lines = read_text(path).splitlines()[header:]
    return [line.strip().split(maxsplit=columns - 1) for line in lines if line.strip()]


def _read_cub(folder: Path, index: Path) -> Listing:
    """``images.txt``: id, path; ``image_class_labels.txt``: id, class 1..200."""
    classes = dict(_table(index.with_name("image_class_labels.txt"), 2))
    rows = _table(index, 2)
    if len(rows) != len(classes):
        raise ValueError(f"it lists {len(rows)} images, but {len(classes)} have a class")
    ids = np.array([int(classes[image]) for image, _ in rows])
    names = [path.split("/")[0] for _, path in rows]  # 001.Black_footed_Albatross
    return Listing(
        paths=np.array([folder / "images" / path for _, path in rows]),
        ids=ids,
        names=np.array(names),
        groups=np.array([name.split("_")[-1].split(".")[-1] for name in names]),  # Albatross
        parts=np.where(ids <= 100, "train", "test"),
    )


def _read_cars(folder: Path, index: Path) -> Listing:
    """``cars_annos.mat``: annotations (relative_im_path, class 1..196, …) and class_names."""
    paths, classes, names = zip(*annotations.read(index), strict=True)
    ids = np.array(classes)
    return Listing(
        paths=np.array([folder / path for path in paths]),
        ids=ids,
        names=np.array(names),
        groups=np.array([name.split()[0] for name in names]),  # the make: AM, Acura, Aston, …
        parts=np.where(ids <= 98, "train", "test"),
    )


def _read_sop(folder: Path, index: Path) -> Listing:
    """``Ebay_train.txt``, ``Ebay_test.txt``: header; image, class, super-class, path."""
    halves = {"train": _table(index, 4, header=1)}
    halves["test"] = _table(index.with_name("Ebay_test.txt"), 4, header=1)
    products, paths = zip(
        *((product, path) for half in halves.values() for _, product, _, path in half), strict=True
    )
    groups = [path.split("/")[0].removesuffix("_final") for path in paths]  # bicycle
    return Listing(
        paths=np.array([folder / path for path in paths]),
        ids=np.array([int(product) for product in products]),
        names=np.array([f"{group}/{p}" for group, p in zip(groups, products, strict=True)]),
        groups=np.array(groups),
        parts=np.repeat(list(halves), [len(half) for half in halves.values()]),
    )


def _read_inshop(folder: Path, index: Path) -> Listing:
    """``list_eval_partition.txt``: how many; header; path (it may hold spaces), item, part."""
    count, _, *lines = read_text(index).splitlines()
    rows = [line.strip().rsplit(maxsplit=2) for line in lines if line.strip()]
    if len(rows) != int(count):
        raise ValueError(f"its first line says {count.strip()} pictures, but {len(rows)} follow")
    paths, items, parts = zip(*rows, strict=True)
    return Listing(
        paths=np.array([folder / path for path in paths]),
        ids=np.array(items),
        names=np.array(items),
        groups=np.array([path.split("/")[-3] for path in paths]),  # img/WOMEN/Dresses/item/…
        parts=np.array(parts),
    )


_CARS_ANNOS = "b407c6086d669747186bd1d764ff9dbc"

BENCHMARKS = {
    "cub": Benchmark(
        read=_read_cub,
        pictures="images",
        listed_in=("images.txt",),
        folders=("cub", "CUB_200_2011", "cub/CUB_200_2011"),
        published={"train": Count(5864, 100), "test": Count(5924, 100)},
        source="CUB_200_2011.tgz from data.caltech.edu/records/65de6-vp158",
        archive=File(
            "CUB_200_2011.tgz",
            "97eceeb196236b17998738112f37df78",
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
        ),
    ),
    "cars": Benchmark(
        read=_read_cars,
        pictures="car_ims",
        listed_in=("cars_annos.mat",),
        folders=("cars", "cars196"),
        published={"train": Count(8054, 98), "test": Count(8131, 98)},
        source="car_ims.tgz (MD5 d5c8f0aa497503f355e17dc7886c3f14) and cars_annos.mat "
        f"(MD5 {_CARS_ANNOS}) from whoever kept them (their home, "
        "ai.stanford.edu/~jkrause/cars, has closed)",
        index_md5=_CARS_ANNOS,
    ),
    "sop": Benchmark(
        read=_read_sop,
        pictures="bicycle_final",
        listed_in=("Ebay_train.txt",),
        folders=("sop", "Stanford_Online_Products", "sop/Stanford_Online_Products"),
        published={"train": Count(59551, 11318), "test": Count(60502, 11316)},
        source="Stanford_Online_Products.zip (MD5 7f73d41a2f44250d4779881525aea32e) from "
        "cvgl.stanford.edu/projects/lifted_struct",
    ),
    "inshop": Benchmark(
        read=_read_inshop,
        pictures="img",
        listed_in=tuple(f"{at}list_eval_partition.txt" for at in ("Eval/", "Anno/", "")),
        folders=(
            *("inshop", "inshop/Img", "Img"),
            *("In-shop Clothes Retrieval Benchmark", "In-shop Clothes Retrieval Benchmark/Img"),
        ),
        published={"train": Count(25882, 3997), "test": Count(26830, 3985, queries=14218)},
        source="Eval/list_eval_partition.txt and Img/img.zip from "
        "mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (the folders Eval and img "
        "side by side)",
    ),
}


def load(
    name: str,
    split: str,
    root: Path,
    check: bool = True,
    validation: bool = False,
    class_split: int = 0,
    **pictures: Any,
) -> ImageSet:
    """CUB-200-2011, Cars-196, Stanford Online Products or In-Shop, split by class as published.

    | name | images (classes) that train | that test | groups |
    |---|---|---|---|
    | cub | 5,864 (1–100) | 5,924 (101–200) | last word of the bird's name |
    | cars | 8,054 (1–98) | 8,131 (99–196) | first word of the make |
    | sop | 59,551 (11,318) | 60,502 (11,316) | twelve kinds of products |
    | inshop | 25,882 (3,997) | 14,218 queries, 12,612 in their gallery (3,985) | kinds of clothes |

    With ``validation`` half of the training classes, drawn by ``class_split``, still train, and
    the others are the split "val". ``pictures`` are arguments of ``Pictures``, which the images
    are. ``check`` compares counts, and the MD5 of Cars' index, and wants every file there.

    Raises FileNotFoundError where the index or a picture is missing, ValueError where the index is
    not in the published format, tests on what it trains on, or a count is another.
    Sources: Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset" (2011); Krause et al., "3D Object
    Representations for Fine-Grained Categorization" (2013); Oh Song et al., "Deep Metric Learning
    via Lifted Structured Feature Embedding" (2016), which fixed the splits of the first three; Liu
    et al., "DeepFashion" (2016).
    """
    check_flag(validation=validation)
    check_count(0, class_split=class_split)
    folder, index = _located(name, root)
    if check and (wrong := altered(name, root)):
        raise ValueError(f"{wrong}; pass check=False if it is meant to differ")
    try:
        listing = BENCHMARKS[name].read(folder, index)
        _check_disjoint(listing)
    except Exception as error:  # a damaged index raises a dozen kinds
        raise ValueError(f"{index} is not in the published format of {name}: {error}") from error
    if check:
        _check(name, split, listing.half(split))
    return listing.split(split, validation, class_split).image_set(**pictures)


def altered(name: str, root: Path) -> str:
    """What is wrong with the bytes of the file that lists the pictures; or nothing."""
    md5 = BENCHMARKS[name].index_md5
    try:
        if md5 is not None:
            verify(md5, _located(name, root)[1])
    except ValueError as error:
        return str(error)
    return ""


def _check_disjoint(listing: Listing) -> None:
    """Refuse a class, or a picture, that is trained and tested on."""
    if unknown := sorted({*listing.parts.tolist()} - {"train", "test", "query", "gallery"}):
        raise ValueError(f"unknown parts {', '.join(unknown)}")
    train, test = listing.half("train"), listing.half("test")
    for what, ours, theirs in (
        ("class", train.ids, test.ids),
        ("picture", train.paths, test.paths),
    ):
        if both := sorted({*ours.tolist()} & {*theirs.tolist()}):
            raise ValueError(f"{what} {both[0]} is both in train and in test, and {len(both)} are")


def _check(name: str, split: str, half: Listing) -> None:
    queries = int((half.parts == "query").sum())
    wrong = miscounted(name, split, Count(len(half.ids), len(np.unique(half.ids)), queries))
    if wrong:
        raise ValueError(f"{wrong}; pass check=False if they are meant to differ")
    missing = [path for path in half.paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{name} lists {len(missing)} pictures that are not there, the first is {missing[0]}: "
            f"`dmlkit data check {name}` names them"
        )


def miscounted(name: str, split: str, found: Count) -> str:
    """What is wrong with the counts of a split, validation classes included; or nothing.

    >>> miscounted("cub", "train", Count(images=5863, classes=100))
    'cub train: expected 5864 images of 100 classes, found 5863 images of 100 classes'
    """
    half = "test" if split == "test" else "train"
    expected = BENCHMARKS[name].published[half]
    return "" if found == expected else f"{name} {half}: expected {expected}, found {found}"


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
        f"{places[1]} (or name another root, or set $DMLKIT_DATA). {_instructions(name, root)}"
    )


def _instructions(name: str, root: Path) -> str:
    """How a set comes to be in a folder."""
    benchmark = BENCHMARKS[name]
    if benchmark.archive:
        return f"`dmlkit data get {name} --root {root}` fetches it"
    return (
        f"Take {benchmark.source} into {root / benchmark.folders[0]}, and unpack the archive "
        f"there; then `dmlkit data check {name} --root {root}`"
    )


def get(name: str, root: Path) -> None:
    """Put a set in place: fetch it, verify it, unpack it; what is there stays.

    Raises:
        ValueError: the set is none that can be fetched.
        FileNotFoundError: it has no stable public address; says how to come by it.
        OSError: the transfer failed, or what is there is in the way.
    """
    if name == "omniglot":
        omniglot.get(root)
        return
    if name not in BENCHMARKS:
        raise ValueError(
            f"{name!r} is not fetched: there are omniglot, {', '.join(BENCHMARKS)}; "
            "glyphs are made, and a folder is your own"
        )
    benchmark = BENCHMARKS[name]
    try:
        _located(name, root)
    except FileNotFoundError:
        if benchmark.archive is None:
            raise FileNotFoundError(_instructions(name, root)) from None
        unpack(fetch(benchmark.archive, root), root / benchmark.folders[0])
