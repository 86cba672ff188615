"""The written rules of a study: read in full, refused by name, and all of them followed."""

import dataclasses
import json

import pytest

import studies
from studies.rules import repetition
from tests.studies.tiny import TINY


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "candidates",
            "candidate = 3",
            r"\[tuning\] takes candidates, .*; not candidate",
        ),
        ("extra", "", "missing 1 required positional argument: 'extra'"),
        ("count", "count = 4\nrepeats = 1", r"\[repetitions\] takes .*; not repeats"),
        ("steps", "step = 4", "unexpected keyword argument 'step'"),
        ("dim", "dim = 0", "dim must be a whole number from 1"),
        ("numbered", 'numbered = ["seeds"]', "unexpected keyword argument 'seeds'"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_its_name(read, old, new, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read(**{old: new})


def test_an_unknown_table_and_an_unknown_study_are_refused(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY + "[other]\n")
    with pytest.raises(TypeError, match=r"\[protocol\] takes name, base, ranges.*; not other"):
        studies.protocol("tiny", tmp_path)
    with pytest.raises(ValueError, match="there are tiny"):
        studies.protocol("nope", tmp_path)


def test_every_rule_changes_what_is_trained(read, begin, guessed):
    changes = {
        "steps": "steps = 5",
        "lr": 'lr = ["log", 1e-3, 1e-2]',
        "loss_lr_factor": 'loss_lr_factor = ["log", 1.0, 10.0]',
        '"uniform"': '"uniform" = { sampler = "uniform", sampler_args = { size = 13 } }',
        "candidates": "candidates = 4",
        "short_steps": "short_steps = 1",
        "finalists": "finalists = 1",
        "rounds": "rounds = 1",
        "extra": "extra = 1",
        "edge": "edge = 0.5",
        "reach": "reach = 0.1",
        "count": "count = 3",
        "numbered": 'numbered = ["seed"]',
    }

    def plans(folder, **change):
        guessed.clear()
        begin(read(**change), folder)
        return {plan.hash + json.dumps(plan.facts["arm"]) for plan in guessed}

    plain = plans("as it is")
    assert [old for old, new in changes.items() if plans(old, **{old: new}) == plain] == []


def test_a_recipes_repetitions_may_have_fields_of_their_own(read):
    rules = read()
    search = dataclasses.replace(rules.searches[0], repetitions={"data_args": {"level": "hard"}})
    changed = dataclasses.replace(rules, searches=[search, rules.searches[1]])
    levels = [repetition(changed, k)["data_args"].get("level") for k in range(4)]
    assert levels == ["hard", None, "hard", None]
