"""Your own pictures: a folder that holds one folder per class."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dmlkit.checks import check_count, check_flag, check_range
from dmlkit.data.images import ImageSet
from dmlkit.data.listing import Listing
from dmlkit.data.pictures import unreadable
from dmlkit.data.untrusted import SUFFIXES

_NAMED = 20  # bad files, at most, in a message


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    validation: bool = False,
    class_split: int = 0,
    skip_unreadable: bool = False,
    **pictures: Any,
) -> ImageSet:
    """Pictures of any size in ``root/CLASS/…``, split by class: test classes are never trained on.

    ``class_split`` draws the order of the classes: the first ``test_share`` of them test, the
    others train; with ``validation`` half of those are the split "val" instead. Files count as
    pictures by their suffix (see ``SUFFIXES``), hidden ones do not. ``check`` decodes every one of
    them; those that cannot be read are an error that lists them, or with ``skip_unreadable`` a
    warning. ``pictures`` are arguments of ``Pictures``, which the images are; groups are the
    classes.

    Raises FileNotFoundError where there is no such folder, ValueError where it does not hold one
    folder per class, or an unreadable picture.
    """
    check_range(0, 1, test_share=test_share)
    check_flag(validation=validation, skip_unreadable=skip_unreadable)
    check_count(0, class_split=class_split)
    listing = _listed(root, test_share, class_split)
    if check or skip_unreadable:
        if not skip_unreadable:
            check_readable(list(listing.paths), ", or pass skip_unreadable=True")
        if bad := _unreadable(list(listing.paths)):
            warnings.warn(f"skipped: {_described(bad)}", stacklevel=2)
            listing = listing.subset(np.array([path not in bad for path in listing.paths]))
    return listing.split(split, validation, class_split).image_set(**pictures)


def _listed(root: Path, test_share: float, class_split: int) -> Listing:
    """All pictures, folder after folder."""
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no folder: expected one that holds a folder per class")
    classes = {
        folder.name: sorted(
            file
            for file in folder.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith((".", "__"))
    }
    empty = [name for name, files in classes.items() if not files]
    if empty or not classes:
        raise ValueError(
            f"expected {root} to hold one folder per class, with pictures ({' '.join(SUFFIXES)}) "
            f"in each, but there are none in {', '.join(empty) or 'it'}; if it is another folder, "
            "name that by root (on the command line --root FOLDER), or by $DMLKIT_DATA"
        )
    ids = np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()])
    names = np.array(list(classes))[ids]
    order = np.random.default_rng(class_split).permutation(len(classes))
    tests = np.isin(ids, order[: round(test_share * len(classes))])
    paths = np.array([path for files in classes.values() for path in files])
    return Listing(paths, ids, names, names, np.where(tests, "test", "train"))


def _unreadable(paths: Sequence[Path]) -> dict[Path, str]:
    """Those that cannot be decoded; a file that is only a dead link has no time of change."""
    times = (path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
    return _decoded(tuple(zip(paths, times, strict=True)))


@lru_cache(maxsize=4)
def _decoded(files: tuple[tuple[Path, int], ...]) -> dict[Path, str]:
    return unreadable([path for path, _ in files])  # once for all splits, anew for what was mended


def check_readable(paths: Sequence[Path], otherwise: str = "") -> None:
    """Refuse pictures of which some cannot be decoded, naming them all, and what else can be done.

    >>> check_readable([])
    """
    if bad := _unreadable(paths):
        raise ValueError(f"{_described(bad)}; mend or delete them{otherwise}")


def _described(bad: dict[Path, str]) -> str:
    more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    what = "1 picture is" if len(bad) == 1 else f"{len(bad)} pictures are"
    return f"{what} unreadable: {'; '.join(list(bad.values())[:_NAMED])}{more}"
