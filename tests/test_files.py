"""Files are there whole, or as they were."""

from functools import partial
from pathlib import Path

import pytest

from dmlkit.files import write_whole


def test_files_of_one_write_all_appear_or_none(tmp_path: Path) -> None:
    there, not_there = tmp_path / "a", tmp_path / "no folder" / "b"
    there.write_bytes(b"old")
    write = partial(Path.write_bytes, data=b"new")
    with pytest.raises(FileNotFoundError):
        write_whole({there: write, not_there: write})
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
    write_whole({there: write, tmp_path / "b": write})
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [b"new", b"new"]


def test_a_writer_that_breaks_off_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half of the ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole({path: write})
    assert [found.read_text() for found in tmp_path.iterdir()] == ["old"]
