"""Whatever is killed goes on, and ends as if nobody had killed it: `benchmarks kills` in small."""

import pytest

from benchmarks import kills


@pytest.mark.timeout(2400)  # a sweep's processes import torch, anew after each kill
@pytest.mark.parametrize(
    "name, count",
    [
        ("training", 4),
        ("tuning", 3),
        ("judgment", 2),
        ("download", 2),
        ("reproduction", 1),
        ("sweep", 1),
    ],
)
def test_what_is_killed_at_random_ends_as_if_it_had_not_been(name, count):
    row, faults = kills.hammer(name, count)
    assert not faults
    assert row["kills"] == count
