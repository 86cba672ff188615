"""Pictures that stay files: decoded, resized and cropped when they are asked for."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any, BinaryIO

import joblib
import numpy as np
import PIL
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Generator, Tensor
from tqdm.auto import tqdm

from dmlkit.checks import check_count
from dmlkit.files import StrPath

# Pillow looks at contents, not at suffixes, and would give others to programs such as Ghostscript.
# Those of the second line are read where Pillow, or for HEIF the extra `heic`, can.
_FORMATS = (
    *("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"),
    *("AVIF", "JPEG2000", "HEIF"),
)
AHEAD = 3  # batches in the making: the one that is asked for, and those after it
_CROPS = 1  # sets a step's crops apart from its sampler, which draws from (seed, step)
_TRIES = 10  # at a rectangle that fits, as torchvision
READS_HEIC = "pip install --editable '.[heic]' reads it, or save it as JPEG"
LONGEST = 16  # sides: of a longer picture the middle is kept, as 2 × 40,000 pixels would take 13 GB

Pixels = NDArray[np.uint8]  # (H, W, 3)
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels of the upright picture

with suppress(ImportError):
    import pillow_heif

    pillow_heif.register_heif_opener()


@dataclass(eq=False)
class Pictures:
    """Picture files in place of ImageSet's tensor: (N, 3, crop, crop) uint8, RGB.

    A picture is resized to ``resize`` pixels a side (with ``keep_aspect`` only its shorter side
    is), then cropped: in the center by ``[index]`` and ``split``; at random, and with ``flip``
    mirrored half of the time, by ``stream``, which is what training reads. The defaults are those
    of Fehérvári, Ravichandran and Appalaraju 2019, section 4.1.

    With ``scale`` = (low, high) ``stream`` cuts a rectangle out of H × W instead, at random:

        h = √(s H W / r),  w = √(s H W r),  s ~ U(low, high),  log r ~ U(log 3/4, log 4/3)

    and resizes it bilinearly to ``crop`` pixels a side. The first of ten draws that fits is taken,
    else the largest rectangle in the center with r in 3/4..4/3: torchvision's RandomResizedCrop,
    after Szegedy et al., "Going Deeper with Convolutions" (2015), section 6.

    Where there are ``boxes``, one for each path or None, a picture is what is in its box.

    Threads decode, one per core; Pillow frees them of Python's lock. Decoded pictures are kept up
    to ``$DMLKIT_PICTURE_GB`` gigabytes a set, else 2 (10,172 pictures of 256 × 256).

    Raises ValueError for a ``crop`` or ``scale`` out of its range, and, later, for a file that is
    no picture.

    >>> Pictures(["a.jpg", "b.jpg"], crop=32, resize=40).shape
    torch.Size([2, 3, 32, 32])
    """

    paths: Sequence[Any]  # of files, or their bytes where they are only embedded
    crop: int = 224
    resize: int = 256
    keep_aspect: bool = False
    flip: bool = True
    scale: Sequence[float] | None = None
    boxes: Sequence[Box | None] | None = None

    def __post_init__(self) -> None:
        check_count(crop=self.crop)
        if self.crop > self.resize:
            raise ValueError(f"crop must be 1 to resize ({self.resize}) pixels, not {self.crop}")
        if self.scale is not None:
            low, high = map(float, self.scale)
            if not 0 < low <= high <= 1:
                raise ValueError(f"scale must be shares, 0 < low <= high <= 1, not {self.scale}")
            self.scale = low, high
        self._decoded: dict[int, Pixels] = {}
        self._bytes_left = float(os.environ.get("DMLKIT_PICTURE_GB") or 2) * 1e9
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which keeps decoded pictures of its own."""
        settings = (self.crop, self.resize, self.keep_aspect, self.flip, self.scale, self.boxes)
        return Pictures, (self.paths, *settings)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), 3, self.crop, self.crop))

    def __getitem__(self, index: Any) -> Tensor:
        """Center crops, by whatever indexes an array: (3, crop, crop) or (B, 3, crop, crop)."""
        chosen = np.arange(len(self))[index.cpu().numpy() if isinstance(index, Tensor) else index]
        batch = self._start(threads(), np.atleast_1d(chosen))()
        return batch if np.ndim(chosen) else batch[0]

    def subset(self, rows: Sequence[int] | NDArray[np.integer]) -> "Pictures":
        """Some of the pictures, still as files."""
        boxes = self.boxes and [self.boxes[row] for row in rows]
        return replace(self, paths=[self.paths[row] for row in rows], boxes=boxes)

    def split(self, size: int) -> Iterator[Tensor]:
        """Center crops of all pictures, ``size`` at a time, as Tensor.split gives them."""
        pool, places = threads(), np.arange(len(self))
        count = -(-len(self) // size)
        return map(
            _ahead(lambda k: self._start(pool, places[k * size : (k + 1) * size]), count),
            range(count),
        )

    def stream(
        self,
        sampler: Callable[[int], NDArray[np.integer]],
        seed: int,
        steps: int,
        device: torch.device,
        share: slice = slice(None),
    ) -> Callable[[int], Tensor]:
        """Training batches: step -> (B, 3, crop, crop) on the device, a function of (seed, step).

        The next batches, up to ``steps`` of them, are decoded while this one is in use. A process
        that has a ``share`` of each decodes no more than that.
        """
        pool = threads()
        numbers = 3 if self.scale is None else 3 + 2 * _TRIES  # a picture

        def start(step: int) -> Callable[[], Tensor]:
            index = sampler(step)
            draws = np.random.default_rng([seed, step, _CROPS]).random((len(index), numbers))
            return self._start(pool, index[share], draws[share], device.type == "cuda")

        batch = _ahead(start, steps)
        return lambda step: batch(step).to(device, non_blocking=True)

    def thumbnails(self, side: int = 16) -> Tensor:
        """All pictures as (N, 3, side, side) float 0..1, small enough to compare by pixels."""
        small = [F.adaptive_avg_pool2d(part.float(), side) for part in self.split(256)]
        return torch.cat(small) / 255

    def digest(self) -> bytes:
        """SHA-256 of the files' contents, and of all that makes pixels of them."""
        settings = (self.crop, self.resize, self.keep_aspect, self.flip, PIL.__version__)
        said = repr(settings)
        said += "".join(repr(each) for each in (self.scale, self.boxes) if each is not None)
        contents = b"".join(threads().map(sha256, self.paths))
        return hashlib.sha256(said.encode() + contents).digest()

    def _start(
        self,
        pool: ThreadPoolExecutor,
        index: NDArray[np.integer],
        draws: NDArray[np.float64] | None = None,
        pinned: bool = False,
    ) -> Callable[[], Tensor]:
        """Begin a batch; the result waits for it. Channels last, as convolutions like them."""
        shape = len(index), self.crop, self.crop, 3
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=pinned)
        rows = batch.numpy()

        def write(row: int) -> None:
            picture = self._picture(int(index[row]))
            rows[row] = self._cropped(picture, None if draws is None else draws[row])

        work = pool.map(write, range(len(index)))

        def finish() -> Tensor:
            list(work)  # waits, and raises what a thread has raised
            return batch.permute(0, 3, 1, 2)

        return finish

    def _cropped(self, picture: Pixels, draw: NDArray[np.float64] | None) -> Pixels:
        """The center or, by numbers in [0, 1), another crop, perhaps mirrored."""
        if draw is not None and self.scale is not None:
            square = _rectangle(picture, self.scale, self.crop, draw)
        else:
            free = np.array(picture.shape[:2]) - self.crop
            at = np.round(free / 2) if draw is None else draw[:2] * (free + 1)
            top, left = at.astype(int)
            square = picture[top : top + self.crop, left : left + self.crop]
        mirrored = draw is not None and self.flip and draw[2] < 0.5
        return square[:, ::-1] if mirrored else square

    def _picture(self, i: int) -> Pixels:
        """Picture i, resized."""
        if i in self._decoded:
            return self._decoded[i]
        box = None if self.boxes is None else self.boxes[i]
        picture = decode(self.paths[i], self.resize, self.keep_aspect, box)
        with self._lock:
            if i not in self._decoded and picture.nbytes <= self._bytes_left:
                self._bytes_left -= picture.nbytes
                self._decoded[i] = picture
        return picture


