"""A study like another: arms of its own, and recipes of the other's."""

import importlib
import json
from concurrent.futures import Future

import pytest

import studies
from dmlkit.recipes import merged
from studies.follow import chosen_arms, follow, remaining
from studies.rules import experiment
from studies.search import candidates, space
from studies.trainings import ROW_KEY, TRIAL_KEY, Table
from tests.studies.tiny import TINY

OTHER_BATCH = '{ other = { sampler = "pk", sampler_args = { classes = 6, per_class = 2 } } }'


@pytest.fixture
def asks(tmp_path):
    """Rules like those of TINY, with arms (and contrasts) of a text."""

    def reads(text, like="tiny"):
        (tmp_path / "tiny.toml").write_text(TINY)
        (tmp_path / "own.toml").write_text(f'like = "{like}"\n{text}')
        studies.protocol.cache_clear()
        return studies.protocol("own", tmp_path)

    return reads


@pytest.fixture
def arm(asks):
    """The one arm of such rules, and the rules."""

    def designs(text):
        rules = asks(f"[arms.new]\n{text}")
        return studies.arms(rules)["new"], rules

    return designs


# Reading --------------------------------------------------------------------------------------


def test_a_study_like_another_has_its_rules_and_arms_of_its_own(asks, tmp_path):
    rules = asks('[arms.one]\nof = "contrastive"\n[arms."a, two"]\nof = "proxy_nca"\n')
    other = studies.protocol("tiny", tmp_path)
    assert (rules.name, rules.like, other.like) == ("own", "tiny", None)
    for part in ("base", "ranges", "choices", "tuning", "searches", "repetitions"):
        assert getattr(rules, part) == getattr(other, part)
    assert list(studies.arms(rules)) == ["one", "a, two"]
    assert [arm.name for arm in chosen_arms(rules=rules)] == ["one", "a, two"]
    with pytest.raises(ValueError, match="no arm contrastive; there are one, a, two"):
        chosen_arms(["contrastive"], rules)
    assert list(studies.arms(other)) == list(studies.arms())


def test_a_study_like_another_may_set_fields_of_its_base(asks, tmp_path):
    rules, other = asks("[base.model_args]\nwidths = [4, 8]"), studies.protocol("tiny", tmp_path)
    assert rules.base == merged(other.base, {"model_args": {"widths": [4, 8]}})
    assert list(studies.arms(rules)) == list(studies.arms(other))
    arm = studies.arms(rules)["contrastive"]
    plan = experiment(rules, arm, candidates(rules, arm, 0)[0], 2, {})
    assert plan.model_args["widths"] == (4, 8)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[base]\nsteeps = 2", "unexpected keyword argument 'steeps'"),
        ("[tuning]\nsteps = 2", "like another takes like, base, arms, contrasts; not tuning"),
        ("[contrasts.C]\nmetrics = 'nmi'", "metric, mean, condition, measure, paper; not metrics"),
    ],
)
def test_a_file_that_is_no_study_like_another_is_refused(asks, text, message):
    with pytest.raises(TypeError, match=message):
        asks(text)


def test_a_key_that_no_arm_has_is_refused(arm):
    with pytest.raises(TypeError, match=r"the arm 'new' takes of, fields, .*; not field"):
        arm('of = "contrastive"\nfield = 1')


# Arms -----------------------------------------------------------------------------------------


def test_a_setting_that_fields_fix_is_not_tuned_and_stays(arm):
    new, rules = arm('of = "contrastive"\nfields = { lr = 0.02, loss_args.negative_margin = 0.3 }')
    assert not space(rules, new)
    for settings in candidates(rules, new, 0):
        assert set(settings) == {"batch"}
        made = experiment(rules, new, settings, 3, {})
        assert (made.lr, made.loss_args["negative_margin"]) == (0.02, 0.3)
    plain = studies.arms()["contrastive"]
    assert set(space(rules, plain)) == {"lr", "loss_args.negative_margin"}


def test_ranges_and_choices_replace_those_of_the_same_name(arm):
    new, rules = arm(
        'of = "contrastive"\nfields.loss_args.negative_margin = 0.9\n'
        'ranges."loss_args.negative_margin" = ["linear", 0.8, 1.0]\n'
        f"choices.batch = {OTHER_BATCH}"
    )
    assert space(rules, new) == {
        "lr": ("log", 1e-3, 1e-1), "loss_args.negative_margin": ("linear", 0.8, 1.0),
    }  # fmt: skip
    tried = candidates(rules, new, 0)
    assert {settings["batch"] for settings in tried} == {"other"}
    assert tried[0]["loss_args.negative_margin"] == 0.9
    assert all(0.8 <= settings["loss_args.negative_margin"] <= 1.0 for settings in tried)
    made = experiment(rules, new, tried[1], 3, {})
    assert made.sampler_args == {"classes": 6, "per_class": 2}
    plain = candidates(rules, studies.arms()["contrastive"], 0)
    assert [settings["lr"] for settings in tried] == [settings["lr"] for settings in plain]


