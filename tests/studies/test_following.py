"""A study follows its written rules, the same each time, however often it is broken off."""

import json
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import studies
from dmlkit import training
from studies import trainings
from studies.follow import changed, chosen_arms, remaining
from studies.rules import experiment
from studies.search import candidates, search
from studies.trainings import ROW_KEY, TRIAL_KEY, Plan, Table, trained
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
    trials, evidence = begin(rules, "broken")
    assert len(fresh) == len(set(fresh)) == len(trials) + 2 * len(NAMES)  # none was trained twice
    store[0], count = tmp_path / "two", len(calls)
    begin(rules, "broken")
    assert len(calls) == count  # the tables have all of it, and need no Run
    unbroken = begin(rules, "whole")
    for table, other in zip((trials, evidence), unbroken, strict=True):
        pd.testing.assert_frame_equal(table.drop(columns="seconds"), other.drop(columns="seconds"))
    assert not trials["diverged"].any()
    assert evidence["numerics"].nunique() == 1
    assert (evidence.loc[evidence["arm"].isin(NAMES), "recall_at_1"] > 0).all()


def test_every_arm_gets_the_same_numbers(read, begin, guessed):
    trials, evidence = begin(read())
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
    trials, _ = begin(read())
    for _, rows in trials.groupby(["arm", "search"]):
        short = rows[rows["stage"] == "short"].sort_values("recall_at_1")
        full = set(rows.loc[rows["stage"] == "full", "candidate"])
        assert full == set(short["candidate"].tail(2))


def test_the_recipes_of_the_searches_take_turns(read, begin, guessed):
    trials, evidence = begin(read())
    best = studies.recipes(trials)
    full = trials[trials["stage"] != "short"]
    for (arm, number), recipe in best.items():
        mine = full[(full["arm"] == arm) & (full["search"] == number)]
        top = mine.loc[mine["recall_at_1"].idxmax()]
        assert json.loads(top["settings"]) == recipe
    for row in evidence[evidence["arm"].isin(NAMES)].itertuples():
        assert row.search == row.repetition % 2
        assert json.loads(row.recipe) == best[row.arm, row.search]
    assert best["contrastive", 0] != best["contrastive", 1]


def test_a_second_pass_doubles_the_search_and_goes_on_from_the_first(read, begin, guessed):
    rules = read(reach="reach = 0.25\nfurther = 3")
    (first,) = begin(rules, only="search")
    count = len(guessed)
    with ThreadPoolExecutor(1) as executor:
        second = search(rules, chosen_arms(NAMES), Table(TRIAL_KEY), first, executor=executor)
    assert len(second) == len(first) == len(guessed) - count
    short = second[second["stage"] == "further short"]
    assert set(short["candidate"]) == {3, 4, 5}
    known = set(zip(first["arm"], first["search"], first["settings"], strict=True))
    assert known.isdisjoint(zip(short["arm"], short["search"], short["settings"], strict=True))
    both = pd.concat([first, second])
    best = studies.recipes(both)
    for place, rows in both[both["steps"] == 3].groupby(["arm", "search"]):
        top = rows.reset_index().nlargest(1, "recall_at_1").iloc[0]
        assert json.loads(top["settings"]) == best[place]
    old = studies.recipes(first)
    better = {place for place, recipe in best.items() if recipe != old[place]}
    again = changed(rules, chosen_arms(NAMES), first, second)
    assert {(plan.facts["arm"], plan.facts["search"]) for plan in again} == better != set()
    assert all(json.loads(plan.facts["recipe"]) == best[_place(plan)] for plan in again)
    assert len(again) == len(better) * rules.repetitions.count // 2


def _place(plan: Plan) -> tuple[str, int]:
    return plan.facts["arm"], plan.facts["search"]


def test_what_is_no_longer_asked_for_is_trained_anew_and_forgotten(read, begin, guessed):
    begin(read())
    guessed.clear()
    trials, evidence = begin(read(count="count = 3", candidates="candidates = 2"))
    assert set(evidence["repetition"]) == {0, 1, 2}
    assert set(trials["candidate"]) == {0, 1}
    assert not [plan for plan in guessed if plan.facts.get("stage") == "short"]


def test_a_search_comes_before_its_repetitions_and_each_has_its_own_split(
    read, begin, guessed, tmp_path
):
    with pytest.raises(ValueError, match="no recipe of every search for contrastive, proxy_nca_pp"):
        begin(read(), only="repetitions")
    begin(read(), only="search")
    assert not (tmp_path / "kept" / "e.csv").exists()
    assert {plan.experiment.split for plan in guessed} == {"val"}
    count = len(guessed)
    begin(read(), only="repetitions")
    assert {plan.experiment.split for plan in guessed[count:]} == {"test"}


def test_an_unknown_arm_or_part_is_refused(read, begin):
    with pytest.raises(ValueError, match="only must be search, further or repetitions, not 'both'"):
        begin(read(), only="both")
    with pytest.raises(ValueError, match="no arm nope; there are contrastive"):
        chosen_arms(["nope"])


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
    made = experiment(rules, arm, candidates(rules, arm, 0)[0], 3, {})
    row = trained(Plan({"arm": "contrastive"}, made), "cpu")
    assert row["diverged"]
    assert {row[metric] for metric in studies.METRICS} == {0.0}


def test_what_remains_is_told(read, begin, guessed, tmp_path):
    rules, arms = read(), chosen_arms(NAMES)

    def counts():
        trials = Table(TRIAL_KEY, tmp_path / "kept" / "t.csv")
        evidence = Table(ROW_KEY, tmp_path / "kept" / "e.csv")
        return remaining(rules, arms, trials, evidence)

    assert counts() == {"search": (0, 36), "repetitions": (0, 8)}
    begin(rules, only="search")
    assert counts() == {"search": (36, 36), "repetitions": (0, 8)}
