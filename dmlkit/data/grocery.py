"""Groceries: photographs that were taken with a phone in shops, on two kinds of visits."""

import csv
import hashlib
import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.typing import NDArray

from dmlkit import cache_folder
from dmlkit.checks import check_choice
from dmlkit.data import features as kept
from dmlkit.data.download import File, fetch, unpack
from dmlkit.data.images import ImageSet, Listing

COMMIT = "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc"
NAME = f"GroceryStoreDataset-{COMMIT}"
#: GitHub makes the archive anew for each who asks, so it has no hash that stays.
ARCHIVE = File(
    f"{NAME}.zip",
    None,
    f"https://github.com/marcusklasson/GroceryStoreDataset/archive/{COMMIT}.zip",
)
#: Git's own hash of that commit's folder ``dataset``: the names and contents of all its files.
TREE, FILES = "e7756d505f53e3eef89ae1ee97f3a799a9885475", 5695
GALLERIES = ("visit", "all", "catalog")
#: The classes that each of four folds tests: 21, 20, 20 and 20.
FOLDS = np.array_split(np.random.default_rng(0).permutation(81), 4)


def load(
    split: str,
    root: Path,
    check: bool = True,
    fold: int | None = 0,
    validation: bool = False,
    class_split: int = 0,
    third: int | None = None,
    gallery: str = "visit",
    features: str | None = None,
    **pictures: Any,
) -> ImageSet:
    """Groceries: 5,421 photographs of 81 classes of fruit, vegetables and cartons, split by class.

    The classes of one ``fold``, 0 to 3, test, and the others train; with ``validation`` half of
    those, or one ``third``, 0 to 2, drawn by ``class_split``, are the split "val". With
    ``fold=None`` all 81 test. Groups are the 43 coarse classes, such as Apple; the
    attribute ``list`` is the authors' list that a photograph is in: train and val are of one visit
    to a shop, test is of another.

    Photographs of one visit are near copies. So what the test list has of the classes of test or
    val is searched for in a ``gallery`` of another ``visit``; or in the 81 pictures of a shop's
    ``catalog``; or every photograph in ``all`` others, near copies too. Both visits are trained on.

    ``pictures`` are arguments of ``Pictures``, but that only the shorter side is resized, unless
    ``keep_aspect=False``. With ``features``, NETWORK@SIDE, the images are (N, F, 1, 1): what that
    network, which did not learn here, makes of pictures of that side. See ``data/features``.

    The archive, or what was unpacked of it, is in ``root`` or ``root/grocery``; else it is fetched,
    once, 124 MB. ``check`` compares all files with those that were published. Raises ValueError
    where they are others, OSError where they cannot be fetched. Source: Klasson, Zhang and
    Kjellström, "A Hierarchical Grocery Store Image Dataset with Visual and Semantic Labels" (2019).
    """
    check_choice(GALLERIES, gallery=gallery)
    if features and pictures:
        raise ValueError(f"features are there already: they go without {', '.join(pictures)}")
    folder = Path() if features else located(root, check)
    every, vectors = kept.read("grocery", features) if features else (listed(folder), None)
    found, rows = chosen(every, split, fold, validation, class_split, gallery, third)
    paths = np.array([folder / path for path in found.paths])
    images = found._replace(paths=paths).image_set(**{"keep_aspect": True} | pictures)
    if vectors is not None:
        images = replace(images, images=vectors[rows, :, None, None])
    return replace(images, attributes={"list": every.parts[rows]})


def chosen(
    every: Listing,
    split: str,
    fold: int | None,
    validation: bool,
    class_split: int,
    gallery: str,
    third: int | None = None,
) -> tuple[Listing, NDArray[np.int64]]:
    """What ``load`` takes of all that is listed, and its rows there (N,)."""
    photographs = every.subset(every.parts != "catalog")
    tested = np.isin(photographs.ids, np.arange(81) if fold is None else FOLDS[fold])
    parts = np.where(tested, "test", "train")
    if third is not None:
        others = np.random.default_rng(class_split).permutation(np.unique(photographs.ids[~tested]))
        parts[np.isin(photographs.ids, np.array_split(others, 3)[third])] = "val"
    halves = photographs._replace(parts=parts)
    found = halves.split(split, validation, class_split)
    if split != "train" and gallery != "all":
        other = np.array([path.startswith("test/") for path in found.paths])
        found = found._replace(parts=np.where(other, "query", "gallery"))
        if gallery == "catalog":
            both = found.subset(other), every.subset(every.parts == "catalog")
            found = Listing._make(map(np.concatenate, zip(*both, strict=True)))
    place = {path: i for i, path in enumerate(every.paths)}
    return found, np.array([place[path] for path in found.paths])


def listed(folder: Path) -> Listing:
    """All photographs by the authors' lists, then the catalog; paths are below the folder."""
    with (folder / "classes.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))[1:]  # name, id, coarse name, coarse id, picture, text
    rows = [
        (path.strip(), int(fine), part)
        for part in ("train", "val", "test")
        for path, fine, _ in csv.reader((folder / f"{part}.txt").read_text("utf-8").splitlines())
    ]
    rows += [(row[4].strip("/"), int(row[1]), "catalog") for row in table]
    paths, ids, parts = zip(*rows, strict=True)
    names, groups = (np.array([row[k] for row in table])[list(ids)] for k in (0, 2))
    return Listing(np.array(paths, object), np.array(ids), names, groups, np.array(parts))


def located(root: Path, check: bool = True) -> Path:
    """The folder of lists and photographs; unpacked, or fetched, where it is not there yet."""
    cache = cache_folder() / "grocery"
    for place in (root, root / "grocery", cache):
        for at in (place / NAME / "dataset", place / NAME / NAME / "dataset", place / "dataset"):
            if (at / "classes.csv").is_file():
                return _checked(at) if check else at
    archives = [place / ARCHIVE.name for place in (root, root / "grocery")]
    archive = next(filter(Path.is_file, archives), None) or fetch(ARCHIVE, cache)
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(cache / "lock"):  # of several processes one unpacks
            if not (cache / NAME).exists():
                unpack(archive, cache / NAME)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{archive} is damaged ({error}): delete it, to have it fetched"
        ) from error
    return located(root, check)


@lru_cache
def _checked(folder: Path) -> Path:
    """The folder, where all that is in it is as published."""
    if (found := git_hash(folder)) != TREE:
        count = sum(path.is_file() for path in folder.rglob("*"))
        raise ValueError(
            f"{folder} is not the published set: expected {FILES} files of Git's hash {TREE}, "
            f"found {count} of {found}; delete it, so that it is unpacked anew, or say check=False"
        )
    return folder


def git_hash(path: Path) -> str:
    """Git's hash of a folder or a file: of a list of names, kinds and hashes, or of the bytes."""
    if path.is_dir():
        inside = [each for each in path.iterdir() if not each.name.startswith(".")]
        inside.sort(key=lambda each: each.name + "/" * each.is_dir())
        kind, modes = "tree", {True: b"40000", False: b"100644"}
        content = b"".join(
            b"%s %s\0%s" % (modes[each.is_dir()], each.name.encode(), bytes.fromhex(git_hash(each)))
            for each in inside
        )
    else:
        kind, content = "blob", path.read_bytes()
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content).hexdigest()
