"""On which visit a picture was taken: those of one visit are near copies of each other."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags

from dmlkit.data.images import ImageSet
from dmlkit.data.pictures import open_picture


def last_visit(images: ImageSet, visits: NDArray[np.str_]) -> ImageSet:
    """The set with the pictures of each class's last visit as queries, all others as their gallery.

    Visits (N,) come in the order of their text, and become an attribute. A class of one visit is in
    the gallery alone. Raises ValueError where all are.
    """
    queries = np.zeros(len(images), bool)
    for label in range(images.num_classes):
        own = np.unique(visits[images.labels == label])
        if len(own) > 1:
            queries |= (images.labels == label) & (visits == own[-1])
    if not queries.any():
        raise ValueError(
            f"all {images.num_classes} classes have one visit, {str(visits[0])!r}: expected a "
            "class with two, of which one is searched for in the other"
        )
    return replace(images, queries=queries, attributes=images.attributes | {"visit": visits})


def visits(paths: Sequence[Path], root: Path, visit: str) -> NDArray[np.str_]:
    """The visit of each picture: (N,).

    ``visit`` is "date", the day that a camera wrote into the file; or a regular expression for what
    stands in its path below ``root``: its first group, where it has one. Raises ValueError for a
    picture without a visit.

    >>> visits([Path("shop/plum/2024-05-01_7.jpg")], Path("shop"), r"\\d{4}-\\d\\d-\\d\\d")
    array(['2024-05-01'], dtype='<U10')
    """
    try:
        pattern = re.compile(visit)
    except re.error as error:
        raise ValueError(f"visit={visit!r} is no regular expression: {error}") from error

    def found(path: Path) -> str | None:
        if visit == "date":
            return _day(path)
        match = pattern.search(path.relative_to(root).as_posix())
        return match and match[min(1, pattern.groups)]

    each = {path: found(path) for path in paths}
    if missed := [path for path, one in each.items() if not one]:
        raise ValueError(
            f"visit={visit!r} is not told by {len(missed)} of {len(paths)} pictures, as {missed[0]}"
        )
    return np.array(list(each.values()))


def _day(path: Path) -> str:
    """YYYY:MM:DD, when it was taken, else when it was written; "" where neither is in the file."""
    with open_picture(path) as image:
        about = image.getexif()
        taken = about.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        return str(taken or about.get(ExifTags.Base.DateTime, ""))[:10]
