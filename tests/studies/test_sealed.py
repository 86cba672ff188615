"""A sealed study: trained in layers, its test scores out of sight; its analysis; its judge."""

import csv
import dataclasses
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import dmlkit
import studies
from dmlkit import data
from studies import confirm, probes, sealed, verdict
from studies.follow import chosen_arms, command
from studies.judge import judge
from studies.search import candidates
from studies.trainings import trained, work_off

RULES = """
sealed = true
margin = 0.5
[base]
data = "grocery64"
data_args = { side = 32 }
steps = 2
dim = 8
model_args = { widths = [2, 4, 4, 4] }
sampler_args = { classes = 4, per_class = 2 }
[choices]
[ranges]
lr = ["log", 1e-3, 1e-2]
loss_lr_factor = ["log", 3.0, 30.0]
[tuning]
candidates = 2
steps = 2
short_steps = 0
finalists = 0
rounds = 0
extra = 0
edge = 0
reach = 0
[hypotheses.SEC]
addition = " + SEC"
against = ""
losses = ["triplet_all"]
printed = 2.4
source = "a paper"
[[searches]]
fields = { seed = 1, data_args = { fold = 0, third = 0 } }
[[searches]]
fields = { seed = 2, data_args = { fold = 1, third = 1 } }
[repetitions]
count = 2
numbered = []
overlap = 0.0
fields = {}
[arms]
contrastive = {}
triplet_all = {}
"triplet_all + SEC" = { ranges."constraint.weight" = ["log", 0.1, 1.0], off = [] }
"""


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """Rules of a tiny sealed study, whose files are in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RULES)
    for room, name in ((sealed, "SEALED"), (sealed, "TRIALS"), (sealed, "EVIDENCE"),
                       (verdict, "EVIDENCE")):  # fmt: skip
        monkeypatch.setattr(room, name, tmp_path / name.lower())
    return studies.protocol("tiny", tmp_path)


def lines(rules):
    with (sealed.SEALED / f"{rules.name}.csv").open() as file:
        return list(csv.DictReader(file))


# The rules of the study -----------------------------------------------------------------------


def test_the_printed_sizes_are_those_of_the_papers():
    printed = studies.protocol("grocery64").hypotheses
    sec = pd.read_csv(dmlkit.ROOT / "data/reported/extra_sec_repo_results.csv")
    sec = sec[sec["metric"] == "R@1"].pivot(index="dataset", columns="method", values="value")
    names = ["Triplet", "Semihard", "NormNpair", "MS"]
    of = {
        kind: sec[[name + kind for name in names]].mean(axis=1) for kind in ("", "+SEC", "+L2-reg")
    }
    assert printed["SEC"].printed == pytest.approx((of["+SEC"] - of[""]).min(), abs=0.05)
    assert printed["SEC, not L2"].printed == pytest.approx(
        (of["+SEC"] - of["+L2-reg"]).min(), abs=0.05
    )
    see = pd.read_csv(dmlkit.ROOT / "data/reported/see_table2.csv")
    see = see[(see["metric"] == "R@1") & (see["backbone"] == "ResNet50")].set_index("method")[
        "value"
    ]
    gains = [
        see[f"{n}+SEE"] - see[n] for n in ("NSoftmax", "CosFace", "ArcFace", "ProxyNCA++", "PA")
    ]
    assert printed["SEE, code"].printed == printed["SEE, paper"].printed
    assert printed["SEE, code"].printed == pytest.approx(np.mean(gains), abs=0.05)


def test_an_addition_has_its_bases_recipes_and_is_never_off():
    rules = studies.protocol("grocery64")
    arms = studies.arms(rules)
    assert len([name for name in arms if "+" not in name]) == 44
    for name in sealed.primary(rules):
        base, _, addition = name.partition(" + ")
        for s in range(12) if addition else ():
            pairs = zip(
                candidates(rules, arms[base], s), candidates(rules, arms[name], s), strict=True
            )
            for plain, added in pairs:
                shared = {
                    key.replace("loss_args.loss_args", "loss_args"): value
                    for key, value in added.items()
                    if key not in ("constraint.weight", "loss_args.weight")
                }
                assert shared == plain
            weights = [
                v for c in candidates(rules, arms[name], s) for k, v in c.items() if "weight" in k
            ]
            assert len(weights) == 3
            assert min(weights) > 0


def test_thirds_and_folds_share_no_class_and_validate_each_class_in_each_other_fold():
    seen = []
    for fold in range(4):
        for third in range(3):
            parts = [
                set(data.load("grocery64", split, fold=fold, third=third).class_names)
                for split in ("train", "val", "test")
            ]
            assert sum(map(len, parts)) == 81 == len(set.union(*parts))
            seen += parts[1]
    assert {seen.count(name) for name in seen} == {3}


# Trainings ------------------------------------------------------------------------------------


def test_trainings_come_in_layers_and_what_they_say_of_test_classes_is_sealed(rules):
    plans = sealed.plans(rules, chosen_arms((), rules))
    order = [(p.facts["candidate"], p.facts["search"], p.facts["arm"]) for p in plans]
    sec = ("triplet_all", "triplet_all + SEC")
    first = [(i, s, arm) for i in (0, 1) for s in (0, 1) for arm in sec]
    assert order == [*first, *((i, s, "contrastive") for i in (0, 1) for s in (0, 1))]
    table = sealed.table("tiny")
    with ThreadPoolExecutor(1) as executor:
        work_off(plans[:9], table, executor=executor, device="cpu")
        (sealed.TRIALS / "tiny.csv").read_text()
        assert len(lines(rules)) == 9
        assert "sealed" not in table.frame()
        part = pd.read_csv(sealed.unseal(rules, table))
        assert len(part) == 8, "of a part that is not complete nothing is read"
        assert set(part["arm"]) == set(sec)
        early = dataclasses.replace(rules, tuning=dataclasses.replace(rules.tuning, least=1))
        assert len(pd.read_csv(sealed.unseal(early, sealed.table("tiny")))) == 8, "none has all"
        work_off(plans[9:10], table, executor=executor, device="cpu")
        opened = pd.read_csv(sealed.unseal(early, table), keep_default_na=False)
        assert (opened["arm"] == "contrastive").sum() == 2, "with one candidate, as the rules allow"
        with pytest.raises(ValueError, match="all of tiny is open"):
            sealed.unseal(rules, table)
        (sealed.EVIDENCE / "tiny.csv").unlink()
        again = sealed.table("tiny")
        work_off(plans, again, executor=executor, device="cpu")
    assert len(lines(rules)) == 12, "only what was lacking is trained"
    assert sealed.layers(rules, again.frame()) == dict.fromkeys(studies.arms(rules), 2)
    told = trained(plans[0], "cpu")
    assert told["sealed"] == lines(rules)[0]["hits"]
    assert len(told["sealed"].split()) == 21
    with pytest.raises(ValueError, match="8 trainings are lacking: first dmlkit study tiny"):
        sealed.unseal(
            dataclasses.replace(rules, tuning=dataclasses.replace(rules.tuning, candidates=4)),
            again,
        )
    rows = pd.read_csv(sealed.unseal(rules, again), keep_default_na=False)
    assert len(rows) == 12
    assert list(rows) == ["arm", "search", "candidate", "hash", "validation", "hits"]


def test_a_study_that_is_open_in_part_says_how_far_it_is():
    assert any(line.startswith("hypotheses: 3 of 3") for line in command("grocery64", status=True))


def test_nothing_but_the_unsealing_reads_what_is_sealed():
    """By their texts: no other file of code names the folder, and there its name is used twice."""
    for room in ("dmlkit", "studies", "course", "benchmarks"):
        for path in (dmlkit.ROOT / room).rglob("*.py"):
            uses = re.findall(
                r"\bSEALED\b|data/sealed|\"sealed\" /|/ \"sealed\"", path.read_text("utf-8")
            )
            if path.name == "sealed.py":
                code = path.read_text("utf-8")
                assert code.count("SEALED /") == 2
                assert "read_csv(SEALED" in code[code.index("def unseal") :]
                assert (
                    "read" not in code[code.index("class SealedTable") : code.index("def unseal")]
                )
            else:
                assert not uses, path


# Its analysis ---------------------------------------------------------------------------------


def invented(rules, gains, m=4, seed=0, split="test"):
    """Rows of arms that find a share of their queries, by luck alone but for a gain (points)."""
    rng, rows = np.random.default_rng(seed), []
    for s in range(len(rules.searches)):
        images = data.load("grocery64", split, **studies.rules.searching(rules, s)["data_args"])
        counts = np.bincount(images.labels[images.queries])
        level = np.random.default_rng(7).uniform(0.4, 0.8, len(counts))
        for arm, gain in gains.items():
            for c in range(m):
                p = np.clip(level + gain / 100 + 0.08 * rng.standard_normal(len(counts)), 0, 1)
                hits = " ".join(map(str, rng.binomial(counts, p)))
                rows.append((arm, s, c, float(p.mean()), hits))
    return pd.DataFrame(rows, columns=["arm", "search", "candidate", "validation", "hits"])


SEC = ("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity")


@pytest.mark.parametrize(
    ("gain", "word"), [(5.0, "shown, at least 0.5"), (0.0, "printed size excluded")]
)
def test_a_hypothesis_is_shown_or_its_printed_size_excluded(gain, word):
    rules = studies.protocol("grocery64")
    gains = (
        dict.fromkeys(SEC, 0.0)
        | {f"{x} + SEC": gain for x in SEC}
        | {f"{x} + L2": 0.0 for x in SEC}
    )
    found = confirm.hypotheses(rules, confirm.outcomes(rules, invented(rules, gains)))
    assert list(found.index) == ["SEC", "SEC, not L2"]
    row = found.loc["SEC"]
    assert row["word"] == word
    assert row["low"] < gain < row["high"]
    assert set(json.loads(row["losses"])) == set(SEC)
    assert len(json.loads(row["folds"])) == 4 == len(row["without"])


def test_losses_with_unlike_counts_are_compared_by_those_that_all_have(rules, monkeypatch):
    gains = {"triplet_all": 0.0, "triplet_all + SEC": 0.0, "contrastive": -30.0}
    rows = invented(rules, gains)
    fewer = rows[(rows["arm"] != "contrastive") | (rows["candidate"] < 1)]
    monkeypatch.setattr(confirm, "protocol", lambda name: rules)
    monkeypatch.setattr(confirm, "_opened", lambda name: confirm.outcomes(rules, fewer))
    text = confirm.every_loss("tiny")
    assert text.startswith("2 losses, each by the better half of 1 recipes, 2 searches, ")
    assert "that is not shown: `triplet_all`; " in text
    assert "`triplet_all` is first by estimate; `contrastive` is " in confirm.rivals(
        ["contrastive"]
    )
    part = rows[rows["arm"] != "contrastive"]
    monkeypatch.setattr(confirm, "_opened", lambda name: confirm.outcomes(rules, part))
    assert "sealed" in confirm.every_loss("tiny")


def test_bounds_hold_the_best_and_leave_the_worst_behind():
    rules = studies.protocol("grocery64")
    gains = {"contrastive": 0.0, "margin": 0.2, "circle": -12.0}
    found = confirm.behind(confirm.outcomes(rules, invented(rules, gains)), list(gains))
    assert found.loc["circle", "high"] == 0
    assert found.loc["circle", "low"] < -12
    assert (found.loc[["contrastive", "margin"], "high"] > 0).all()
    assert (found["quantile"] > 1.6).all()


def test_the_variance_is_that_of_independent_cells_where_nothing_is_shared():
    """Or a tenth more, as no part counts for less than nothing; and a search that moves all of its
    classes widens it."""
    rng = np.random.default_rng(0)
    d = rng.standard_normal((200, 12, 60))
    errors = [confirm.means([each]).of([1.0])["error"] for each in d]
    assert 1 <= np.mean(errors) / 720**-0.5 < 1.15
    moved = d + rng.standard_normal((200, 12, 1))
    errors = [confirm.means([each]).of([1.0])["error"] for each in moved]
    assert np.mean(errors) == pytest.approx((1 / 12 + 1 / 720) ** 0.5, rel=0.1)


# Its judge ------------------------------------------------------------------------------------

MINE = """
import torch
from torch import nn
from dmlkit import losses

