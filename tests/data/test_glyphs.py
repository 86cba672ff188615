"""Glyphs: which characters are classes, how their images are made, and how the cache is kept."""

import errno
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from dmlkit.data import ImageSet, glyphs, load

SMALL = {
    "train_classes": 6,
    "val_classes": 3,
    "test_classes": 4,
    "per_class": 5,
    "val_per_class": 2,
    "test_per_class": 3,
}


@pytest.fixture(scope="module")
def alphabet() -> glyphs.Alphabet:
    return glyphs.draw_alphabet()


@pytest.fixture
def drawings(alphabet, monkeypatch) -> list[int]:
    """Counts the drawings of the alphabet, and spares all but the first."""
    calls: list[int] = []

    def draw() -> glyphs.Alphabet:
        calls.append(1)
        return alphabet

    monkeypatch.setattr(glyphs, "draw_alphabet", draw)
    return calls


def made(root: Path, split: str = "train", **changes: int | str) -> ImageSet:
    """A small set, past the cache of this process."""
    return glyphs.load(split, root, **{**SMALL, **changes})


# Characters -------------------------------------------------------------------------------------


def test_there_are_a_thousand_classes_in_eight_faces_each(alphabet):
    assert len(alphabet.codes) >= 1000
    assert len(glyphs.FACES) == 16
    assert alphabet.drawn.sum(axis=1).min() >= 8


def test_ink_fills_a_centered_box(alphabet):
    inked = alphabet.ink[alphabet.drawn] > 0  # (D, 48, 48)
    rows, columns = inked.any(axis=2), inked.any(axis=1)
    longest = np.maximum(rows.sum(axis=1), columns.sum(axis=1))
    # FreeType's box holds the control points of the outline too, so ink may fall short of it.
    assert longest.max() <= 44
    assert np.median(longest) >= 42
    assert (longest >= 36).mean() > 0.98
    for inked_lines in (rows, columns):
        last = 48 - inked_lines[:, ::-1].argmax(axis=1)
        off_center = (inked_lines.argmax(axis=1) + last) / 2 - 24
        assert np.abs(off_center).max() <= 4
        assert (np.abs(off_center) <= 2).mean() > 0.99
    assert not alphabet.ink[~alphabet.drawn].any()


def test_no_class_is_a_mark_a_modifier_or_a_box(alphabet):
    characters = [chr(code) for code in alphabet.codes]
    assert {unicodedata.category(character)[0] for character in characters} == set("LNPS")
    assert not {unicodedata.category(character) for character in characters} & {"Lm", "Sk"}
    names = [unicodedata.name(character) for character in characters]
    assert not [name for name in names if name.startswith(("BOX DRAWINGS", "BRAILLE"))]
    # A bold mathematical A is an A: weight is no class here.
    assert not [name for name in names if name.startswith("MATHEMATICAL BOLD")]


@pytest.mark.parametrize("alike", ["AΑА", "oοо", "ɑα", "K\u039a\u212a", "−–—", "\u03a9\u2126"])
def test_look_alikes_are_one_class(alphabet, alike):
    assert sum(ord(character) in alphabet.codes for character in alike) <= 1


@pytest.mark.parametrize("different", ["AB", "bd", "ЖЯ", "↑↓", "69", "Γ¬"])
def test_characters_that_differ_are_classes_of_their_own(alphabet, different):
    assert all(ord(character) in alphabet.codes for character in different)


@pytest.mark.parametrize("face", [0, 6, 13])
def test_no_two_classes_correlate_in_a_face(alphabet, face):
    ink = alphabet.ink[alphabet.drawn[:, face], face].astype(float)
    coarse = ink.reshape(len(ink), 16, 3, 16, 3).mean(axis=(2, 4)).reshape(len(ink), -1)
    correlation = np.corrcoef(coarse) - np.eye(len(ink))
    assert 0.85 < correlation.max() < 0.905  # 0.9, but for the rounding to integers


def test_groups_cover_scripts_and_signs(alphabet):
    groups = {glyphs.group(chr(code)) for code in alphabet.codes}
    assert groups >= {"latin", "latin-accented", "greek", "cyrillic", "armenian", "georgian"}
    assert groups >= {"math", "arrows", "numbers", "punctuation", "symbols"}


