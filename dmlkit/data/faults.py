"""What a data set's files hold, and what is wrong with them."""

import os
from pathlib import Path
from typing import Any

from dmlkit import ROOT
from dmlkit.data import benchmarks, load, pictures


def inspect(
    name: str, split: str, root: Path | None = None, **args: Any
) -> tuple[dict[str, int], list[str]]:
    """Counts of a split's images, classes and groups, and a line for each fault in it.

    The pictures of a benchmark or folder are all decoded, and a benchmark's counts compared with
    the published ones. Raises ValueError and OSError as ``dmlkit.data.load`` does.

    >>> inspect("glyphs", "test")
    ({'images': 2000, 'classes': 100, 'groups': 12}, [])
    """
    of_files = name in (*benchmarks.BENCHMARKS, "folder")
    images = load(name, split, root, check=not of_files, **args)
    wrong: list[str] = []
    if isinstance(images.images, pictures.Pictures):
        wrong += pictures.unreadable(images.images.paths).values()
    if name in benchmarks.BENCHMARKS and not args.get("validation"):
        queries = 0 if images.queries is None else int(images.queries.sum())
        found = benchmarks.Count(len(images), images.num_classes, queries)
        place = root or Path(os.environ.get("DMLKIT_DATA") or ROOT / "data")
        faults = benchmarks.miscounted(name, split, found), benchmarks.altered(name, place)
        wrong += filter(None, faults)
    groups = len(set(images.groups))
    return {"images": len(images), "classes": images.num_classes, "groups": groups}, wrong


def splits(
    name: str, root: Path | None = None, **args: Any
) -> tuple[dict[str, tuple[dict[str, int], list[str]]], str]:
    """Each split as ``inspect`` finds it, and why there are no validation classes, or ''.

    >>> found, missing = splits("glyphs")
    >>> {split: counts["classes"] for split, (counts, _) in found.items()}, missing
    ({'train': 300, 'test': 100, 'val': 100}, '')
    """
    found = {split: inspect(name, split, root, **args) for split in ("train", "test")}
    try:
        return found | {"val": inspect(name, "val", root, **args)}, ""
    except ValueError as error:  # few benchmarks have validation classes
        return found, str(error)
