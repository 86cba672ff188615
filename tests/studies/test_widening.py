"""Where the best of a search lies at the end of a range, the range is widened."""

import dataclasses
import json

import pytest

import studies
from dmlkit import losses
from studies import trainings
from studies.follow import chosen_arms
from studies.search import near, space, widened
from tests.studies.conftest import NAMES


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
    found = widened(bounds, value, edge=0.05, reach=0.25)
    assert found[0] == expected[0]
    assert found[1:] == pytest.approx(expected[1:])


def test_extra_candidates_lie_around_the_best_and_beyond_an_end_only_where_it_lies_there(read):
    rules, arm = read(), studies.arms()["contrastive"]
    ranges = space(rules, arm)
    assert ranges == {"lr": ("log", 1e-3, 1e-1), "loss_args.negative_margin": ("linear", 0.2, 1.2)}
    best = {"batch": "uniform", "lr": 0.099, "loss_args.negative_margin": 0.7}
    rules = dataclasses.replace(rules, tuning=dataclasses.replace(rules.tuning, extra=8))
    found, wide = near(rules, arm, 0, best, ranges, 0)
    assert len(found) == 8
    assert wide["lr"] == pytest.approx(("log", 1e-3, 10**-0.5))
    assert wide["loss_args.negative_margin"] == ranges["loss_args.negative_margin"]
    rates = [settings["lr"] for settings in found]
    margins = [settings["loss_args.negative_margin"] for settings in found]
    assert 0.99 * 0.099 / 10**0.5 <= min(rates) < 0.1 < max(rates) <= 1.01 * 10**-0.5
    assert 0.45 <= min(margins) < max(margins) <= 0.95
    assert {settings["batch"] for settings in found} == {"uniform"}
    other, _ = near(rules, arm, 0, best, ranges, 1)
    assert found != other
    assert near(rules, arm, 0, best, ranges, 0)[0] == found


def test_an_end_beyond_which_a_loss_refuses_every_value_stays(read):
    rules, arm = read(), studies.arms()["angular"]
    ranges = {**space(rules, arm), "loss_args.degrees": ("linear", 30.0, 69.0)}
    best = {"batch": "uniform", "lr": 0.01, "loss_args.degrees": 68.0}
    with pytest.raises(ValueError, match="degrees"):
        losses.build("angular", degrees=78.75)
    found, wide = near(rules, arm, 0, best, ranges, 0)
    assert wide == ranges
    assert max(settings["loss_args.degrees"] for settings in found) <= 69.0
    ranges = {**ranges, "loss_args.degrees": ("linear", 80.0, 90.0)}
    with pytest.raises(ValueError, match="angular: the loss refuses nearly all settings near"):
        near(rules, arm, 0, {**best, "loss_args.degrees": 85.0}, ranges, 0)


def test_a_widened_range_is_told_in_the_trials_and_so_is_an_end_that_is_left(
    read, begin, guessed, monkeypatch
):
    guess = trainings.trained
    monkeypatch.setattr(trainings, "trained", lambda plan, *how: guess(plan, *how, favors="lr"))
    rules = read(candidates="candidates = 12", extra="extra = 8")
    trials, _ = begin(rules)
    told = [json.loads(text).get("lr") for text in trials["widened"]]
    ends = studies.ends(rules, chosen_arms(NAMES), trials)
    widened = [bounds for bounds in told if bounds]
    assert widened
    assert all(bounds[2] > 0.1 for bounds in widened)
    assert all(" is at an end of " in line for line in ends)
    best = trials[trials["stage"] != "short"].groupby(["arm", "search"])["recall_at_1"].max()
    assert best.max() > 0.1  # beyond the range that the rules began with
