"""The studies that are there: every arm can be trained, and no tested class was seen before."""

import functools
import itertools

import numpy as np
import pytest

import dmlkit
import studies
from dmlkit import data, losses, training
from dmlkit.data import omniglot
from dmlkit.recipes import merged
from dmlkit.training import Experiment
from dmlkit.training.build import objective_for
from studies.rules import SEC_ON, experiment, repetition, searching
from studies.search import candidates

STUDIES = ("scratch", "transfer", "wide", "photos")


@pytest.fixture(autouse=True)
def _only_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Omniglot's pictures show does not matter here, and to decode them takes seconds."""
    monkeypatch.setattr(omniglot, "_ink", lambda _drawing, size: np.zeros((size, size)))


@pytest.mark.parametrize("name", STUDIES)
def test_every_arm_makes_valid_experiments(name):
    rules = studies.protocol(name)
    for arm in studies.arms().values():
        for search in range(len(rules.searches)):
            tried = candidates(rules, arm, search)
            assert len(tried) == rules.tuning.candidates + rules.tuning.further
            for settings in (tried[0], tried[-1]):
                where = searching(rules, search)
                made = experiment(rules, arm, settings, 100, where)
                assert made.split == "val"
                assert made.steps * arm.members == pytest.approx(
                    100 * arm.steps_factor * arm.members
                )
                objective_for(made, num_classes=100)
        again = experiment(rules, arm, tried[0], 100, repetition(rules, 1))
        assert (again.split, again.seed) == ("test", 1)


@pytest.mark.parametrize("name", ["scratch", "claims"])
def test_every_batch_that_is_tried_can_be_drawn(name):
    rules, drawn = studies.protocol(name), set()
    for arm in studies.arms(rules).values():
        for settings in candidates(rules, arm, 0):
            made = experiment(rules, arm, settings, 100, searching(rules, 0))
            classes = made.data_args["train_classes"]
            batch = repr((classes, made.sampler, made.sampler_args, made.seed))
            if batch not in drawn:
                drawn.add(batch)
                train = data.load("glyphs", train_classes=classes, per_class=16)
                assert len(training.build_sampler(made, train)(0)), (arm.name, settings)


def test_every_loss_takes_part():
    there = {arm.fields["loss"] for arm in studies.arms().values()}
    assert there == {entry.name for entry in losses.entries() if entry.studied}


@pytest.mark.parametrize("name", STUDIES)
def test_candidate_0_has_the_defaults_of_the_loss_and_the_study(name):
    rules = studies.protocol(name)
    for arm in studies.arms().values():
        settings = candidates(rules, arm, 0)[0]
        first = {key: next(iter(names)) for key, names in rules.choices.items()}
        assert {key: settings[key] for key in first} == first
        made = experiment(rules, arm, settings, 100, {})
        assert made.lr == rules.base["lr"]
        assert made.loss_lr_factor == rules.base["loss_lr_factor"]
        see = made.loss == "spherical_expansion"
        loss, args = (made.loss_args["loss"] if see else made.loss), made.loss_args
        args = args.get("loss_args", {}) if see else args
        assert dict(args) == {key: losses.signature(loss)[key].default for key in args}
        tuned = losses.entry(loss).space or {}
        assert set(args) == set(tuned)


def test_an_addition_has_the_candidates_of_its_loss_and_may_be_left_out():
    rules, arms = studies.protocol("scratch"), studies.arms()
    for name in SEC_ON:
        for label in ("SEC", "L2"):
            for search in (0, 1):
                plain = candidates(rules, arms[name], search)
                added = candidates(rules, arms[f"{name} + {label}"], search)
                weights = [settings.pop("constraint.weight") for settings in added]
                assert added == plain
                assert 0.0 in weights
                assert max(weights) > 0


def test_see_is_there_as_the_paper_and_as_the_code_have_it_both_with_the_curriculum():
    rules, arms = studies.protocol("scratch"), studies.arms()
    for name in studies.SEE_ON:
        paper, code = (
            experiment(rules, arm, candidates(rules, arm, 0)[0], 100, {}).loss_args
            for arm in (arms[f"{name} + SEE, paper"], arms[f"{name} + SEE, code"])
        )
        assert not paper["detach"]
        assert code["detach"]
        assert paper["weight"] == pytest.approx(code["points"] * code["weight"])  # sum, mean
        for args in (paper, code):
            assert (args["start_rate"], args["end_rate"], args["steps"]) == (0.0, 0.4, 100)


def test_dreml_has_the_steps_and_dimensions_of_one_network():
    rules, arm = studies.protocol("scratch"), studies.arms()["dreml"]
    plan = experiment(rules, arm, candidates(rules, arm, 0)[0], 1000, {})
    assert plan.steps * arm.members == 1000
    assert plan.dim * arm.members == rules.base["dim"]


@functools.cache
def classes_of(name, which, number):
    """The classes of each split that the training of a search or repetition reads, of few pictures
    where they are made."""
    rules = studies.protocol(name)
    made = Experiment(**merged(rules.base, which(rules, number)))
    args = dict(made.data_args)
    if made.data == "omniglot":
        args["root"] = dmlkit.ROOT / "data"
    if made.data == "glyphs":
        args |= dict.fromkeys(("per_class", "val_per_class", "test_per_class"), 1)
    return {
        split: set(data.load(made.data, split, **args).class_names)
        for split in ("train", made.split)
    }


@pytest.mark.parametrize("name", ["scratch", "transfer"])
def test_no_class_that_is_tested_was_seen_by_the_search_whose_recipes_are_tested(name):
    rules = studies.protocol(name)
    searches = len(rules.searches)
    seen = [set.union(*classes_of(name, searching, s).values()) for s in range(searches)]
    for k in range(rules.repetitions.count):
        used = classes_of(name, repetition, k)
        assert used["test"]
        assert not used["test"] & used["train"]
        assert not used["test"] & seen[k % searches]


@pytest.mark.parametrize("name", ["scratch", "transfer"])
def test_the_overlap_of_test_classes_is_the_one_stated(name):
    """It is the mean share of test classes that two repetitions have in common."""
    rules = studies.protocol(name)
    count = rules.repetitions.count
    tested = [classes_of(name, repetition, k)["test"] for k in range(count)]
    shares = [len(a & b) / min(len(a), len(b)) for a, b in itertools.combinations(tested, 2)]
    assert np.mean(shares) == pytest.approx(rules.repetitions.overlap, abs=5e-3)
