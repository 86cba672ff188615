"""An Experiment is checked as it is made, cannot be changed, and is named by its content."""

import json
import pickle
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from dmlkit import ROOT
from dmlkit.training import Experiment
from tests.training.tiny import TINY

PARTS = {  # of notebook 15, which made this evidence
    "equal": {},
    "uniform": {"sampler": "uniform", "sampler_args": {"size": 128}},
    "60 classes": {"data_args": {"train_classes": 60}},
    "64 x 2": {"sampler_args": {"classes": 64, "per_class": 2}},
}


def test_evidence_that_was_kept_is_found_by_its_former_hash():
    """Named when Experiment had fewer fields, of other names."""
    kept = pd.read_csv(ROOT / "data" / "evidence" / "15_comparison.csv")
    for row in kept.itertuples():
        fields = {"loss": row.loss, "seed": row.seed, "steps": row.steps}
        fields |= json.loads(row.settings) | PARTS[row.part]
        fields["data_args"] = {"class_split": row.class_split} | fields.get("data_args", {})
        assert Experiment(**fields).former_hash() == row.hash
    again = Experiment(**fields)
    for change in ({"backbone_lr_factor": 0.1}, {"frozen_steps": 1}, {"devices": 2}):
        assert replace(again, **change).former_hash() != again.former_hash()


@pytest.mark.parametrize(
    "change, error",
    [
        ({"lr": np.float32(0.1)}, TypeError),
        ({"loss_args": {"margin": float("nan")}}, TypeError),
        ({"data_args": {"seed": {1}}}, TypeError),
        ({"steps": 0}, ValueError),
        ({"devices": 0}, ValueError),
        ({"frozen_steps": -1}, ValueError),
        ({"backbone_lr_factor": -0.1}, ValueError),
        ({"dim": -1}, ValueError),
    ],
)
def test_an_experiment_is_json_literals(change, error):
    with pytest.raises(error, match=next(iter(change))):
        replace(TINY, **change)


def test_an_experiment_survives_json():
    again = Experiment(**json.loads(json.dumps(asdict(TINY))))
    assert again == TINY
    assert again.hash() == TINY.hash()


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"lr": float("inf")}, TypeError, "lr must be a number that JSON can hold: .*is inf"),
        ({"lr": "fast"}, TypeError, "lr must be a number, but is 'fast'"),
        ({"data_args": {"a": {1}}}, TypeError, "data_args must be a dict that JSON .* no set"),
        ({"steps": 2.5}, TypeError, "steps must be a whole number, but is 2.5"),
        ({"steps": True}, TypeError, "steps must be a whole number, but is True"),
        ({"lr": "0.1"}, TypeError, "lr must be a number, but is '0.1'"),
        ({"augment": 1}, TypeError, "augment must be True or False, but is 1"),
        ({"loss": None}, TypeError, "loss must be a string, but is None"),
        ({"loss_args": None}, TypeError, "loss_args must be a dict, but is None"),
        ({"constraint": 0.1}, TypeError, "constraint must be a dict or None, but is 0.1"),
        ({"monitor": "val"}, TypeError, "monitor must be a sequence of names, but is 'val'"),
        ({"metric": 1}, TypeError, "metric must be a name or a dict, but is 1"),
        ({"lr_decay": -0.5}, ValueError, "lr_decay must be a number from 0 to 1, but is -0.5"),
        ({"lr_decay": 1.5}, ValueError, "lr_decay must be a number from 0 to 1, but is 1.5"),
        ({"seed": -1}, ValueError, "seed must be a number from 0 to 4294967295, but is -1"),
        ({"seed": 2**32}, ValueError, "seed must be a number from 0 to 4294967295"),
        ({"loss_lr_factor": -1}, ValueError, "loss_lr_factor must be a number from 0 to inf"),
        ({"lr": 0}, ValueError, "lr must be above 0, but is 0"),
        ({"threads": 0}, ValueError, "threads must be a whole number from 1, but is 0"),
        ({"loss": "tripplet"}, ValueError, "unknown loss 'tripplet'; there are contrastive"),
        ({"sampler": "kp"}, ValueError, "unknown sampler 'kp'; there are pk"),
        ({"optimizer": "adma"}, ValueError, "unknown optimizer 'adma'; there are adam"),
        ({"split": "testing"}, ValueError, "unknown split 'testing'; there are train, val, test"),
        ({"monitor": ["vla"]}, ValueError, "unknown split 'vla'; there are train, val, test"),
        ({"metric": "manhattan"}, ValueError, "unknown metric 'manhattan'; there are euclidean"),
        ({"sampler": "uniform"}, TypeError, "'uniform' takes size; not classes, per_class"),
        ({"sampler_args": {"clases": 8}}, TypeError, "'pk' takes classes, per_class; not clases"),
        ({"optimizer_args": {"momentum": 0.9}}, TypeError, "'adam' takes betas, .*; not momentum"),
        ({"constraint": {"wieght": 1}}, TypeError, "constraint takes weight, .*; not wieght"),
        ({"metric": {"c": 1}}, ValueError, "unknown metric None; there are euclidean"),
    ],
)
def test_a_field_is_checked_as_the_experiment_is_made(change, error, message):
    with pytest.raises(error, match=message):
        replace(TINY, **change)


@pytest.mark.parametrize(
    "one, other",
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"loss_args": {"margin": 1}}, {"loss_args": {"margin": 1.0}}),
        ({"model_args": {"widths": [4, 8]}}, {"model_args": {"widths": (4.0, 8)}}),
    ],
)
def test_a_number_has_one_name_however_it_is_written(one, other):
    assert replace(TINY, **one).hash() == replace(TINY, **other).hash() != TINY.hash()
    assert replace(TINY, compile=True).hash() != replace(TINY, compile=False).hash()


def test_an_experiment_cannot_be_changed_after_it_was_named():
    given = {"widths": [4, 8], "deep": {"inside": 1}}
    made = replace(TINY, model_args=given)
    name = made.hash()
    given["widths"].append(16)
    for change in (
        lambda args: args.update(a=1),
        lambda args: args.pop("widths"),
        lambda args: args.setdefault("a", 1),
        lambda args: args["deep"].clear(),
        lambda args: args["deep"].__delitem__("inside"),
        lambda args: args.__ior__({"a": 1}),
    ):
        with pytest.raises(TypeError, match=r"cannot be changed.*replace"):
            change(made.model_args)
    with pytest.raises(TypeError, match="cannot be changed"):
        made.model_args["a"] = 1
    assert made.hash() == name
    assert "model_args={'widths': (4, 8), 'deep': {'inside': 1}}" in repr(made)
    assert dict(made.model_args) | {"a": 1}


def test_an_experiment_goes_through_pickle_and_replace():
    for again in (pickle.loads(pickle.dumps(TINY)), replace(TINY), Experiment(**asdict(TINY))):
        assert again == TINY
        assert again.hash() == TINY.hash()
        with pytest.raises(TypeError, match="cannot be changed"):
            again.data_args["a"] = 1
