"""Groceries at 64 pixels: the photographs of ``grocery``, small enough to come with the package."""

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dmlkit.checks import check_choice
from dmlkit.data import grocery
from dmlkit.data.download import verify
from dmlkit.data.images import ImageSet, Listing
from dmlkit.files import write_whole

FILE = Path(__file__).with_name("grocery64.npz")
MD5 = "1153e3825e0255df3f6a39e928b99d93"
SIDE, SIDES = 64, (64, 32)
#: WebP's own default: 5.8 MB; 80 makes 6.8.
QUALITY = 75
_TILES = 32  # of a sheet, along a side


def load(
    split: str,
    root: Path,  # noqa: ARG001 - the file is in the package
    check: bool = True,
    fold: int | None = 0,
    validation: bool = False,
    class_split: int = 0,
    third: int | None = None,
    gallery: str = "visit",
    side: int = SIDE,
    gray: bool = False,
) -> ImageSet:
    """Groceries as (3, 64, 64) uint8 images in memory: 5,421 photographs, 81 classes, no download.

    A photograph's central square, reduced; ``side=32`` is the mean of 2 × 2 pixels. ``gray`` leaves
    one channel, 0.299 R + 0.587 G + 0.114 B: color alone finds many products, so this is harder.

    Classes, groups, lists, ``fold``, ``validation``, ``class_split``, ``third`` and ``gallery``
    ("visit" or "all") are those of ``dmlkit.data.grocery.load``: queries are searched for
    in photographs of another visit. ``check`` compares the file with its MD5.

    Raises ValueError for a choice that does not exist or a damaged file. Source: Klasson, Zhang and
    Kjellström, "A Hierarchical Grocery Store Image Dataset with Visual and Semantic Labels" (2019),
    MIT license.
    """
    check_choice(grocery.GALLERIES[:2], gallery=gallery)
    if side not in SIDES:
        raise ValueError(f"side must be one of {', '.join(map(str, SIDES))}, but is {side!r}")
    every, pixels = read(check)
    found, rows = grocery.chosen(every, split, fold, validation, class_split, gallery, third)
    images = pixels[rows]
    if gray:
        weights = torch.tensor([299, 587, 114], dtype=torch.int32)
        sums = torch.einsum("nchw,c->nhw", images.int(), weights)
        images = ((sums + 500) // 1000)[:, None].to(torch.uint8)
    if side < SIDE:
        images = F.avg_pool2d(images.float(), SIDE // side).round().to(torch.uint8)
    lists = {"list": every.parts[rows]}
    return replace(found.image_set(), images=images, attributes=lists)


def references(split: str, **args: Any) -> dict[str, NDArray[np.float32]]:
    """What a score on a split is read beside, as embeddings (N, d) in its order, by name.

    "chance" has random ones. "coarse class alone" knows the coarse class of each photograph and
    nothing else: it finds a product by chance among those of its class. "untouched Lite0" is what
    EfficientNet-Lite0, trained on ImageNet alone, makes of the same photographs at 128 pixels; it
    is missing where ``data/features`` is, as in an installed wheel.
    """
    images = load(split, Path(), **args)
    noise = np.random.default_rng(0).standard_normal((len(images), 64)).astype(np.float32)
    classes = np.unique(images.groups, return_inverse=True)[1]
    coarse = np.eye(classes.max() + 1, dtype=np.float32)[classes]
    found = {"chance": noise, "coarse class alone": np.hstack([coarse, 1e-3 * noise])}
    of_archive = {name: args[name] for name in args if name not in ("side", "gray")}
    with suppress(FileNotFoundError):
        kept = grocery.load(split, Path(), features="tf_efficientnet_lite0@128", **of_archive)
        found["untouched Lite0"] = np.asarray(kept.images).reshape(len(images), -1)
    return found


@lru_cache(maxsize=1)
def read(check: bool = True, path: Path = FILE) -> tuple[Listing, Tensor]:
    """All photographs, by the authors' lists: what is listed, and pixels (5421, 3, 64, 64) uint8.

    Raises ValueError for a file that is not the published one.
    """
    if check:
        verify(path, MD5)
    with np.load(path) as file:
        every = Listing(*(file[column] for column in Listing._fields))
        ends = file["ends"]
        sheets = np.split(file["sheets"], ends[:-1])
    with ThreadPoolExecutor() as pool:  # Pillow frees them of Python's lock
        pixels = np.concatenate(list(pool.map(_tiles, sheets)))[: len(every.ids)]
    return every, torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def write(path: Path, every: Listing, pixels: Tensor) -> None:
    """Keep photographs (N, 3, 64, 64) uint8, and what is listed of them, in one file.

    They are tiles of sheets, 32 × 32 of them, in WebP: a tenth smaller than a file each, and read
    in half the time. All or nothing is written.
    """
    tiles = pixels.permute(0, 2, 3, 1).numpy()
    tiles = np.concatenate([tiles, np.zeros((-len(tiles) % _TILES, SIDE, SIDE, 3), np.uint8)])
    rows = tiles.reshape(-1, _TILES, SIDE, SIDE, 3).swapaxes(1, 2).reshape(-1, _TILES * SIDE, 3)
    sheets = []
    for top in range(0, len(rows), _TILES * SIDE):
        sheet = io.BytesIO()
        image = Image.fromarray(rows[top : top + _TILES * SIDE])
        image.save(sheet, "WEBP", quality=QUALITY, method=6)
        sheets.append(np.frombuffer(sheet.getvalue(), np.uint8))
    columns = {name: column.astype(np.str_) for name, column in every._asdict().items()}
    columns["ids"] = every.ids
    ends = np.cumsum([len(sheet) for sheet in sheets])

    def save(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez_compressed(file, sheets=np.concatenate(sheets), ends=ends, **columns)

    write_whole({path: save})


def _tiles(sheet: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The photographs of a sheet, row by row: the bytes of a file -> (N, 64, 64, 3)."""
    decoded = np.asarray(Image.open(io.BytesIO(sheet.tobytes())))
    grid = decoded.reshape(-1, SIDE, _TILES, SIDE, 3).swapaxes(1, 2)  # (rows, 32, 64, 64, 3)
    return grid.reshape(-1, SIDE, SIDE, 3)
