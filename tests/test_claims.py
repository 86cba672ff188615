"""A verdict follows from the numbers by the stated rule, and from nothing else."""

import fnmatch
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dmlkit import ROOT, claims, recipes

CASES = [  # of the claims whose margin is 0.01, but for B3 (0.05)
    ("C5", 0.02, (0.01, 0.03), "reproduced"),
    ("C5", -0.02, (-0.03, -0.01), "contradicted"),
    ("C5", 0.02, (-0.01, 0.05), "undecided"),
    ("C5", 0.02, None, "undecided"),
    ("C5", 0.02, (float("nan"), float("nan")), "undecided"),
    ("C5", 0.0, (-0.012, 0.012), "no effect"),  # the 90 % interval is ± 0.0092
    ("C5", 0.0, (-0.014, 0.014), "undecided"),  # ± 0.0107
    ("C5", 0.005, (0.001, 0.009), "no effect"),  # above 0, but of no interest
    ("C5", -0.005, (-0.009, -0.001), "no effect"),
    ("C6", 0.0, (-0.024, 0.024), "reproduced"),
    ("C6", 0.0, (-0.03, 0.024), "undecided"),
    ("C6", 0.04, (0.03, 0.05), "contradicted"),
    ("C6", -0.04, (-0.05, -0.03), "contradicted"),
    ("B3", 0.001, (-0.01, 0.049), "reproduced"),
    ("B3", 0.2, (0.1, 0.3), "contradicted"),
    ("B3", 0.2, (0.0, 0.3), "undecided"),
    ("C11", -0.06, (-0.07, -0.05), "reproduced"),  # worse is no improvement either
    ("B2", 1e-15, None, "reproduced"),
    ("B2", 0.1, None, "contradicted"),
    ("B10", 0, None, "reproduced"),
    ("B10", 1, None, "contradicted"),
    # Bounds: wholly above and within are strict, and the largest deviation may be the margin.
    ("C5", 0.02, (0.0, 0.04), "undecided"),
    ("C5", -0.02, (-0.04, 0.0), "undecided"),
    ("C5", 0.02, (0.02, 0.02), "reproduced"),
    ("C5", 0.004, (-0.0045, 0.005), "undecided"),  # its longer arm counts: 0.004 + 0.0065
    ("C6", 0.0, (-0.025, 0.024), "undecided"),
    ("C6", 0.0, (-0.024, 0.025), "undecided"),
    ("C6", 0.04, (0.025, 0.05), "undecided"),
    ("C6", -0.04, (-0.05, -0.025), "undecided"),
    ("B3", 0.02, (-0.01, 0.05), "undecided"),
    ("B3", 0.2, (0.05, 0.3), "undecided"),
    ("B2", float(claims.table()["B2"]["smallest"]), None, "reproduced"),
]


@pytest.mark.parametrize("claim, effect, interval, verdict", CASES)
def test_the_rule_decides(claim, effect, interval, verdict):
    found = claims.record(claim, effect, interval, n=5)
    assert found.verdict == verdict
    assert verdict.upper() in str(found)
    assert found.facts()["effect"] == effect


@pytest.mark.parametrize(
    "n, half, verdict",
    [
        (1, 0.006, "no effect"),  # of one repetition the interval is taken as it is
        (1, 0.01, "undecided"),  # not within the margin, but up to it
        (2, 0.015, "no effect"),  # the 90 % interval of two has half the width
        (2, 0.021, "undecided"),
    ],
)
def test_the_interval_of_no_effect_is_the_narrower_one(n, half, verdict):
    assert claims.record("C5", 0.0, (-half, half), n=n).verdict == verdict


def test_a_verdict_in_words():
    sentence = claims.table()["C5"]["claim"]
    found = claims.record("C5", 0.02, (0.01, 0.03), n=5)
    assert str(found) == (
        "C5: REPRODUCED. effect +0.02 [+0.01, +0.03], n = 5, rule: positive\n    " + sentence
    )
    assert str(claims.record("C5", 0.02, part="of pairs")) == (
        "C5 (of pairs): UNDECIDED. effect +0.02, n = 1, rule: positive\n    " + sentence
    )