# Sets -------------------------------------------------------------------------------------------


def test_splits_have_the_asked_sizes_and_share_no_class(drawings, tmp_path):
    sets = {split: made(tmp_path, split) for split in ("train", "val", "test")}
    assert [(s.num_classes, len(s)) for s in sets.values()] == [(6, 30), (3, 6), (4, 12)]
    names = [name for images in sets.values() for name in images.class_names]
    assert len(set(names)) == 13
    for images in sets.values():
        assert images.images.shape == (len(images), 1, 32, 32)
        assert images.images.dtype == torch.uint8
        characters = [unicodedata.lookup(images.class_names[label]) for label in images.labels]
        assert [glyphs.group(character) for character in characters] == list(images.groups)
    assert len(drawings) == 1


def test_attributes_tell_the_face(drawings, tmp_path):
    images = made(tmp_path, train_classes=30, per_class=40)
    faces = images.attributes["face"]
    assert set(faces) == {face[3] for face in glyphs.FACES}
    for name, style in (("weight", ("bold", "Bol")), ("slant", ("italic", "Ita", "Obl"))):
        strong, *marks = style
        marked = np.array([any(mark in face for mark in marks) for face in faces])
        np.testing.assert_array_equal(images.attributes[name] == strong, marked)
    ink = images.images.double().mean(dim=(1, 2, 3)).numpy()
    bold = images.attributes["weight"] == "bold"
    assert ink[bold].mean() > 1.1 * ink[~bold].mean()


def test_same_recipe_same_bytes_whatever_the_threads(drawings, tmp_path):
    threads = torch.get_num_threads()
    try:
        files = []
        for count in (1, 3):
            torch.set_num_threads(count)
            before = torch.get_rng_state()
            made(tmp_path / str(count))
            files.append(cached(tmp_path / str(count)).read_bytes())
            assert torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_num_threads(threads)
    assert files[0] == files[1]


def test_val_and_test_stay_when_training_grows(drawings, tmp_path):
    changes = {"train_classes": 60}  # 300 images: more than are made at once
    for split in ("val", "test"):
        assert made(tmp_path, split).fingerprint == made(tmp_path, split, **changes).fingerprint
    few, many = made(tmp_path), made(tmp_path, **changes)
    assert many.class_names[:6] == few.class_names
    assert torch.equal(many.images[:30], few.images)


def test_seed_changes_images_and_class_split_changes_classes(drawings, tmp_path):
    base, seeded, split = made(tmp_path), made(tmp_path, seed=1), made(tmp_path, class_split=1)
    assert seeded.class_names == base.class_names
    assert seeded.fingerprint != base.fingerprint
    assert set(split.class_names) != set(base.class_names)
    assert not torch.equal(made(tmp_path, "test").images, base.images[: 4 * 3])


def test_hard_is_harder_than_default(drawings, tmp_path):
    def raw_recall(level: str) -> float:
        images = made(tmp_path, "test", level=level, test_classes=60, test_per_class=10)
        x = F.normalize(images.images.flatten(1).double())
        cosines = (x @ x.T).fill_diagonal_(-1)
        return float(np.mean(images.labels[cosines.argmax(dim=1)] == images.labels))

    # Far from chance (1.7 %) and from solved: a set to learn on.
    assert 0.1 < raw_recall("hard") < raw_recall("default") < 0.6