def _ahead(start: Callable[[int], Callable[[], Tensor]], count: int) -> Callable[[int], Tensor]:
    """Batch by number, while the next ones, up to ``count`` of them, are begun already."""
    started: dict[int, Callable[[], Tensor]] = {}

    def batch(number: int) -> Tensor:
        for later in range(number, min(number + AHEAD, count)):
            if later not in started:
                started[later] = start(later)
        return started.pop(number)()

    return batch


def _rectangle(
    picture: Pixels, scale: Sequence[float], side: int, draw: NDArray[np.float64]
) -> Pixels:
    """What ``scale`` cuts: ``draw`` is its top, left, the mirror, and s and r of each try."""
    (height, width), (low, high) = picture.shape[:2], scale
    for s, r in draw[3:].reshape(_TRIES, 2).tolist():
        area, ratio = height * width * (low + s * (high - low)), (4 / 3) ** (2 * r - 1)
        h, w = round((area / ratio) ** 0.5), round((area * ratio) ** 0.5)
        if 0 < h <= height and 0 < w <= width:
            top, left = int(draw[0] * (height - h + 1)), int(draw[1] * (width - w + 1))
            break
    else:
        h, w = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
        top, left = (height - h) // 2, (width - w) // 2
    found = Image.fromarray(picture[top : top + h, left : left + w])
    return np.asarray(found.resize((side, side), Image.Resampling.BILINEAR))