def test_an_unknown_claim_is_refused_with_the_list():
    for settle in (claims.record, claims.settle):
        with pytest.raises(ValueError, match="unknown claim 'Z1'; there are A1"):
            settle("Z1", [0.1])


def test_the_margin_of_the_primary_part_is_the_smallest_effect_of_the_table():
    name = claims.table()["C6"]["primary"]
    for part, margin in (("", 0.025), (name, 0.025), ("other", claims.MARGIN)):
        assert claims.settle("C6", X, part=part).margin == margin
    assert claims.settle("C6", X, margin=0.5).margin == 0.5


X = np.array([0.011, 0.004, 0.018, 0.009])


@pytest.mark.parametrize("claim, level", [("C18", 0.95), ("C6", 0.90), ("B3", 0.95)])
def test_settle_takes_the_interval_of_the_rule(claim, level):
    found = claims.settle(claim, X, part="some", margin=0.02, kept=True)
    low, high = stats.ttest_1samp(X, 0).confidence_interval(level)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.effect, found.n) == (pytest.approx(X.mean()), 4)
    facts = found.facts()
    assert facts["values"] == tuple(X)
    assert (facts["part"], facts["margin"], facts["kept"]) == ("some", 0.02, True)
    assert claims.record(claim, X.mean(), (low, high), n=4, margin=0.02).verdict == found.verdict


def test_repetitions_that_share_classes_have_the_wider_interval():
    overlap = 100 / 300
    found = claims.settle("C5", X, overlap=overlap)
    half = stats.t.ppf(0.975, 3) * X.std(ddof=1) * np.sqrt(1 / 4 + overlap)
    assert (found.low, found.high) == pytest.approx((X.mean() - half, X.mean() + half))
    assert found.facts()["overlap"] == overlap
    assert "overlap" not in claims.settle("C5", X).facts()


def test_settle_of_what_has_no_interval():
    assert claims.settle("C18", [0.5]).verdict == "undecided"  # one seed
    spread = claims.settle("B2", [0.1, -0.1, 0.0])  # whose mean is 0
    assert (spread.verdict, abs(spread.effect), spread.low) == ("contradicted", 0.1, None)
    assert claims.settle("B2", [1e-15, -1e-15]).verdict == "reproduced"
    cells = claims.settle("B10", [0, 0, 1, 0])
    assert (cells.verdict, cells.effect, cells.n) == ("contradicted", 1, 4)
    assert claims.settle("B10", [0]).verdict == "reproduced"


PLANS = {  # kind: its rules, the least repetitions, and where it may be decided
    "evidence": (
        {"positive", "equivalent", "below"},
        12,
        {"scratch", "transfer", "claims", "wide", "notebook"},
    ),
    "identity": ({"exact"}, 1, {"notebook"}),
    "table": ({"table"}, 1, {"table"}),
}


@pytest.mark.parametrize("claim", claims.table())
def test_every_claim_has_one_primary_part_that_is_planned_whole(claim):
    row = claims.table()[claim]
    assert not [key for key, value in row.items() if not value and key not in ("note", "recipes")]
    rules, repetitions, places = PLANS[row["kind"]]
    assert row["rule"] in rules
    assert int(row["repetitions"]) >= repetitions
    assert row["decided_in"] in places
    assert float(row["smallest"]) > 0 or row["kind"] != "evidence"
    sentence = row["sentence"]
    assert sentence == " ".join(sentence.split())
    assert len(sentence.split()) >= 9
    assert row["primary"] == row["primary"].strip()
    assert "|" not in row["claim"] + row["unit"]  # they stand in a Markdown table


def test_no_two_claims_are_read_from_the_same_sentence():
    assert len({row["sentence"] for row in claims.table().values()}) == len(claims.table()) == 39


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
    provenance = {"notebook": "07_proxies", "profile": profile, "device": "cpu", "seeds": 3}
    numbers = {"claims": [verdict.facts() for verdict in verdicts]}
    (folder / f"{name}.json").write_text(json.dumps({"numbers": numbers, "provenance": provenance}))


