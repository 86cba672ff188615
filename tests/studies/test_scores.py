"""What a row tells beside the usual scores: Recall@1 of signs, and how far embeddings spread."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import dmlkit
import studies
from dmlkit import data, training
from studies.rules import experiment, repetition
from studies.search import candidates
from studies.trainings import Plan, Table, repeated, trained


@pytest.fixture
def made(read):
    """A training of a few steps, in repetition 0."""
    rules = read(
        data_args="data_args = { train_classes = 40, per_class = 4, test_per_class = 8 }",
        model_args="model_args = { widths = [8, 8, 16, 16] }",  # the smallest ones collapse
    )
    arm = studies.arms()["contrastive"]
    return experiment(rules, arm, candidates(rules, arm, 0)[0], 3, repetition(rules, 0))


def by_hand(x, labels):
    """Both scores, pair by pair; of equal distances, the first row's."""
    n, found, total = len(x), 0, 0.0
    signs = [[value > 0 for value in row] for row in x]
    units = [row / np.sqrt((row**2).sum()) for row in x.astype(np.float64)]
    for i in range(n):
        others = [j for j in range(n) if j != i]
        unlike = {j: sum(a != b for a, b in zip(signs[i], signs[j], strict=True)) for j in others}
        found += labels[min(others, key=lambda j: (unlike[j], j))] == labels[i]
        total += sum(np.sqrt(((units[i] - units[j]) ** 2).sum()) for j in others)
    return found / n, total / (n * (n - 1))


def test_both_scores_are_those_of_a_plain_loop_over_pairs(made):
    run = training.run(made, device="cpu", progress=False)
    row = trained(Plan({"arm": "contrastive"}, made), "cpu")
    recall, spread = by_hand(run.embeddings, run.labels)
    assert 0 < recall < 1
    assert 0 < spread < 2
    assert row["recall_at_1_signs"] == pytest.approx(recall, abs=1e-6)
    assert row["spread"] == pytest.approx(spread, abs=1e-6)


def give(monkeypatch, run):
    """A Run in place of a training, and images that have its labels."""
    labels = run.labels
    pixels, names = torch.zeros(len(labels), 1, 2, 2), tuple(map(str, np.unique(labels)))
    images = data.ImageSet(pixels, labels, labels.astype(str), names)
    monkeypatch.setattr(training, "run", lambda *args, **how: run)
    monkeypatch.setattr(data, "load", lambda *args, **how: images)


def test_the_spread_of_a_collapse_is_0(made, monkeypatch):
    class Collapsed:
        scores, seconds, provenance = dict.fromkeys(studies.METRICS, 0.0), 1.0, {"code": ""}
        embeddings = np.repeat(np.random.default_rng(0).normal(size=(1, 64)), 500, axis=0)
        embeddings = embeddings.astype(np.float32)
        labels = np.arange(500) // 2

    give(monkeypatch, Collapsed)
    row = trained(Plan({"arm": "contrastive"}, made), "cpu")
    assert row["spread"] == 0


def test_the_spread_of_opposite_and_of_orthogonal_embeddings(made, monkeypatch):
    class Cross:
        scores, seconds, provenance = dict.fromkeys(studies.METRICS, 0.0), 1.0, {"code": ""}
        embeddings = np.array([[3, 0], [-1, 0], [0, 2], [0, -5]], dtype=np.float32)
        labels = np.array([0, 0, 1, 1])

    give(monkeypatch, Cross)
    row = trained(Plan({"arm": "contrastive"}, made), "cpu")
    assert row["spread"] == pytest.approx((4 * np.sqrt(2) + 2 * 2) / 6, abs=1e-6)


def test_a_baseline_has_neither_and_stays_without_in_the_file(made, tmp_path):
    plans = [
        Plan({"arm": "raw pixels", "repetition": 0}, made, baseline="raw pixels"),
        Plan({"arm": "contrastive", "repetition": 0}, made),
    ]
    table = Table(("arm", "repetition"), tmp_path / "rows.csv")
    for plan in plans:
        table.enter(plan, trained(plan, "cpu"))
    table.write()
    again = Table(table.key, table.path)
    pd.testing.assert_frame_equal(again.frame(), table.frame())
    for kept in (table, again):
        pixels, contrastive = (kept.found(plan) for plan in plans)
        for score in ("recall_at_1_signs", "spread"):
            assert np.isnan(pixels[score])
            assert contrastive[score] > 0
        assert pixels["code"] == ""
        assert pixels["recall_at_1"] > 0
    again.write()
    assert pd.read_csv(table.path)["spread"].isna().tolist() == [False, True]


def test_without_a_store_no_run_is_kept_and_with_one_it_is(made, tmp_path):
    plan = Plan({"arm": "contrastive"}, made)
    first = trained(plan, "cpu")
    assert not (dmlkit.cache_folder() / "runs").exists()
    kept = trained(plan, "cpu", tmp_path / "kept")
    assert len([path for path in (tmp_path / "kept").iterdir() if path.is_dir()]) == 1
    numbers = {metric: first[metric] for metric in studies.METRICS}
    assert json.dumps(numbers) == json.dumps({metric: kept[metric] for metric in numbers})


def test_recall_of_each_class_is_kept_where_the_rules_say_so():
    rules = studies.protocol("photos")
    arm = studies.arms(rules)["contrastive"]
    plan = repeated(rules, arm, 1, candidates(rules, arm, 1)[0])
    row = trained(replace(plan, experiment=replace(plan.experiment, steps=3)), "cpu")
    test = data.load("grocery", "test", **plan.experiment.data_args)
    counts = np.bincount(test.labels[test.queries])
    each = json.loads(row["by_class"])
    assert tuple(each) == test.class_names
    mean = np.average(list(each.values()), weights=counts)
    assert mean == pytest.approx(row["recall_at_1"], abs=1e-4)
    assert min(each.values()) < mean < max(each.values())
