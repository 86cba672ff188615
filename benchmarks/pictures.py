"""The input pipeline over a folder of JPEGs: batches against decoding alone, on all cores.

The files have just been written, so it is the decoder that is measured, and not the disk.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import torch
from PIL import Image

from dmlkit.data.batches import PK
from dmlkit.data.pictures import Pictures

WIDTH, HEIGHT = 500, 375
PER_CLASS = 8
QUALITY = 90  # of the JPEGs

Row = dict[str, str | float]


def write_photos(folder: Path, count: int) -> list[Path]:
    """JPEGs as large as photos of their size: random parts of a texture whose spectrum is 1/f."""
    generator = np.random.default_rng(0)
    side = 2048
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))  # (S, S/2 + 1)
    noise = np.fft.rfft2(generator.standard_normal((3, side, side)))
    texture = np.fft.irfft2(noise / np.maximum(frequency, 1 / side))  # (3, S, S)
    texture = np.clip(128 + 50 * texture / texture.std(), 0, 255).astype(np.uint8)
    paths = [folder / f"{i}.jpg" for i in range(count)]
    for path in paths:
        top, left = generator.integers(0, (side - HEIGHT, side - WIDTH))
        part = texture[:, top : top + HEIGHT, left : left + WIDTH].transpose(1, 2, 0)
        Image.fromarray(np.ascontiguousarray(part)).save(path, quality=QUALITY)
    return paths


def rows(files: int = 1024, classes: int = 32, rounds: int = 5) -> list[Row]:
    """Images per second of each way in turn, and the processor's milliseconds for each image.

    ``ratio`` is to decoding alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photos(Path(folder), files)
        kilobytes = statistics.mean(path.stat().st_size for path in paths) / 1000
        none_kept, kept = _pictures(paths, gigabytes=0), _pictures(paths, gigabytes=1)
        labels = np.arange(files) // PER_CLASS
        ways: dict[str, Callable[[], int]] = {
            "decoding alone": lambda: decode_alone(paths),
            "training batches": lambda: training_batches(none_kept, labels, classes),
            "evaluation": lambda: evaluation(none_kept),
            "training batches, pictures kept": lambda: training_batches(kept, labels, classes),
            "evaluation, pictures kept": lambda: evaluation(kept),
        }
        evaluation(kept)  # which keeps them
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                spent[name].append(_seconds_of_an_image(way))
    wall, processor = (
        {name: [times[i] for times in each] for name, each in spent.items()} for i in range(2)
    )
    alone = wall["decoding alone"]
    return [
        {
            "what": f"{name}, {WIDTH} x {HEIGHT} JPEGs of {kilobytes:.0f} kB",
            "images/s": 1 / statistics.median(wall[name]),
            "core_ms": 1000 * statistics.median(processor[name]),
            "against": "decoding alone",
            "ratio": statistics.median(a / b for a, b in zip(alone, wall[name], strict=True)),
        }
        for name in ways
    ]


def decode_alone(paths: list[Path]) -> int:
    """Pillow's decoding and resizing in as many threads as there are cores, and nothing else."""

    def decode(path: Path) -> None:
        with Image.open(path) as image:
            image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)

    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        for _ in pool.map(decode, paths):
            pass
    return len(paths)


def training_batches(pictures: Pictures, labels: np.ndarray, classes: int) -> int:
    """PK batches as a training reads them: resized to 256, random crops of 224, flips."""
    sampler = PK(labels, classes, per_class=4)
    steps = len(pictures) // (4 * classes)
    batch = pictures.stream(sampler, 0, steps, torch.device("cpu"))
    return sum(len(batch(step)) for step in range(steps))


def evaluation(pictures: Pictures) -> int:
    """Center crops of all, as ``training.embed`` reads them."""
    return sum(len(part) for part in pictures.split(256))


def _pictures(paths: list[Path], gigabytes: int) -> Pictures:
    with mock.patch.dict(os.environ, DMLKIT_PICTURE_GB=str(gigabytes)):
        return Pictures(paths)


def _seconds_of_an_image(way: Callable[[], int]) -> tuple[float, float]:
    """On the wall's clock, and of all cores together."""
    wall, processor = time.perf_counter(), time.process_time()
    images = way()
    return (time.perf_counter() - wall) / images, (time.process_time() - processor) / images
