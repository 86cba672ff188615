"""A verdict follows from the numbers by the stated rule, and from nothing else."""

import pytest

from dmlkit import claims

CASES = [
    ("C18", 0.02, (0.01, 0.03), "reproduced"),
    ("C18", -0.02, (-0.03, -0.01), "contradicted"),
    ("C18", 0.02, (-0.01, 0.05), "inconclusive"),
    ("C18", 0.02, None, "inconclusive"),
    ("C18", 0.02, (float("nan"), float("nan")), "inconclusive"),
    ("C11", 0.0, (-0.009, 0.009), "reproduced"),
    ("C11", 0.0, (-0.02, 0.009), "inconclusive"),
    ("C11", 0.03, (0.02, 0.04), "contradicted"),
    ("C11", -0.03, (-0.04, -0.02), "contradicted"),
    ("B3", 0.001, (-0.01, 0.009), "reproduced"),
    ("B3", 0.2, (0.1, 0.3), "contradicted"),
    ("B3", 0.2, (0.0, 0.3), "inconclusive"),
    ("B2", 1e-15, None, "reproduced"),
    ("B2", 0.1, None, "contradicted"),
]


@pytest.mark.parametrize("claim, effect, interval, verdict", CASES)
def test_the_rule_decides(claim, effect, interval, verdict):
    found = claims.record(claim, effect, interval, n=5)
    assert found.verdict == verdict
    assert verdict.upper() in str(found)
    assert found.facts()["effect"] == effect


def test_what_cannot_be_recorded_is_refused():
    with pytest.raises(ValueError, match="unknown claim 'Z1'; there are A1"):
        claims.record("Z1", 0.0, (-1, 1), n=2)
    with pytest.raises(ValueError, match="no interval around"):
        claims.record("C18", 0.5, (0.0, 0.1), n=2)
    with pytest.raises(ValueError, match="published tables"):
        claims.record("B10", 0.5, (0.0, 1.0), n=2)


def test_every_claim_has_a_rule():
    rules = {row["rule"] for row in claims.table().values()}
    assert rules == {"positive", "equivalent", "below", "exact", "table"}
    assert len(claims.table()) == 39
