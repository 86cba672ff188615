"""Listed pictures: split by class, and made into an ImageSet."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlkit.data.images import ImageSet
from dmlkit.data.pictures import Pictures


class Listing(NamedTuple):
    """What index files or folders say of N pictures: one entry each, in their order."""

    paths: NDArray[np.object_]  # (N,) of Path
    ids: NDArray[Any]  # (N,) of classes; labels follow their order
    names: NDArray[np.str_]  # (N,) of classes
    groups: NDArray[np.str_]  # (N,)
    parts: NDArray[np.str_]  # (N,) train or test; or train, query or gallery

    def subset(self, rows: NDArray[np.bool_]) -> "Listing":
        """Some of the pictures."""
        return Listing._make(column[rows] for column in self)

    def half(self, split: str) -> "Listing":
        """All that is tested on, or all that is trained on, validation classes included."""
        return self.subset((self.parts == "train") == (split != "test"))

    def split(self, split: str, validation: bool, class_split: int) -> "Listing":
        """A half or, with ``validation``, half of the training classes for each of train and val.

        ``class_split`` seeds the draw of the classes. Raises ValueError for "val" without
        ``validation``.
        """
        if split == "val" and not validation:
            raise ValueError(
                "there is a val split only with validation=True, which takes half of the training "
                "classes out of train"
            )
        half = self.half(split)
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
