"""Photographs of 128 pixels for lessons 28 and 30, made by `python -m studies.thumbnails`."""

import io
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmlkit import ROOT

PATH = ROOT / "data" / "evidence" / "thumbnails.npz"


def read(rows: Iterable[int]) -> list[NDArray[np.uint8]]:
    """Those of rows of ``data.load("grocery", "test", fold=None)``: each (128, 128, 3)."""
    with np.load(PATH) as kept:
        files = [kept[str(row)].tobytes() for row in rows]
    return [np.asarray(Image.open(io.BytesIO(file))) for file in files]
