"""Published data sets in their published formats and splits."""

import hashlib
import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dmlkit.data import ImageSet

_OMNIGLOT_MD5 = {
    "small1": "e704a628b5459e08445c13499850abc4",
    "small2": "b75a71a51d3b13f821f212756fe481fd",
}
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
    """Omniglot small: train on one archive, test on the alphabets that only the other one holds.

    ``train_on="small1"`` trains on 136 characters (2,720 drawings) and tests on 106 (2,120) of
    Japanese, Sanskrit and Tagalog; ``"small2"`` trains on 156 (3,120) and tests on 86 (1,720).
    With ``validation`` every fourth training character makes up the split "val" and leaves
    "train". ``test_alphabets`` picks among the test alphabets. Images are (1, size, size) uint8,
    ink 255 on 0. Groups are alphabets; the attribute ``drawer`` is the person's number, 1..20.

    ``omniglot(...)`` reads ``images_background_small1.zip`` and ``..._small2.zip`` in ``root`` or
    ``root/omniglot``; ``check`` compares their MD5. Raises FileNotFoundError where one is missing,
    ValueError where one is corrupted, and where a test alphabet or image is also a training one:
    both archives hold Greek and Latin. Source: Lake, Salakhutdinov & Tenenbaum, "Human-level
    concept learning through probabilistic program induction" (2015).
    """
    if train_on not in _OMNIGLOT_MD5:
        raise ValueError(f"train_on must be one of {', '.join(_OMNIGLOT_MD5)}, not {train_on!r}")
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    if split == "val" and not validation:
        raise ValueError(
            "omniglot has a val split only with validation=True, which takes every fourth "
            "training character out of train"
        )
    test_on = next(name for name in _OMNIGLOT_MD5 if name != train_on)
    archive, characters = _open(_find(root, train_on), train_on, check)
    if split == "test":
        training = characters
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
    name = f"images_background_{part}.zip"
    for path in (root / name, root / "omniglot" / name):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"Omniglot needs {name} in {root} or {root / 'omniglot'}: take it from the folder python/ "
        "of github.com/brendenlake/omniglot, or name another folder as root or in $DMLKIT_DATA"
    )


def _open(path: Path, part: str, check: bool) -> tuple[zipfile.ZipFile, _Characters]:
    """The archive and its drawings by character, in the order of their names."""
    content = path.read_bytes()
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if check and md5 != _OMNIGLOT_MD5[part]:
        raise ValueError(
            f"{path} is not the published file: its MD5 is {md5}, expected {_OMNIGLOT_MD5[part]}. "
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
    if leaked:
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
