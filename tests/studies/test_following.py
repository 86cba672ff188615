"""A study follows its written rules, the same each time, however often it is broken off."""

import json

import pandas as pd
import pytest

import studies
from dmlkit import training
from studies import trainings
from tests.studies.conftest import NAMES


def test_a_study_is_the_same_each_time_and_goes_on_where_it_was_broken_off(
    read, begin, monkeypatch, tmp_path
):
    run, calls, fresh = training.run, [], []
    store = [tmp_path / "one"]

    def breaks(experiment, **args):
        calls.append(experiment)
        if len(calls) in (5, 15):
            raise KeyboardInterrupt
        done = run(experiment, **args | {"store": store[0]})
        fresh.extend([] if done.loaded else [done.path.name])
        return done

    monkeypatch.setattr(training, "run", breaks)
    rules = read(rounds="rounds = 1", extra="extra = 1", count="count = 2")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            begin(rules, "broken")
    done, trials, evidence = begin(rules, "broken")
    assert done
    assert len(fresh) == len(set(fresh)) == len(trials) + 2 * len(NAMES)  # none was trained twice
    store[0], count = tmp_path / "two", len(calls)
    assert begin(rules, "broken")[0]
    assert len(calls) == count  # the tables have all of it, and need no Run
    unbroken = begin(rules, "whole")
    for table, other in zip((trials, evidence), unbroken[1:], strict=True):
        pd.testing.assert_frame_equal(table.drop(columns="seconds"), other.drop(columns="seconds"))
    assert not trials["diverged"].any()
    assert evidence["numerics"].nunique() == 1
    assert (evidence.loc[evidence["arm"].isin(NAMES), "recall_at_1"] > 0).all()


def test_every_arm_gets_the_same_numbers(read, begin, guessed):
    _, trials, evidence = begin(read())
    counts = trials.groupby(["arm", "search"])["stage"].value_counts().unstack()
    assert counts.to_dict("list") == {
        "extra 1": [2] * 4, "extra 2": [2] * 4, "full": [2] * 4, "short": [3] * 4,
    }  # fmt: skip
    assert set(trials.loc[trials["stage"] == "short", "steps"]) == {2}
    assert set(trials.loc[trials["stage"] != "short", "steps"]) == {3}
    assert set(evidence.loc[evidence["arm"].isin(NAMES), "steps"]) == {4}
    assert set(evidence["arm"]) == {*NAMES, "raw pixels", "untrained network"}
    assert set(evidence["arm"].value_counts()) == {4}


def test_finalists_are_the_best_of_the_short_trainings(read, begin, guessed):
    _, trials, _ = begin(read())
    for _, rows in trials.groupby(["arm", "search"]):
        short = rows[rows["stage"] == "short"].sort_values("recall_at_1")
        full = set(rows.loc[rows["stage"] == "full", "candidate"])
        assert full == set(short["candidate"].tail(2))


def test_the_recipes_of_the_searches_take_turns(read, begin, guessed):
    _, trials, evidence = begin(read())
    best = studies.recipes(trials)
    full = trials[trials["stage"] != "short"]
    for (arm, search), recipe in best.items():
        mine = full[(full["arm"] == arm) & (full["search"] == search)]
        top = mine.loc[mine["recall_at_1"].idxmax()]
        assert json.loads(top["settings"]) == recipe
    for row in evidence[evidence["arm"].isin(NAMES)].itertuples():
        assert row.search == row.repetition % 2
        assert json.loads(row.recipe) == best[row.arm, row.search]
    assert best["contrastive", 0] != best["contrastive", 1]


def test_what_is_no_longer_asked_for_is_trained_anew_and_forgotten(read, begin, guessed):
    begin(read())
    guessed.clear()
    _, trials, evidence = begin(read(count="count = 3", candidates="candidates = 2"))
    assert set(evidence["repetition"]) == {0, 1, 2}
    assert set(trials["candidate"]) == {0, 1}
    assert not [plan for plan in guessed if plan.facts.get("stage") == "short"]


def test_minutes_end_a_study_cleanly_and_it_goes_on(read, begin, guessed, tmp_path):
    assert begin(read(), minutes=0) == (False,)
    assert not guessed
    assert begin(read(), only="search")[0]
    assert not (tmp_path / "kept" / "e.csv").exists()
    assert {plan.experiment.split for plan in guessed} == {"val"}
    count = len(guessed)
    assert begin(read(), only="repetitions")[0]
    assert {plan.experiment.split for plan in guessed[count:]} == {"test"}


def test_what_cannot_be_followed_is_refused(read, begin):
    with pytest.raises(ValueError, match="no recipe of every search for contrastive, proxy_nca_pp"):
        begin(read(), only="repetitions")
    with pytest.raises(ValueError, match="only must be search or repetitions, not 'both'"):
        begin(read(), only="both")
    with pytest.raises(ValueError, match="no arm nope; there are contrastive"):
        studies.chosen_arms(["nope"])


def test_a_training_that_fails_lets_the_others_end(read, begin, guessed, monkeypatch, tmp_path):
    guess = trainings.trained

    def fails(plan, *how):
        if plan.facts["arm"] == "contrastive" and plan.facts["candidate"] == 1:
            raise OSError("the disk is full")
        return guess(plan, *how)

    monkeypatch.setattr(trainings, "trained", fails)
    with pytest.raises(RuntimeError, match="2 of 12 trainings failed; the first, "):
        begin(read())
    assert len(pd.read_csv(tmp_path / "kept" / "t.csv")) == 10


def test_a_training_that_diverges_found_nothing(read, monkeypatch):
    def diverges(experiment, **args):
        raise training.DivergedError("the loss became nan")

    monkeypatch.setattr(training, "run", diverges)
    rules, arm = read(), studies.arms()["contrastive"]
    made = studies.experiment(rules, arm, studies.candidates(rules, arm, 0)[0], 3, {})
    row = studies.trained(studies.Plan({"arm": "contrastive"}, made), "cpu")
    assert row["diverged"]
    assert {row[metric] for metric in studies.METRICS} == {0.0}


def test_what_remains_is_told(read, begin, guessed, tmp_path):
    rules, arms = read(), studies.chosen_arms(NAMES)
    tables = [
        studies.Table(("arm", "search", "stage", "candidate"), tmp_path / "kept" / "t.csv"),
        studies.Table(("arm", "repetition"), tmp_path / "kept" / "e.csv"),
    ]
    before = studies.remaining(rules, arms, *tables).set_index("stage")
    assert before["rows"].to_dict() == {
        "short": 12, "full": 8, "extra 1": 8, "extra 2": 8, "repetitions": 8,
    }  # fmt: skip
    assert before["done"].sum() == 0
    assert before["hours"].isna().all()
    begin(rules, only="search")
    tables = [studies.Table(table.key, table.path) for table in tables]
    after = studies.remaining(rules, arms, *tables).set_index("stage")
    assert after["done"].drop("repetitions").equals(after["rows"].drop("repetitions"))
    assert after["hours"].drop("repetitions").eq(0).all()
    # a second for each training so far, most of which had three steps; a repetition has four
    assert after["hours"]["repetitions"] == pytest.approx(8 * 4 / 3 / 3600)
