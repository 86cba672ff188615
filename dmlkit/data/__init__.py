"""Every data set is the same kind of thing: images, labels, groups, class names."""

import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import ROOT
from dmlkit.data.pictures import Pictures

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with one class each: ``len(images)`` of them, image i by ``images[i]``.

    ``images`` are a tensor, or Pictures where they are too many for memory. A set that is searched
    by queries in a gallery of their own says which images are ``queries``. Raises ValueError where
    the parts do not fit together or the set is empty.

    >>> import torch
    >>> two = ImageSet(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), np.array([0, 1]),
    ...                np.array(["latin", "greek"]), ("a", "alpha"))
    >>> len(two), two.num_classes, tuple(two[0].shape)
    (2, 2, (1, 8, 8))
    """

    images: Tensor | Pictures  # (N, C, H, W) uint8, ink (or light) is high
    labels: NDArray[np.int64]  # (N,) in 0..C-1
    groups: NDArray[np.str_]  # (N,), for example the script
    class_names: tuple[str, ...]  # C of them
    attributes: dict[str, NDArray] = field(default_factory=dict)  # name -> (N,)
    queries: NDArray[np.bool_] | None = None  # (N,); the others are their gallery

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise ValueError("the split is empty: it must hold at least one image")
        parts = {"labels": self.labels, "groups": self.groups, **self.attributes}
        if self.queries is not None:
            parts["queries"] = self.queries
        lengths = {name: len(part) for name, part in parts.items()}
        if set(lengths.values()) != {len(self.images)}:
            raise ValueError(f"expected one entry for each of {len(self.images)} images: {lengths}")
        classes = np.arange(len(self.class_names))
        if self.labels.dtype != np.int64 or not np.array_equal(np.unique(self.labels), classes):
            raise ValueError(
                f"labels must be int64 and use each of 0..{len(classes) - 1} (one per class name), "
                f"not {self.labels.dtype} with {len(np.unique(self.labels))} classes"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of pixels (or files) and labels, and of which are queries, in hexadecimal."""
        digest = hashlib.sha256(repr(tuple(self.images.shape)).encode())
        if isinstance(self.images, Pictures):
            digest.update(self.images.digest())
        else:
            digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        if self.queries is not None:
            digest.update(np.ascontiguousarray(self.queries).data)
        return digest.hexdigest()

    def retrieval_sets(self, embeddings: NDArray) -> dict[str, Any]:
        """What ``dmlkit.retrieval`` scores, as its arguments: (N, d) -> arrays by name.

        Every image with all the others; in a set with queries, those with its gallery.

        >>> import torch
        >>> two = ImageSet(torch.zeros(2, 1, 8, 8), np.array([0, 0]), np.array(["", ""]), ("a",),
        ...                queries=np.array([True, False]))
        >>> list(two.retrieval_sets(np.zeros((2, 3))))
        ['embeddings', 'labels', 'gallery', 'gallery_labels']
        """
        if self.queries is None:
            return {"embeddings": embeddings, "labels": self.labels}
        return {
            "embeddings": embeddings[self.queries],
            "labels": self.labels[self.queries],
            "gallery": embeddings[~self.queries],
            "gallery_labels": self.labels[~self.queries],
        }


def _loaders() -> dict[str, Callable[..., ImageSet]]:
    # Imported here because all build on ImageSet.
    from dmlkit.data import benchmarks, folder, glyphs

    published = {name: partial(benchmarks.load, name) for name in benchmarks.BENCHMARKS}
    return {
        "glyphs": glyphs.load,
        "omniglot": benchmarks.omniglot,
        **published,
        "folder": folder.load,
    }


def load(
    name: str,
    split: str = "train",
    root: str | os.PathLike[str] | None = None,
    check: bool = True,
    **args: object,
) -> ImageSet:
    """Load one split of the data set ``name``; a repeated call gives the very same object.

    ``root`` is where the files lie: else ``$DMLKIT_DATA``, else ``data/`` (Glyphs, which dmlkit
    makes itself, are kept in ``$DMLKIT_CACHE`` unless ``root`` is given). ``check`` compares files
    and counts with the published ones. ``args`` are the set's own: see ``load`` in
    ``dmlkit.data.glyphs``, in ``.benchmarks`` (cub, cars, sop, inshop) and in ``.folder``, and
    ``dmlkit.data.benchmarks.omniglot``. Raises ValueError for a name, split or argument that does
    not exist, FileNotFoundError for a missing file.
    """
    loaders = _loaders()
    if name not in loaders:
        raise ValueError(f"no data set {name!r}: there are {', '.join(loaders)}")
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: there are {', '.join(SPLITS)}")
    known = list(inspect.signature(loaders[name]).parameters)[3:]
    unknown = sorted(set(args) - set(known))
    if unknown:
        raise ValueError(f"{name} has no argument {', '.join(unknown)}: it has {', '.join(known)}")
    folder = Path(root) if root else None
    if name != "glyphs":
        folder = folder or Path(os.environ.get("DMLKIT_DATA") or ROOT / "data")
    hashable = {k: tuple(v) if isinstance(v, list) else v for k, v in args.items()}
    return _load(name, split, folder, check, tuple(sorted(hashable.items())))


@lru_cache(maxsize=32)
def _load(
    name: str, split: str, root: Path | None, check: bool, args: tuple[tuple[str, object], ...]
) -> ImageSet:
    return _loaders()[name](split, root, check, **dict(args))
