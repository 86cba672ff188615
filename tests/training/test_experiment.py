"""An Experiment is checked as it is made, and is named by what of it is not as by default."""

import json
import pickle
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest

from dmlkit.training import Experiment
from tests.training.tiny import TINY


def test_the_defaults_are_what_they_were():
    """By them Experiments are named: a hash says only what differs from them."""
    assert asdict(Experiment()) == {
        "loss": "triplet_semihard", "loss_args": {}, "loss_lr_factor": 10.0, "constraint": None,
        "data": "glyphs", "data_args": {}, "split": "test", "augment": False,
        "color": 0.0, "mirror": False, "blend": 1.0,
        "sampler": "pk", "sampler_args": {"classes": 32, "per_class": 4},
        "model": "convnet", "model_args": {}, "dim": 64, "metric": "cosine",
        "optimizer": "adam", "optimizer_args": {}, "lr": 5e-3, "backbone_lr_factor": 1.0,
        "frozen_steps": 0, "lr_decay": 0.3, "steps": 280, "seed": 0, "monitor": (),
        "monitor_every": 50, "precision": "32-true", "compile": False, "devices": 1, "threads": 1,
        "warmup": 0, "schedule": "linear", "clip": 0.0, "keep_best": False,
    }  # fmt: skip
    assert Experiment().hash() == "44136fa355b3"
    assert TINY.hash() == "fb9e719869a9"


def test_a_field_that_is_added_later_renames_nothing():
    @dataclass(frozen=True)
    class Later(Experiment):
        anything: int = 3

    fields = asdict(TINY)
    assert Later(**fields).hash() == TINY.hash() != Later(**fields, anything=4).hash()


def test_every_field_is_in_the_name():
    changes = {
        "loss": "angular", "loss_args": {"margin": 0.3}, "loss_lr_factor": 1, "constraint": {},
        "data": "cub", "data_args": {"seed": 1}, "split": "val", "augment": True,
        "color": 0.1, "mirror": True, "blend": 0.5,
        "sampler": "uniform", "sampler_args": {}, "model": "resnet18", "model_args": {"depth": 1},
        "dim": 8, "metric": "euclidean", "optimizer": "sgd", "optimizer_args": {"momentum": 0.9},
        "lr": 1, "backbone_lr_factor": 0.1, "frozen_steps": 1, "lr_decay": 0, "steps": 1, "seed": 1,
        "monitor": ["test"], "monitor_every": 1, "precision": "bf16-mixed", "compile": True,
        "devices": 2, "threads": 2, "warmup": 1, "schedule": "cosine", "clip": 1, "keep_best": True,
    }  # fmt: skip
    plain = Experiment(monitor=("val",))
    assert changes.keys() == asdict(plain).keys()
    hashes = {replace(plain, **{name: value}).hash() for name, value in changes.items()}
    assert len(hashes | {plain.hash()}) == len(changes) + 1


@pytest.mark.parametrize(
    "one, other",
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"loss_args": {"margin": 1}}, {"loss_args": {"margin": 1.0}}),
        ({"model_args": {"widths": [4, 8]}}, {"model_args": {"widths": (4.0, 8)}}),
        ({"model_args": {"widths": [4, 8]}}, {"model_args": {"widths": np.array([4, 8])}}),
        ({"steps": 3, "augment": True}, {"steps": np.uint16(3), "augment": np.bool_(True)}),
        ({"data_args": {"train_classes": 9}}, {"data_args": {"train_classes": np.int64(9)}}),
    ],
)
def test_a_number_has_one_name_however_it_is_written(one, other):
    assert replace(TINY, **one).hash() == replace(TINY, **other).hash() != TINY.hash()


def test_an_experiment_goes_through_json_pickle_and_replace():
    json_of = json.loads(json.dumps(asdict(TINY)))
    for again in (Experiment(**json_of), pickle.loads(pickle.dumps(TINY)), replace(TINY)):
        assert again == TINY
        assert again.hash() == TINY.hash()


