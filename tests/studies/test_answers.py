"""From a study's tables to the claims: measures, and what is open while arms are missing."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

import studies
from dmlkit import claims
from studies.answers import STUDIES, lead

RNG = np.random.default_rng(0)
COUNT = 12
SEC = ("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity")
SEE = ("normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor")


def table(arms, count=COUNT):
    """Invented rows of arms; an arm given by numbers has these as its scores."""
    given = arms if isinstance(arms, dict) else dict.fromkeys(arms)
    rows = []
    for arm, values in given.items():
        for k in range(count):
            drawn = RNG.random(len(studies.METRICS))
            scores = dict(zip(studies.METRICS, drawn, strict=True))
            if values is not None:
                scores = dict.fromkeys(studies.METRICS, float(values[k]))
            rows.append({"arm": arm, "repetition": k, "search": k % 2} | scores)
    return pd.DataFrame(rows)


def wide(frame, metric="recall_at_1"):
    return frame.pivot(index="repetition", columns="arm", values=metric)


def additions(names, *labels):
    return [*names, *(f"{name} + {label}" for name in names for label in labels)]


# What is decided where ------------------------------------------------------------------------


def test_each_claim_that_a_study_decides_has_its_measure_and_no_other_has():
    ranked = set(studies.decided("scratch"))
    assert ranked == {"C1", "C3", "C4", "C5"}
    contrasts = set(studies.protocol("claims").contrasts)
    assert studies.decided("wide") == ["C8"]
    assert set(studies.decided()) == ranked | contrasts | {"C8"}
    assert {claims.table()[claim]["decided_in"] for claim in contrasts} == {"claims", "transfer"}
    assert set(studies.decided("transfer")) == {"A1", "A2", "B4", "B5"}


@pytest.mark.parametrize("claim", studies.decided())
def test_every_measure_is_of_arms_that_its_study_trains_as_often_as_planned(claim):
    study = claims.table()[claim]["decided_in"]
    known = {name for s in STUDIES[study] for name in studies.arms(studies.protocol(s))}
    everything = studies.answer(claim, {})
    assert everything.values.empty
    assert everything.missing
    assert set(everything.missing) <= known
    assert int(claims.table()[claim]["repetitions"]) == studies.protocol(study).repetitions.count


@pytest.mark.parametrize("claim", ["A6", "B3", "C2", "C20"])
def test_a_claim_that_no_study_decides_is_refused(claim):
    with pytest.raises(ValueError, match=f"{claim} is not decided by a study"):
        studies.answer(claim, {})


# Contrasts ------------------------------------------------------------------------------------


def test_a_sum_of_weights_is_zero_so_that_equal_arms_have_no_effect():
    for claim, told in studies.protocol("claims").contrasts.items():
        assert sum(told["effect"].values()) == pytest.approx(0), claim


def test_the_gain_of_sec_and_its_lead_over_the_penalty_are_means_over_four_losses():
    frame = table(additions(SEC, "SEC", "L2"))
    at_1 = wide(frame)
    gain = sum(at_1[f"{name} + SEC"] - at_1[name] for name in SEC) / 4
    lead = sum(at_1[f"{name} + SEC"] - at_1[f"{name} + L2"] for name in SEC) / 4
    for study in ("transfer", "scratch"):
        for claim, expected in (("A1", gain), ("A2", lead)):
            found = studies.answer(claim, {study: frame}, study)
            assert found.values.to_numpy() == pytest.approx(expected.to_numpy())
    assert studies.answer("A1", {"scratch": frame}).missing  # transfer decides it


def test_the_gain_of_see_at_larger_k_is_a_mean_over_losses_and_k():
    frame = table(additions(SEE, "SEE, code"))
    for claim, metrics in (("B4", [1]), ("B5", [2, 4, 8, 16])):
        expected = np.zeros(COUNT)
        for name, k in itertools.product(SEE, metrics):
            at_k = wide(frame, f"recall_at_{k}")
            expected += (at_k[f"{name} + SEE, code"] - at_k[name]) / len(SEE) / len(metrics)
        found = studies.answer(claim, {"transfer": frame})
        assert found.values.to_numpy() == pytest.approx(expected)


def test_transfer_widens_the_interval_for_the_classes_that_repetitions_share():
    frame = table(additions(SEC, "SEC"))
    verdict = studies.answer("A1", {"transfer": frame}).settle()
    rules = studies.protocol("transfer").repetitions
    assert verdict.overlap == pytest.approx(rules.overlap / (1 - rules.overlap)) == rules.correction
    alone = studies.answer("A1", {"scratch": frame}, "scratch").settle("from scratch")
    assert alone.overlap == 0
    assert verdict.high - verdict.low > alone.high - alone.low


def test_an_arm_of_the_claims_study_is_compared_with_one_of_scratch():
    ours = table({"SEE, random points": np.linspace(0.4, 0.5, COUNT)})
    theirs = table({"normalized_softmax + SEE, code": np.linspace(0.6, 0.65, COUNT)})
    found = studies.answer("B7", {"claims": ours, "scratch": theirs})
    expected = np.linspace(0.6, 0.65, COUNT) - np.linspace(0.4, 0.5, COUNT)
    assert found.values.to_numpy() == pytest.approx(expected)
    assert found.settle().kept


def test_the_gain_by_a_stronger_network_is_beyond_the_median_of_six_others():
    arms = studies.answer("C8", {}).missing
    assert arms == studies.SEVEN
    assert arms[0] == "margin"
    strong, weak = table(arms), table(arms)
    found = studies.answer("C8", {"wide": strong, "transfer": weak})
    for k in range(COUNT):
        gains = [wide(strong).at[k, arm] - wide(weak).at[k, arm] for arm in arms]
        others = sorted(gains[1:])
        assert found.values[k] == pytest.approx(gains[0] - (others[2] + others[3]) / 2)
    assert found.overlap > 0
    lacking = strong[strong["arm"] != "n_pairs"]
    assert studies.answer("C8", {"wide": lacking, "transfer": weak}).missing == ("n_pairs",)
    assert studies.answer("C8", {"wide": strong}).missing == arms


# What is not complete -------------------------------------------------------------------------


def test_a_claim_is_open_until_each_of_its_arms_has_all_repetitions():
    arms = ["SEE, random points", "normalized_softmax + SEE, code"]
    whole = {"claims": table(arms[:1]), "scratch": table(arms[1:])}
    assert studies.answer("B7", whole).settle().n == COUNT
    short = whole | {"claims": whole["claims"].iloc[:-1]}
    found = studies.answer("B7", short)
    assert found.missing == ("SEE, random points",)
    assert found.values.empty
    with pytest.raises(ValueError, match="B7 is open: the evidence lacks SEE, random points"):
        found.settle()
    twice = pd.concat([short["claims"], short["claims"].iloc[:1]])  # as many rows, not repetitions
    assert studies.answer("B7", whole | {"claims": twice}).missing == ("SEE, random points",)
    other = whole["claims"].assign(repetition=lambda rows: rows["repetition"] + 1)
    assert studies.answer("B7", whole | {"claims": other}).missing == ("SEE, random points",)


def test_what_is_not_complete_is_in_no_table_of_scores():
    rules = studies.protocol("scratch")
    frame = pd.concat([table(["a"]), table(["b"], count=COUNT - 1)])
    assert list(studies.scores(rules, frame)) == ["a"]
    assert studies.scores(rules, pd.DataFrame()).shape == (COUNT, 0)


def test_a_score_that_is_no_number_settles_nothing():
    frame = table(["SEE, random points", "normalized_softmax + SEE, code"])
    frame.loc[3, "recall_at_1"] = np.nan
    with pytest.raises(ValueError, match="B7: not one finite value for each repetition"):
        studies.answer("B7", {"claims": frame})


# The worst, the best, the order ---------------------------------------------------------------


def levels(**changes):
    """All eleven losses at 0.5 in every repetition, but for some."""
    flat = {loss: np.full(COUNT, 0.5) for loss in studies.ELEVEN}
    return flat | {loss: np.full(COUNT, value) for loss, value in changes.items()}


@pytest.mark.parametrize(
    "claim, changes, effect",
    [
        ("C3", {"triplet_semihard": 0.4}, 0.1),  # the worst, by what it is behind the next
        ("C3", {"margin": 0.2}, -0.3),
        ("C3", {"margin": 0.9}, 0.0),
        ("C4", {"structured_clustering": 0.7, "margin": 0.6}, 0.1),
        ("C4", {"margin": 0.6}, -0.1),
        ("C5", {"normalized_softmax": 0.45, "ranked_list": 0.7}, -0.25),
        ("C5", {"normalized_softmax": 0.7}, 0.2),
    ],
)
def test_the_worst_and_the_best_are_held_against_the_nearest_other(claim, changes, effect):
    found = studies.answer(claim, {"scratch": table(levels(**changes))})
    assert found.values.to_numpy() == pytest.approx(np.full(COUNT, effect))


def test_only_the_eleven_are_rivals():
    frame = pd.concat([table(levels()), table({"dreml": np.zeros(COUNT)})])
    assert studies.answer("C3", {"scratch": frame}).values.abs().max() == 0
    assert "dreml" not in studies.ELEVEN
    assert len(studies.ELEVEN) == 11


def test_nmi_settles_the_claim_about_nmi():
    frame = table(levels())
    mine = frame["arm"] == "structured_clustering"
    assert frame.assign(recall_at_1=frame["recall_at_1"].mask(mine, 0.9)).pipe(
        lambda f: studies.answer("C4", {"scratch": f}).values.abs().max()
    ) == pytest.approx(0)
    found = studies.answer("C4", {"scratch": frame.assign(nmi=frame["nmi"].mask(mine, 0.9))})
    assert found.values.mean() == pytest.approx(0.4)


def test_a_rival_is_chosen_on_the_other_repetitions():
    """One that is far ahead in a single repetition is not the rival of that repetition."""
    frame = pd.DataFrame({"a": np.zeros(4), "b": [9.0, 0, 0, 0], "c": np.full(4, 1.0)})
    assert lead(frame, "a").tolist() == [-1.0, 0.0, 0.0, 0.0]
    luck = np.random.default_rng(1).standard_normal((400, 12, 11))
    found = [lead(pd.DataFrame(x), 0).mean() for x in luck]
    assert abs(np.mean(found)) < 0.05
    assert np.mean([(x[:, 0] - x[:, 1:].max(1)).mean() for x in luck]) < -1


def as_published(order):
    """Scores of which each published order of all three data sets is true in turn, by loss."""
    values = studies.published()[order].groupby(level="loss").mean()
    return {loss: np.full(COUNT, values.get(loss, 0.0)) for loss in studies.ELEVEN}


def test_an_order_is_nearer_to_what_the_study_measured_or_to_what_was_reported():
    near, far = (
        studies.answer("C1", {"scratch": table(as_published(order))}).values
        for order in ("measured", "reported")
    )
    assert near.min() > 0.1
    assert far.max() < -0.1
    frame = table(studies.ELEVEN)
    taus = studies.nearness(wide(frame))
    names = studies.published().index.get_level_values("dataset").unique()
    assert list(names) == ["CUB200", "CARS196", "SOP"]
    by_hand = sum(taus[name, "measured"] - taus[name, "reported"] for name in names) / 3
    found = studies.answer("C1", {"scratch": frame}).values
    assert found.to_numpy() == pytest.approx(by_hand.to_numpy())


def test_an_agreement_is_of_the_losses_that_have_both_orders():
    both = studies.published()
    assert both.notna().all(axis=None)
    assert both.loc[("CUB200", "normalized_softmax")].tolist() == [55.3, 58.3]
    assert ("CUB200", "prototypical") not in both.index  # not reported
    cub = both.loc["CUB200"]
    frame = pd.DataFrame([cub["measured"], -cub["measured"]])
    taus = studies.nearness(frame.reindex(columns=list(studies.ELEVEN), fill_value=0.0))
    assert taus["CUB200", "measured"].tolist() == pytest.approx([1, -1])


# The evidence that is there -------------------------------------------------------------------


def test_the_evidence_has_the_recipes_of_its_trials():
    import json

    rules = studies.protocol("scratch")
    trials, rows = (kept.frame() for kept in studies.tables("scratch"))
    if not len(rows):
        pytest.skip("the study has not begun")
    chosen = studies.recipes(trials)
    arms = rows[~rows["arm"].isin(studies.baselines(rules))]
    for row in arms.itertuples():
        assert json.loads(row.recipe) == chosen[row.arm, row.search], (row.arm, row.search)


def test_the_rules_ask_for_all_of_the_evidence_that_is_kept():
    for name, frame in studies.kept().items():
        assert len(frame) == len(studies.tables(name)[1].rows)


def test_rows_that_the_rules_do_not_ask_for_are_left_out():
    rules = studies.protocol("scratch")
    fewer = dataclasses.replace(
        rules, repetitions=dataclasses.replace(rules.repetitions, count=COUNT - 1)
    )
    assert list(studies.scores(fewer, table(["a"])).index) == list(range(COUNT - 1))
