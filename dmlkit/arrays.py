"""Arrays and labels as users have them: NumPy's, torch's, pandas', lists; names or numbers."""

from itertools import chain

import numpy as np
import torch
from torch import Tensor

from dmlkit.files import told
from dmlkit.geometry import float64_of

Array = np.ndarray | Tensor
INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
INTEGERS |= {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def as_tensor(values: Array, name: str) -> Tensor:
    """A tensor without its graph, or a copy of anything that NumPy takes for an array of numbers.

    What is on a device that lacks float64 is copied to the CPU. Raises ValueError for what is no
    array of numbers.
    """
    if isinstance(values, Tensor):
        exact = float64_of(values.device) == torch.float64
        return values.detach() if exact else values.detach().cpu()
    try:
        made = np.array(values, order="C")  # a copy: torch wants it writable
        if made.dtype == object:  # a column of a table whose entries are arrays
            made = np.array(made.tolist())
        return torch.from_numpy(made.astype(made.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError) as error:
        what = "rows of different lengths" if "inhomogeneous" in str(error) else told(error)
        raise ValueError(f"{name}: expected an array of numbers, got {what}") from None


def as_whole(found: Tensor, x: Tensor, name: str) -> Tensor:
    """Whole numbers (N,) as int64, one for each row of x, where x lies; else a ValueError."""
    if found.dtype not in INTEGERS or found.shape != x.shape[:1]:
        raise ValueError(
            f"{name}: expected int64 of shape ({len(x)},), or as many names, one for each "
            f"embedding, got {found.dtype} of shape {tuple(found.shape)}"
        )
    return found.long().to(x.device)


def as_labels(labels: Array, x: Tensor, name: str = "labels") -> Tensor:
    """Labels (N,) as int64, one for each row of x, where x lies; see ``as_labels_of``."""
    return as_labels_of((name, labels, x))[0]


def as_labels_of(*sets: tuple[str, Array, Tensor]) -> list[Tensor]:
    """Labels of sets as int64, one for each row: (name of the argument, labels (N,), rows (N, d)).

    Names are numbered, alike in all sets. Raises ValueError for what is neither whole numbers nor
    names, for names in some of the sets alone, or another number of labels than rows.
    """
    made = [_read(labels, name) for name, labels, _ in sets]
    names = [labels for labels in made if isinstance(labels, list)]
    if names and len(names) < len(sets):
        which = " and ".join(name for name, *_ in sets)
        raise ValueError(f"{which}: expected names in both or whole numbers in both, got one each")
    numbers = {name: i for i, name in enumerate(dict.fromkeys(chain(*names)))}
    found = [x if isinstance(x, Tensor) else torch.tensor([numbers[n] for n in x]) for x in made]
    return [as_whole(each, x, name) for each, (name, _, x) in zip(found, sets, strict=True)]


def _read(labels: Array, name: str) -> Tensor | list[str]:
    """A list of names, or what else labels are."""
    if isinstance(labels, Tensor) or (array := np.asarray(labels)).dtype.kind not in "OUST":
        return as_tensor(labels, name)
    array = np.array(labels, dtype=object)  # among text, NumPy makes a missing value "nan"
    kinds = {type(label): label for label in array.flat}
    if array.ndim == 1 and all(issubclass(kind, str) for kind in kinds):
        return array.tolist()
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        return as_tensor(array.astype(np.int64), name)
    came = ", ".join(f"{kind.__name__} ({label!r})" for kind, label in kinds.items())
    raise ValueError(
        f"{name}: expected whole numbers, or names as text, one for each embedding, got "
        f"{came} in shape {array.shape}"
    )


def labels_of_both(
    labels: Array, gallery_labels: Array | None, x: Tensor, y: Tensor, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Labels of x and of y, which is x itself where there is no gallery; see ``as_labels_of``.

    Raises ValueError where a query has another label than the row of y that is itself.
    """
    if (x is y) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels: expected both or neither, got one of them")
    if gallery_labels is None:
        of_x = of_y = as_labels(labels, x)
    else:
        of_x, of_y = as_labels_of(("labels", labels, x), ("gallery_labels", gallery_labels, y))
    if own is not None and (wrong := (own >= 0) & (of_y[own] != of_x)).any():
        query = int(wrong.nonzero()[0])
        raise ValueError(
            f"own: expected the query's label, {of_x[query]}, in row {own[query]} of the gallery, "
            f"got {of_y[own[query]]}"
        )
    return of_x, of_y
