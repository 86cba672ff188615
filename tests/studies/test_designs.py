"""A study like another: arms of its own, recipes of the other's, and contrasts of scores."""

import importlib
import json
from concurrent.futures import Future

import pandas as pd
import pytest

import studies
from tests.studies.tiny import TINY

TRIALS, ROWS = ("arm", "search", "stage", "candidate"), ("arm", "repetition")
OTHER_BATCH = '{ other = { sampler = "pk", sampler_args = { classes = 6, per_class = 2 } } }'


@pytest.fixture
def asks(tmp_path):
    """Rules like those of TINY, with arms (and contrasts) of a text."""

    def reads(text, like="tiny"):
        (tmp_path / "tiny.toml").write_text(TINY)
        (tmp_path / "own.toml").write_text(f'like = "{like}"\n{text}')
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
    assert [arm.name for arm in studies.chosen_arms(rules=rules)] == ["one", "a, two"]
    with pytest.raises(ValueError, match="no arm contrastive; there are one, a, two"):
        studies.chosen_arms(["contrastive"], rules)
    assert list(studies.arms(other)) == list(studies.arms())


def test_a_study_like_another_may_set_fields_of_its_base(asks, tmp_path):
    rules, other = asks("[base.model_args]\nwidths = [4, 8]"), studies.protocol("tiny", tmp_path)
    assert rules.base == studies.merged(other.base, {"model_args": {"widths": [4, 8]}})
    assert list(studies.arms(rules)) == list(studies.arms(other))
    arm = studies.arms(rules)["contrastive"]
    plan = studies.experiment(rules, arm, studies.candidates(rules, arm, 0)[0], 2, {})
    assert plan.model_args["widths"] == (4, 8)


def test_a_base_with_a_field_that_no_training_has_is_refused(asks):
    with pytest.raises(TypeError, match=r"own\.toml: Experiment has no field steeps"):
        asks("[base]\nsteeps = 2")


@pytest.mark.parametrize(
    "text, message",
    [
        ("[tuning]\nsteps = 2", "beside like, the file has no key tuning"),
        ("", "lacks arms or a base of its own"),
        ("[arms]\none = 1", "arms.one must be a table, but is 1"),
    ],
)
def test_a_file_that_is_no_study_like_another_is_refused(asks, text, message):
    with pytest.raises(ValueError, match=message):
        asks(text)


def test_a_study_is_like_one_that_is_there_and_stands_alone(asks, tmp_path):
    text = '[arms.one]\nof = "contrastive"\n'
    with pytest.raises(ValueError, match="no study 'nothing'"):
        asks(text, like="nothing")
    with pytest.raises(ValueError, match="cannot be like itself"):
        asks(text, like="own")
    asks(text)
    (tmp_path / "third.toml").write_text(f'like = "own"\n{text}')
    with pytest.raises(ValueError, match="own is itself like tiny"):
        studies.protocol("third", tmp_path)


@pytest.mark.parametrize(
    "text, message",
    [
        ('of = "contrastive"\nfield = 1', "'new' has no key field: it has of, fields"),
        ('of = "nothing"', "'new' is of no arm of the study: 'nothing'"),
        ("steps_factor = 2.0", "'new' is of no arm of the study: None"),
        ('of = "contrastive"\nfields.steeps = 1', "Experiment has no field steeps"),
        ('of = "contrastive"\nranges.lr = ["log", 1.0, 0.1]', "lr must be"),
        (
            'of = "contrastive"\nranges."loss_args.nope" = ["log", 0.1, 1.0]',
            "its loss has no setting 'nope'",
        ),
        ('of = "contrastive"\nmembers = 0', "members must be a whole number from 1"),
        ('of = "contrastive"\nsteps_factor = 0.0', "steps_factor must be above 0"),
        ('of = "contrastive"\nchoices.batch = {}', "the choice 'batch' is empty"),
        (
            'of = "contrastive"\nfields.sampler_args.classes = 3',
            "fields set sampler_args.classes, which the choice 'batch', '4 x 3', sets",
        ),
        ('of = "contrastive"\nrecipe_of = "new"', "recipe_of 'new', but no such arm is tuned"),
        ('of = "contrastive"\nfactors.lr = 2.0', "factors of no recipe: say recipe_of"),
        (
            'of = "contrastive"\nrecipe_of = "defaults"\nfactors.dim = 2.0',
            "factors of dim, which it does not take of a recipe",
        ),
    ],
)
def test_what_is_no_arm_is_refused_by_its_name(arm, text, message):
    with pytest.raises((ValueError, TypeError), match=message):
        arm(text)


