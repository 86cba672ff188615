"""Every data set is the same kind of thing: images, labels, groups, class names."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlkit import ROOT
from dmlkit.checks import check_arguments, check_choice
from dmlkit.data import benchmarks, folder, glyphs, grocery, grocery64, omniglot
from dmlkit.data.images import SPLITS, ImageSet
from dmlkit.data.pictures import Pictures, stamp

__all__ = ["LOADERS", "SPLITS", "ImageSet", "load", "references"]

#: Each data set by its name. To add one, write a file with a function of (split, root, check) and
#: the set's own arguments that returns an ImageSet, and enter it here.
LOADERS: dict[str, Callable[..., ImageSet]] = {
    "glyphs": glyphs.load,
    "omniglot": omniglot.load,
    **{name: partial(benchmarks.load, name) for name in benchmarks.BENCHMARKS},
    "grocery": grocery.load,
    "grocery64": grocery64.load,
    "folder": folder.load,
}
# The files that a set is read from, which may change while it is remembered.
_FILES: dict[str, Callable[[Path], list[Path]]] = {
    "omniglot": omniglot.files,
    **{name: partial(benchmarks.files, name) for name in benchmarks.BENCHMARKS},
    "folder": folder.files,
}
# What a loader may be given as its ``**recipe`` or ``**pictures``.
_REST = {
    "recipe": [field.name for field in fields(glyphs.Recipe)],
    "pictures": [field.name for field in fields(Pictures) if field.name != "paths"],
}


def load(
    name: str,
    split: str = "train",
    root: str | os.PathLike[str] | None = None,
    check: bool = True,
    **args: object,
) -> ImageSet:
    """Load one split of the data set ``name``; a repeated call gives the very same object.

    That is, unless a file's name, size or time has changed meanwhile: in a folder of pictures any,
    else an archive or an index, as published pictures are taken to stay as they are.

    ``root`` is where the files are: else ``$DMLKIT_DATA``, else ``data/`` (Glyphs, which dmlkit
    makes itself, are kept in ``$DMLKIT_CACHE`` unless ``root`` is given). ``check`` compares files
    and counts with the published ones. ``args`` are the set's own: see ``Recipe`` in
    ``dmlkit.data.glyphs``, and ``load`` in ``.omniglot``, ``.benchmarks`` (cub, cars, sop, inshop),
    ``.grocery``, ``.grocery64`` and ``.folder``.

    Raises ValueError for a name or split that does not exist, TypeError for such an argument,
    FileNotFoundError for a missing file.
    """
    check_choice(LOADERS, data=name)
    check_choice(SPLITS, split=split)
    check_arguments(f"data set {name!r}", arguments(name), args)
    place = Path(root) if root else None
    if name != "glyphs":
        place = place or default_root()
    hashable = {k: tuple(v) if isinstance(v, list) else v for k, v in sorted(args.items())}
    files = _FILES[name](place) if place and name in _FILES else ()
    stamps = repr([(str(path), stamp(path)) for path in files])
    return _load(hashlib.sha256(stamps.encode()).digest(), name, split, place, check, **hashable)


def references(name: str, split: str, args: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Embeddings (N, d), by name, that a score on a split is read beside; of most sets none."""
    return grocery64.references(split, **args) if name == "grocery64" else {}


def default_root() -> Path:
    """Where data sets are: ``$DMLKIT_DATA``, else ``data/``."""
    return Path(os.environ.get("DMLKIT_DATA") or ROOT / "data")


def arguments(name: str) -> list[str]:
    """The arguments that a data set takes besides split, root and check.

    >>> "class_split" in arguments("folder")
    True
    """
    own = list(inspect.signature(LOADERS[name]).parameters)[3:]
    return [each for argument in own for each in _REST.get(argument, [argument])]


@lru_cache(maxsize=32)
def _load(
    _: bytes, name: str, split: str, root: Path | None, check: bool, **args: object
) -> ImageSet:
    return LOADERS[name](split, root, check, **args)