class Copy(losses.NormalizedSoftmaxLoss):
    pass

class Moving(nn.Module):
    def __init__(self, num_classes, embedding_size):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_size))
    def forward(self, x, y):
        w = nn.functional.normalize(self.proxies)
        return nn.functional.cross_entropy(nn.functional.normalize(x) @ w.T / 0.05, y)

class Still(Moving):
    def __init__(self, num_classes, embedding_size):
        nn.Module.__init__(self)
        self.register_buffer("proxies", torch.randn(num_classes, embedding_size))

class Flipped(Moving):
    def forward(self, x, y):
        return -super().forward(x, y)

class Shifted(Moving):
    def forward(self, x, y):
        return super().forward(x, y.roll(1))

class Next(Moving):
    def forward(self, x, y):
        return super().forward(x, (y + 1) % len(self.proxies))

class FlippedTriplets(losses.TripletLoss):
    def forward(self, x, y):
        return -super().forward(x, y)

class ShiftedTriplets(losses.TripletLoss):
    def forward(self, x, y):
        return super().forward(x, y.roll(1))
"""


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("Copy", None), ("Moving", None), ("Still", "is no nn.Parameter: it stays"),
        ("Flipped", "is its sign flipped"), ("FlippedTriplets", "is its sign flipped"),
        ("Shifted", "labels shifted by one"), ("Next", "labels shifted by one"),
        ("ShiftedTriplets", "labels of the batch shifted by one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_before_training_and_a_sound_loss_raises_no_alarm(
    tmp_path, loss, said
):
    (tmp_path / "mine.py").write_text(MINE)
    notes = probes.noticed(f"{tmp_path / 'mine.py'}:{loss}")
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


@pytest.fixture
def half_done(rules, monkeypatch):
    """A study in which two losses are done, and one lacks a search; by invented trials."""
    gains = {"triplet_all": 0.0, "contrastive": -6.0, "triplet_all + SEC": 0.0}
    rows = invented(rules, gains, m=2, split="val").rename(columns={"validation": "recall_at_1"})
    table = sealed.table("tiny")
    for row in rows.to_dict("records"):
        if (row["arm"], row["search"]) != ("contrastive", 1):
            place = {**row, "stage": "full", "settings": "{}", "widened": "{}", "hash": "0"}
            table.rows[table.place(place)] = place
    table.write()
    monkeypatch.setattr("studies.judge.protocol", lambda _: rules)
    return rules


def test_the_judge_compares_with_what_has_all_folds_and_looks_at_no_test_class(half_done, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    with ThreadPoolExecutor(1) as executor:
        how = {"executor": executor, "device": "cpu", "progress": False}
        found = judge("mine.py:Flipped", "tiny", **how)
    assert found.at == verdict.Extent(2, 2, ["triplet_all"], ["contrastive"])
    assert (found.split, found.word) == ("val", "behind the best")
    page = (tmp_path / "judge_Flipped.md").read_text()
    assert page.index("![Flipped") < page.index("lies behind the best") < page.index("<details>")
    assert "*Noticed:* before training: It is lower" in page
    assert "*Noticed:* after training: it learned next to nothing" in page
    assert "*Without as many candidates:* contrastive." in page
    assert (tmp_path / "judge_Flipped.png").stat().st_size > 10_000


def test_a_study_without_a_loss_on_all_folds_says_so(rules, monkeypatch):
    monkeypatch.setattr("studies.judge.protocol", lambda _: rules)
    with pytest.raises(ValueError, match="no loss has all folds yet: first dmlkit study tiny"):
        judge("contrastive", "tiny")


def test_a_twin_is_not_told_from_the_best_and_a_better_loss_is(rules):
    full = studies.protocol("grocery64")
    gains = {"contrastive": 0.0, "margin": -2.0, "mine.py:Mine": 0.0}
    at = verdict.Extent(12, 4, ["contrastive", "margin"], [])
    for gain, word in ((0.0, "not told from the best"), (6.0, "better than every one")):
        rows = invented(full, gains | {"mine.py:Mine": gain}, split="val")
        found = confirm.outcomes(full, rows, "val")
        made = verdict.compared("mine.py:Mine", "pairs", found, at, "val", [])
        assert made.word == word
        assert re.search(r"One of \d\.\d would be found in four of five", made.sentence())
