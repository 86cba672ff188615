"""Files that are not what their names say: wherever pictures are opened, and where texts are."""

import io
import os
import shutil
import socket
import zipfile

import numpy as np
import pytest
from PIL import Image

from dmlkit import data, recipes, search
from dmlkit.data import pictures
from dmlkit.data.pictures import Pictures, decode, unreadable
from dmlkit.training import Experiment
from tests.data import trees

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


class GrayRun:
    experiment = Experiment()


def as_zip(path, folder):
    """Omniglot's archive with the file for its drawing."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "images_background_small1.zip", "w") as archive:
        archive.write(path, "images_background_small1/Greek/character01/0001_01.png")
    return folder


OPENERS = {
    "pictures": lambda path, tmp: decode(path, 8),
    "folder": lambda path, tmp: data.load("folder", "test", path.parent.parent, test_share=1),
    "search": lambda path, tmp: search.as_seen(GrayRun, [path]),
    "omniglot": lambda path, tmp: data.load("omniglot", "train", as_zip(path, tmp), check=False),
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
@pytest.mark.parametrize("name", ["photo.jpg", "photo.png"])
def test_no_opener_gives_postscript_to_another_program(tmp_path, monkeypatch, opener, name):
    called = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args, **_: called.append(args))
    monkeypatch.setattr("subprocess.Popen", lambda *args, **_: called.append(args))
    path = tmp_path / "pictures" / "class" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(EPS)
    with pytest.raises(
        ValueError, match=r"(photo|0001_01)\.(jpg|png) cannot be read: cannot ident"
    ):
        opener(path, tmp_path / "omniglot")
    assert not called


@pytest.mark.parametrize("name", ["pictures", "folder", "search"])
@pytest.mark.parametrize("make", ["pipe", "socket", "device", "folder"])
@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_never_opened(tmp_path, monkeypatch, name, make):
    path = trees.picture(tmp_path / "pictures" / "class" / "a.jpg", 0).with_name("b.jpg")
    if make == "pipe":
        os.mkfifo(path)
    elif make == "socket":
        made = socket.socket(socket.AF_UNIX)
        monkeypatch.chdir(path.parent)  # the path of a socket is short
        made.bind(path.name)
        made.close()
    elif make == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ValueError, match=r"b\.jpg is not a regular file"):
        OPENERS[name](path, tmp_path)
    with pytest.raises(ValueError, match=r"b\.jpg is not a regular file"):
        Pictures([path], 8, 8).digest()


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.timeout(60)
def test_no_text_is_read_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "my.toml")
    with pytest.raises(ValueError, match=r"my\.toml is not a regular file"):
        recipes.load(str(tmp_path / "my.toml"))
    trees.cub(tmp_path / "cub")
    (tmp_path / "cub" / "image_class_labels.txt").unlink()
    os.mkfifo(tmp_path / "cub" / "image_class_labels.txt")
    with pytest.raises(ValueError, match=r"images\.txt .*image_class_labels\.txt is not a regular"):
        data.load("cub", "train", tmp_path, check=False)


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_a_long_picture_is_refused_before_it_fills_the_memory(tmp_path, size):
    path = tmp_path / "long.png"
    Image.new("L", size).save(path)
    assert path.stat().st_size < 1000
    with pytest.raises(
        ValueError, match=r"long\.png cannot be read: its .* pixels would be resized"
    ):
        Pictures([path], crop=224, resize=256, keep_aspect=True)[0]
    assert decode(path, 256).shape == (256, 256, 3)
    assert decode(path, 2, keep_aspect=True).size == 2 * 120_000 * 3
    assert list(unreadable([path])) == []


def test_the_bound_lies_between_the_pixels_that_pass_and_those_that_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PIXELS", 8 * 16)
    path = trees.picture(tmp_path / "a.png", 0, size=(20, 40))
    assert decode(path, 8, keep_aspect=True).shape == (16, 8, 3)
    with pytest.raises(ValueError, match="resized to 9 × 18, expected 128 pixels at most: crop it"):
        decode(path, 9, keep_aspect=True)
    with pytest.raises(ValueError, match=r"resized to 12 × 12, .* or give a smaller resize$"):
        decode(path, 12)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "MPO"])
def test_what_pillow_reads_is_read_as_before(tmp_path, kind):
    """Also a camera's MPO, which is a JPEG with more pictures after it."""
    image = Image.open(trees.picture(tmp_path / "a.png", 1))
    more = {"save_all": True, "append_images": [image]} if kind == "MPO" else {}
    image.save(tmp_path / "b.jpg", kind, **more)
    with Image.open(tmp_path / "b.jpg") as plain:
        expected = plain.convert("RGB").resize((20, 20), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(decode(tmp_path / "b.jpg", 20), np.asarray(expected))


@pytest.mark.parametrize("kind", ["ICO", "TGA", "PCX", "ICNS", "SGI"])
def test_formats_that_no_data_set_has_are_refused(tmp_path, kind):
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, kind)
    (tmp_path / "a.jpg").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"a\.jpg cannot be read: cannot identify"):
        decode(tmp_path / "a.jpg", 8)


def test_a_link_to_a_picture_is_a_picture(tmp_path):
    path = trees.picture(tmp_path / "a.png", 0)
    (tmp_path / "b.png").symlink_to(path)
    np.testing.assert_array_equal(decode(path, 8), decode(tmp_path / "b.png", 8))
    shutil.move(path, tmp_path / "c.png")
    with pytest.raises(ValueError, match=r"b\.png cannot be read: .*No such file"):
        decode(tmp_path / "b.png", 8)
