"""Your own pictures: a folder that holds one folder per class."""

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmlkit.checks import check_range
from dmlkit.data.images import SPLITS, ImageSet, Listing
from dmlkit.data.pictures import check_readable, suffixes
from dmlkit.data.visits import last_visit, visits

Classes = Mapping[tuple[str, str], list[Path]]  # of each (part, class): the part is "" if not given


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    validation: bool = False,
    class_split: int = 0,
    visit: str | None = None,
    **pictures: Any,
) -> ImageSet:
    """Pictures of any size in ``root/CLASS/…``, split by class: test classes are never trained on.

    ``class_split`` draws the order of the classes: the first ``test_share`` of them test, the
    others train; with ``validation`` half of those are the split "val" instead. Or the folders say
    it, ``root/train/CLASS/…`` beside ``root/test/CLASS/…`` and, perhaps, ``root/val/CLASS/…``: then
    there is nothing to draw. What counts as a picture, see ``listing``. ``check`` decodes every one
    of the split, and names those that cannot be read. ``pictures`` are arguments of ``Pictures``,
    which the images are; groups are the classes.

    Where classes were photographed more than once, ``visit`` says how a picture tells when: see
    ``visits``. Then val and test search for the last visit of each class in those before.

    Raises FileNotFoundError where there is no such folder, ValueError where it does not hold one
    folder per class, or no class for the split, or an unreadable picture.
    """
    check_range(0, 1, test_share=test_share)
    found = listing(root, test_share, class_split)
    rows = found.split(split, validation, class_split)
    if not len(rows.paths):
        count = {part: len(set(found.ids[found.parts == part])) for part in SPLITS}
        raise ValueError(
            f"the split {split!r} is empty: expected {root} to hold one folder per class, with "
            f"pictures, and classes for each split, but of {_told(found.names)} {count['train']} "
            f"can train (some of them for val, if validation) and {count['test']} test: add "
            f"classes, change test_share ({test_share}), or name another folder by root (on the "
            "command line --root FOLDER)"
        )
    if check:
        check_readable(list(rows.paths))
    images = rows.image_set(**pictures)
    if visit is None or split == "train":
        return images
    return last_visit(images, visits(list(rows.paths), root, visit))


def listing(root: Path, test_share: float = 0.5, class_split: int = 0) -> Listing:
    """All pictures of a folder, class after class, each with its part: train, val or test.

    A class is a folder; what lies in folders below it is of it. Links are followed, what is hidden
    (``.…``, ``__MACOSX``) is left out. A picture is a file with one of Pillow's ``suffixes``. A
    warning says how many files and class folders are not used, and what else is not as it seems.
    """
    known, found = suffixes(), _found(root)
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
    for line in _remarks(root, found, classes):
        warnings.warn(line, stacklevel=2)
    ids = np.repeat(np.arange(len(classes)), [len(paths) for paths in classes.values()])
    parts, names = (np.array(column)[ids] for column in zip(*classes, strict=True))
    if not parts[0]:
        order = np.random.default_rng(class_split).permutation(len(classes))
        tests = np.isin(ids, order[: round(test_share * len(classes))])
        parts = np.where(tests, "test", "train")
    paths = np.array([path for paths in classes.values() for path in paths])
    return Listing(paths, ids, names, names, parts)


def files(root: Path) -> list[Path]:
    """All files of the class folders."""
    return [path for paths in _found(root).values() for path in paths]


def _found(root: Path) -> Classes:
    own = [root / part for part in SPLITS if (root / part).is_dir()]
    tops = own if len(own) > 1 and own[0].name == "train" else [root]
    return {
        ("" if top == root else top.name, folder.name): list(_below(folder, [top.resolve()]))
        for top in tops
        for folder in _visible(top)
        if folder.is_dir()
    }


def _visible(folder: Path) -> list[Path]:
    """What is in a folder, in the order of names, but for what systems hide there."""
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name != "__MACOSX"
    )


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
        yield f"files in {root} that are not used: {left.total()} of {every.total()} ({kinds})"
    if empty := [name for place, name in found if (place, name) not in classes]:
        yield f"class folders without pictures in {root} are not used: {_told(empty)}"
    tops = {root / part / name for part, name in classes}
    if not any(path.parent in tops for paths in classes.values() for path in paths):
        names = _told([name for _, name in classes])
        yield f"the classes in {root} are {names}: all pictures lie in folders below these"
    trained = {name for part, name in classes if part == "train"}
    if known := [name for part, name in classes if part in ("val", "test") and name in trained]:
        yield f"{_told(known)} in {root} both train and test: scores are not of unseen classes"


def _told(names: Collection[str]) -> str:
    """How many classes, and the first of them."""
    some = list(dict.fromkeys(names))
    return f"{len(some)} ({', '.join(some[:5])}{', …' if len(some) > 5 else ''})"