def test_the_ledger_is_what_the_figures_say(tmp_path):
    one = claims.record("C18", 0.2, (0.1, 0.3), n=5)
    two = claims.record("C18", -0.02, (-0.03, -0.01), n=5, part="margin")
    other = claims.record("B2", 1e-15)
    longer = claims.record("C19", 0.04, (0.03, 0.05), n=5, kept=True)
    printed = claims.record("C2", 0, n=3)
    write_figure(tmp_path, "b", one, two, longer, printed)
    write_figure(tmp_path, "a", other, profile="full")
    (tmp_path / "c.json").write_text(json.dumps({"numbers": {"x": 1}, "provenance": {
        "notebook": "00", "profile": "ci", "device": "cpu"}}))  # fmt: skip
    found = claims.verdicts(tmp_path)
    assert found["claim"].tolist() == ["B2", "C2", "C18", "C18", "C19"]
    assert found["part"].tolist() == ["", "", "", "margin", ""]
    assert found["primary"].tolist() == [True, True, True, False, True]
    made_with = ["identity", "paper's table", "ci", "ci", "kept Runs"]
    assert found["made_with"].tolist() == made_with
    assert found["kept"].tolist() == [False] * 4 + [True]


def differences(seed, shift, n=6):
    return np.random.default_rng(seed).normal(shift, 0.01, size=n)


def row(tmp_path, claim, values, **how):
    write_figure(tmp_path, "one", claims.settle(claim, values, **how))
    return claims.verdicts(tmp_path).iloc[0]


def two_one_sided(x, margin):
    below = stats.ttest_1samp(x, -margin, alternative="greater").pvalue
    return max(below, stats.ttest_1samp(x, margin, alternative="less").pvalue)


@pytest.mark.parametrize("shift", [-0.06, -0.02, 0.0, 0.004, 0.03, 0.06])
def test_p_values_are_those_of_the_t_tests(tmp_path, shift):
    x = differences(1, shift)
    found = row(tmp_path, "C5", x, margin=1e-9)
    assert found["p"] == pytest.approx(stats.ttest_1samp(x, 0.0).pvalue)
    found = row(tmp_path, "C5", x, margin=0.5)
    assert found["verdict"] == "no effect"
    assert found["p"] == pytest.approx(two_one_sided(x, 0.5))
    assert row(tmp_path, "B3", x)["p"] == pytest.approx(stats.ttest_1samp(x, 0.05).pvalue)
    if abs(x.mean()) < 0.02:
        expected = two_one_sided(x, 0.02)
    else:
        side = np.sign(x.mean())
        expected = stats.ttest_1samp(side * x, 0.02, alternative="greater").pvalue
    assert row(tmp_path, "C17", x)["p"] == pytest.approx(expected)


