"""The last visit of a class is searched for in those before."""

import pytest
from PIL import Image

from dmlkit.data import load
from tests.data.trees import picture

SMALL = {"crop": 16, "resize": 18, "test_share": 1.0}
DAYS = {"ant": (1, 1, 9, 10), "bee": (2, 2, 3, 3), "cat": (5, 5, 5, 5)}


@pytest.fixture
def root(tmp_path):
    """Days in names, and others in what the camera wrote: a month later."""
    for name, days in DAYS.items():
        for i, day in enumerate(days):
            path = picture(tmp_path / "2001-01-01" / name / f"2024-05-{day:02d} {i}.jpg", i)
            about = Image.Exif()
            about[306] = "2025:01:01 00:00:00"  # written
            about.get_ifd(0x8769)[36867] = f"2024:06:{day:02d} 12:00:00"  # taken
            Image.open(path).save(path, exif=about)
    return tmp_path / "2001-01-01"


@pytest.mark.parametrize(
    "visit, day",
    [(r"\d{4}-\d\d-\d\d", "2024-05-09"), (r"/\d{4}-(\d\d-\d\d) ", "05-09"), ("date", "2024:06:09")],
)
def test_last_visits_are_queries(root, visit, day):
    images = load("folder", "test", root, visit=visit, **SMALL)
    assert images.queries.tolist() == [0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0]  # cat has no second one
    assert images.attributes["visit"][2] == day
    assert load("folder", "train", root, visit=visit, **SMALL | {"test_share": 0}).queries is None


@pytest.mark.parametrize(
    "visit, message",
    [
        ("2024", "all 3 classes have one visit, '2024'"),
        ("05-10", r"visit='05-10' is not told by 11 of 12 pictures, as .*2024-05-01 0\.jpg"),
        ("(", "no regular expression"),
    ],
)
def test_pictures_without_visits_are_refused(root, visit, message):
    with pytest.raises(ValueError, match=message):
        load("folder", "test", root, visit=visit, **SMALL)


def test_a_picture_that_does_not_say_its_day_is_refused(root):
    picture(root / "ant" / "0.png", 0)
    with pytest.raises(ValueError, match=r"visit='date' is not told by 1 of 13 pictures.*0\.png"):
        load("folder", "test", root, visit="date", **SMALL)