def test_steps_and_members_are_the_arms_own(arm):
    new, rules = arm('of = "contrastive"\nsteps_factor = 2.5\nmembers = 3')
    made = experiment(rules, new, candidates(rules, new, 0)[0], 4, {})
    assert (made.steps, new.members) == (10, 3)


# Recipes of others ----------------------------------------------------------------------------

RECIPES = f"""
[arms.tuned]
of = "contrastive"
[arms.plain]
of = "contrastive"
recipe_of = "defaults"
[arms.quick]
of = "contrastive"
recipe_of = "contrastive"
factors = {{ lr = 2.0 }}
[arms.fixed]
of = "contrastive"
fields.loss_args.negative_margin = 0.3
choices.batch = {OTHER_BATCH}
recipe_of = "contrastive"
[arms.as_tuned]
of = "proxy_nca_pp"
recipe_of = "tuned"
"""


@pytest.fixture
def follows(asks, guessed, tmp_path, monkeypatch):
    """The rules of RECIPES, the tables of both studies, and what goes on with one of them."""
    room = importlib.import_module("studies.follow")

    def tables(name):
        folder = tmp_path / "kept"
        return (
            Table(TRIAL_KEY, folder / f"{name} trials.csv"),
            Table(ROW_KEY, folder / f"{name}.csv"),
        )

    def goes_on(rules, names=(), only=None):
        kept = tables(rules.name)
        follow(rules, chosen_arms(names, rules), *kept, only, executor=_Here(), device="cpu")

    monkeypatch.setattr(room, "tables", tables)
    rules = asks(RECIPES)
    return rules, studies.protocol("tiny", tmp_path), tables, goes_on


class _Here:
    """An Executor that does all at once."""

    def submit(self, what, *args):
        future = Future()
        future.set_result(what(*args))
        return future


def test_recipes_of_others_are_taken_changed_and_never_searched(follows):
    rules, other, tables, goes_on = follows
    goes_on(other, ["contrastive"], only="search")
    goes_on(rules)
    trials, evidence = (table.frame() for table in tables("own"))
    assert set(trials["arm"]) == {"tuned"}
    theirs = studies.recipes(tables("tiny")[0].frame())
    ours = studies.recipes(trials)
    found = {(row.arm, row.repetition): json.loads(row.recipe) for row in evidence.itertuples()}
    arms = studies.arms(rules)
    for k in range(4):
        recipe = theirs["contrastive", k % 2]
        assert found["tuned", k] == ours["tuned", k % 2]
        assert found["plain", k] == candidates(rules, arms["plain"], k % 2)[0]
        assert found["quick", k] == recipe | {"lr": 2.0 * recipe["lr"]}
        assert found["fixed", k] == {"batch": "other", "lr": recipe["lr"]}
        taken = {key: ours["tuned", k % 2][key] for key in ("batch", "lr")}
        assert taken.items() <= found["as_tuned", k].items()
        assert found["as_tuned", k]["loss_lr_factor"] == 10.0  # it is not in that recipe
    assert theirs["contrastive", 0] != theirs["contrastive", 1]


def test_what_remains_of_such_a_study_counts_no_search_of_what_is_not_searched(follows):
    rules, other, tables, goes_on = follows
    chosen = chosen_arms(rules=rules)
    told = remaining(rules, chosen, *tables("own"))
    assert told == {"search": (0, 18), "repetitions": (0, 20)}
    untuned = chosen_arms(["plain", "quick"], rules)
    told = remaining(rules, untuned, *tables("own"))
    assert told == {"search": (0, 0), "repetitions": (0, 8)}
    goes_on(other, ["contrastive"], only="search")
    goes_on(rules)
    told = remaining(rules, chosen, *tables("own"))
    assert told == {"search": (18, 18), "repetitions": (20, 20)}


def test_a_recipe_that_is_not_there_names_the_study_to_run_first(follows, guessed):
    rules, other, tables, goes_on = follows
    message = (
        "no recipe of every search for contrastive: first dmlkit study tiny --only search "
        "--arms contrastive$"
    )
    with pytest.raises(ValueError, match=message):
        goes_on(rules)
    assert not guessed, "nothing was trained before it was told"
    goes_on(rules, only="search")
    goes_on(rules, ["plain", "tuned", "as_tuned"])
    goes_on(other, ["contrastive"], only="search")
    kept = tables("tiny")[0]
    kept.rows = {place: row for place, row in kept.rows.items() if place[2] != "extra 2"}
    kept.write()
    with pytest.raises(ValueError, match=message):  # what is not the end of a search is no recipe
        goes_on(rules)


def test_an_arm_with_the_recipe_of_a_sister_waits_for_her_search(follows):
    rules, _, _, goes_on = follows
    message = "no recipe of every search for tuned: first dmlkit study own --only search --arms tu"
    with pytest.raises(ValueError, match=message):
        goes_on(rules, ["as_tuned"])