def recolor(images: Tensor, generator: Generator, strength: float) -> Tensor:
    """Fresh colors: each image's brightness, contrast and saturation times 1 ± ``strength``.

        x ← b x,  then x ← m + c (x − m),  then x ← g + s (x − g),  each cut to 0..1

    g is a pixel's gray, 0.299 R + 0.587 G + 0.114 B, and m the mean of an image's g. Tones 0..1
    (B, 1 or 3, H, W) to the same, on the images' device. The draws come from the generator's own
    device.

    >>> recolor(torch.ones(2, 3, 8, 8), Generator().manual_seed(0), 0.2).shape
    torch.Size([2, 3, 8, 8])
    """
    draws = torch.rand(3, len(images), 1, 1, 1, generator=generator, device=generator.device)
    b, c, s = 1 + (2 * draws - 1).to(images.device, non_blocking=True) * strength

    def gray(x: Tensor) -> Tensor:
        if x.shape[1] == 1:
            return x
        return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]  # (B, 1, H, W)

    x = (b * images).clamp(0, 1)
    x = gray(x).mean((2, 3), keepdim=True).lerp(x, c).clamp(0, 1)
    return gray(x).lerp(x, s).clamp(0, 1)


def mirror(images: Tensor, generator: Generator) -> Tensor:
    """Each image mirrored, half of the time: (B, C, H, W) to the same, on the images' device.

    The draws come from the generator's own device.

    >>> mirror(torch.tensor([[[[1, 2]]]] * 4), Generator().manual_seed(0)).flatten(1).tolist()
    [[2, 1], [1, 2], [2, 1], [2, 1]]
    """
    turned = torch.rand(len(images), 1, 1, 1, generator=generator, device=generator.device) < 0.5
    return torch.where(turned.to(images.device, non_blocking=True), images.flip(3), images)


