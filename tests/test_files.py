"""Files are there whole, or as they were."""

from functools import partial
from pathlib import Path

import pytest

from dmlkit.files import write_whole


def test_files_of_one_write_all_appear_in_their_folders_or_none(tmp_path: Path) -> None:
    there, other = tmp_path / "a", tmp_path / "folder" / "b"
    there.write_bytes(b"old")
    write = partial(Path.write_bytes, data=b"new")

    def breaks_off(beside: Path) -> None:
        beside.write_bytes(b"half of the ne")
        raise KeyboardInterrupt

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(KeyboardInterrupt):
        write_whole({there: write, other: breaks_off})
    assert files() == {"a": b"old"}
    write_whole({there: write, other: write})
    assert files() == {"a": b"new", "b": b"new"}
