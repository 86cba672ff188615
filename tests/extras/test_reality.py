"""A study follows its written rules, the same each time, however often it is broken off."""

import dataclasses
import json
import os
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dmlkit
from dmlkit import data, losses, training
from dmlkit.extras import reality
from dmlkit.extras.reality import trainings
from dmlkit.training import Experiment
from dmlkit.training.build import objective_for

TINY = """
[base]
steps = 3
dim = 8
model_args = { widths = [2, 4, 4, 4] }
data_args = { train_classes = 40, per_class = 4, val_per_class = 2, test_per_class = 2 }
[ranges]
lr = ["log", 1e-3, 1e-1]
loss_lr_factor = ["log", 1.0, 100.0]
[choices.batch]
"4 x 3" = { sampler = "pk", sampler_args = { classes = 4, per_class = 3 } }
"uniform" = { sampler = "uniform", sampler_args = { size = 12 } }
[tuning]
candidates = 3
short_steps = 2
finalists = 2
rounds = 2
extra = 2
edge = 0.05
reach = 0.25
[[searches]]
fields.seed = 1
fields.data_args = { part = "develop", class_split = 1, val_classes = 20, test_classes = 0 }
[[searches]]
fields.seed = 2
fields.data_args = { part = "develop", class_split = 2, val_classes = 20, test_classes = 0 }
[repetitions]
count = 4
numbered = ["seed", "data_args.class_split"]
overlap = 0.0
fields = { data_args = { part = "evaluate", test_classes = 20, val_classes = 0 } }
"""
NAMES = ("contrastive", "proxy_nca_pp")
STUDIES = ("scratch", "transfer")
OMNIGLOT = Path(os.environ.get("DMLKIT_DATA", "")) / "omniglot" / "images_background_small1.zip"
needs_omniglot = pytest.mark.skipif(not OMNIGLOT.is_file(), reason="$DMLKIT_DATA has no Omniglot")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Runs of these tests go elsewhere; Glyphs stay where they are."""
    kept = dmlkit.cache_folder()
    kept.joinpath("glyphs").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(dmlkit, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "glyphs").symlink_to(kept / "glyphs")


@pytest.fixture
def read(tmp_path):
    """Rules of a text, some of whose lines are others."""

    def reads(**changes):
        text = TINY
        for old, new in changes.items():
            before = next(line for line in TINY.splitlines() if line.startswith(f"{old} ="))
            text = text.replace(before, new)
        (tmp_path / "tiny.toml").write_text(text)
        return reality.protocol("tiny", tmp_path)

    return reads


@pytest.fixture
def begin(tmp_path):
    """Go on with the study whose tables are in a folder."""

    def goes_on(rules, folder="kept", names=NAMES, **how):
        kept = [
            reality.Table(("arm", "search", "stage", "candidate"), tmp_path / folder / "t.csv"),
            reality.Table(("arm", "repetition"), tmp_path / folder / "e.csv"),
        ]
        arms = reality.chosen_arms(names)
        with ThreadPoolExecutor(1) as executor:
            how = {"executor": executor, "device": "cpu", "progress": False} | how
            done = reality.follow(rules, arms, *kept, **how)
        return done, *(pd.read_csv(table.path) for table in kept if table.path.is_file())

    return goes_on


@pytest.fixture
def guessed(monkeypatch):
    """Trainings that cost nothing: what they find is a number made of their Experiment."""
    seen = []

    def guess(plan, device="auto", store=None, favors=None):
        seen.append(plan)
        settings = json.loads(plan.facts.get("settings", "{}"))
        chance = zlib.crc32(plan.hash.encode()) / 2**32
        value = settings.get(favors, chance)
        where = {"device": "cpu", "numerics": "none", "torch": "0", "code": "a"}
        scores = dict.fromkeys(reality.METRICS, value)
        return {**where, "seconds": 1.0, "diverged": False, **scores}

    monkeypatch.setattr(trainings, "trained", guess)
    return seen


# The rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("candidates", "candidate = 3", "has no key candidate: it has candidates, short_steps"),
        ("extra", "", "lacks extra"),
        ("count", "count = 4\nrepeats = 1", "has no key repeats: it has count, numbered"),
        ("steps", "step = 3", "Experiment has no field step; it has loss"),
        ("lr", 'lr = ["log", 1.0, 0.1]', "lr must be .* lowest, highest"),
        ("lr", 'rate = ["log", 0.1, 1.0]', "Experiment has no field rate"),
        ("rounds", "rounds = -1", "rounds must be a number from 0"),
        ("finalists", "finalists = 4", "no more finalists than candidates"),
        ("overlap", "overlap = 2.0", "overlap must be a number from 0"),
        ("dim", "dim = 0", "dim must be a whole number from 1"),
        ("numbered", 'numbered = ["seeds"]', "Experiment has no field seeds"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_its_name(read, old, new, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read(**{old: new})


def test_an_unknown_table_and_an_unknown_study_are_refused(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY + "[other]\n")
    with pytest.raises(ValueError, match="the file has no key other: it has base, ranges"):
        reality.protocol("tiny", tmp_path)
    with pytest.raises(ValueError, match="there are tiny"):
        reality.protocol("nope", tmp_path)


def plans_of(rules, begin, seen):
    seen.clear()
    done, *_ = begin(rules, folder=f"{zlib.crc32(repr(rules).encode())}")
    assert done
    return {plan.hash + json.dumps(plan.facts["arm"]) for plan in seen}


@pytest.mark.parametrize(
    "old, new",
    [
        ("steps", "steps = 4"),
        ("lr", 'lr = ["log", 1e-3, 1e-2]'),
        ("loss_lr_factor", 'loss_lr_factor = ["log", 1.0, 10.0]'),
        ('"uniform"', '"uniform" = { sampler = "uniform", sampler_args = { size = 13 } }'),
        ("candidates", "candidates = 4"),
        ("short_steps", "short_steps = 1"),
        ("finalists", "finalists = 1"),
        ("rounds", "rounds = 1"),
        ("extra", "extra = 1"),
        ("edge", "edge = 0.5"),
        ("reach", "reach = 0.1"),
        ("count", "count = 3"),
        ("numbered", 'numbered = ["seed"]'),
    ],
)
def test_every_rule_changes_what_is_trained(read, begin, guessed, old, new):
    assert plans_of(read(), begin, guessed) != plans_of(read(**{old: new}), begin, guessed)


def test_a_recipes_repetitions_may_have_fields_of_their_own(read):
    rules = read()
    search = dataclasses.replace(rules.searches[0], repetitions={"data_args": {"level": "hard"}})
    changed = dataclasses.replace(rules, searches=[search, rules.searches[1]])
    levels = [reality.repetition(changed, k)["data_args"].get("level") for k in range(4)]
    assert levels == ["hard", None, "hard", None]


# The published studies ------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_makes_valid_experiments(name):
    rules = reality.protocol(name)
    for arm in reality.arms().values():
        for search in range(len(rules.searches)):
            tried = reality.candidates(rules, arm, search)
            assert len(tried) == rules.tuning.candidates
            for settings in (tried[0], tried[-1]):
                where = reality.searching(rules, search)
                made = reality.experiment(rules, arm, settings, 100, where)
                assert made.split == "val"
                assert made.steps * arm.members == pytest.approx(
                    100 * arm.steps_factor * arm.members
                )
                objective_for(made, num_classes=100)
        again = reality.experiment(rules, arm, tried[0], 100, reality.repetition(rules, 1))
        assert (again.split, again.seed) == ("test", 1)


def test_every_loss_takes_part():
    there = {arm.fields["loss"] for arm in reality.arms().values()}
    assert there == {entry.name for entry in losses.entries()}


@pytest.mark.parametrize("name", STUDIES)
def test_candidate_0_has_the_defaults_of_the_loss_and_the_study(name):
    rules = reality.protocol(name)
    for arm in reality.arms().values():
        settings = reality.candidates(rules, arm, 0)[0]
        first = {key: next(iter(names)) for key, names in rules.choices.items()}
        assert {key: settings[key] for key in first} == first
        made = reality.experiment(rules, arm, settings, 100, {})
        assert made.lr == rules.base["lr"]
        assert made.loss_lr_factor == rules.base["loss_lr_factor"]
        see = made.loss == "spherical_expansion"
        loss, args = (made.loss_args["loss"] if see else made.loss), made.loss_args
        args = args.get("loss_args", {}) if see else args
        assert dict(args) == {key: losses.signature(loss)[key].default for key in args}
        tuned = losses.entry(loss).space or {}
        assert set(args) == set(tuned)


def test_an_addition_has_the_candidates_of_its_loss_and_may_be_left_out():
    rules, arms = reality.protocol("scratch"), reality.arms()
    for name in reality.SEC_ON:
        for label in ("SEC", "L2"):
            for search in (0, 1):
                plain = reality.candidates(rules, arms[name], search)
                added = reality.candidates(rules, arms[f"{name} + {label}"], search)
                weights = [settings.pop("constraint.weight") for settings in added]
                assert added == plain
                assert 0.0 in weights
                assert max(weights) > 0


def test_see_is_there_as_the_paper_and_as_the_code_have_it_both_with_the_curriculum():
    rules, arms = reality.protocol("scratch"), reality.arms()
    for name in reality.SEE_ON:
        paper, code = (
            reality.experiment(rules, arm, reality.candidates(rules, arm, 0)[0], 100, {}).loss_args
            for arm in (arms[f"{name} + SEE, paper"], arms[f"{name} + SEE, code"])
        )
        assert not paper["detach"]
        assert code["detach"]
        assert paper["weight"] == pytest.approx(code["points"] * code["weight"])  # sum, mean
        for args in (paper, code):
            assert (args["start_rate"], args["end_rate"], args["steps"]) == (0.0, 0.4, 100)


def test_dreml_has_the_steps_and_dimensions_of_one_network():
    rules, arm = reality.protocol("scratch"), reality.arms()["dreml"]
    plan = reality.experiment(rules, arm, reality.candidates(rules, arm, 0)[0], 1000, {})
    assert plan.steps * arm.members == 1000
    assert plan.dim * arm.members == rules.base["dim"]


def classes_of(rules, fields):
    """The classes of each split that a training reads, with few pictures where they are made."""
    made = Experiment(**reality.merged(rules.base, fields))
    args = dict(made.data_args)
    if made.data == "glyphs":
        args |= dict.fromkeys(("per_class", "val_per_class", "test_per_class"), 1)
    return {
        split: set(data.load(made.data, split, **args).class_names)
        for split in ("train", made.split)
    }


@pytest.mark.parametrize("name", ["scratch", pytest.param("transfer", marks=needs_omniglot)])
def test_no_class_that_is_tested_was_seen_by_the_search_whose_recipes_are_tested(name):
    rules = reality.protocol(name)
    searches = len(rules.searches)
    seen = [
        set.union(*classes_of(rules, reality.searching(rules, number)).values())
        for number in range(searches)
    ]
    for k in range(rules.repetitions.count):
        used = classes_of(rules, reality.repetition(rules, k))
        assert used["test"]
        assert not used["test"] & used["train"]
        assert not used["test"] & seen[k % searches]


def few_pictures(rules):
    def fewer(fields):
        names = ("per_class", "val_per_class", "test_per_class")
        return reality.merged(fields, {"data_args": dict.fromkeys(names, 1)})

    if rules.base["data"] != "glyphs":
        return rules
    repetitions = dataclasses.replace(rules.repetitions, fields=fewer(rules.repetitions.fields))
    return dataclasses.replace(rules, base=fewer(rules.base), repetitions=repetitions)


@pytest.mark.parametrize("name", ["scratch", pytest.param("transfer", marks=needs_omniglot)])
def test_the_overlap_of_test_classes_is_the_one_stated(name):
    rules = few_pictures(reality.protocol(name))
    assert reality.overlap(rules) == pytest.approx(rules.repetitions.overlap, abs=5e-3)


# Following them -------------------------------------------------------------------------------


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
    best = reality.recipes(trials)
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
        reality.chosen_arms(["nope"])


def test_a_training_that_fails_lets_the_others_end(read, begin, guessed, monkeypatch, tmp_path):
    guess = trainings.trained

    def fails(plan, device="auto"):
        if plan.facts["arm"] == "contrastive" and plan.facts["candidate"] == 1:
            raise OSError("the disk is full")
        return guess(plan, device)

    monkeypatch.setattr(trainings, "trained", fails)
    with pytest.raises(RuntimeError, match="2 of 12 trainings failed; the first, "):
        begin(read())
    assert len(pd.read_csv(tmp_path / "kept" / "t.csv")) == 10


def test_a_training_that_diverges_found_nothing(read, monkeypatch):
    def diverges(experiment, **args):
        raise training.DivergedError("the loss became nan")

    monkeypatch.setattr(training, "run", diverges)
    rules, arm = read(), reality.arms()["contrastive"]
    made = reality.experiment(rules, arm, reality.candidates(rules, arm, 0)[0], 3, {})
    row = reality.trained(reality.Plan({"arm": "contrastive"}, made), "cpu")
    assert row["diverged"]
    assert {row[metric] for metric in reality.METRICS} == {0.0}


def test_what_remains_is_told(read, begin, guessed, tmp_path):
    rules, arms = read(), reality.chosen_arms(NAMES)
    tables = [
        reality.Table(("arm", "search", "stage", "candidate"), tmp_path / "kept" / "t.csv"),
        reality.Table(("arm", "repetition"), tmp_path / "kept" / "e.csv"),
    ]
    before = reality.remaining(rules, arms, *tables).set_index("stage")
    assert before["rows"].to_dict() == {
        "short": 12, "full": 8, "extra 1": 8, "extra 2": 8, "repetitions": 8,
    }  # fmt: skip
    assert before["done"].sum() == 0
    assert before["hours"].isna().all()
    begin(rules, only="search")
    tables = [reality.Table(table.key, table.path) for table in tables]
    after = reality.remaining(rules, arms, *tables).set_index("stage")
    assert after["done"].drop("repetitions").equals(after["rows"].drop("repetitions"))
    assert after["hours"].drop("repetitions").eq(0).all()
    # a second each, of three steps but for the short ones of two
    assert after["hours"]["repetitions"] == pytest.approx(8 / 3600)


# Widening -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds, value, expected",
    [
        (("log", 1.0, 100.0), 1.2, ("log", 1 / 100**0.25, 100.0)),
        (("log", 1.0, 100.0), 90.0, ("log", 1.0, 100**1.25)),
        (("log", 1.0, 100.0), 1.3, ("log", 1.0, 100.0)),  # at 0.057 of the range
        (("log", 1.0, 100.0), 0.0, ("log", 1.0, 100.0)),  # left out
        (("linear", 2.0, 6.0), 5.9, ("linear", 2.0, 7.0)),
        (("linear", 2.0, 6.0), 2.1, ("linear", 1.0, 6.0)),
        (("linear", 0.1, 4.1), 0.1, ("linear", 0.0, 4.1)),
    ],
)
def test_a_range_is_widened_where_the_best_lies_at_its_end(bounds, value, expected):
    found = reality.widened(bounds, value, edge=0.05, reach=0.25)
    assert found[0] == expected[0]
    assert found[1:] == pytest.approx(expected[1:])


def test_extra_candidates_lie_around_the_best_and_beyond_an_end_only_where_it_lies_there(read):
    rules, arm = read(), reality.arms()["contrastive"]
    ranges = reality.space(rules, arm)
    assert ranges == {"lr": ("log", 1e-3, 1e-1), "loss_args.negative_margin": ("linear", 0.2, 1.2)}
    best = {"batch": "uniform", "lr": 0.099, "loss_args.negative_margin": 0.7}
    rules = dataclasses.replace(rules, tuning=dataclasses.replace(rules.tuning, extra=8))
    found, wide = reality.near(rules, arm, 0, best, ranges, 0)
    assert len(found) == 8
    assert wide["lr"] == pytest.approx(("log", 1e-3, 10**-0.5))
    assert wide["loss_args.negative_margin"] == ranges["loss_args.negative_margin"]
    rates = [settings["lr"] for settings in found]
    margins = [settings["loss_args.negative_margin"] for settings in found]
    assert 0.99 * 0.099 / 10**0.5 <= min(rates) < 0.1 < max(rates) <= 1.01 * 10**-0.5
    assert 0.45 <= min(margins) < max(margins) <= 0.95
    assert {settings["batch"] for settings in found} == {"uniform"}
    other, _ = reality.near(rules, arm, 0, best, ranges, 1)
    assert found != other
    assert reality.near(rules, arm, 0, best, ranges, 0)[0] == found


def test_an_end_beyond_which_a_loss_refuses_every_value_stays(read):
    rules, arm = read(), reality.arms()["angular"]
    ranges = {**reality.space(rules, arm), "loss_args.degrees": ("linear", 30.0, 69.0)}
    best = {"batch": "uniform", "lr": 0.01, "loss_args.degrees": 68.0}
    with pytest.raises(ValueError, match="degrees"):
        losses.build("angular", degrees=78.75)
    found, wide = reality.near(rules, arm, 0, best, ranges, 0)
    assert wide == ranges
    assert max(settings["loss_args.degrees"] for settings in found) <= 69.0
    ranges = {**ranges, "loss_args.degrees": ("linear", 80.0, 90.0)}
    with pytest.raises(ValueError, match="angular: 0 of 2 candidates near"):
        reality.near(rules, arm, 0, {**best, "loss_args.degrees": 85.0}, ranges, 0)


def test_a_widened_range_is_told_in_the_trials_and_so_is_an_end_that_is_left(
    read, begin, guessed, monkeypatch
):
    guess = trainings.trained
    monkeypatch.setattr(trainings, "trained", lambda plan, device: guess(plan, device, favors="lr"))
    rules = read(candidates="candidates = 12", extra="extra = 8")
    _, trials, _ = begin(rules)
    told = [json.loads(text).get("lr") for text in trials["widened"]]
    ends = reality.ends(rules, reality.chosen_arms(NAMES), trials)
    widened = [bounds for bounds in told if bounds]
    assert widened
    assert all(bounds[2] > 0.1 for bounds in widened)
    assert all(" is at an end of " in line for line in ends)
    best = trials[trials["stage"] != "short"].groupby(["arm", "search"])["recall_at_1"].max()
    assert best.max() > 0.1  # beyond the range that the rules began with


# Agreement and checks -------------------------------------------------------------------------


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
    assert reality.agreement(trials_of(ordered, ordered))["tau"] == pytest.approx(1)
    found = reality.agreement(trials_of(ordered, swapped))
    assert found["tau"] == pytest.approx(1 - 2 / 66)  # one of 66 pairs
    assert found["low"] < found["tau"] <= found["high"] <= 1 + 1e-9
    assert reality.agreement(trials_of(ordered, ordered[::-1]))["high"] == pytest.approx(-1)
    assert np.isnan(reality.agreement(trials_of(ordered[:2], ordered[:2]))["tau"])


@pytest.fixture
def evidence(read):
    rules, arm = read(), reality.arms()["contrastive"]
    recipes = {(arm.name, s): reality.candidates(rules, arm, s)[0] for s in (0, 1)}
    table = reality.Table(("arm", "repetition"))
    with ThreadPoolExecutor(1) as executor:
        reality.compare(rules, [arm], recipes, table, reality.How(executor, "cpu"))
    return table


def test_rows_that_are_trained_anew_are_as_they_were(read, evidence):
    found = reality.trained_anew(read(), evidence, 3, "a commit", "cpu")
    assert len(found) == 3 * len(reality.METRICS)
    assert found["agrees"].all()
    assert (found["bound"] < 1e-5).all()
    drawn = {
        key: tuple(
            reality.trained_anew(read(), evidence, 1, key, "cpu")[["arm", "repetition"]].iloc[0]
        )
        for key in ("1", "2", "3", "4", "5", "6")
    }
    assert len(Counter(drawn.values())) > 1
    again = reality.trained_anew(read(), evidence, 1, "6", "cpu")
    assert tuple(again[["arm", "repetition"]].iloc[0]) == drawn["6"]


def test_a_score_that_is_not_what_training_gives_is_found(read, evidence):
    for row in evidence.rows.values():
        row["recall_at_1"] += 1e-4
    found = reality.trained_anew(read(), evidence, 1, "a commit", "cpu")
    assert found.set_index("score")["agrees"].to_dict() == {
        metric: metric != "recall_at_1" for metric in reality.METRICS
    }


def test_elsewhere_a_score_is_held_against_the_spread_over_repetitions(read, evidence):
    for row in evidence.rows.values():
        row["numerics"] = "another machine's"
    found = reality.trained_anew(read(), evidence, 12, "a commit", "cpu")
    assert found["agrees"].all()
    assert (found["bound"] > 1e-5).any()
    for row in evidence.rows.values():
        row["nmi"] += 10.0
    found = reality.trained_anew(read(), evidence, 12, "a commit", "cpu")
    assert found["agrees"].equals(found["score"] != "nmi")


def test_evidence_of_other_rules_is_refused(read, evidence, tmp_path):
    with pytest.raises(ValueError, match="the rules ask for another training than the evidence's"):
        reality.trained_anew(read(steps="steps = 4"), evidence, 1, "a", "cpu")
    with pytest.raises(ValueError, match="the study 'tiny' has no evidence yet"):
        reality.trained_anew(read(), reality.Table(("arm", "repetition")), 1, "a", "cpu")


def test_an_ensemble_and_what_is_not_trained_are_rows_as_well(read):
    rules, arm = read(), reality.arms()["dreml"]
    recipe = {**reality.candidates(rules, arm, 0)[0]}
    made = reality.experiment(rules, arm, recipe, 8, reality.repetition(rules, 0))
    plan = reality.Plan({"arm": "dreml"}, made, arm.members)
    row = reality.trained(plan, "cpu")
    assert plan.steps == 8
    assert plan.hash.endswith("x4")
    assert row["recall_at_1"] > 0
    pixels = reality.Plan({"arm": "raw pixels"}, made, baseline="raw pixels")
    expected = training.baselines(made, "cpu")["raw pixels"]["recall_at_1"]
    assert reality.trained(pixels, "cpu")["recall_at_1"] == pytest.approx(expected, abs=1e-6)