def test_ink_is_visible_and_seldom_leaves_the_image(drawings, tmp_path):
    images = made(tmp_path, train_classes=100, per_class=10).images.float()
    strongest = F.avg_pool2d(images, 3, stride=1).amax(dim=(1, 2, 3))
    assert strongest.min() > 40  # noise alone: 255 · 0.10 · 0.4 on average
    rim = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], dim=2)
    assert ((rim > 128).sum(dim=2) > 3).float().mean() < 0.03


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"level": "easy"}, "level must be one of default, hard, but is 'easy'"),
        ({"train_classes": 10**6}, r"4 \+ 3 \+ 1000000 classes, but there are 1\d\d\d"),
        ({"train_classes": -1}, "train_classes must be a whole number from 0, but is -1"),
        ({"per_class": 0}, "per_class must be a whole number from 1, but is 0"),
        ({"train_classes": 0}, "the split is empty"),
    ],
)
def test_bad_arguments_are_named(drawings, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        made(tmp_path, **changes)


# Cache ------------------------------------------------------------------------------------------


def cached(root: Path) -> Path:
    """The file of the one set that was made there."""
    (path,) = set((root / "glyphs").glob("*.npz")) - {alphabet_file(root)}
    return path


def alphabet_file(root: Path) -> Path:
    """What all sets are made of."""
    (path,) = (root / "glyphs").glob("alphabet-*.npz")
    return path


def test_a_set_is_made_once(drawings, tmp_path):
    first = made(tmp_path)
    assert made(tmp_path).fingerprint == first.fingerprint
    assert load("glyphs", root=tmp_path, **SMALL).fingerprint == first.fingerprint
    assert len(drawings) == 1
    assert {path.suffix for path in (tmp_path / "glyphs").iterdir()} <= {".npz", ".lock"}


def test_the_alphabet_is_drawn_once_for_all_sets(drawings, tmp_path):
    first, second = made(tmp_path), made(tmp_path, seed=1)
    assert first.fingerprint != second.fingerprint
    assert len(drawings) == 1
    elsewhere = made(tmp_path / "elsewhere", seed=1)
    assert elsewhere.fingerprint == second.fingerprint
    assert len(drawings) == 2


def test_a_source_that_is_edited_later_does_not_rename_what_this_process_makes(
    drawings, tmp_path, monkeypatch
):
    made(tmp_path)
    (tmp_path / "edited.py").write_text("# another source")
    monkeypatch.setattr(glyphs, "__file__", str(tmp_path / "edited.py"))
    made(tmp_path)
    assert len(drawings) == 1


def test_without_root_the_cache_is_dmlkits_own(drawings, tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / "data"))
    load("glyphs", **SMALL)
    assert cached(tmp_path / "cache").is_file()
    assert not (tmp_path / "data").exists()


def test_two_at_once_make_it_once(drawings, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        sets = list(pool.map(lambda _: made(tmp_path), range(2)))
    assert sets[0].fingerprint == sets[1].fingerprint
    assert len(drawings) == 1


def flip_a_pixel(path: Path) -> None:
    with np.load(path) as file:
        pixels = file["train_images"].tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(pixels)] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_pixel,
        lambda path: path.write_bytes(path.read_bytes()[:-500]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not an archive"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"train_codes", b"train_c0des")),
    ],
)
def test_a_damaged_cache_is_named_and_can_be_made_anew(drawings, tmp_path, damage):
    whole = made(tmp_path).fingerprint
    path = cached(tmp_path)
    damage(path)
    with pytest.raises(ValueError, match=r"is damaged \(.*delete it") as error:
        made(tmp_path)
    assert str(path) in str(error.value)
    path.unlink()
    assert made(tmp_path).fingerprint == whole


def test_a_damaged_alphabet_is_named_and_can_be_drawn_anew(drawings, tmp_path):
    made(tmp_path)
    path = alphabet_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"is damaged \(.*delete it") as error:
        made(tmp_path, seed=1)
    assert str(path) in str(error.value)
    path.unlink()
    assert len(made(tmp_path, seed=1)) == 30


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_full_disk_leaves_nothing_half_written(drawings, tmp_path, monkeypatch, step):
    def full(target, *_, **__):
        if step == "write":
            target.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((np, "savez") if step == "write" else (Path, "replace")), full)
        with pytest.raises(OSError, match="No space left on device"):
            made(tmp_path)
    assert not [path for path in (tmp_path / "glyphs").iterdir() if path.suffix != ".lock"]
    assert len(made(tmp_path)) == 30


