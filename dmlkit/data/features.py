"""Features that a network which does not learn makes of pictures: computed once, and kept small."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import ROOT, cache_folder
from dmlkit.data import own
from dmlkit.data.images import ImageSet, Listing
from dmlkit.data.visits import last_visit
from dmlkit.files import told, write_whole

#: The committed ones; those of one's own are in ``features`` of the cache.
FOLDER = ROOT / "data" / "features"
LARGEST = 63  # of a code: with 127 a file is a sixth larger, and no score is better


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    validation: bool = False,
    class_split: int = 0,
) -> ImageSet:
    """Features that were computed elsewhere, as images (N, F, 1, 1): ``root`` is an .npz file.

    Its arrays are ``features`` (N, F), of floats, and ``labels`` (N,), texts or whole numbers;
    perhaps ``split`` (N,) of train, val and test, else classes are drawn as in a folder (all train
    by ``test_share=0``); ``visits`` (N,), of which each class's last is searched for in those
    before; and ``paths`` (N,), which become an attribute. ``check`` looks for what is no finite
<<<<<<< HEAD
    number. Raises FileNotFoundError where there is no such file, ValueError for one that holds
    something else.
    """
    arrays = _arrays(root)
    x, N, labels = arrays["features"], len(arrays["features"]), arrays["labels"]
    if x.ndim != 2 or x.dtype.kind != "f":
        raise ValueError(f"{root}: features must be floats (N, F), but are {x.dtype} {x.shape}")
    if labels.ndim != 1 or labels.dtype.kind not in "USiu":
        raise ValueError(
            f"{root}: labels must be texts or whole numbers (N,), but are {labels.dtype} "
            f"{labels.shape}"
        )
    if lengths := {name: each.shape for name, each in arrays.items() if each.shape[:1] != (N,)}:
        raise ValueError(f"{root}: expected one entry for each of {N} features: {lengths}")
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if check and len(bad := np.flatnonzero(~np.isfinite(x).all(axis=1))):
        raise ValueError(
            f"{root}: {len(bad)} of {N} features are no finite float32, as row {bad[0]}"
        )
    names = np.array([own.class_name(label) for label in labels.astype(str).tolist()])
    ids = np.unique(names, return_inverse=True)[1]
    if "split" in arrays and test_share:
        said = [part.lower() for part in arrays["split"].astype(str).tolist()]
        if unknown := set(said) - own.PARTS.keys():
            raise ValueError(f"{root}: split must be of {', '.join(own.PARTS)}, not {unknown}")
        parts = np.array([own.PARTS[part] for part in said])
=======
    number, and for classes that are not as they may seem, which a warning names; ``join``: see
    ``folder.load``. Raises FileNotFoundError where there is no such file, ValueError for one that
    holds something else.
    """
    arrays = _arrays(root)
    _check(arrays, root, check)
    x, N = arrays["features"], len(arrays["features"])
    names = [own.class_name(label) for label in arrays["labels"].astype(str).tolist()]
    named = own.joined(names) if join else np.array(names, dtype=str)
    ids = np.unique(named, return_inverse=True)[1]
    if "split" in arrays and test_share:
        parts = np.array([own.PARTS[str(part).lower()] for part in arrays["split"]])
>>>>>>> trial
    else:
        parts = own.drawn(ids, test_share, class_split)
    places = np.arange(N).astype(object)
    rows = own.chosen(
        Listing(places, ids, names, names, parts), root, split, validation, class_split
    )
    images = Listing(places, ids, names, names, parts).subset(rows).image_set()
    vectors = torch.from_numpy(x[rows])[:, :, None, None]
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
        with root.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("another kind of file, or one that was cut off")
        with np.load(root) as kept:
            known = ("features", "labels", "split", "visits", "paths")
            arrays = {name: kept[name] for name in known if name in kept}
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy has a dozen kinds
        raise ValueError(
            f"{root} is no .npz of plain arrays: {told(error)} (texts must be of NumPy's own "
            "kind, np.array(labels, dtype=str))"
        ) from None
    if missing := {"features", "labels"} - arrays.keys():
        raise ValueError(f"{root}: expected arrays features and labels, without {min(missing)}")
    return arrays


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
