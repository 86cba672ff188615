"""Omniglot: handwritten characters of fifty alphabets."""

import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dmlkit.checks import check_choice, check_count
from dmlkit.data.download import File, fetch, verify
from dmlkit.data.images import ImageSet

FILES = {
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
_DRAWN = {"train": 3 / 4, "test": 1 / 2}  # with a class_split, this share of the characters

Drawings = dict[tuple[str, str], list[tuple[str, bytes]]]  # (alphabet, character) -> name, content


def load(
    split: str,
    root: Path,
    check: bool = True,
    train_on: str = "small1",
    validation: bool = False,
    size: int = 32,
    class_split: int | None = None,
) -> ImageSet:
    """Omniglot: train on one archive, test on the alphabets that only another one holds.

    ``train_on="small1"`` trains on 136 characters (2,720 drawings) and tests on 106 (2,120) of
    Japanese, Sanskrit and Tagalog; ``"small2"`` trains on 156 (3,120) and tests on 86 (1,720);
    ``"background"`` is the full set: 964 (19,280) of 30 alphabets, tested on 659 (13,180) of 20.
    Both small archives hold Greek and Latin, which therefore are not tested on. With ``validation``
    every fourth training character makes up the split "val" and leaves "train". A ``class_split``,
    which is for splits without validation, draws three quarters of the characters to train on and
    half of those to test on, other ones for each number: so that repetitions of a training have
    different classes. Images are (1, size, size) uint8, ink 255 on 0. Groups are alphabets; the
    attribute ``drawer`` is the person's number, 1..20.

    Reads the archives in ``root`` or ``root/omniglot``; ``check`` compares their MD5. Raises
    FileNotFoundError where one is missing, ValueError where one is corrupted. Source: Lake,
    Salakhutdinov & Tenenbaum, "Human-level concept learning through probabilistic program
    induction" (2015).
    """
    check_choice(_TESTED_ON, train_on=train_on)
    check_count(size=size)
    if split == "val" and not validation:
        raise ValueError(
            "omniglot has a val split only with validation=True, which takes every fourth "
            "training character out of train"
        )
    if validation and class_split is not None:
        raise ValueError("class_split goes with validation=False, whose classes are fixed")
    drawings = _read(root, train_on, check)
    kept = list(drawings)
    if split == "test":
        trained_on = {alphabet for alphabet, _ in drawings}
        drawings = _read(root, _TESTED_ON[train_on], check)
        kept = [key for key in drawings if key[0] not in trained_on]
    elif validation:
        kept = [key for i, key in enumerate(kept) if (i % 4 == 3) == (split == "val")]
    if class_split is not None:
        order = np.random.default_rng([class_split, split == "test"]).permutation(len(kept))
        kept = [kept[i] for i in sorted(order[: round(_DRAWN[split] * len(kept))])]
    counts = [len(drawings[key]) for key in kept]
    files = [file for key in kept for file in drawings[key]]
    ink = np.array([_ink(content, size) for _, content in files])  # (N, size, size)
    return ImageSet(
        images=torch.from_numpy(ink)[:, None],
        labels=np.repeat(np.arange(len(kept)), counts),
        groups=np.repeat([alphabet for alphabet, _ in kept], counts),
        class_names=tuple(map("/".join, kept)),
        attributes={"drawer": np.array([int(name[-6:-4]) for name, _ in files])},
    )


def files(root: Path) -> list[Path]:
    """Where the archives may be."""
    return [place / file.name for file in FILES.values() for place in (root, root / "omniglot")]


def get(root: Path) -> None:
    """Fetch the archives that are not in ``root`` or ``root/omniglot`` already."""
    for file in FILES.values():
        fetch(file, root if (root / file.name).is_file() else root / "omniglot")


def _read(root: Path, part: str, check: bool) -> Drawings:
    """All drawings of an archive, in the order of their names."""
    file = FILES[part]
    places = (root / file.name, root / "omniglot" / file.name)
    path = next(filter(Path.is_file, places), None)
    if path is None:
        raise FileNotFoundError(
            f"Omniglot needs {file.name} in {root} or {root / 'omniglot'}: `dmlkit data get "
            f"omniglot` takes it from github.com/brendenlake/omniglot; or name another folder as "
            "root or in $DMLKIT_DATA"
        )
    if check:
        verify(path, file.md5)
    found: Drawings = {}
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".png") and name.count("/") == 3:  # …/alphabet/character/0001_01.png
                _, alphabet, character, _ = name.split("/")
                found.setdefault((alphabet, character), []).append((name, archive.read(name)))
    return found


def _ink(drawing: bytes, size: int) -> NDArray[np.uint8]:
    """A drawing as (size, size), ink high: the files hold dark ink on white."""
    gray = Image.open(io.BytesIO(drawing)).convert("L")
    return 255 - np.asarray(gray.resize((size, size), Image.Resampling.BOX))
