"""Features that a network which does not learn makes of pictures: computed once, and kept small."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import ROOT, cache_folder
from dmlkit.data.images import Listing
from dmlkit.files import write_whole

#: The committed ones; those of one's own are in ``features`` of the cache.
FOLDER = ROOT / "data" / "features"
LARGEST = 63  # of a code: with 127 a file is a sixth larger, and no score is better


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