# Arms -----------------------------------------------------------------------------------------


def test_a_setting_that_fields_fix_is_not_tuned_and_stays(arm):
    new, rules = arm('of = "contrastive"\nfields = { lr = 0.02, loss_args.negative_margin = 0.3 }')
    assert not studies.space(rules, new)
    for settings in studies.candidates(rules, new, 0):
        assert set(settings) == {"batch"}
        made = studies.experiment(rules, new, settings, 3, {})
        assert (made.lr, made.loss_args["negative_margin"]) == (0.02, 0.3)
    plain = studies.arms()["contrastive"]
    assert set(studies.space(rules, plain)) == {"lr", "loss_args.negative_margin"}


def test_ranges_and_choices_replace_those_of_the_same_name(arm):
    new, rules = arm(
        'of = "contrastive"\nfields.loss_args.negative_margin = 0.9\n'
        'ranges."loss_args.negative_margin" = ["linear", 0.8, 1.0]\n'
        f"choices.batch = {OTHER_BATCH}"
    )
    assert studies.space(rules, new) == {
        "lr": ("log", 1e-3, 1e-1), "loss_args.negative_margin": ("linear", 0.8, 1.0),
    }  # fmt: skip
    tried = studies.candidates(rules, new, 0)
    assert {settings["batch"] for settings in tried} == {"other"}
    assert tried[0]["loss_args.negative_margin"] == 0.9
    assert all(0.8 <= settings["loss_args.negative_margin"] <= 1.0 for settings in tried)
    made = studies.experiment(rules, new, tried[1], 3, {})
    assert made.sampler_args == {"classes": 6, "per_class": 2}
    plain = studies.candidates(rules, studies.arms()["contrastive"], 0)
    assert [settings["lr"] for settings in tried] == [settings["lr"] for settings in plain]


def test_steps_and_members_are_the_arms_own(arm):
    new, rules = arm('of = "contrastive"\nsteps_factor = 2.5\nmembers = 3')
    made = studies.experiment(rules, new, studies.candidates(rules, new, 0)[0], 4, {})
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
            studies.Table(TRIALS, folder / f"{name} trials.csv"),
            studies.Table(ROWS, folder / f"{name}.csv"),
        )

    def goes_on(rules, names=(), **how):
        chosen = studies.chosen_arms(names, rules)
        return studies.follow(
            rules, chosen, *tables(rules.name), device="cpu", progress=False,
            executor=_Here(), **how,
        )  # fmt: skip

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
    assert goes_on(rules)
    trials, evidence = (table.frame() for table in tables("own"))
    assert set(trials["arm"]) == {"tuned"}
    theirs = studies.recipes(tables("tiny")[0].frame())
    ours = studies.recipes(trials)
    found = {(row.arm, row.repetition): json.loads(row.recipe) for row in evidence.itertuples()}
    arms = studies.arms(rules)
    for k in range(4):
        recipe = theirs["contrastive", k % 2]
        assert found["tuned", k] == ours["tuned", k % 2]
        assert found["plain", k] == studies.candidates(rules, arms["plain"], k % 2)[0]
        assert found["quick", k] == recipe | {"lr": 2.0 * recipe["lr"]}
        assert found["fixed", k] == {"batch": "other", "lr": recipe["lr"]}
        taken = {key: ours["tuned", k % 2][key] for key in ("batch", "lr")}
        assert taken.items() <= found["as_tuned", k].items()
        assert found["as_tuned", k]["loss_lr_factor"] == 10.0  # it is not in that recipe
    assert theirs["contrastive", 0] != theirs["contrastive", 1]


def test_what_remains_of_such_a_study_counts_no_search_of_what_is_not_searched(follows):
    rules, other, tables, goes_on = follows
    chosen = studies.chosen_arms(rules=rules)
    counts = studies.remaining(rules, chosen, *tables("own")).set_index("stage")
    assert counts["rows"].to_dict() == {
        "short": 6, "full": 4, "extra 1": 4, "extra 2": 4, "repetitions": 20,
    }  # fmt: skip
    assert counts.loc["full", "steps"] == 4 * 3
    assert counts.loc["repetitions", "steps"] == 20 * 4
    untuned = studies.chosen_arms(["plain", "quick"], rules)
    counts = studies.remaining(rules, untuned, *tables("own"))
    assert dict(zip(counts["stage"], counts["rows"], strict=True)) == {"repetitions": 8}
    goes_on(other, ["contrastive"], only="search")
    goes_on(rules)
    counts = studies.remaining(rules, chosen, *tables("own"))
    assert counts["done"].equals(counts["rows"])