# Jitter -----------------------------------------------------------------------------------------


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(count: int, channels: int = 1, height: int = 32, width: int = 48) -> torch.Tensor:
    """A bright disc in the middle of each image, uint8."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    disc = (y - (height - 1) / 2) ** 2 + (x - (width - 1) / 2) ** 2 < 30
    return (disc * 255).to(torch.uint8).expand(count, channels, height, width)


def test_jitter_of_strength_zero_changes_nothing():
    images = torch.randint(0, 256, (4, 3, 17, 23), dtype=torch.uint8, generator=seeded())
    torch.testing.assert_close(
        glyphs.jitter(images, seeded(), strength=0.0), images / 255, atol=1e-5, rtol=0
    )


def test_jitter_follows_its_generator_and_differs_between_images():
    images = blobs(8)
    first = glyphs.jitter(images, seeded(1))
    assert torch.equal(first, glyphs.jitter(images, seeded(1)))
    assert not torch.allclose(first, glyphs.jitter(images, seeded(2)), atol=0.05)
    assert not torch.allclose(first[0], first[1], atol=0.05)
    before = torch.get_rng_state()
    glyphs.jitter(images, seeded())
    assert torch.equal(before, torch.get_rng_state())


def test_jitter_moves_scales_and_lights_within_its_bounds():
    images = blobs(500)
    warped = glyphs.jitter(images, seeded())[:, 0]
    x, y = torch.arange(48.0), torch.arange(32.0)
    mass = warped.sum(dim=(1, 2))
    across = (warped.sum(dim=1) @ x) / mass - 23.5
    down = (warped.sum(dim=2) @ y) / mass - 15.5
    # Source moves by up to 6 % of a side; back through a scale of 0.9 and a shear of 0.1.
    for moved, side in ((across, 48), (down, 32)):
        assert 0.05 * side < moved.abs().max() < 0.06 * side / 0.9 + 0.1 * 48 * 0.06 + 0.5
        assert abs(moved.mean()) < 0.1 * 0.06 * side
    brightest = warped.amax(dim=(1, 2))
    assert 0.79 < brightest.min() < 0.85
    assert 1.15 < brightest.max() < 1.21
    area = mass / brightest / (images[0] > 0).sum()
    assert 0.75 < area.min() < 0.9  # 1 / 1.1² = 0.83
    assert 1.1 < area.max() < 1.35  # 1 / 0.9² = 1.23


def test_jitter_takes_floats_and_any_channels_alike():
    images = blobs(4, channels=3)
    warped = glyphs.jitter(images, seeded())
    assert warped.shape == images.shape
    assert warped.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(warped, glyphs.jitter(images.float() / 255, seeded()))
    torch.testing.assert_close(warped[:, :1], glyphs.jitter(images[:, :1], seeded()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_jitter_agrees_between_devices():
    images = blobs(8)
    warped = glyphs.jitter(images.cuda(), seeded())
    torch.testing.assert_close(warped.cpu(), glyphs.jitter(images, seeded()), atol=1e-3, rtol=0)


@pytest.mark.usefixtures("drawings")
def test_a_study_never_tests_on_what_its_tuning_saw():
    """Tuning has 450 classes; blocks of the others are tested on, and share none."""
    few = {"per_class": 1, "val_per_class": 1, "test_per_class": 1}
    develop = {"part": "develop", "test_classes": 0, "val_classes": 100, **few}
    tuned: set[str] = set()
    for class_split in (1, 2):
        for split in ("train", "val"):
            tuned |= set(load("glyphs", split, class_split=class_split, **develop).class_names)
    assert len(tuned) <= 450
    evaluate = {"part": "evaluate", "test_classes": 48, "val_classes": 0, **few}
    blocks = []
    for k in (0, 1, 15):
        train, test = (
            load("glyphs", split, class_split=k, **evaluate) for split in ("train", "test")
        )
        assert len(train.class_names) == 300
        assert not set(train.class_names) & set(test.class_names)
        blocks.append(set(test.class_names))
    assert len(set.union(*blocks, tuned)) == 3 * 48 + len(tuned)
    with pytest.raises(ValueError, match="class_split must leave 48 of the 768 classes"):
        load("glyphs", "test", class_split=16, **evaluate)
    with pytest.raises(ValueError, match="part must be one of all, develop, evaluate"):
        load("glyphs", "test", part="some")
