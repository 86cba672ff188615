"""Pictures stand in for a tensor: the same crops whatever the order, threads or cache."""

import contextlib
import hashlib
import os
import pickle
import re
import time

import numpy as np
import PIL
import pytest
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional as reference

from dmlkit import data
from dmlkit.data import ImageSet, pictures
from dmlkit.data.pictures import Pictures, complaints, decode
from tests.data import trees
from tests.data.trees import picture, truncate

CPU = torch.device("cpu")


@pytest.fixture
def paths(tmp_path):
    return [picture(tmp_path / f"{i}.jpg", i, size=(40 + i, 60 - i)) for i in range(7)]


@pytest.mark.parametrize("keep_aspect", [False, True])
@pytest.mark.parametrize("size", [(61, 40), (40, 61), (50, 50), (9, 30)])
def test_center_crops_are_torchvisions(tmp_path, size, keep_aspect):
    path = picture(tmp_path / "a.png", 0, size=size)
    found = Pictures([path], crop=21, resize=32, keep_aspect=keep_aspect)[0]
    resized = reference.resize(Image.open(path), [32] if keep_aspect else [32, 32])
    expected = reference.pil_to_tensor(reference.center_crop(resized, [21, 21]))
    assert torch.equal(found, expected)


def test_they_are_indexed_like_a_tensor(paths):
    some = Pictures(paths, crop=16, resize=20)
    whole = torch.stack([some[i] for i in range(7)])
    assert some.shape == whole.shape == (7, 3, 16, 16)
    assert whole.dtype == torch.uint8
    assert torch.equal(some[-1], whole[6])
    for index in (torch.tensor([5, 0, 5]), np.array([2]), [1, 2], slice(1, 6, 2), np.arange(7) > 3):
        assert torch.equal(some[index], whole[index])
    for found, expected in zip(some.split(3), whole.split(3), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(IndexError, match="7"):
        some[7]


def stream(some, seed=0, batch=5, **args):
    def sampler(step):
        return np.random.default_rng(step).integers(0, len(some), batch)

    return some.stream(sampler, seed, steps=args.get("steps", 6), device=CPU)


def test_training_crops_are_a_function_of_seed_and_step(paths, monkeypatch):
    read = stream(Pictures(paths, crop=16, resize=20))
    unbroken = [read(step) for step in range(6)]
    assert all(batch.shape == (5, 3, 16, 16) for batch in unbroken)
    monkeypatch.setenv("DMLKIT_PICTURE_GB", "0.000002")  # one picture
    monkeypatch.setattr(pictures.joblib, "cpu_count", lambda: 7)
    resumed = stream(Pictures(paths, crop=16, resize=20))
    assert all(torch.equal(resumed(step), unbroken[step]) for step in (4, 5))
    other = stream(Pictures(paths, crop=16, resize=20), seed=1)
    assert not torch.equal(other(0), unbroken[0])


@pytest.mark.parametrize("scale", [None, (0.2, 1)])
def test_a_share_of_a_batch_is_what_one_process_has_of_it_and_no_more_is_decoded(
    paths, monkeypatch, scale
):
    def sampler(step):
        return np.array([step, 6, 5, step])

    read = Pictures(paths, 16, 20, scale=scale).stream(sampler, 0, 2, CPU)
    whole = [read(step) for step in (0, 1)]
    decoded = []
    monkeypatch.setattr(
        pictures, "decode", lambda path, *args: decoded.append(path) or decode(path, *args)
    )
    some = Pictures(paths, 16, 20, scale=scale)
    share = some.stream(sampler, 0, 2, CPU, slice(1, None, 2))
    for step in (0, 1):
        assert torch.equal(share(step), whole[step][1::2])
    assert set(decoded) & set(paths) == {paths[0], paths[1], paths[6]}


def test_another_process_gets_the_files_and_the_settings(paths):
    some = Pictures(paths, 8, 9, keep_aspect=True, flip=False, scale=[0.25, 1])
    whole = some[:]
    other = pickle.loads(pickle.dumps(some))
    assert other.scale == some.scale == (0.25, 1)
    assert other.digest() == some.digest()
    assert torch.equal(other[:], whole)
    assert torch.equal(stream(other)(1), stream(some)(1))


def test_training_crops_are_places_of_the_picture_and_half_are_mirrored(tmp_path):
    path = picture(tmp_path / "a.png", 3, size=(8, 8))
    whole = torch.from_numpy(decode(path, 8).copy()).permute(2, 0, 1)
    places = {}
    for top, left in np.ndindex(3, 3):
        square = whole[:, top : top + 6, left : left + 6]
        places[square.numpy().tobytes()] = (top, left, False)
        places[square.flip(2).numpy().tobytes()] = (top, left, True)
    assert len(places) == 18
    for flip in (True, False):
        read = stream(Pictures([path], crop=6, resize=8, flip=flip), batch=360, steps=1)
        found = [places[crop.contiguous().numpy().tobytes()] for crop in read(0)]
        counts = np.unique(found, axis=0, return_counts=True)[1]
        expected = 360 / (18 if flip else 9)
        assert len(counts) == (18 if flip else 9)
        assert np.abs(counts - expected).max() < 5 * expected**0.5


def test_without_a_scale_crops_and_digests_are_those_from_before_there_was_one(paths):
    """They are part of what committed Runs say, so they are written out here."""
    some, batch = Pictures(paths, 16, 20, keep_aspect=True), np.array([6, 0, 3, 0])
    found = some.stream(lambda step: batch, 5, 9, CPU)(7)
    draws = np.random.default_rng([5, 7, 1]).random((4, 3))
    for crop, i, (y, x, mirror) in zip(found, batch, draws, strict=True):
        whole = decode(paths[i], 20, True)
        top, left = int(y * (whole.shape[0] - 15)), int(x * (whole.shape[1] - 15))
        expected = whole[top : top + 16, left : left + 16][:, :: -1 if mirror < 0.5 else 1]
        assert np.array_equal(crop.permute(1, 2, 0), expected)
    settings = repr((16, 20, True, True, PIL.__version__)).encode()
    files = [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    assert some.digest() == hashlib.sha256(settings + b"".join(files)).digest()


def torchvisions(monkeypatch, picture, scale, draw):
    """RandomResizedCrop's top, left, height and width where its random numbers are ``draw``'s."""
    tries, place = iter(draw[3:].tolist()), iter(draw[:2].tolist())

    def uniform(tensor, low, high):
        return torch.tensor(float(low) + (float(high) - float(low)) * next(tries)).double()

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "uniform_", uniform)
        patched.setattr(
            torch, "randint", lambda low, high, size: torch.tensor(int(next(place) * high))
        )
        return RandomResizedCrop.get_params(picture, list(scale), [3 / 4, 4 / 3])


@pytest.mark.parametrize("scale, flip", [((0.16, 1), True), ((0.9, 1), False), ((0.3, 0.3), True)])
@pytest.mark.parametrize("size", [(61, 40), (40, 61), (50, 50), (20, 95), (150, 30)])
def test_scaled_crops_are_torchvisions(tmp_path, monkeypatch, size, scale, flip):
    path = picture(tmp_path / "a.png", 0, size=size)
    some = Pictures([path], 21, 32, keep_aspect=True, flip=flip, scale=scale)
    found = stream(some, seed=3, batch=24)(2)
    whole = Image.fromarray(decode(path, 32, True))
    for crop, draw in zip(found, np.random.default_rng([3, 2, 1]).random((24, 23)), strict=True):
        at = torchvisions(monkeypatch, whole, scale, draw)
        expected = reference.pil_to_tensor(reference.resized_crop(whole, *at, [21, 21]))
        assert torch.equal(crop, expected.flip(2) if flip and draw[2] < 0.5 else expected)
    assert torch.equal(some[0], Pictures([path], 21, 32, keep_aspect=True)[0])  # the center, still
    assert torch.equal(next(some.split(1))[0], some[0])


def test_scaled_crops_are_uniform_in_area_and_in_the_logarithm_of_their_aspect(monkeypatch):
    """In a picture whose pixels say where they are."""
    rectangles = []
    cut = Image.fromarray
    monkeypatch.setattr(
        pictures.Image, "fromarray", lambda part: rectangles.append(part) or cut(part)
    )
    rows, columns = np.mgrid[:200, :200].astype(np.uint8)
    monkeypatch.setattr(pictures, "decode", lambda *_: np.stack([rows, columns, rows], axis=2))
    stream(Pictures(["a"], 8, 200, scale=(0.1, 0.5)), batch=2000, steps=1)(0)
    height, width = np.array([part.shape[:2] for part in rectangles], float).T
    area, aspect = height * width / 200**2, np.log(width / height) / np.log(4 / 3)
    for found, low, high in ((area, 0.1, 0.5), (aspect, -1, 1)):  # all fit, so neither is biased
        assert low - 0.03 < found.min() < low + 0.03
        assert high - 0.03 < found.max() < high + 0.03
        deviation = (high - low) / 12**0.5
        assert abs(found.mean() - (low + high) / 2) < 4 * deviation / 2000**0.5
        assert abs(found.std() - deviation) < 0.03 * deviation
    top, left = np.array([part[0, 0, :2] for part in rectangles], float).T
    for found, room in ((top, 200 - height), (left, 200 - width)):
        assert abs((found / room).mean() - 0.5) < 4 / (12 * 2000) ** 0.5
        assert (found / room).min() < 0.01
        assert (found / room).max() > 0.99


def test_data_sets_pass_a_list_on(tmp_path):
    trees.cub(tmp_path)
    for name, root in (("cub", tmp_path), ("folder", tmp_path / "images")):
        some = data.load(name, "train", root, check=False, crop=8, resize=9, scale=[0.2, 1])
        assert some.images.scale == (0.2, 1)


@pytest.mark.parametrize("size, at", [((21, 120), (46, 28)), ((120, 21), (46, 28))])
def test_of_a_very_long_picture_the_middle_is_cut(tmp_path, size, at):
    path = picture(tmp_path / "a.png", 2, size=size)
    found = stream(Pictures([path], 8, 21, keep_aspect=True, flip=False, scale=(0.9, 1)))(0)
    first, length = at  # 21 · 4/3 of 120 pixels, as none of 90 % has an aspect of 3/4 to 4/3
    box = (0, first, 21, first + length) if size[0] == 21 else (first, 0, first + length, 21)
    middle = Image.open(path).crop(box).resize((8, 8), Image.Resampling.BILINEAR)
    assert all(torch.equal(crop, reference.pil_to_tensor(middle)) for crop in found)


def test_no_batch_is_begun_beyond_the_last_step(paths):
    asked = []
    read = Pictures(paths, 8, 8).stream(
        lambda step: asked.append(step) or np.array([0]), 0, steps=2, device=CPU
    )
    read(0)
    read(1)
    assert asked == [0, 1]


def test_decoding_goes_on_while_a_step_is_computed(paths, monkeypatch):
    """The batch after next is ready before it is asked for, so asking for it costs nothing."""
    decoded = []
    monkeypatch.setattr(
        pictures, "decode", lambda path, *_: decoded.append(path) or np.zeros((8, 8, 3), np.uint8)
    )
    read = Pictures(paths, 8, 8).stream(lambda step: np.array([step]), 0, steps=7, device=CPU)
    read(0)
    deadline = time.monotonic() + 10
    while len(decoded) < pictures.AHEAD:
        assert time.monotonic() < deadline, "nothing was decoded ahead"
        time.sleep(0.001)
    assert sorted(decoded) == paths[: pictures.AHEAD]


def test_what_was_decoded_is_kept_as_far_as_it_fits(paths, monkeypatch):
    monkeypatch.setenv("DMLKIT_PICTURE_GB", str(3 * 20 * 20 * 3 / 1e9))
    some = Pictures(paths, 16, 20)
    before = some[:]
    for path in paths:
        os.remove(path)
    kept = 0
    for i in range(7):
        with contextlib.suppress(ValueError):  # it has been decoded again
            assert torch.equal(some[i], before[i])
            kept += 1
    assert kept == 3


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
@pytest.mark.parametrize("suffix", [".jpg", ".JPG", ".tif"])
def test_every_mode_becomes_rgb(tmp_path, mode, suffix):
    colors = decode(picture(tmp_path / "rgb.png", 1), 24).astype(int)
    found = decode(picture(tmp_path / f"a b{suffix}", 1, mode), 24)
    assert found.shape == (24, 24, 3)
    if mode == "L":
        assert (found[..., 0] == found[..., 2]).all()
        colors = np.repeat(colors @ [[0.299], [0.587], [0.114]], 3, axis=2)
    assert np.abs(found - colors).mean() < 12  # JPEG's loss; an inverted CMYK would be far off


def test_transparent_pixels_are_white(tmp_path):
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[:4, :, 3] = 255
    Image.fromarray(ink).save(tmp_path / "rgba.png")
    Image.fromarray(ink).quantize(2).save(tmp_path / "palette.png")
    for name in ("rgba.png", "palette.png"):
        found = decode(tmp_path / name, 8)
        assert (found[:4] == 0).all()
        assert (found[4:] == 255).all()


@pytest.mark.parametrize("name", ["deep.png", "deep.tif", "deep.pgm"])
def test_the_upper_half_of_16_bits_is_kept(tmp_path, name):
    tones = np.arange(0, 2**16, 2**10, dtype=np.uint16).reshape(8, 8)
    Image.fromarray(tones).save(tmp_path / name)
    assert np.array_equal(decode(tmp_path / name, 8), np.stack([tones >> 8] * 3, axis=2))


def test_numbers_without_a_scale_are_refused(tmp_path):
    for tones in (np.zeros((8, 8), np.float32), np.full((8, 8), 2**16, np.int32)):
        Image.fromarray(tones).save(tmp_path / "a.tif")
        with pytest.raises(ValueError, match=r"a\.tif cannot be read: expected 8 or 16 bits"):
            decode(tmp_path / "a.tif", 8)


@pytest.mark.parametrize("suffix", ["gif", "tif", "webp"])
def test_of_several_pictures_the_first_is_read(tmp_path, suffix):
    pages = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    pages[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=pages[1:])
    assert np.abs(decode(tmp_path / f"a.{suffix}", 8).mean((0, 1)) - [255, 0, 0]).max() < 3


@pytest.mark.parametrize("suffix, module", [("avif", "PIL"), ("heic", "pillow_heif")])
def test_what_phones_write_is_read(tmp_path, suffix, module):
    pytest.importorskip(module)
    if f".{suffix}" not in pictures.suffixes():
        pytest.skip(f"this Pillow reads no {suffix}")
    path = picture(tmp_path / f"a.{suffix}", 3)
    expected = decode(picture(tmp_path / "a.png", 3), 24).astype(int)
    assert np.abs(decode(path, 24) - expected).mean() < 12


def test_heic_without_its_reader_is_named_by_what_it_is(tmp_path, monkeypatch):
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x1cftypheic" + bytes(40))  # as some rename them
    with pytest.raises(ValueError, match=r"a\.jpg cannot be read: it is HEIC: pip install"):
        decode(tmp_path / "a.jpg", 8)


@pytest.mark.parametrize("size, shape", [((40_000, 2), (24, 384, 3)), ((2, 40_000), (384, 24, 3))])
def test_of_a_strip_the_middle_is_kept_before_it_is_enlarged(tmp_path, size, shape):
    strip = np.zeros((size[1], size[0], 3), np.uint8)
    rows, columns = (slice(side // 2 - 16, side // 2 + 16) for side in size[::-1])
    strip[rows, columns] = 200
    Image.fromarray(strip).save(tmp_path / "a.png")
    found = decode(tmp_path / "a.png", 24, keep_aspect=True)
    assert found.shape == shape
    assert (found == 200).all()


def test_a_box_is_cut_out_of_the_upright_picture(tmp_path):
    upright = Image.open(picture(tmp_path / "a.png", 5, size=(64, 32)))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    turned.save(tmp_path / "turned.png", exif=exif)
    box = (30, 4, 62, 20)
    cut = upright.crop(box).resize((8, 8), Image.Resampling.BILINEAR)
    for path in ("a.png", "turned.png"):
        assert np.array_equal(decode(tmp_path / path, 8, box=box), np.asarray(cut))
    some = Pictures([tmp_path / "a.png"] * 2, 8, 8, boxes=[box, None])
    assert torch.equal(some[0], reference.pil_to_tensor(cut))
    assert not torch.equal(some[0], some[1])
    assert some.digest() != Pictures([tmp_path / "a.png"] * 2, 8, 8).digest()
    assert torch.equal(pickle.loads(pickle.dumps(some))[:], some[:])
    with pytest.raises(ValueError, match=r"box \(0, 0, 65, 9\) is not within its 64 x 32"):
        decode(tmp_path / "a.png", 8, box=(0, 0, 65, 9))


def test_a_camera_held_upright_gives_an_upright_picture(tmp_path):
    upright = Image.open(picture(tmp_path / "a.png", 5, size=(64, 32)))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right to see it upright
    path = tmp_path / "turned.jpg"
    upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, quality=95)
    found = decode(path, 16, keep_aspect=True)
    assert found.shape == (16, 32, 3)
    expected = decode(tmp_path / "a.png", 16, keep_aspect=True).astype(int)
    assert np.abs(found - expected).mean() < 8


def test_a_large_jpeg_is_shrunk_while_it_is_decoded(tmp_path):
    path = picture(tmp_path / "large.jpg", 2, size=(1600, 1200))
    found = decode(path, 64).astype(int)
    plain = Image.open(path).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.abs(found - np.asarray(plain)).max() <= 4


def test_unreadable_files_are_named_with_the_reason(paths, tmp_path):
    truncate(paths[2])
    paths[4].write_bytes(b"no picture")
    os.remove(paths[5])
    reasons = ((2, "runcated"), (4, "cannot identify"), (5, "No such file"))
    found = complaints(paths)
    assert [i for i, line in enumerate(found) if line] == [2, 4, 5]
    assert all(
        re.match(rf"{paths[i]} cannot be read: .*{reason}", found[i]) for i, reason in reasons
    )
    with pytest.raises(ValueError, match=r"2\.jpg cannot be read: .*runcated"):
        Pictures(paths, 8, 8)[:]


def test_the_fingerprint_follows_contents_settings_and_labels(paths):
    def fingerprint(files=paths, labels=(0, 1, 0, 1, 0, 1, 0), queries=None, **args):
        images = Pictures(files, **{"crop": 8, "resize": 9} | args)
        groups = np.array([""] * 7)
        return ImageSet(images, np.array(labels), groups, ("a", "b"), {}, queries).fingerprint

    first = fingerprint()
    assert fingerprint([path.rename(path.with_name("x" + path.name)) for path in paths]) == first
    paths = [path.with_name("x" + path.name) for path in paths]
    others = [
        fingerprint(paths[::-1]),
        fingerprint(paths, (1, 0, 0, 1, 0, 1, 0)),
        fingerprint(paths, queries=np.arange(7) < 3),
        fingerprint(paths, crop=7),
        fingerprint(paths, resize=10),
        fingerprint(paths, keep_aspect=True),
        fingerprint(paths, flip=False),
        fingerprint(paths, scale=[0.16, 1]),
        fingerprint(paths, scale=[0.2, 1]),
    ]
    assert fingerprint(paths, scale=(0.2, 1.0)) == others[-1]
    truncate(paths[6])
    assert len({first, *others, fingerprint(paths)}) == 11


def test_a_crop_larger_than_the_picture_is_refused(paths):
    with pytest.raises(ValueError, match=r"crop must be 1 to resize \(20\) pixels, not 24"):
        Pictures(paths, crop=24, resize=20)
    with pytest.raises(ValueError, match="crop must be a whole number from 1, but is 0"):
        Pictures(paths, crop=0)


@pytest.mark.parametrize(
    "scale", [(0, 1), (0.5, 0.2), (0.5, 1.1), (0.5,), (0.1, 0.5, 1), 0.5, (float("nan"), 1)]
)
def test_what_is_no_range_of_shares_is_refused(paths, scale):
    with pytest.raises((ValueError, TypeError)):
        Pictures(paths, crop=8, resize=9, scale=scale)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_no_postscript_is_given_to_another_program(tmp_path, monkeypatch):
    """Pillow looks at contents, not at names."""
    called = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args, **_: called.append(args))
    (tmp_path / "photo.jpg").write_bytes(EPS)
    with pytest.raises(ValueError, match=r"photo\.jpg cannot be read: cannot identify"):
        decode(tmp_path / "photo.jpg", 8)
    assert not called


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "MPO"])
def test_what_pillow_reads_is_read_alike(tmp_path, kind):
    """Also a camera's MPO, which is a JPEG with more pictures after it."""
    image = Image.open(picture(tmp_path / "a.png", 1))
    more = {"save_all": True, "append_images": [image]} if kind == "MPO" else {}
    image.save(tmp_path / "b.jpg", kind, **more)
    with Image.open(tmp_path / "b.jpg") as plain:
        expected = plain.convert("RGB").resize((20, 20), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(decode(tmp_path / "b.jpg", 20), np.asarray(expected))


@pytest.mark.parametrize("channels", [1, 3])
def test_fresh_colors_are_torchvisions_in_turn(generator, channels):
    """With the factors of the same draws: brightness, contrast, saturation of each image alone."""
    images = torch.rand(3, channels, 6, 5, generator=generator)
    found = pictures.recolor(images, torch.Generator().manual_seed(7), 0.4)
    draws = torch.rand(3, 3, generator=torch.Generator().manual_seed(7))
    for image, new, factors in zip(images, found, (1 + (2 * draws - 1) * 0.4).T, strict=True):
        assert len(set(factors.tolist())) == 3
        b, c, s = factors.tolist()
        image = reference.adjust_contrast(reference.adjust_brightness(image, b), c)
        torch.testing.assert_close(new, reference.adjust_saturation(image, s), rtol=0, atol=1e-3)


def test_a_histogram_of_colors_counts_as_numpy_and_forgets_the_place(generator):
    images = torch.randint(0, 256, (300, 3, 4, 5), generator=generator, dtype=torch.uint8)
    found = pictures.color_histogram(images)
    edges = [0, 43, 86, 129, 172, 215, 256]
    for image, row in zip(images[::37], found[::37], strict=True):
        counts, _ = np.histogramdd(image.flatten(1).T.numpy(), bins=[edges] * 3)
        np.testing.assert_allclose(row.square(), counts.ravel() / 20, atol=1e-6)
    assert torch.equal(pictures.color_histogram(images.flip(2).transpose(2, 3)), found)
    assert torch.equal(pictures.color_histogram(images / 255), found)
