"""CUB-200-2011, Cars-196, Stanford Online Products and In-Shop, as they are published."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmlkit.checks import check_choice
from dmlkit.data import grocery, omniglot
from dmlkit.data.download import File, fetch, unpack, verify
from dmlkit.data.images import ImageSet, Listing


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
    source: File | str  # the archive of all, or what to take from where
    index_md5: str | None = None  # of the file that lists the pictures, where it is known


def _table(path: Path, columns: int, header: int = 0) -> list[list[str]]:
    """The lines of a text file below its header, in columns; the last one may hold spaces."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()[header:]
    return [line.strip().split(maxsplit=columns - 1) for line in lines if line.strip()]


def _read_cub(folder: Path, index: Path) -> Listing:
    """``images.txt``: id, path; ``image_class_labels.txt``: id, class 1..200."""
    classes = dict(_table(index.with_name("image_class_labels.txt"), 2))
    images, paths = zip(*_table(index, 2), strict=True)
    ids = np.array([int(classes[image]) for image in images])
    names = [path.split("/")[0] for path in paths]  # 001.Black_footed_Albatross
    return Listing(
        paths=np.array([folder / "images" / path for path in paths]),
        ids=ids,
        names=np.array(names),
        groups=np.array([name.split("_")[-1].split(".")[-1] for name in names]),  # Albatross
        parts=np.where(ids <= 100, "train", "test"),
    )


def _read_cars(folder: Path, index: Path) -> Listing:
    """``cars_annos.mat``: annotations (relative_im_path, class 1..196, …) and class_names."""
    from scipy.io import loadmat

    content = loadmat(index, squeeze_me=True)
    ids = content["annotations"]["class"].astype(np.int64)
    names = content["class_names"][ids - 1].astype(np.str_)
    return Listing(
        paths=np.array([folder / path for path in content["annotations"]["relative_im_path"]]),
        ids=ids,
        names=names,
        groups=np.array([name.split()[0] for name in names]),  # the make: AM, Acura, Aston, …
        parts=np.where(ids <= 98, "train", "test"),
    )


def _read_sop(folder: Path, index: Path) -> Listing:
    """``Ebay_train.txt``, ``Ebay_test.txt``: header; image, class, super-class, path."""
    halves = [_table(index.with_name(f"Ebay_{half}.txt"), 4, 1) for half in ("train", "test")]
    _, products, _, paths = zip(*halves[0], *halves[1], strict=True)
    groups = [path.split("/")[0].removesuffix("_final") for path in paths]  # bicycle
    return Listing(
        paths=np.array([folder / path for path in paths]),
        ids=np.array([int(product) for product in products]),
        names=np.array([f"{group}/{p}" for group, p in zip(groups, products, strict=True)]),
        groups=np.array(groups),
        parts=np.repeat(["train", "test"], [len(half) for half in halves]),
    )


def _read_inshop(folder: Path, index: Path) -> Listing:
    """``list_eval_partition.txt``: how many; header; path (it may hold spaces), item, part."""
    lines = index.read_text(encoding="utf-8-sig").splitlines()[2:]
    rows = (line.strip().rsplit(maxsplit=2) for line in lines if line.strip())
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
        source=File(
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

    Raises FileNotFoundError where the index or a picture is missing, ValueError where a count is
    another.
    Sources: Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset" (2011); Krause et al., "3D Object
    Representations for Fine-Grained Categorization" (2013); Oh Song et al., "Deep Metric Learning
    via Lifted Structured Feature Embedding" (2016), which fixed the splits of the first three; Liu
    et al., "DeepFashion" (2016).
    """
    benchmark = BENCHMARKS[name]
    folder, index = _located(name, root)
    if check and benchmark.index_md5:
        verify(index, benchmark.index_md5)
    listing = benchmark.read(folder, index)
    if check:
        _check(name, listing.half(split), "test" if split == "test" else "train")
    return listing.split(split, validation, class_split).image_set(**pictures)


def files(name: str, root: Path) -> list[Path]:
    """What lists the pictures; these, which are published, count as they are."""
    _, index = _located(name, root)
    return sorted(index.parent.glob(f"*{index.suffix}"))


def _check(name: str, listing: Listing, half: str) -> None:
    """Compare a half, validation classes included, with what was published."""
    queries = int((listing.parts == "query").sum())
    found = Count(len(listing.ids), len(np.unique(listing.ids)), queries)
    if found != (expected := BENCHMARKS[name].published[half]):
        raise ValueError(
            f"{name} {half}: expected {expected}, found {found}; pass check=False if they are "
            "meant to differ"
        )
    if missing := [path for path in listing.paths if not path.is_file()]:
        raise FileNotFoundError(
            f"{name} lists {len(missing)} pictures that are not there, the first is {missing[0]}"
        )


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
    place = root / benchmark.folders[0]
    if isinstance(benchmark.source, File):
        how = f"`dmlkit data get {name} --root {root}` fetches it"
    else:
        how = f"Take {benchmark.source} into {place}, and unpack the archive there"
    raise FileNotFoundError(
        f"{name} needs {benchmark.listed_in[0]} and the folder {benchmark.pictures} in {root} or "
        f"{place} (or name another root, or set $DMLKIT_DATA). {how}"
    )


def get(name: str, root: Path) -> None:
    """Put a set in place: fetch it, verify it, unpack it; what is there stays.

    Raises ValueError for a set that is not fetched, FileNotFoundError for one that has no stable
    public address (says how to come by it), OSError where the transfer failed.
    """
    others: dict[str, Callable[[Path], object]]
    others = {"omniglot": omniglot.get, "grocery": grocery.located}
    check_choice([*BENCHMARKS, *others], name=name)
    if name in others:
        others[name](root)
        return
    benchmark = BENCHMARKS[name]
    try:
        _located(name, root)
    except FileNotFoundError:
        if not isinstance(benchmark.source, File):
            raise
        unpack(fetch(benchmark.source, root), root / benchmark.folders[0])
