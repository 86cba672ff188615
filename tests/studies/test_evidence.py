"""What the tables of a study say, and rows of them that are trained anew."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import studies
from dmlkit import training
from studies import claims
from studies.check import sample, trained_anew
from studies.dreml import Ensemble, member_experiments
from studies.rules import experiment, repetition
from studies.search import candidates
from studies.trainings import Plan, Table, compare, trained


def trials_of(first, second):
    rows = [
        {"arm": str(i), "search": s, "stage": "full", "candidate": 0, "recall_at_1": value}
        for s, scores in enumerate((first, second))
        for i, value in enumerate(scores)
    ]
    return pd.DataFrame(rows)


def test_the_searches_agreement_is_kendalls_tau_with_a_bootstrap_interval():
    ordered = np.arange(12.0)
    swapped = ordered.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert studies.agreement(trials_of(ordered, ordered))["tau"] == pytest.approx(1)
    found = studies.agreement(trials_of(ordered, swapped))
    assert found["tau"] == pytest.approx(1 - 2 / 66)  # one of 66 pairs
    assert found["low"] < found["tau"] <= found["high"] <= 1 + 1e-9
    assert studies.agreement(trials_of(ordered, ordered[::-1]))["high"] == pytest.approx(-1)
    assert np.isnan(studies.agreement(trials_of(ordered[:2], ordered[:2]))["tau"])


def test_what_is_watched_is_the_studys_own_training():
    """Same Experiment, same Recall@1: the mechanism's script trains and scores as ``run`` does."""
    folder = studies.trainings.EVIDENCE
    key = ["arm", "hash", "repetition"]
    watched, scored = (
        pd.read_csv(folder / f"{name}.csv").set_index(key)["recall_at_1"]
        for name in ("mechanism", "scratch")
    )
    both = pd.concat([watched, scored], axis=1, join="inner", keys=["watched", "scored"])
    assert len(both) > 50
    assert (both["watched"] == both["scored"]).all()


def test_of_whole_networks_as_many_were_trained_as_is_said():
    """Raw pixels and untouched features have scores, too, but nobody trains them."""
    rules, rows = studies.protocol("photos_whole"), studies.kept()["photos_whole"]
    arms = set(studies.arms(rules))
    assert (rows["arm"].isin(arms).sum(), len(arms) * rules.repetitions.count) == claims.TRAINED


def test_rows_of_a_second_pass_are_asked_for_by_the_same_rules():
    assert sample("scratch_further", 0, "a commit").empty  # else ValueError
    with pytest.raises(ValueError, match="no study 'other'"):
        sample("other", 0, "a commit")


@pytest.fixture
def evidence(read):
    rules, arm = read(), studies.arms()["contrastive"]
    recipes = {(arm.name, s): candidates(rules, arm, s)[0] for s in (0, 1)}
    table = Table(("arm", "repetition"))
    with ThreadPoolExecutor(1) as executor:
        compare(rules, [arm], recipes, table, executor=executor, device="cpu")
    return table


def test_rows_that_are_trained_anew_are_as_they_were(read, evidence):
    found = trained_anew(read(), evidence, 3, "a commit", "cpu")
    assert len(found) == 3 * len(studies.METRICS)
    assert found["exact"].all()
    assert found["agrees"].all()
    drawn = {
        key: tuple(trained_anew(read(), evidence, 1, key, "cpu")[["arm", "repetition"]].iloc[0])
        for key in ("1", "2", "3", "4", "5", "6")
    }
    assert len(Counter(drawn.values())) > 1
    again = trained_anew(read(), evidence, 1, "6", "cpu")
    assert tuple(again[["arm", "repetition"]].iloc[0]) == drawn["6"]


def test_a_score_that_is_not_what_training_gives_is_found(read, evidence):
    for row in evidence.rows.values():
        row["recall_at_1"] += 1e-4
    found = trained_anew(read(), evidence, 1, "a commit", "cpu")
    assert found.set_index("score")["exact"].to_dict() == {
        metric: metric != "recall_at_1" for metric in studies.METRICS
    }


def test_elsewhere_a_score_is_held_against_the_spread_over_repetitions(read, evidence):
    for row in evidence.rows.values():
        row["nmi"] += 1e-4
    found = trained_anew(read(), evidence, 12, "a commit", "cpu")
    assert found["exact"].equals(found["score"] != "nmi")
    assert (found["bound"] > 1e-3).any()
    assert found["agrees"].sum() > found["exact"].sum()
    for row in evidence.rows.values():
        row["nmi"] += 10.0
    found = trained_anew(read(), evidence, 12, "a commit", "cpu")
    assert found["agrees"].equals(found["score"] != "nmi")


def test_evidence_of_other_rules_is_refused(read, evidence, tmp_path):
    with pytest.raises(ValueError, match="the rules ask for another training than the evidence's"):
        trained_anew(read(steps="steps = 5"), evidence, 1, "a", "cpu")


def test_an_ensemble_and_what_is_not_trained_are_rows_as_well(read):
    rules, arm = read(), studies.arms()["dreml"]
    recipe = {**candidates(rules, arm, 0)[0]}
    made = experiment(rules, arm, recipe, 8, repetition(rules, 0))
    plan = Plan({"arm": "dreml"}, made, arm.members)
    row = trained(plan, "cpu")
    assert plan.steps == 8
    assert plan.hash.endswith("x4")
    members = member_experiments(made, arm.members, made.dim)
    runs = tuple(training.run(member, device="cpu", progress=False) for member in members)
    expected = Ensemble(runs).scores
    assert expected["nmi"] > 0
    for metric in set(expected) & set(studies.METRICS):
        assert row[metric] == pytest.approx(expected[metric], abs=1e-6)
    pixels = Plan({"arm": "raw pixels"}, made, baseline="raw pixels")
    expected = training.baselines(made, "cpu")["raw pixels"]["recall_at_1"]
    assert trained(pixels, "cpu")["recall_at_1"] == pytest.approx(expected, abs=1e-6)


def test_a_score_that_neither_has_agrees_and_one_that_only_one_has_does_not(read, evidence):
    found = trained_anew(read(), evidence, 12, "a commit", "cpu")
    without = found[found["then"].isna()]
    assert set(without["score"]) == {"recall_at_1_signs", "spread"}
    assert set(without["arm"]) == {"raw pixels", "untrained network"}
    assert without["agrees"].all()
    for row in evidence.rows.values():
        row["spread"] = 1.0 if np.isnan(row["spread"]) else float("nan")
    found = trained_anew(read(), evidence, 12, "a commit", "cpu")
    assert found["agrees"].equals(found["score"] != "spread")