def test_a_recipe_that_is_not_there_names_the_study_to_run_first(follows, guessed):
    rules, other, tables, goes_on = follows
    message = (
        "no recipe of every search for contrastive: first dmlkit study tiny --only search "
        "--arms contrastive$"
    )
    with pytest.raises(ValueError, match=message):
        goes_on(rules)
    assert not guessed, "nothing was trained before it was told"
    assert goes_on(rules, only="search")
    assert goes_on(rules, ["plain", "tuned", "as_tuned"])
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


# Contrasts ------------------------------------------------------------------------------------

CONTRASTS = """
[arms.one]
of = "contrastive"
[arms.two]
of = "contrastive"
[contrasts.C1]
effect = { one = 1.0, two = -0.5, "raw pixels" = -0.5 }
[contrasts.C2]
effect = { one = 1, contrastive = -1 }
metric = "spread"
"""


def rows(**scores):
    return pd.DataFrame([
        {"arm": arm, "repetition": k, "recall_at_1": value, "spread": 2 * value}
        for arm, values in scores.items()
        for k, value in enumerate(values)
    ])  # fmt: skip


def test_a_contrast_is_the_weighted_sum_in_each_repetition_that_has_all_arms(asks):
    rules = asks(CONTRASTS)
    ours = rows(one=[0.5, 0.7, 0.9], two=[0.2, 0.4], **{"raw pixels": [0.1, 0.3, 0.2]})
    found = studies.contrast(rules, "C1", ours)
    assert found.to_dict() == pytest.approx({0: 0.5 - 0.1 - 0.05, 1: 0.7 - 0.2 - 0.15})


def test_a_contrast_may_take_arms_of_two_tables_and_another_score(asks):
    rules = asks(CONTRASTS)
    ours = rows(one=[0.5, 0.7], **{"raw pixels": [0.1, 0.3]})
    theirs = rows(contrastive=[0.4, 0.8, 0.3], one=[0.0, 0.0, 0.0], **{"raw pixels": [0.1, 0.3]})
    found = studies.contrast(rules, "C2", ours, theirs.iloc[:3], pd.DataFrame())
    assert found.to_dict() == pytest.approx({0: 0.2, 1: -0.2})
    both = studies.contrast(rules, "C2", ours, theirs)
    assert both.to_dict() == pytest.approx({0: 0.2, 1: -0.2, 2: -0.6})


def test_a_term_of_a_contrast_may_have_a_score_of_its_own(asks):
    text = '[arms.one]\nof = "contrastive"\n[contrasts.C.effect]\none = 1\n"one @ spread" = -2'
    ours = rows(one=[0.5, 0.7]).assign(spread=[0.1, 0.2])
    assert studies.contrast(asks(text), "C", ours).to_dict() == pytest.approx({0: 0.3, 1: 0.3})


def test_a_contrast_that_cannot_be_told_is_refused(asks):
    rules = asks(CONTRASTS)
    with pytest.raises(ValueError, match="no contrast 'C3'; there are C1, C2"):
        studies.contrast(rules, "C3", rows(one=[0.5]))
    with pytest.raises(ValueError, match="no evidence yet of two, raw pixels"):
        studies.contrast(rules, "C1", rows(one=[0.5]))
    for nothing in ((), (pd.DataFrame(),)):
        with pytest.raises(ValueError, match="no evidence yet of one, two, raw pixels"):
            studies.contrast(rules, "C1", *nothing)
    with pytest.raises(ValueError, match="the evidence has no score 'spread'"):
        studies.contrast(rules, "C2", rows(one=[1], contrastive=[1]).drop(columns="spread"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("effect = { one = 1, three = -1 }", "the contrast 'C' is of no arm: three"),
        ("effect = {}", "the contrast 'C' lacks effect"),
        ("effect = { one = 1 }\nmetrics = 'nmi'", "the contrast 'C' has no key metrics"),
    ],
)
def test_what_is_no_contrast_is_refused(asks, text, message):
    rules = asks(f'[arms.one]\nof = "contrastive"\n[contrasts.C]\n{text}')
    with pytest.raises(ValueError, match=message):
        studies.arms(rules)
