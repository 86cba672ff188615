"""Pictures of one's own, from a folder or a list: names, splits, and what is odd or unreadable."""

import csv
import hashlib
import os
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dmlkit import cache_folder
from dmlkit.checks import check_choice, check_range, warn_once
from dmlkit.data.images import SPLITS, Listing
from dmlkit.data.pictures import Box, complaints, sha256, threads
from dmlkit.files import StrPath, write_whole

#: What people call a part; capitals do not matter.
PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_NAMED = 5  # of many


def class_name(text: str) -> str:
    """One text for one name: composed (NFC), and bytes that are no UTF-8 spelled out.

    >>> class_name("A\\u0308pfel") == class_name("\\u00c4pfel"), class_name("\\udcff")
    (True, '\\\\xff')
    """
    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", plain)


def joined(names: Iterable[str]) -> NDArray[np.str_]:
    """Names, those that differ by case, form, spaces or hyphens alone as the first of them.

    >>> joined(["Red apple", "pear", "red-apple", "red_apple "]).tolist()
    ['Red apple', 'pear', 'Red apple', 'Red apple']
    """
    first: dict[str, str] = {}
    return np.array([first.setdefault(_bare(name), name) for name in names])


_SPACES = str.maketrans("-_", "  ")


def _bare(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_SPACES)
    return "".join(plain.split())


def remarks(found: Listing, root: Path) -> Iterator[str]:
    """What is not as it may seem of the classes."""
    trained = set(found.names[found.parts == "train"])
    if known := trained & set(found.names[found.parts != "train"]):
        some = told(sorted(known))
        yield f"{some} in {root} both train and test: scores are not of unseen classes"
    groups = defaultdict(list)
    for name in dict.fromkeys(found.names):
        groups[_bare(name)].append(name)
    if alike := [" and ".join(group) for group in groups.values() if len(group) > 1]:
        yield (
            f"classes in {root} that differ by case, form, spaces or hyphens alone: {told(alike)}; "
            "join=True (--set data_args.join=true) makes one of them"
        )


def drawn(ids: NDArray[np.integer], test_share: float, class_split: int) -> NDArray[np.str_]:
    """The part of each picture, where ``class_split`` draws which classes test: (N,)."""
    check_range(0, 1, test_share=test_share)
    classes = np.unique(ids)
    order = np.random.default_rng(class_split).permutation(len(classes))
    tests = classes[order[: round(test_share * len(classes))]]
    return np.where(np.isin(ids, tests), "test", "train")


def chosen(
    found: Listing,
    root: Path,
    split: str,
    validation: bool,
    class_split: int,
    good: NDArray[np.bool_] | bool = True,
) -> NDArray[np.intp]:
    """The places of a split's pictures, without those that are not ``good``.

    Where a "val" is given and no "test", that is what tests. Raises ValueError for an empty split.
    """
    parts = found.parts
    if "test" not in parts:
        parts = np.where(parts == "val", "test", parts)
    places = np.arange(len(parts)).astype(object)
    rows = found._replace(paths=places, parts=parts).split(split, validation, class_split).paths
    rows = rows[np.broadcast_to(good, len(parts))[rows.astype(int)]].astype(int)
    if not len(rows):
        count = {part: len(set(found.ids[parts == part])) for part in SPLITS}
        raise ValueError(
            f"the split {split!r} is empty: expected classes with pictures for each split, but of "
            f"{told(found.names)} in {root} {count['train']} can train (some of them for val, if "
            f"validation) and {count['test']} test: add classes, change test_share, or name "
            "another place by root (on the command line --root)"
        )
    return rows


def readable(
    paths: Sequence[StrPath], root: Path, boxes: Sequence[Box | None] | None, unreadable: str
) -> NDArray[np.bool_]:
    """Which pictures can be decoded: (N,). Others are listed, with reasons, in a CSV of the cache.

    They are an error (ValueError), or with ``unreadable="skip"`` a warning.
    """
    check_choice(("refuse", "skip"), unreadable=unreadable)
    found = complaints(paths, boxes)
    bad = [(str(path), line) for path, line in zip(paths, found, strict=True) if line]
    if bad:
        mark = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:8]
        table = cache_folder() / "unreadable" / f"{class_name(root.stem)}-{mark}.csv"

        def write(beside: Path) -> None:
            with beside.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                csv.writer(file).writerows(
                    [
                        ("path", "reason"),
                        *((path, line.removeprefix(f"{path} ")) for path, line in bad),
                    ]
                )

        write_whole({table: write})
        be = "is" if len(bad) == 1 else "are"
        some = "; ".join(line for _, line in bad[:_NAMED])
        line = f"{len(bad)} of {len(paths)} pictures {be} unreadable: {some}. All are in {table}"
        if unreadable == "refuse":
            raise ValueError(f'{line}; unreadable="skip" (--unreadable skip) leaves them out')
        warn_once(f"{line}, and left out")
    return np.array([not line for line in found])


def same_files(
    found: Listing, root: Path, boxes: Sequence[Box | None] | None = None
) -> Iterator[str]:
    """Which files of readable pictures are identical, though in two classes or in two parts."""
    shown = boxes or [None] * len(found.paths)
    sizes = [os.stat(path).st_size for path in found.paths]
    frame = pd.DataFrame({"path": found.paths, "class": found.names, "part": found.parts})
    frame["key"] = [f"{size} {box}" for size, box in zip(sizes, shown, strict=True)]
    frame = frame[frame["key"].duplicated(keep=False)]  # what is of one size alone has no equal
    frame = frame.assign(
        key=frame["key"] + list(map(bytes.hex, threads().map(sha256, frame["path"])))
    )
    groups = frame.groupby("key", sort=False)
    odd = groups[["class", "part"]].nunique() > 1
    if odd.any(axis=None):
        paths = groups["path"].agg(list)[odd.any(axis=1)]
        same = [" = ".join(os.path.relpath(path, root) for path in equal) for equal in paths]
        yield (
            f"identical files in {root}: {odd['class'].sum()} in two classes, {odd['part'].sum()} "
            f"on both sides of a split: {told(same)}"
        )


def told(names: Collection[str]) -> str:
    """How many there are, and the first of them."""
    some = list(dict.fromkeys(names))
    return f"{len(some)} ({', '.join(some[:_NAMED])}{', …' if len(some) > _NAMED else ''})"
