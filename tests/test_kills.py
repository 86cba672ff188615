"""Whatever is killed goes on, and ends as if nobody had killed it: `benchmarks kills` in small."""

import json
import os

import pytest

from dmlkit import ROOT
from tests.commands import Commands

# What takes longest is killed elsewhere: sweeps in test_study.py, reproductions in
# test_reproduce.py; a judgment goes on where it was interrupted in extras/test_judge.py.
KILLS = {"training": 3, "tuning": 2, "download": 1}
# In a process of its own: in one where others have started the server that forks the attempts, each
# of them would import torch anew.
HAMMER = """
import json, sys
from benchmarks import kills

if __name__ == "__main__":
    for name, count in json.loads(sys.argv[1]).items():
        print(json.dumps([name, *kills.hammer(name, count)]))
"""


@pytest.fixture(scope="module")
def hammered(commands: Commands) -> dict[str, tuple[dict, list[str]]]:
    done = commands.run(["-c", HAMMER, json.dumps(KILLS)], ROOT, os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (row, faults) for name, row, faults in map(json.loads, done.stdout.splitlines())}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KILLS)
def test_what_is_killed_at_random_ends_as_if_it_had_not_been(name, hammered):
    row, faults = hammered[name]
    assert not faults
    assert row["kills"] == KILLS[name]
