"""A verdict follows from the numbers by the stated rule, and from nothing else."""

import fnmatch
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dmlkit import ROOT, claims
from dmlkit.extras import recipes

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
    ("B10", 0, None, "reproduced"),
    ("B10", 1, None, "contradicted"),
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


X = np.array([0.011, 0.004, 0.018, 0.009])


@pytest.mark.parametrize("claim, level", [("C18", 0.95), ("C11", 0.90), ("B3", 0.95)])
def test_settle_takes_the_interval_of_the_rule(claim, level):
    found = claims.settle(claim, X, part="some", margin=0.02, kept=True)
    low, high = stats.ttest_1samp(X, 0).confidence_interval(level)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.effect, found.n) == (pytest.approx(X.mean()), 4)
    facts = found.facts()
    assert facts["values"] == tuple(X)
    assert (facts["part"], facts["margin"], facts["kept"]) == ("some", 0.02, True)
    assert claims.record(claim, X.mean(), (low, high), n=4, margin=0.02).verdict == found.verdict


def test_settle_of_what_has_no_interval():
    assert claims.settle("C18", [0.5]).verdict == "inconclusive"  # one seed
    spread = claims.settle("B2", [0.1, -0.1, 0.0])  # whose mean is 0
    assert (spread.verdict, abs(spread.effect), spread.low) == ("contradicted", 0.1, None)
    assert claims.settle("B2", [1e-15, -1e-15]).verdict == "reproduced"
    cells = claims.settle("B10", [0, 0, 1, 0])
    assert (cells.verdict, cells.effect, cells.n) == ("contradicted", 1, 4)
    assert claims.settle("B10", [0]).verdict == "reproduced"


@pytest.mark.parametrize(
    "claim, values, message",
    [
        ("Z1", [0.1], "unknown claim 'Z1'; there are A1"),
        ("C18", [0.1, float("nan")], r"C18: values must be finite .* but are \[0.1, nan\]"),
        ("B2", [float("inf")], "must be finite"),
        ("C18", [], r"one for each repetition, but are \[\]"),
        ("C18", [[0.1, 0.2], [0.3, 0.4]], "one for each repetition"),
    ],
)
def test_settle_refuses_what_settles_nothing(claim, values, message):
    with pytest.raises(ValueError, match=message):
        claims.settle(claim, values)


def test_every_claim_has_a_rule():
    rules = {row["rule"] for row in claims.table().values()}
    assert rules == {"positive", "equivalent", "below", "exact", "table"}


def test_every_claim_has_a_verdict_and_every_verdict_its_evidence():
    ledger = claims.verdicts()
    assert set(ledger["claim"]) == set(claims.table())
    assert set(ledger["profile"]) <= {"ci", "full"}
    assert (ledger["n"] > 0).all()
    for figure in set(ledger["figure"]):
        assert (ROOT / "figures" / f"{figure}.png").exists()


def test_the_recipes_for_the_papers_own_data_exist():
    named = {pattern for row in claims.table().values() for pattern in row["recipes"].split()}
    assert named
    assert not [pattern for pattern in named if not fnmatch.filter(recipes.names(), pattern)]


def write_figure(folder, name, *verdicts, profile="ci"):
    provenance = {"notebook": "05_proxies", "profile": profile, "device": "cpu", "seeds": 3}
    numbers = {"claims": [verdict.facts() for verdict in verdicts]}
    (folder / f"{name}.json").write_text(json.dumps({"numbers": numbers, "provenance": provenance}))


