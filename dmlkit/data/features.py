"""Features that a network which does not learn makes of pictures: computed once, and kept small."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import ROOT, cache_folder
from dmlkit.checks import warn_once
from dmlkit.data import own
from dmlkit.data.images import ImageSet, Listing
from dmlkit.data.visits import last_visit
from dmlkit.files import told, write_whole

#: The committed ones; those of one's own are in ``features`` of the cache.
FOLDER = ROOT / "data" / "features"
_ARRAYS = ("features", "labels", "split", "visits", "paths")
LARGEST = 63  # of a code: with 127 a file is a sixth larger, and no score is better


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    given: bool = True,
    validation: bool = False,
    class_split: int = 0,
    join: bool = False,
) -> ImageSet:
    """Features that were computed elsewhere, as images (N, F, 1, 1): ``root`` is an .npz file.

    Its arrays are ``features`` (N, F), of floats, and ``labels`` (N,), texts or whole numbers;
    perhaps ``split`` (N,) of train, val and test, else, or with ``given=False``, classes are
    drawn as in a folder (all train by ``test_share=0``); ``visits`` (N,), of which each class's
    last is searched for in those before; and ``paths`` (N,), which become an attribute. ``check``
    looks for what is no finite number, and for classes that are not as they may seem, which a
    warning names; ``join``: see ``folder.load``. Raises FileNotFoundError where there is no such
    file, ValueError for one that holds something else.
    """
    arrays = _arrays(root)
    _check(arrays, root, check)
    x, N = arrays["features"], len(arrays["features"])
    names = [own.class_name(label) for label in arrays["labels"].astype(str).tolist()]
    named = own.joined(names) if join else np.array(names, dtype=str)
    ids = np.unique(named, return_inverse=True)[1]
    if "split" in arrays and given and test_share:
        parts = np.array([own.PARTS[str(part).lower()] for part in arrays["split"]])
    else:
        parts = own.drawn(ids, test_share, class_split)
    found = Listing(np.arange(N).astype(object), ids, named, named, parts)
    for line in own.remarks(found, root) if check else ():
        warn_once(line)
    rows = own.chosen(found, root, split, validation, class_split)
    images = found.subset(rows).image_set()
    vectors = torch.from_numpy(x[rows].astype(np.float32))[:, :, None, None]
    about = {"path": arrays["paths"][rows]} if "paths" in arrays else {}
    images = replace(images, images=vectors, attributes=about)
    if "visits" not in arrays or split == "train":
        return images
    return last_visit(images, arrays["visits"].astype(str)[rows])


def _arrays(root: Path) -> dict[str, NDArray[np.generic]]:
    """Those of a file of features."""
    if root.is_dir():
        raise ValueError(f"expected an .npz by root (--root FILE.npz), but {root} is a folder")
    try:
        with root.open("rb") as file, NpzFile(file) as kept:
            arrays = {name: kept[name] for name in _ARRAYS if name in kept}
            unused = sorted(set(kept) - arrays.keys())
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy has a dozen kinds
        raise ValueError(
            f"{root} is no .npz of plain arrays ({told(error)}): texts must be of NumPy's own "
            "kind, np.array(labels, dtype=str)"
        ) from None
    if missing := {"features", "labels"} - arrays.keys():
        raise ValueError(f"{root}: expected arrays features and labels, without {min(missing)}")
    if unused:
        warn_once(f"arrays of {root} that are not used: {own.told(unused)}")
    return arrays


def _check(arrays: Mapping[str, NDArray[Any]], root: Path, check: bool) -> None:
    """Refuse arrays of another kind or length and, on ``check``, features that cannot be scored."""
    x, N = arrays["features"], len(arrays["features"])
    if x.ndim != 2 or not x.shape[1] or x.dtype.kind != "f":
        raise ValueError(f"{root}: features must be floats (N, F), but are {x.dtype} {x.shape}")
    others = {name: each.shape for name, each in arrays.items() if name != "features"}
    if wrong := {name: shape for name, shape in others.items() if shape != (N,)}:
        raise ValueError(f"{root}: expected one entry for each of {N} features: {wrong}")
    if (kind := arrays["labels"].dtype).kind not in "USiu":
        raise ValueError(f"{root}: labels must be texts or whole numbers (N,), but are {kind}")
    if unknown := {str(part).lower() for part in arrays.get("split", ())} - own.PARTS.keys():
        raise ValueError(f"{root}: split must be of {', '.join(own.PARTS)}, not {unknown}")
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(x.astype(np.float32), axis=1)
    if check and len(bad := np.flatnonzero(~np.isfinite(norms))):
        raise ValueError(
            f"{root}: {len(bad)} of {N} features are not finite, or too large for float32, as row "
            f"{bad[0]}"
        )


def write(path: Path, listing: Listing, features: NDArray[np.float32]) -> None:
    """Keep features (N, F) of what is listed, by paths that are text: x ≈ scale · code.

    The scale is a picture's own, max |x| / 63, and codes are whole numbers.
    """
    scales = np.abs(features).max(axis=1, keepdims=True) / LARGEST
    codes = np.round(features / np.maximum(scales, 1e-12)).astype(np.int8)
    packed = np.ascontiguousarray(codes.T)  # (F, N): a feature beside itself packs better
    columns = {name: column.astype(np.str_) for name, column in listing._asdict().items()}
    columns["ids"] = listing.ids

    def save(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez_compressed(file, scales=scales, codes=packed, **columns)

    write_whole({path: save})


def read(name: str, network: str) -> tuple[Listing, Tensor]:
    """What is listed of a data set, and its features (N, F) by NETWORK@SIDE.

    Raises FileNotFoundError, with what there is, where these are not kept.
    """
    places = FOLDER, cache_folder() / "features"
    file = f"{name}_{network}.npz"
    path = next(filter(Path.is_file, (place / file for place in places)), None)
    if path is None:
        kept = sorted(
            each.stem.removeprefix(f"{name}_") for at in places for each in at.glob(f"{name}_*")
        )
        raise FileNotFoundError(
            f"no features {network!r} of {name}: there are {', '.join(kept) or 'none'}, in "
            f"{' and '.join(map(str, places))}; `dmlkit data features {network}` makes others"
        )
    with np.load(path) as kept:
        columns = {column: kept[column] for column in Listing._fields}
        features = kept["codes"].T * kept["scales"]
    return Listing(**columns), torch.from_numpy(features)
