"""Your own pictures: a folder that holds one folder per class."""

from pathlib import Path
from typing import Any

import numpy as np

from dmlkit.checks import check_range
from dmlkit.data.images import ImageSet, Listing
from dmlkit.data.pictures import SUFFIXES, check_readable
from dmlkit.data.visits import last_visit, visits


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
    others train; with ``validation`` half of those are the split "val" instead. Files count as
    pictures by their suffix (see ``SUFFIXES``), hidden ones do not. ``check`` decodes every one of
    the split, and names those that cannot be read. ``pictures`` are arguments of ``Pictures``,
    which the images are; groups are the classes.

    Where classes were photographed more than once, ``visit`` says how a picture tells when: see
    ``visits``. Then val and test search for the last visit of each class in those before.

    Raises FileNotFoundError where there is no such folder, ValueError where it does not hold one
    folder per class, or an unreadable picture.
    """
    check_range(0, 1, test_share=test_share)
    listing = _listed(root, test_share, class_split).split(split, validation, class_split)
    if check:
        check_readable(list(listing.paths))
    images = listing.image_set(**pictures)
    if visit is None or split == "train":
        return images
    return last_visit(images, visits(list(listing.paths), root, visit))


def _listed(root: Path, test_share: float, class_split: int) -> Listing:
    """All pictures, folder after folder."""
    classes = {
        folder.name: sorted(
            file
            for file in folder.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith((".", "__"))
    }
    if not classes or not all(classes.values()):
        empty = ", ".join(name for name, files in classes.items() if not files)
        raise ValueError(
            f"expected {root} to hold one folder per class, with pictures ({' '.join(SUFFIXES)}) "
            f"in each, but there are none in {empty or 'it'}; if it is another folder, "
            "name that by root (on the command line --root FOLDER), or by $DMLKIT_DATA"
        )
    ids = np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()])
    names = np.array(list(classes))[ids]
    order = np.random.default_rng(class_split).permutation(len(classes))
    tests = np.isin(ids, order[: round(test_share * len(classes))])
    paths = np.array([path for files in classes.values() for path in files])
    return Listing(paths, ids, names, names, np.where(tests, "test", "train"))