def test_the_ledger_is_what_the_figures_say(tmp_path):
    one = claims.record("C18", 0.02, (0.01, 0.03), n=5, part="spread")
    two = claims.record("C18", -0.02, (-0.03, -0.01), n=5, part="margin")
    other = claims.record("B2", 1e-15)
    longer = claims.record("C19", 0.02, (0.01, 0.03), n=5, kept=True)
    printed = claims.record("C2", 0, n=3)
    write_figure(tmp_path, "b", one, two, longer, printed)
    write_figure(tmp_path, "a", other, profile="full")
    (tmp_path / "c.json").write_text(json.dumps({"numbers": {"x": 1}, "provenance": {
        "notebook": "00", "profile": "ci", "device": "cpu"}}))  # fmt: skip
    ledger = claims.verdicts(tmp_path)
    assert ledger["claim"].tolist() == ["B2", "C2", "C18", "C18", "C19"]
    assert ledger["part"].tolist() == ["", "", "spread", "margin", ""]
    made_with = ["full", "paper's table", "ci", "ci", "kept Runs"]
    assert ledger["made_with"].tolist() == made_with
    assert ledger["kept"].tolist() == [False] * 4 + [True]
    summary = claims.summary(ledger)
    assert list(summary.index) == list(claims.table())
    assert summary.loc["C18", "verdict"] == "mixed"
    assert summary.loc["C18", "parts"] == "1 contradicted, 1 reproduced"
    assert summary.loc["B2", ["verdict", "figures", "holm"]].tolist() == ["reproduced", "a", ""]
    assert summary.loc["C19", "made_with"] == "kept Runs"
    assert summary.loc["A1", "verdict"] == "open"
    row = next(row for row in claims.markdown(ledger).splitlines() if row.startswith("| C18"))
    assert "| mixed | 1 contradicted, 1 reproduced | 2 of 2 | ci | [b]" in row


def differences(seed, shift, n=6):
    return np.random.default_rng(seed).normal(shift, 0.01, size=n)


def p_value(tmp_path, claim, values):
    write_figure(tmp_path, "one", claims.settle(claim, values))
    return claims.verdicts(tmp_path)["p"].item()


@pytest.mark.parametrize("shift", [-0.02, 0.0, 0.004, 0.03])
def test_p_values_are_those_of_the_t_tests(tmp_path, shift):
    x = differences(1, shift)
    expected = stats.ttest_1samp(x, 0.0).pvalue
    assert p_value(tmp_path, "C18", x) == pytest.approx(expected)
    expected = stats.ttest_1samp(x, claims.MARGIN).pvalue
    assert p_value(tmp_path, "B3", x) == pytest.approx(expected)
    inside = max(
        stats.ttest_1samp(x, -claims.MARGIN, alternative="greater").pvalue,
        stats.ttest_1samp(x, claims.MARGIN, alternative="less").pvalue,
    )
    if abs(x.mean()) < claims.MARGIN:
        assert p_value(tmp_path, "C17", x) == pytest.approx(inside)


def test_holm_takes_back_what_many_tests_find_by_chance(tmp_path):
    sure = claims.record("C18", 0.05, (0.04, 0.06), n=9, part="sure")
    just = [claims.record("C18", 0.05, (0.001, 0.099), n=9, part=str(i)) for i in range(9)]
    write_figure(tmp_path, "many", sure, *just)
    ledger = claims.verdicts(tmp_path)
    assert (ledger["verdict"] == "reproduced").all()
    assert ledger.set_index("part")["holm"].to_dict() == {"sure": True} | {
        str(i): False for i in range(9)
    }
    assert claims.summary(ledger).loc["C18", "holm"] == "1 of 10"


def trainings(**recalls: float) -> pd.DataFrame:
    return pd.DataFrame({"hash": list(recalls), "recall_at_1": list(recalls.values())})


def test_evidence_stands_if_the_same_trainings_give_it_again_but_for_chance() -> None:
    kept = trainings(a=0.80, b=0.85, c=np.nan, d=0.9)
    check = claims.check_evidence
    assert check(trainings(a=0.80, b=0.85, c=np.nan), kept) == 3  # one diverged, then as now
    assert check(trainings(a=0.85, b=0.80, x=0.1), kept) == 2  # up and down, as seeds go
    assert check(trainings(x=0.1), kept) == 0
    assert check(trainings(a=0.70), kept) == 1  # 6 √2 times 1.2 points for a single one
    for moved in (trainings(a=0.69), trainings(a=0.70, b=0.75), trainings(c=0.5)):
        with pytest.raises(ValueError, match=r"made again, is different by [+-]0\.\d+ on average"):
            check(moved, kept)
    assert check(trainings(a=0.70, b=0.75), kept, spread=0.02) == 2


def test_evidence_of_other_recipes_is_named_where_all_should_be_there() -> None:
    kept = trainings(a=0.80, b=0.85)
    assert claims.check_evidence(trainings(a=0.80), kept, complete=True) == 1
    with pytest.raises(ValueError, match=r"1 of 2 trainings are not in the evidence.*: x"):
        claims.check_evidence(trainings(a=0.80, x=0.9), kept, complete=True)