@pytest.mark.parametrize("claim, centre", [("C5", 0.0), ("B3", 0.05)])
def test_sign_flips_stand_beside_the_t_tests(tmp_path, claim, centre):
    x = differences(2, 0.045, n=8)
    assert (x < 0.05).any()
    assert (x > 0.05).any()  # else every centre below would give the same
    flipped = stats.permutation_test(
        (x - centre,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert row(tmp_path, claim, x)["p_flips"] == pytest.approx(flipped.pvalue)
    assert np.isnan(row(tmp_path, claim, x, overlap=0.5)["p_flips"])  # they are not independent


@pytest.mark.parametrize("sign", [1, -1])
def test_no_effect_and_equivalence_are_flipped_at_both_margins(tmp_path, sign):
    x = sign * differences(3, 0.012, n=8)
    sides = [
        stats.permutation_test(
            (0.025 + side * x,), np.mean, permutation_type="samples", n_resamples=np.inf,
            alternative="greater",
        ).pvalue
        for side in (1, -1)
    ]  # fmt: skip
    assert max(sides) > min(sides)
    for claim, verdict in (("C5", "no effect"), ("C17", "reproduced")):
        found = row(tmp_path, claim, x, margin=0.025)
        assert (found["verdict"], found["p_flips"]) == (verdict, pytest.approx(max(sides)))
    outside = sign * differences(3, 0.06, n=8)
    assert row(tmp_path, "C17", outside)["p_flips"] == pytest.approx(1 / 2**8)


def test_holm_takes_back_what_many_claims_find_by_chance(tmp_path):
    names = [claim for claim, row in claims.table().items() if row["rule"] == "positive"][:10]
    sure = claims.record(names[0], 0.5, (0.4, 0.6), n=9)
    just = [claims.record(claim, 0.5, (0.001, 0.999), n=9) for claim in names[1:]]
    secondary = [claims.record("C18", 0.5, (0.4, 0.6), n=9, part=str(i)) for i in range(50)]
    write_figure(tmp_path, "many", sure, *just, *secondary)
    found = claims.verdicts(tmp_path)
    assert (found["verdict"] == "reproduced").all()
    assert found.loc[found["holm"], "claim"].tolist() == names[:1]


def test_a_verdict_stands_only_if_sign_flips_agree(tmp_path):
    x = [0.050, 0.051, 0.049, 0.052, 0.048]
    assert not row(tmp_path, "C5", x)["holm"]  # 2 / 2⁵ is above 5 %
    assert row(tmp_path, "C5", [*x, 0.050])["holm"]
    assert row(tmp_path, "C5", [0.0001, -0.0001, 0.0002, -0.0002, 0.0001])["holm"]  # 1 / 2⁵
    assert not row(tmp_path, "C5", [0.05, -0.04, 0.01, 0.02, 0.0])["holm"]


@pytest.mark.parametrize(
    "claim, mean, distance, level",
    [
        ("C5", 0.03, 0.03, 0.975),  # C5's smallest effect is 0.01: farther from 0 than from that
        ("C5", 0.001, 0.009, 0.95),  # nearly none: within the smallest effect before it has a sign
        ("C6", 0.02, 0.005, 0.95),  # like within 0.025
        ("C6", -0.04, 0.015, 0.95),
        ("C11", 0.03, 0.02, 0.975),  # no gain above 0.01
    ],
)
def test_what_is_undecided_tells_how_many_repetitions_would_decide_it(
    claim, mean, distance, level, tmp_path
):
    x = np.array([0.05, -0.05, 0.06, -0.06, 0.03, -0.03])
    sd = x.std(ddof=1)
    found = row(tmp_path, claim, x + mean)
    assert found["verdict"] == "undecided"
    n = int(found["needed"])
    power = [
        stats.nct.sf(stats.t.ppf(level, n - 1), n - 1, distance / sd * n**0.5)
        for n in (n, round(0.9 * n))
    ]
    assert power[0] > 0.795
    assert power[1] < 0.8


def test_no_number_of_repetitions_decides_what_overlaps_too_much(tmp_path):
    x = np.array([0.05, -0.04, 0.01, 0.02, 0.0, -0.01])
    assert row(tmp_path, "C5", x)["needed"] < 1000
    assert np.isinf(row(tmp_path, "C5", x, overlap=0.5)["needed"])
    assert np.isnan(row(tmp_path, "C5", x + 0.2)["needed"])  # it is decided
    assert np.isnan(row(tmp_path, "C5", x[:1])["needed"])
    two = row(tmp_path, "C5", x[:2])
    assert two["p"] == pytest.approx(stats.ttest_1samp(x[:2], 0.0).pvalue)


@pytest.mark.parametrize(
    "claim, effect, interval, n",
    [("C5", 0.02, (-0.01, 0.05), 1), ("C6", 0.025, (0.025, 0.025), 3)],
    ids=["one repetition", "no spread"],
)
def test_what_has_no_spread_has_no_p_value_and_no_plan(tmp_path, claim, effect, interval, n):
    found = claims.record(claim, effect, interval, n=n, values=[effect] * n)
    assert found.verdict == "undecided"
    write_figure(tmp_path, "one", found)
    assert claims.verdicts(tmp_path)[["p", "p_flips", "needed"]].isna().all(axis=None)


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
    assert check(trainings(c=0.05), kept) == 1  # one that diverged counts as 0
    assert check(trainings(e=np.nan), trainings(e=0.05)) == 1


def test_evidence_of_other_recipes_is_named_where_all_should_be_there() -> None:
    kept = trainings(a=0.80, b=0.85)
    assert claims.check_evidence(trainings(a=0.80), kept, complete=True) == 1
    with pytest.raises(ValueError, match=r"1 of 2 trainings are not in the evidence.*: x"):
        claims.check_evidence(trainings(a=0.80, x=0.9), kept, complete=True)
