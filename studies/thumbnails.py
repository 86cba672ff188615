"""Photographs that lessons 28 and 30 show: `python -m studies.thumbnails` writes them, 128 × 128.

Of the new products of fold 0 the first of each, and the ten results of two queries of cartons and
fruit; a key is a row of ``data.load("grocery", "test", fold=None)``.
"""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmlkit import data
from dmlkit.files import write_whole
from dmlkit.lessons import after_the_first_ten, thumbnails


def rows() -> NDArray[np.intp]:
    """Which photographs are shown."""
    one, every = (data.load("grocery64", "test", fold=fold) for fold in (0, None))
    asks, all_ask = np.asarray(one.queries), np.asarray(every.queries)
    place = [np.flatnonzero(asks & (one.labels == c))[0] for c in range(21)]
    names = [one.class_names[c] for c in range(21)]
    own = [every.class_names.index(name) for name in names]
    first = [np.flatnonzero(all_ask & (every.labels == c))[0] for c in own]
    for here, there in zip(place, first, strict=True):
        assert (one.images[here] == every.images[there]).all(), "another photograph"
    counted = after_the_first_ten.load(10)
    asked = after_the_first_ten.kept_maps().rows[1:3, 0]
    found = [counted.first[list(counted.queries).index(row)] for row in asked]
    return np.unique([*first, *asked, *np.concatenate(found)])


def main() -> None:
    """Write them as WebP."""
    chosen = rows()
    images: Any = data.load("grocery", "test", fold=None, crop=128, resize=144).images
    files: dict[str, Any] = {}
    for row in chosen.tolist():
        kept = io.BytesIO()
        pixels = images[row].permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(kept, "WEBP", quality=82)
        files[str(row)] = np.frombuffer(kept.getvalue(), np.uint8)
    write_whole({thumbnails.PATH: lambda beside: np.savez(beside.open("wb"), **files)})


if __name__ == "__main__":
    main()