def color_histogram(images: Tensor) -> Tensor:
    """How much of an image has which color, and nothing of where: (N, 3, H, W) -> (N, 216).

    Square roots of the shares of 6 × 6 × 6 bins, 43 of 256 levels wide: so vectors of unit length,
    whose cosine is Bhattacharyya's coefficient. Images are uint8 0..255 or float 0..1.

    >>> halves = torch.tensor([0, 255], dtype=torch.uint8).expand(1, 3, 1, 2)  # black and white
    >>> color_histogram(halves).square().nonzero().tolist()
    [[0, 0], [0, 215]]
    """
    found = []
    for part in images.split(256):
        levels = part if part.dtype == torch.uint8 else (255 * part).round()
        red, green, blue = (levels.long() // 43).flatten(2).unbind(dim=1)  # (B, H W), 0..5
        bins = 36 * red + 6 * green + blue
        own = bins + 216 * torch.arange(len(part), device=part.device)[:, None]
        counts = own.flatten().bincount(minlength=216 * len(part)).view(-1, 216)
        found.append((counts / bins.shape[1]).sqrt())
    return torch.cat(found)


def suffixes() -> tuple[str, ...]:
    """Those of the picture files that are read here.

    >>> {".jpg", ".jfif", ".png", ".jp2"} <= set(suffixes())
    True
    """
    known = Image.registered_extensions()
    return tuple(sorted(suffix for suffix, kind in known.items() if kind in _FORMATS))


def stamp(path: StrPath) -> str:
    """A file's size and time: another text where it has changed, or is no longer there."""
    try:
        now = os.stat(path)
    except OSError:  # it is gone, or a link to itself
        return "missing"
    return f"{now.st_size}, {now.st_mtime_ns}"


@contextmanager
def open_picture(path: StrPath | BinaryIO) -> Iterator[Image.Image]:
    """Open a picture file, or its bytes; errors, also of the block, name it.

    >>> with open_picture("nothing.jpg"):
    ...     pass
    Traceback (most recent call last):
    ValueError: nothing.jpg cannot be read: [Errno 2] No such file or directory: 'nothing.jpg'
    """
    Image.init()  # its plugins
    try:
        with Image.open(path, formats=[kind for kind in _FORMATS if kind in Image.OPEN]) as image:
            yield image
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        heic = isinstance(error, UnidentifiedImageError) and _is_heic(path)
        why = f"it is HEIC: {READS_HEIC}" if heic else str(error) or type(error).__name__
        raise ValueError(f"{path} cannot be read: {why}") from error


def _is_heic(path: StrPath | BinaryIO) -> bool:
    """Whether it begins as telephones' files do, and nothing here reads these."""
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as file:
            return _is_heic(file)
    path.seek(4)
    return "HEIF" not in Image.OPEN and path.read(8).startswith((b"ftyphe", b"ftypmif1"))


def decode(
    path: StrPath | BinaryIO, size: int, keep_aspect: bool = False, box: Box | None = None
) -> Pixels:
    """A picture file, or its bytes, as RGB, its sides, or shorter side, ``size``: (H, W, 3) uint8.

    It is turned upright as its camera says, then cut to its ``box``. Gray-scale, CMYK and palettes
    become RGB; what is transparent becomes white; of 16 bits the upper 8 are kept, of several
    pictures in a file the first, and with ``keep_aspect`` of one that is longer than 16 times its
    width the middle. Raises ValueError, with the path, for what cannot be read in full.
    """
    with open_picture(path) as image:
        if box is None:
            # Saves time: a far larger JPEG is decoded at a half, a quarter or an eighth of its size
            image.draft(None, (2 * size, 2 * size))
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith(("I", "F")):
            rgb = _of_16_bits(image).convert("RGB")
        elif image.has_transparency_data:
            paper = Image.new("RGBA", image.size, "white")
            rgb = Image.alpha_composite(paper, image.convert("RGBA")).convert("RGB")
        else:
            rgb = image.convert("RGB")
        if box is not None:
            left, top, right, bottom = box
            if not (0 <= left < right <= rgb.width and 0 <= top < bottom <= rgb.height):
                raise ValueError(f"the box {box} is not within its {rgb.width} x {rgb.height}")
            rgb = rgb.crop(box)
        if keep_aspect:
            rgb = _middle(rgb)
        shorter = min(rgb.size)
        width, height = (int(size * side / shorter) for side in rgb.size)  # as torchvision
        to = (width, height) if keep_aspect else (size, size)
        return np.asarray(rgb.resize(to, Image.Resampling.BILINEAR))


def _of_16_bits(image: Image.Image) -> Image.Image:
    """The upper 8 of 16 bits of gray, which Pillow would clip to white."""
    tones = np.asarray(image)
    if tones.dtype.kind == "f" or tones.min() < 0 or tones.max() >= 2**16:
        raise ValueError(f"expected 8 or 16 bits a channel, found mode {image.mode}")
    return Image.fromarray((tones >> 8).astype(np.uint8))


def _middle(image: Image.Image) -> Image.Image:
    most = LONGEST * min(image.size)
    width, height = (min(side, most) for side in image.size)
    if (width, height) == image.size:
        return image
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def complaints(paths: Sequence[StrPath], boxes: Sequence[Box | None] | None = None) -> list[str]:
    """Why each picture cannot be decoded in full; "" for one that can.

    >>> complaints(["a.jpg"])
    ["a.jpg cannot be read: [Errno 2] No such file or directory: 'a.jpg'"]
    """
    found = threads().map(_complaint, paths, boxes or [None] * len(paths), map(stamp, paths))
    return list(tqdm(found, "decoding", len(paths), unit="picture", leave=False, delay=2))


@cache  # the splits of a set ask for all of its pictures
def _complaint(path: StrPath, box: Box | None, _stamp: str) -> str:
    try:
        decode(path, 8, box=box)
    except ValueError as error:
        return str(error)
    return ""


def sha256(path: StrPath) -> bytes:
    """Of a file's contents."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def threads() -> ThreadPoolExecutor:
    """One per core; they end when nobody holds them any longer."""
    return ThreadPoolExecutor(joblib.cpu_count())
