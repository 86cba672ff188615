"""Your own pictures: a folder that holds one folder per class."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmlkit.checks import warn_once
from dmlkit.data import own
from dmlkit.data.images import SPLITS, ImageSet, Listing
from dmlkit.data.pictures import READS_HEIC, suffixes
from dmlkit.data.visits import last_visit, visits

Classes = Mapping[tuple[str, str], list[Path]]  # of each (part, class): the part is "" if not given


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    given: bool = True,
    validation: bool = False,
    class_split: int = 0,
    visit: str | None = None,
    join: bool = False,
    unreadable: str = "refuse",
    **pictures: Any,
) -> ImageSet:
    """Pictures of any size in ``root/CLASS/…``, split by class: test classes are never trained on.

    ``class_split`` draws the order of the classes: the first ``test_share`` of them test, the
    others train; with ``validation`` half of those are the split "val" instead. Or the folders say
    it, ``root/train/CLASS/…`` beside ``root/test/CLASS/…`` and, perhaps, ``root/val/CLASS/…``: then
    there is nothing to draw; without ``test``, ``val`` tests. But ``given=False`` draws among all,
    and ``test_share=0`` trains on all. What counts as a picture, see ``listing``. ``pictures`` are
    arguments of ``Pictures``, which the images are; groups are the classes. ``join`` makes one
    class of names that differ by case, form, spaces or hyphens alone.

    ``check`` decodes every picture, and compares files that may be equal: a warning names those in
    two classes or parts. What cannot be read is refused, or with ``unreadable="skip"`` left out,
    after the classes were drawn: see ``own.readable``.

    Where classes were photographed more than once, ``visit`` says how a picture tells when: see
    ``visits``. Then val and test search for the last visit of each class in those before.

    Raises FileNotFoundError where there is no such folder, ValueError where it does not hold one
    folder per class, or no class for the split, or an unreadable picture.
    """
    found, good = listing(root, test_share, class_split, join, given), np.array(True)
    if check:
        good = own.readable(list(found.paths), root, None, unreadable)
        for line in own.same_files(found.subset(good), root):
            warn_once(line)
    rows = found.subset(own.chosen(found, root, split, validation, class_split, good))
    images = rows.image_set(**pictures)
    if visit is None or split == "train":
        return images
    return last_visit(images, visits(list(rows.paths), root, visit))


def listing(
    root: Path,
    test_share: float = 0.5,
    class_split: int = 0,
    join: bool = False,
    given: bool = True,
) -> Listing:
    """All pictures of a folder, class after class, each with its part: train, val or test.

    A class is a folder; what lies in folders below it is of it. Links are followed, what is hidden
    (``.…``, ``__MACOSX``) is left out. A picture is a file with one of Pillow's ``suffixes``. A
    warning says how many files and class folders are not used, and what else is not as it seems.
    """
    known, found = suffixes(), _found(root, join)
    used = {
        place: [path for path in paths if path.suffix.lower() in known]
        for place, paths in found.items()
    }
    classes = {place: paths for place, paths in used.items() if paths}
    if not classes:
        empty = ", ".join(name for _, name in found)
        raise ValueError(
            f"expected {root} to hold one folder per class, with pictures ({' '.join(known)}) in "
            f"each, but there are none in {empty or 'it'}; if it is another folder, name that by "
            "root (on the command line --root FOLDER), or by $DMLKIT_DATA"
        )
    ids = np.repeat(np.arange(len(classes)), [len(paths) for paths in classes.values()])
    parts, names = (np.array(column)[ids] for column in zip(*classes, strict=True))
    drawn = not (given and test_share and parts[0])
    if drawn and parts[0]:
        ids = np.unique(names, return_inverse=True)[1]  # one class, on whatever side it lies
    if drawn:
        parts = own.drawn(ids, test_share, class_split)
    paths = np.array([path for paths in classes.values() for path in paths])
    made = Listing(paths, ids, names, names, parts)
    for line in (*_remarks(root, found, classes), *own.remarks(made, root)):
        warn_once(line)
    return made


def files(root: Path) -> list[Path]:
    """All files of the class folders."""
    return [path for paths in _found(root).values() for path in paths]


def _found(root: Path, join: bool = False) -> Classes:
    tops = _tops(root)
    inside = [(part, path) for part, top in tops for path in _visible(top) if path.is_dir()]
    names = [own.class_name(path.name) for _, path in inside]
    found: dict[tuple[str, str], list[Path]] = {}
    for (part, path), name in zip(inside, own.joined(names) if join else names, strict=True):
        found.setdefault((part, str(name)), []).extend(_below(path, [path.parent.resolve()]))
    return found


def _tops(root: Path) -> list[tuple[str, Path]]:
    """The folders that classes are in, each with its part."""
    tops = [(own.PARTS.get(path.name.lower(), ""), path) for path in _visible(root)]
    tops = [(part, path) for part, path in tops if part and path.is_dir()]
    tops.sort(key=lambda top: SPLITS.index(top[0]))
    parts = {part for part, _ in tops}
    return tops if "train" in parts and len(parts) > 1 else [("", root)]


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names, but for what systems hide there."""
    try:
        inside = list(folder.iterdir())
    except PermissionError:  # as lost+found of a disk
        return []
    visible = [path for path in inside if path.name[0] != "." and path.name != "__MACOSX"]
    return sorted(visible, key=lambda path: (own.class_name(path.name), path.name))


def _below(folder: Path, above: Collection[Path] = ()) -> Iterator[Path]:
    """All files below a folder, but none by a link to a folder that holds one of those above."""
    real = folder.resolve()
    for path in _visible(folder) if not any(each.is_relative_to(real) for each in above) else ():
        if path.is_dir():
            yield from _below(path, (*above, real))
        else:
            yield path


def _remarks(root: Path, found: Classes, classes: Classes) -> Iterator[str]:
    """What is not used of a folder, and what is not as it may seem."""
    every = Counter(path.suffix.lower() or "no suffix" for path in _below(root))
    used = Counter(path.suffix.lower() for paths in classes.values() for path in paths)
    if left := every - used:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in sorted(left.items()))
        how = f"; of HEIC: {READS_HEIC}" if left.keys() & {".heic", ".heif", ".hif"} else ""
        yield f"files in {root} that are not used: {left.total()} of {every.total()} ({kinds}){how}"
    if empty := [name for place, name in found if (place, name) not in classes]:
        yield f"class folders without pictures in {root} are not used: {own.told(empty)}"
    within = ((name, path.parent.name) for (_, name), paths in classes.items() for path in paths)
    if not any(name == own.class_name(parent) for name, parent in within):
        names = own.told([name for _, name in classes])
        yield f"the classes in {root} are {names}: all pictures lie in folders below these"
