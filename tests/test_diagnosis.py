"""Every illness is really made and found, and healthy Runs have none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dmlkit import data, diagnosis, training
from dmlkit.data import ImageSet
from dmlkit.training import Experiment

FEW = {"per_class": 10, "train_classes": 60, "test_classes": 60, "test_per_class": 10}
EIGHT = {"data_args": FEW | {"train_classes": 8}, "sampler_args": {"classes": 8, "per_class": 4}}
SMALL = {"data_args": FEW, "sampler_args": {"classes": 8, "per_class": 4}}
HEALTHY = {
    "triplets": Experiment(steps=60),
    "proxies": Experiment(
        loss="proxy_nca_pp",
        loss_args={"temperature": 0.2},
        loss_lr_factor=50.0,
        lr=0.003,
        steps=150,
    ),
}
ILL = {
    "collapsed": Experiment(loss="triplet_hard", lr=0.02, steps=40, data_args=FEW),
    "gradients have died": Experiment(steps=90, loss_args={"margin": 0.02}, **EIGHT),
    "norms of embeddings blow up": Experiment(loss="proxy_anchor", lr=1.0, steps=40, **SMALL),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train an Experiment, or load its Run."""
    store = tmp_path_factory.mktemp("diagnosis")
    return lambda e: training.run(e, store=store, device="cpu", progress=False)


@pytest.fixture
def healthy(trained):
    return trained(HEALTHY["triplets"])


def told(run):
    return " ".join(diagnosis.diagnose(run))


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_not_called_ill(kind, trained):
    assert told(trained(HEALTHY[kind])) == ""


@pytest.mark.parametrize("words", ILL)
def test_an_illness_is_found_in_a_training_that_has_it(words, trained):
    assert words in told(trained(ILL[words]))


def test_a_narrow_cone_with_its_classes_apart_is_no_collapse(healthy):
    x = healthy.embeddings / np.linalg.norm(healthy.embeddings, axis=1, keepdims=True)
    x = (0.05 * x + np.eye(1, x.shape[1])).astype(np.float32)
    cone = replace(healthy, embeddings=x, scores={"recall_at_1": 0.7})
    assert "collapsed" not in told(cone)
    assert "collapsed" in told(replace(cone, scores={"recall_at_1": 0.1}))


def test_gradients_that_fade_near_the_end_have_done_their_work(healthy):
    for share, dead in ((0.7, False), (0.6, True)):
        fading = np.where(healthy.history["step"] > share * 60, 1e-5, 1.0)
        found = told(replace(healthy, history=healthy.history.assign(gradient_norm=fading)))
        assert ("have died" in found) == dead


@pytest.mark.parametrize("column", ["norm_mean", "gradient_norm"])
def test_norms_that_rise_blow_up_and_others_do_not(column, healthy):
    rising = np.geomspace(0.1, 10, 60)
    ill = replace(healthy, history=healthy.history.assign(**{column: rising}))
    assert "blow up: from 0.122 to 8.23" in told(ill)
    falling = replace(healthy, history=healthy.history.assign(**{column: rising[::-1]}))
    assert "blow up" not in told(falling)


def test_a_class_of_one_and_a_picture_of_both_splits_are_named(healthy, monkeypatch):
    train, test = data.load("glyphs", "train"), data.load("glyphs", "test")
    lone = np.flatnonzero(test.labels != 3)
    lone = np.sort(np.append(lone, np.flatnonzero(test.labels == 3)[0]))
    images = test.images[lone].clone()
    images[7] = (train.images[5].float() * 0.99).to(torch.uint8)  # the same, saved twice
    sick = ImageSet(images, test.labels[lone], test.groups[lone], test.class_names)
    monkeypatch.setattr(data, "load", lambda name, split, **args: {"train": train}.get(split, sick))
    found = diagnosis.diagnose(healthy)
    assert len(found) == 2
    assert f"1 of {test.num_classes} classes have one image, as {test.class_names[3]}" in found[0]
    assert "1 of" in found[1]
    assert "test and train 7 and 5" in found[1]
