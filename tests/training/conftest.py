"""What the tests of this room share."""

import pytest


@pytest.fixture
def store(tmp_path):
    """A folder of Runs of this test's own."""
    return tmp_path / "runs"
