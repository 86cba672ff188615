"""Glyphs, the embedded default: Unicode characters in the fonts that matplotlib ships."""

import hashlib
import json
import unicodedata
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock
from numpy.typing import NDArray
from torch import Generator, Tensor

from dmlkit import cache_folder
from dmlkit.checks import check_choice, check_count
from dmlkit.data.alphabet import BOARD, BOX, FACES, Alphabet, draw_alphabet, group
from dmlkit.data.images import SPLITS, ImageSet, to_float
from dmlkit.files import write_whole

Arrays = Mapping[str, NDArray[Any]]  # by their names in a file

SIZE = 32  # px, the side of an image
_FIT = 0.7  # how much of the image that side takes at scale 1
_PARTS, _DEVELOP = ("all", "develop", "evaluate"), 450
_CHUNK = 250  # images made at once, whole chunks always: a longer set begins like a shorter one


@dataclass(frozen=True)
class Level:
    """How strongly instances vary: ± a bound, a (low, high) range, or a standard deviation."""

    rotation: float = 18.0  # ± degrees
    shear: float = 0.22  # ±
    scale: tuple[float, float] = (0.70, 1.05)
    aspect: float = 0.18  # ± of width against height
    shift: float = 0.12  # ± of the image's side, less where ink would leave the image
    stroke: float = 0.55  # ± px on either side of a stroke
    blur: tuple[float, float] = (0.1, 1.1)  # px, standard deviation
    contrast: tuple[float, float] = (0.55, 1.0)  # brightness of the strongest ink
    elastic: float = 0.02  # of the image's side, root mean square length of a smooth warp
    clutter: float = 0.05  # standard deviation of a smooth background
    noise: float = 0.10  # standard deviation per pixel


LEVELS = {
    "default": Level(),
    "hard": Level(
        shear=0.25,
        aspect=0.20,
        stroke=0.60,
        blur=(0.1, 1.2),
        contrast=(0.5, 1.0),
        elastic=0.04,
        clutter=0.08,
        noise=0.12,
    ),
}


@dataclass(frozen=True)
class Recipe:
    """What decides the images of a set.

    ``class_split`` seeds the order of all classes: test takes the first, val the next, train those
    after them, so val and test stay as they are whatever training takes. ``seed`` draws faces and
    jitter of the strength ``level``. Raises ValueError for a value out of range.

    ``part`` is for a study whose tuning must not see what it is judged by: ``"develop"`` has only
    450 of the classes, and ``"evaluate"`` tests on the others alone, on block number
    ``class_split`` of them, so that no two blocks share a class; it trains on any class but those.
    """

    train_classes: int = 300
    val_classes: int = 100
    test_classes: int = 100
    per_class: int = 40
    val_per_class: int = 20
    test_per_class: int = 20
    level: str = "default"
    class_split: int = 0
    seed: int = 0
    part: str = "all"

    def __post_init__(self) -> None:
        check_choice(LEVELS, level=self.level)
        check_choice(_PARTS, part=self.part)
        for name, value in asdict(self).items():
            if name not in ("level", "part"):
                check_count(int(name.endswith("per_class")), **{name: value})


