"""Files are there whole, or as they were."""

import os
import platform
import subprocess
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
def test_a_full_disk_is_named_with_the_file_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half of the ne")
        Path("/dev/full").write_text("w")

    with pytest.raises(
        OSError, match=r"No space left.*: make room on the disk at /.*MB left: .*a'"
    ):
        write_whole({path: write})
    assert [found.read_text() for found in tmp_path.iterdir()] == ["old"]


def test_what_a_killed_process_left_beside_a_file_goes_with_the_next_write(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    whose = (gone.pid, f"{gone.pid}.part", os.getppid(), "x")
    dead, its_part, alive, strange = (tmp_path / f"a.{platform.node()}-{who}" for who in whose)
    for path in (dead, its_part, alive, strange):
        path.write_text("half")
    write_whole({tmp_path / "a": partial(Path.write_bytes, data=b"new")})
    assert set(tmp_path.iterdir()) == {tmp_path / "a", alive, strange}
