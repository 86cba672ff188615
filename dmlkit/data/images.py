"""ImageSet: what every data set is, whatever its files look like."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmlkit.data.pictures import Pictures

SPLITS = ("train", "val", "test")
_PIXELS = "uint8 0..255, or float 0..1"


def to_float(images: Tensor) -> Tensor:
    """Pixels as a network sees them: uint8 0..255 becomes float32 0..1, float 0..1 stays as it is.

    This is the rule for pictures everywhere. Raises TypeError for another dtype.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    >>> to_float(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    if images.dtype == torch.uint8:
        return images.float() / 255
    if not images.is_floating_point():
        raise TypeError(f"pictures must be {_PIXELS}, but are {images.dtype}")
    return images


def check_pictures(images: object) -> None:
    """Refuse what is neither Pictures nor a tensor (N, C, H, W) that ``to_float`` takes.

    >>> check_pictures(torch.full((1, 1, 2, 2), 255.0))
    Traceback (most recent call last):
    ValueError: pictures must be uint8 0..255, or float 0..1, but are float from 255.0 to 255.0
    """
    if isinstance(images, Pictures):
        return
    if not isinstance(images, Tensor) or images.ndim != 4:
        shape = f" of shape {tuple(images.shape)}" if hasattr(images, "shape") else ""
        raise TypeError(
            f"pictures must be a tensor (N, C, H, W), {_PIXELS}, or Pictures of files, but are "
            f"{type(images).__name__}{shape}"
        )
    to_float(images[:0])  # refuses another dtype
    features = images.shape[2:] == (1, 1)  # of a frozen network: of any size
    if images.is_floating_point() and len(images) and not features:
        low, high = (bound.item() for bound in images.aminmax())
        if not (low >= 0 and high <= 1):  # NaN is neither
            raise ValueError(f"pictures must be {_PIXELS}, but are float from {low} to {high}")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with one class each: ``len(images)`` of them, image i by ``images[i]``.

    ``images`` are a tensor, uint8 0..255 or float 0..1, or Pictures where they are too many for
    memory. A set that is searched by queries in a separate gallery says which images are
    ``queries``. Raises TypeError for images or labels of another kind, ValueError where the parts
    do not fit together or the set is empty.

    >>> import torch
    >>> two = ImageSet(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), np.array([0, 1]),
    ...                np.array(["latin", "greek"]), ("a", "alpha"))
    >>> len(two), two.num_classes, tuple(two[0].shape)
    (2, 2, (1, 8, 8))
    """

    images: Tensor | Pictures  # (N, C, H, W) uint8 or float (see to_float), ink (or light) is high
    labels: NDArray[np.int64]  # (N,) in 0..C-1
    groups: NDArray[np.str_]  # (N,), for example the script
    class_names: tuple[str, ...]  # C of them
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)  # name -> (N,)
    queries: NDArray[np.bool_] | None = None  # (N,); the others are their gallery

    def __post_init__(self) -> None:
        check_pictures(self.images)
        if not (isinstance(self.labels, np.ndarray) and self.labels.dtype.kind in "iu"):
            kind = getattr(self.labels, "dtype", type(self.labels).__name__)
            raise TypeError(f"labels must be a NumPy array of integers (N,), but are {kind}")
        object.__setattr__(self, "labels", self.labels.astype(np.int64, copy=False))
        if not len(self.images):
            raise ValueError("the split is empty: it must hold at least one image")
        parts = {"labels": self.labels, "groups": self.groups, **self.attributes}
        if self.queries is not None:
            parts["queries"] = self.queries
        lengths = {name: len(part) for name, part in parts.items()}
        if set(lengths.values()) != {len(self.images)}:
            raise ValueError(f"expected one entry for each of {len(self.images)} images: {lengths}")
        if not np.array_equal(np.unique(self.labels), np.arange(self.num_classes)):
            raise ValueError(f"labels must use each of 0..{self.num_classes - 1}, one a class name")

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
        for part in (self.labels, self.queries):
            if part is not None:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def retrieval_sets(
        self, embeddings: NDArray[Any], labels: NDArray[np.int64] | None = None
    ) -> dict[str, Any]:
        """What ``dmlkit.retrieval`` scores, as its arguments: (N, d) -> arrays by name.

        Every image is compared with all the others; in a set with queries, those with its gallery.
        ``labels`` (N,) may take the place of the set's own.
        """
        labels = self.labels if labels is None else labels
        if self.queries is None:
            return {"embeddings": embeddings, "labels": labels}
        return {
            "embeddings": embeddings[self.queries],
            "labels": labels[self.queries],
            "gallery": embeddings[~self.queries],
            "gallery_labels": labels[~self.queries],
        }


class Listing(NamedTuple):
    """What index files or folders say of N pictures: one entry each, in their order."""

    paths: NDArray[np.object_]  # (N,) of Path
    ids: NDArray[Any]  # (N,) of classes; labels follow their order
    names: NDArray[np.str_]  # (N,) of classes
    groups: NDArray[np.str_]  # (N,)
    parts: NDArray[np.str_]  # (N,) train or test, perhaps val; or train, query or gallery

    def subset(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Listing":
        """Some of the pictures."""
        return Listing._make(column[rows] for column in self)

    def half(self, split: str) -> "Listing":
        """All that is tested on, or all that is trained on, validation classes included."""
        return self.subset((self.parts == "train") == (split != "test"))

    def split(self, split: str, validation: bool, class_split: int) -> "Listing":
        """A half or, with ``validation``, half of the training classes for each of train and val.

        ``class_split`` seeds the draw of the classes. Where some pictures are of a part "val", the
        parts are the splits.
        """
        if "val" in self.parts:
            return self.subset(self.parts == split)
        half = self.half(split)
        if split == "val" and not validation:
            raise ValueError(
                "there is a val split only with validation=True, which takes half of the training "
                "classes out of train"
            )
        if split == "test" or not validation:
            return half
        classes = np.unique(half.ids)
        order = np.random.default_rng(class_split).permutation(len(classes))
        trains = np.isin(half.ids, classes[order[: (len(classes) + 1) // 2]])
        return half.subset(trains == (split == "train"))

    def image_set(self, **how: Any) -> ImageSet:
        """The pictures, read as ``how`` tells Pictures, with labels in the order of the ids."""
        _, first, labels = np.unique(self.ids, return_index=True, return_inverse=True)
        queries = self.parts == "query"
        return ImageSet(
            images=Pictures(tuple(self.paths), **how),
            labels=labels.astype(np.int64),
            groups=self.groups,
            class_names=tuple(map(str, self.names[first])),
            queries=queries if queries.any() else None,
        )