def test_what_an_experiment_was_made_of_can_change():
    given = {"widths": [4, 8], "deep": {"inside": 1}}
    made = replace(TINY, model_args=given)
    given["widths"].append(16)
    given["deep"]["inside"] = 2
    assert made.model_args == {"widths": (4, 8), "deep": {"inside": 1}}


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"lr": np.float32(0.1)}, TypeError, "lr must be what JSON can hold, but is"),
        ({"lr": float("inf")}, TypeError, "lr must be what JSON can hold, but is inf"),
        ({"loss_args": {"margin": float("nan")}}, TypeError, "loss_args must be what JSON can"),
        ({"data_args": {"seed": {1}}}, TypeError, "data_args must be what JSON can hold"),
        ({"augment": 1}, TypeError, "augment must be a bool, but is 1"),
        ({"loss": None}, TypeError, "loss must be a str, but is None"),
        ({"loss_args": None}, TypeError, "loss_args must be a dict, but is None"),
        ({"monitor": "val"}, TypeError, "monitor must be a tuple, but is 'val'"),
        ({"lr": "0.1"}, ValueError, "lr must be a number from 0 to inf, but is '0.1'"),
        ({"lr": -1}, ValueError, "lr must be a number from 0 to inf, but is -1"),
        ({"steps": 2.5}, ValueError, "steps must be a whole number from 1, but is 2.5"),
        ({"steps": True}, ValueError, "steps must be a whole number from 1, but is True"),
        ({"steps": 0}, ValueError, "steps must be a whole number from 1"),
        ({"dim": -1}, ValueError, "dim must be a whole number from 1"),
        ({"devices": 0}, ValueError, "devices must be a whole number from 1"),
        ({"threads": 0}, ValueError, "threads must be a whole number from 1, but is 0"),
        ({"frozen_steps": -1}, ValueError, "frozen_steps must be a whole number from 0"),
        (
            {"backbone_lr_factor": -0.1},
            ValueError,
            "backbone_lr_factor must be a number from 0 to inf,",
        ),
        ({"loss_lr_factor": -1}, ValueError, "loss_lr_factor must be a number from 0 to inf,"),
        ({"warmup": -1}, ValueError, "warmup must be a whole number from 0"),
        ({"clip": -1}, ValueError, "clip must be a number from 0 to inf"),
        ({"schedule": "step"}, ValueError, "schedule must be one of linear, cosine"),
        ({"keep_best": True, "monitor": []}, ValueError, "keep_best needs 'val' in monitor, but"),
        ({"lr_decay": -0.5}, ValueError, "lr_decay must be a number from 0 to 1, but is -0.5"),
        ({"lr_decay": 1.5}, ValueError, "lr_decay must be a number from 0 to 1, but is 1.5"),
        ({"seed": -1}, ValueError, "seed must be a whole number from 0, but is -1"),
        ({"seed": 2**32}, ValueError, "seed must be a number from 0 to 4294967295"),
        ({"loss": "tripplet"}, ValueError, "loss must be one of contrastive.* but is 'tripplet'"),
        ({"sampler": "kp"}, ValueError, "sampler must be one of pk.* but is 'kp'"),
        ({"optimizer": "adma"}, ValueError, "optimizer must be one of adam.* but is 'adma'"),
        (
            {"split": "testing"},
            ValueError,
            "split must be one of train, val, test.* but is 'testing'",
        ),
        ({"monitor": ["vla"]}, ValueError, "split must be one of train, val, test.* but is 'vla'"),
        (
            {"metric": "manhattan"},
            ValueError,
            "metric must be one of euclidean.* but is 'manhattan'",
        ),
        ({"metric": {"c": 1}}, ValueError, "metric must be one of euclidean.* but is None"),
    ],
)
def test_a_field_is_checked_as_the_experiment_is_made(change, error, message):
    with pytest.raises(error, match=message):
        replace(TINY, **change)
