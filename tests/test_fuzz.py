"""Mutated files: each is read right, or refused by an error of ours that names it.

Every test takes 100 mutations; with DMLKIT_FUZZ=2000, as at night, the five take 10,000. A reader
that ended the process, or waited, would end the test as well.
"""

import gzip
import io
import json
import os
import shutil
import tarfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dmlkit import recipes
from dmlkit.data import ImageSet, load
from dmlkit.data.archives import unpack
from dmlkit.data.pictures import decode
from dmlkit.index import Index
from dmlkit.training import Experiment
from tests.data import trees

EXAMPLES = int(os.environ.get("DMLKIT_FUZZ") or 100)
SECONDS = 30  # that one file may take, on a machine with much else to do
OURS = (
    ValueError,
    TypeError,
    OSError,
    FileNotFoundError,
)  # themselves, not what inherits from them
SMALL = {"crop": 8, "resize": 9, "check": False}
pytestmark = pytest.mark.timeout(3600)


def mutated(rng: np.random.Generator, content: bytes) -> bytes:
    """One to four changes: bytes set or flipped, a part cut, repeated, zeroed, or put elsewhere."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        if not changed:
            break
        at, end = sorted(rng.integers(0, len(changed) + 1, 2).tolist())
        end = min(end, at + int(rng.choice([1, 2, 4, 16, 10**9])))
        part = changed[at:end]
        elsewhere = int(rng.integers(0, len(changed)))
        match rng.integers(7):
            case 0:
                changed[elsewhere] = rng.integers(256)
            case 1:
                changed[elsewhere] ^= 1 << rng.integers(8)
            case 2:
                del changed[at:end]
            case 3:
                changed[at:at] = part[:64]
            case 4:
                changed[at:end] = bytes(len(part))
            case 5:
                changed[at:end] = b"\xff" * len(part)
            case _:
                changed[elsewhere:elsewhere] = part[:64]
    return bytes(changed)


def fuzz(seeds, read, folder):
    """Read mutations of the seeds, by turns; returns how many were refused.

    ``seeds`` are contents by file name; ``read(path)`` checks what it gives by itself.
    """
    refused = 0
    for i in range(EXAMPLES):
        name, content = list(seeds.items())[i % len(seeds)]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutated(np.random.default_rng([7, i]), content))
        began, said = time.monotonic(), None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's, of tags that it passes over
                read(path)
        except OURS as error:
            refused += 1
            said = error
        assert said is None or type(said) in OURS, f"example {i}: {said!r}"
        assert said is None or path.name in str(said), f"example {i}: {said!r} names no file"
        assert said is None or len(str(said)) > len(path.name) + 20, f"example {i}: {said!r}"
        assert time.monotonic() - began < SECONDS, f"example {i}"
        path.write_bytes(content)
    return refused


CONTENTS = {"x/a.txt": b"1" * 700, "x/b b.txt": bytes(range(256)) * 3, "y.txt": b""}


def archives():
    zipped, stored, tarred = io.BytesIO(), io.BytesIO(), io.BytesIO()
    for file, how in ((zipped, zipfile.ZIP_DEFLATED), (stored, zipfile.ZIP_STORED)):
        with zipfile.ZipFile(file, "w", how) as archive:
            for name, content in CONTENTS.items():
                archive.writestr(name, content)
    with tarfile.open(fileobj=tarred, mode="w") as archive:
        for name, content in CONTENTS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    tar = tarred.getvalue()[:5120]  # the rest is padding
    return {
        "a.zip": zipped.getvalue(),
        "stored.zip": stored.getvalue(),
        "a.tar": tar,
        "a.tgz": gzip.compress(tar),
    }


def test_archives(tmp_path):
    def read(path):
        folder = tmp_path / "out"
        try:
            unpack(path, folder)
            found = {
                str(file.relative_to(folder)): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file()
            }
            if path.suffix in (".zip", ".tgz"):  # a plain tar has no checksum of contents
                assert sorted(found.values()) == sorted(CONTENTS.values())
            if path.suffix == ".tar":
                assert 0 < len(found) <= 3  # zeros in place of its last headers are an end
        finally:
            left = [file.name for file in tmp_path.iterdir() if file.name != "archives"]
            assert left in ([], ["out"])
            if left:
                shutil.rmtree(folder)

    assert fuzz(archives(), read, tmp_path / "archives") > EXAMPLES / 2


def test_annotations(tmp_path):
    seeds, sets = {}, {}
    for name in ("cub", "sop", "inshop"):
        getattr(trees, name)(tmp_path / name)
    trees.cars(tmp_path / "cars")
    for name, file in (
        ("cub", "images.txt"),
        ("cub", "image_class_labels.txt"),
        ("sop", "Ebay_train.txt"),
        ("sop", "Ebay_test.txt"),
        ("inshop", "Eval/list_eval_partition.txt"),
        ("cars", "cars_annos.mat"),
    ):
        seeds[f"{name}/{file}"] = (tmp_path / name / file).read_bytes()
        sets[Path(file).name] = name

    def read(path):
        name = sets[path.name]
        try:
            images = load(name, "train", tmp_path / name, class_split=next(number), **SMALL)
        except OURS as error:
            beside = path.name in ("image_class_labels.txt", "Ebay_test.txt")
            if (f"format of {name}: " in str(error) and beside) or "split is empty" in str(error):
                raise type(error)(f"{path.name}: {error}") from error  # it names the index
            raise
        assert isinstance(images, ImageSet)
        assert len(images) == len(images.images.paths) > 0

    number = iter(range(EXAMPLES))  # else an earlier answer would be given again
    assert fuzz(seeds, read, tmp_path) > EXAMPLES / 4


def pictures():
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((24, 20))
    seeds = {}
    for suffix, kind, mode in (
        ("jpg", "JPEG", "RGB"),
        ("png", "PNG", "RGB"),
        ("gif", "GIF", "P"),
        ("tif", "TIFF", "RGB"),
        ("webp", "WEBP", "RGB"),
        ("bmp", "BMP", "RGB"),
        ("ppm", "PPM", "RGB"),
        ("cmyk.jpg", "JPEG", "CMYK"),
        ("alpha.png", "PNG", "RGBA"),
        ("palette.png", "PNG", "P"),
        ("packed.tif", "TIFF", "RGB"),
    ):
        file = io.BytesIO()
        more = {"compression": "tiff_lzw"} if suffix == "packed.tif" else {}
        image.convert(mode).save(file, kind, **more)
        seeds[f"picture.{suffix}"] = file.getvalue()
    return seeds


@pytest.mark.parametrize("keep_aspect", [False, True])
def test_pictures(tmp_path, keep_aspect):
    def read(path):
        pixels = decode(path, 8, keep_aspect)
        assert pixels.dtype == np.uint8
        assert min(pixels.shape[:2]) == 8
        assert pixels.shape[2] == 3

    assert fuzz(pictures(), read, tmp_path) > EXAMPLES / 4


TOML = b"""
base = "sec_cub_googlenet"
[experiment]
loss = "margin"
loss_args = { margin = 0.2, beta = 1.2 }
data_args = { crop = 32, flip = true, scale = [0.2, 1.0] }
lr = 1e-3
steps = 100
monitor = ["val", "test"]
[losses.triplet_all]
lr = 0.5
sampler = "uniform"
sampler_args = { size = 7 }
"""
JSON = json.dumps(
    {"loss": "margin", "loss_args.margin": 0.2, "data_args": {"crop": 8}, "lr": 1e-3, "dim": 4}
).encode()


def test_recipes(tmp_path):
    def read(path):
        if path.suffix == ".json":
            try:
                settings = json.loads(path.read_bytes())
            except ValueError:  # what --set says of it is another test's
                return
            if not isinstance(settings, dict):
                return
            try:
                made = recipes.load(None, None, settings)
            except (ValueError, TypeError) as error:  # they came without a file
                raise type(error)(f"{path.name}: {error}") from error
        else:
            made = recipes.load(str(path), "triplet_all")
        assert isinstance(made, Experiment)
        assert len(made.hash()) == 12

    seeds = {"my.toml": TOML, "other.toml": TOML * 2, "my.json": JSON, "third.toml": TOML}
    assert fuzz(seeds, read, tmp_path) > EXAMPLES / 4


def test_indices(tmp_path):
    """Also with zip's checksums made anew, as who means harm would: then faiss has to see it."""
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    small = {"flat": {}, "ivfpq": {"nlist": 2, "m": 2, "nbits": 2}, "hnsw": {"M": 3}}
    seeds, parts = {}, {}
    for kind, args in small.items():
        path = tmp_path / f"{kind}.index"
        Index.build(x, kind, "euclidean", **args).save(path)
        seeds[path.name] = path.read_bytes()
        with np.load(path) as kept:
            parts[f"inner-{path.name}"] = str(kept["about"]), kept["index"].tobytes()

    def read(path):
        if path.name in parts:
            about, _ = parts[path.name]
            index = np.frombuffer(path.read_bytes(), np.uint8)
            with path.open("wb") as file:
                np.savez(file, about=np.array(about), index=index)
        loaded = Index.load(path)
        if loaded.faiss.d != 4 or len(loaded) < 3:
            assert path.name in parts
            return
        places, distances = loaded.search(x[:5], 3)
        assert places.shape == distances.shape == (5, 3)
        if path.name not in parts:  # what the checksums let pass is what was written
            expected = Index.build(x, loaded.kind, "euclidean", **small[loaded.kind]).search(
                x[:5], 3
            )
            np.testing.assert_array_equal(places, expected[0])

    every = seeds | {name: content for name, (_, content) in parts.items()}
    assert fuzz(every, read, tmp_path / "mutated") > EXAMPLES / 4