def load(
    split: str,
    root: Path | None = None,
    check: bool = True,  # noqa: ARG001 - nothing published to compare with; the checksum always is
    **recipe: Any,
) -> ImageSet:
    """Glyphs: (1, 32, 32) uint8 images of characters, ink high, one character per class.

    ``recipe`` are fields of ``Recipe``. Groups are scripts; the attributes are ``family``,
    ``weight``, ``slant`` and ``face``. Class names are Unicode's: ``unicodedata.lookup`` gives the
    character.

    Made on first use and kept in ``root/glyphs``, else in ``$DMLKIT_CACHE/glyphs``. Raises
    ValueError for a value out of range or a damaged cache.
    """
    chosen, cache = Recipe(**recipe), (root or cache_folder()) / "glyphs"

    def make() -> Arrays:  # to draw the alphabet takes ten times as long as the images of a set
        path = cache / f"alphabet-{_key()}.npz"
        parts = _kept(path, lambda: draw_alphabet()._asdict(), Alphabet._fields)
        return _make(chosen, Alphabet(*parts))

    names = [f"{split}_{part}" for part in ("codes", "faces", "images")]
    codes, faces, images = _kept(cache / f"{_key(chosen)}.npz", make, names)
    characters = [chr(code) for code in codes]
    labels = np.repeat(np.arange(len(codes)), len(images) // max(len(codes), 1))
    described = np.array(FACES)[faces].reshape(-1, 4).T  # (4, N)
    return ImageSet(
        images=torch.from_numpy(images),
        labels=labels,
        groups=np.array([group(character) for character in characters], dtype=np.str_)[labels],
        class_names=tuple(unicodedata.name(character) for character in characters),
        attributes=dict(zip(("family", "weight", "slant", "face"), described, strict=True)),
    )


_FILES = __file__, Path(__file__).with_name("alphabet.py")
_SOURCE = b"".join(Path(file).read_bytes() for file in _FILES)  # as imported


def _key(recipe: Recipe | None = None) -> str:
    """Hash of all that decides the bytes: the recipe, these files, and the libraries; without a
    recipe those of the alphabet."""
    versions = {name: version(name) for name in ("numpy", "torch", "matplotlib")}
    stated = json.dumps([recipe and asdict(recipe), hashlib.sha256(_SOURCE).hexdigest(), versions])
    return hashlib.sha256(stated.encode()).hexdigest()[:16]


def _kept(path: Path, make: Callable[[], Arrays], names: Sequence[str]) -> list[NDArray[Any]]:
    """Arrays of a file, which is made where it is not there, once however many processes ask."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        threads = torch.get_num_threads()
        with FileLock(path.with_suffix(".lock")):
            torch.set_num_threads(1)  # little of this is parallel: on busy cores more cost much
            try:
                if not path.exists():
                    write_whole({path: lambda beside: _save(beside, make())})
            finally:
                torch.set_num_threads(threads)
    try:
        with path.open("rb") as content, np.load(content) as file:  # zip compares checksums
            return [file[name] for name in names]
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"the Glyphs cache {path} is damaged ({error}): delete it, and it is made anew"
        ) from error


def _save(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _make(recipe: Recipe, alphabet: Alphabet) -> Arrays:
    """All three splits, of each codes (C,), faces (N,) and images (N, 1, 32, 32)."""
    wanted = recipe.test_classes, recipe.val_classes, recipe.train_classes
    order = _ordered(recipe, len(alphabet.codes))
    if sum(wanted) > len(order):
        raise ValueError(
            f"test, val and train ask for {' + '.join(map(str, wanted))} classes, "
            f"but there are {len(order)}"
        )
    test, val, train, _ = np.split(order, np.cumsum(wanted))
    counts = recipe.per_class, recipe.val_per_class, recipe.test_per_class
    parts = zip(SPLITS, (train, val, test), counts, strict=True)
    made: dict[str, NDArray[Any]] = {}
    for number, (split, classes, per_class) in enumerate(parts):
        seeds = np.random.SeedSequence([recipe.seed, number])
        generator = Generator().manual_seed(int(seeds.generate_state(1)[0]))
        repeated = np.repeat(classes, per_class)
        faces, images = _instances(alphabet, repeated, LEVELS[recipe.level], generator)
        made[f"{split}_codes"] = alphabet.codes[classes]
        made[f"{split}_faces"], made[f"{split}_images"] = faces, images
    return made


def _ordered(recipe: Recipe, total: int) -> NDArray[np.int64]:
    """The classes that may be used, those to be tested on first."""
    own = np.random.default_rng(recipe.class_split)
    if recipe.part == "all":
        return own.permutation(total)
    develop, evaluate = np.split(np.random.default_rng(0).permutation(total), [_DEVELOP])
    if recipe.part == "develop":
        return own.permutation(develop)
    first = recipe.class_split * recipe.test_classes
    block = evaluate[first : first + recipe.test_classes]
    if len(block) < recipe.test_classes:
        raise ValueError(
            f"class_split must leave {recipe.test_classes} of the {len(evaluate)} classes to test "
            f"on, but is {recipe.class_split}"
        )
    others = own.permutation(total)
    return np.concatenate([block, others[~np.isin(others, block)]])


# Instances --------------------------------------------------------------------------------------
# In float64 until the last rounding, so that machines that order or fuse operations differently
# still agree on every byte.


def _instances(
    alphabet: Alphabet, classes: NDArray[np.int64], level: Level, generator: Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """One face and one image for each entry of ``classes``: (N,) -> (N,), (N, 1, 32, 32)."""
    ink, drawn = torch.from_numpy(alphabet.ink), torch.from_numpy(alphabet.drawn)
    listed = drawn.int().argsort(dim=1, descending=True, stable=True)  # (C, 16) its faces first
    faces = torch.empty(len(classes), dtype=torch.uint8)
    images = torch.empty(len(classes), 1, SIZE, SIZE, dtype=torch.uint8)
    for start in range(0, len(classes), _CHUNK):
        chunk = torch.from_numpy(np.resize(classes[start : start + _CHUNK], _CHUNK))  # repeated
        place = (_uniform(0, 1, generator) * drawn[chunk].sum(dim=1)).long()
        face = listed[chunk, place]
        made = _photograph(_warp(ink[chunk, face], level, generator), level, generator)
        left = len(classes) - start
        faces[start : start + _CHUNK] = face[:left]
        images[start : start + _CHUNK, 0] = (made * 255).round().to(torch.uint8)[:left]
    return faces.numpy(), images.numpy()


def _uniform(low: float, high: float, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(_CHUNK, dtype=torch.float64, generator=generator)


def _either_side(bound: float, generator: Generator) -> Tensor:
    return _uniform(-bound, bound, generator)


def _smooth(waves: int, generator: Generator) -> Tensor:
    """Random fields of unit variance made of the ``waves`` longest cosines: (N, 32, 32)."""
    pixels = (torch.arange(SIZE, dtype=torch.float64) + 0.5) / SIZE
    basis = torch.cos(torch.pi * pixels[:, None] * torch.arange(waves))  # (32, waves)
    basis = basis / basis.norm(dim=1, keepdim=True)
    weights = torch.randn(_CHUNK, waves, waves, dtype=torch.float64, generator=generator)
    return torch.matmul(basis @ weights, basis.T)


def _warp(ink: Tensor, level: Level, generator: Generator) -> Tensor:
    """Turn, shear, scale, stretch, shift and bend: (N, 48, 48) -> (N, 32, 32)."""
    angle = torch.deg2rad(_either_side(level.rotation, generator))
    shear = _either_side(level.shear, generator)
    scale = _uniform(*level.scale, generator) * _FIT * BOARD / BOX
    stretch = (1 + _either_side(level.aspect, generator)).sqrt()
    cos, sin, width, height = angle.cos(), angle.sin(), scale * stretch, scale / stretch
    # rotation · shear · scale, from the board to the image, both in [-1, 1]²
    rows = [cos * width, (cos * shear - sin) * height, sin * width, (sin * shear + cos) * height]
    matrix = torch.stack(rows, dim=1).view(-1, 2, 2)

    half = torch.stack([ink.any(dim=1).sum(dim=1), ink.any(dim=2).sum(dim=1)], dim=1) / BOARD
    room = (1 - (matrix.abs() @ half.double()[:, :, None])).clamp(min=0)  # (N, 2, 1)
    asked = torch.stack([_either_side(2 * level.shift, generator) for _ in range(2)], dim=1)
    shift = asked[:, :, None].clamp(-room, room)

    axis = _centers(SIZE).double()
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="xy")).view(2, -1)  # (2, 1024)
    bend = torch.stack([_smooth(3, generator) for _ in range(2)], dim=1).view(-1, 2, SIZE * SIZE)
    pixels = pixels - shift + 2**0.5 * level.elastic * bend
    source = torch.linalg.inv(matrix) @ pixels  # (N, 2, 1024)
    grid = source.transpose(1, 2).reshape(-1, SIZE, SIZE, 2)
    return F.grid_sample(ink[:, None].double() / 255, grid, align_corners=False)[:, 0]


def _largest(image: Tensor) -> Tensor:
    """The largest of each pixel and its eight neighbors, ten times as fast as max_pool2d."""
    padded = F.pad(image, (1, 1, 1, 1))
    rows = padded[:, :-2].maximum(padded[:, 1:-1]).maximum(padded[:, 2:])
    return rows[:, :, :-2].maximum(rows[:, :, 1:-1]).maximum(rows[:, :, 2:])


def _photograph(image: Tensor, level: Level, generator: Generator) -> Tensor:
    """Thicken or thin strokes, blur, lower the contrast, add clutter and noise: (N, 32, 32)."""
    stroke = _either_side(level.stroke, generator)[:, None, None]
    grown, thinned = _largest(image), -_largest(-image)
    image = image + stroke * torch.where(stroke > 0, grown - image, image - thinned)

    width = _uniform(*level.blur, generator)[:, None, None]
    apart = torch.arange(SIZE, dtype=torch.float64)
    kernel = torch.exp(-((apart[:, None] - apart) ** 2) / (2 * width**2))  # (N, 32, 32)
    kernel = kernel / kernel.sum(dim=2, keepdim=True)
    image = kernel @ image @ kernel.transpose(1, 2)

    # Else thin strokes would vanish when they are thinned and blurred.
    image = image / image.amax(dim=(1, 2), keepdim=True).clamp(min=0.25)
    image = image * _uniform(*level.contrast, generator)[:, None, None]
    noise = torch.randn(image.shape, dtype=torch.float64, generator=generator)
    image = image + level.clutter * _smooth(8, generator) + level.noise * noise
    return image.clamp(0, 1)


def jitter(images: Tensor, generator: Generator, strength: float = 1.0) -> Tensor:
    """Fresh light augmentation: each image turned, sheared, scaled, shifted, its contrast changed.

    (B, C, H, W) uint8, or float in [0, 1], to float of the same shape, channels last, on the
    images' device. At strength 1: ±10°, shear ±0.1, scale ±10 %, shift ±6 % of a side, contrast
    ±20 %; at 0 the images stay as they are. The draws come from the generator's own device, so a
    CPU generator gives the same ones everywhere.

    >>> jitter(torch.full((2, 1, 8, 8), 255, dtype=torch.uint8), Generator().manual_seed(0)).shape
    torch.Size([2, 1, 8, 8])
    """
    # radians, slope, share of the size, and half sides twice; last, share of the contrast
    bounds = torch.tensor([0.1745, 0.1, 0.1, 0.12, 0.12, 0.2], device=generator.device)
    draws = torch.rand(len(images), 6, generator=generator, device=generator.device)
    draws = ((2 * draws - 1) * bounds * strength).to(images.device, non_blocking=True)
    angle, shear, zoom, right, down, contrast = draws[:, :, None, None].unbind(dim=1)
    cos, sin, scale = angle.cos(), angle.sin(), 1 + zoom  # (B, 1, 1)
    y, x = (_centers(side, images.device) for side in images.shape[2:])
    y = y[:, None]
    # Twice as fast as affine_grid, and grid_sample reads this layout as well as its own.
    across = cos * scale * x + ((cos * shear - sin) * scale * y + right)
    along = sin * scale * x + ((sin * shear + cos) * scale * y + down)
    grid = torch.stack([across, along], dim=1).permute(0, 2, 3, 1)  # (B, H, W, 2)
    values = to_float(images).float()
    warped = F.grid_sample(values, grid, padding_mode="reflection", align_corners=False)
    return (warped * (1 + contrast)[:, None]).contiguous(memory_format=torch.channels_last)


def _centers(side: int, device: torch.device | None = None) -> Tensor:
    """The centers of ``side`` pixels over [-1, 1], as grid_sample counts them."""
    return (torch.arange(side, device=device) * 2 + 1) / side - 1
