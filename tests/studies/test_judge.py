"""The judge refuses what is no loss, trains by the study's rules, and says where a loss stands."""

import dataclasses
import importlib
import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import studies
from dmlkit import sweeps, training
from dmlkit.cli import terminal
from dmlkit.cli.app import app
from dmlkit.training import Experiment
from studies.judge import compared, examine, families, judge
from studies.judgment import sensitivity
from studies.search import candidates
from studies.trainings import ROW_KEY, TRIAL_KEY, Table, baseline, repeated

room = importlib.import_module("studies.judge")

LOSSES = """
import torch
from torch import nn
from studies.rules import experiment, repetition
from studies.search import candidates
from studies.trainings import Table


class Good(nn.Module):
    space = {"margin": ("linear", 0.1, 0.9)}

    def __init__(self, margin=0.5):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, labels):
        z = nn.functional.normalize(embeddings)
        same = labels[:, None] == labels
        distance = (z[:, None] - z).square().sum(-1)
        return torch.where(same, distance, (self.margin - distance).clamp_min(0)).mean()


class Proxies(nn.Module):
    def __init__(self, num_classes, embedding_size):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_size))

    def forward(self, embeddings, labels):
        return nn.functional.cross_entropy(embeddings @ self.proxies.T, labels)


class Rows(Good):
    def forward(self, embeddings, labels):
        return embeddings.square().sum(1)


class Number(Good):
    def forward(self, embeddings, labels):
        return 1.0


class NotANumber(Good):
    def forward(self, embeddings, labels):
        return (embeddings - embeddings).sum() / 0


class NoGradient(Good):
    def forward(self, embeddings, labels):
        return embeddings.detach().mean()


class Counted(Good):
    def forward(self, embeddings, labels):
        return (embeddings > 0).float().mean() + 0 * embeddings.sum()


class BadGradient(Good):
    def forward(self, embeddings, labels):
        return (embeddings - embeddings.detach()).square().sum(1).sqrt().sum()


class Shapes(Good):
    def forward(self, embeddings, labels):
        return (embeddings @ embeddings).mean()


class Lonely(Good):
    def forward(self, embeddings, labels):
        same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
        return ((embeddings @ embeddings.T) * same).sum() / same.sum()


"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with losses, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(LOSSES)
    return tmp_path


# Before any training --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine.py:Good", "mine.py:Proxies", "proxy_anchor"])
def test_a_sound_loss_passes(own, name):
    assert examine(name) == []


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("Rows", ValueError, "must give a finite scalar Tensor, but gives tensor"),
        ("Number", ValueError, "must give a finite scalar Tensor, but gives 1.0"),
        ("NotANumber", ValueError, "must give a finite scalar Tensor, but gives nan"),
        ("NoGradient", RuntimeError, "does not require grad"),
        ("Counted", ValueError, "has no gradient: it is 0 for all embeddings"),
        ("BadGradient", ValueError, "must have a finite gradient"),
        ("Shapes", RuntimeError, "cannot be multiplied"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_any_training(
    own, name, error, match, monkeypatch
):
    monkeypatch.setattr(training, "run", lambda *args, **how: pytest.fail("trained"))
    with pytest.raises(error, match=match):
        judge(f"mine.py:{name}")


def test_what_is_odd_is_noted(own):
    (note,) = examine("mine.py:Lonely")
    assert note.startswith("On a batch without a positive pair")
    assert "nan" in note


# By the study's rules -------------------------------------------------------------------------

RULES = """
ranges = { lr = ["log", 1e-3, 1e-2], loss_lr_factor = ["log", 1.0, 10.0] }
[base]
data_args = { train_classes = 40, val_classes = 20, test_classes = 20 }
model_args = { widths = [2, 4, 4, 4] }
dim = 8
steps = 4
[choices.batch]
pk = { sampler = "pk", sampler_args = { classes = 4, per_class = 3 } }
uniform = { sampler = "uniform", sampler_args = { size = 12 } }
[tuning]
candidates = 2
short_steps = 2
steps = 3
finalists = 1
rounds = 1
extra = 1
edge = 0.05
reach = 0.25
[[searches]]
fields = { seed = 11 }
[[searches]]
fields = { seed = 12 }
[repetitions]
count = 4
numbered = ["seed"]
overlap = 0.0
fields = {}
"""


@pytest.fixture
def invent(own, monkeypatch):
    """Make a study of a few steps with invented evidence, whose arms have so many repetitions."""
    (own / "tiny.toml").write_text(RULES)
    monkeypatch.setattr(room, "protocol", lambda name: studies.protocol(name, own))

    def invents(**repetitions):
        rules = studies.protocol("tiny", own)
        monkeypatch.setattr(room, "tables", lambda _: _invented_tables(rules, repetitions))
        return rules

    return invents


def _invented_tables(rules, repetitions):
    trials, evidence = Table(TRIAL_KEY), Table(ROW_KEY)
    rng = np.random.default_rng(0)
    arms = {"contrastive": 0.2, "triplet_semihard": 0.3, "proxy_anchor": 0.9, "raw pixels": 0.1}
    for arm, level in arms.items():
        for k in range(repetitions.get(arm, 4)):
            score = level + 0.02 * rng.standard_normal()
            row = {"arm": arm, "repetition": k, "search": k % 2, "recall_at_1": score}
            evidence.rows[arm, k] = row | _made_of(rules, arm, k)
        for s, c in np.ndindex(2, 3):
            row = {"arm": arm, "search": s, "stage": "short", "candidate": c}
            trials.rows[arm, s, "short", c] = row | {"recall_at_1": level - 0.1 * c}
    return trials, evidence


def _made_of(rules, arm, k):
    if arm not in studies.arms():
        plan, recipe = baseline(rules, arm, k), {}
    else:
        recipe = candidates(rules, studies.arms()[arm], k % 2)[0]
        plan = repeated(rules, studies.arms()[arm], k, recipe)
    return {"hash": plan.hash, "recipe": json.dumps(recipe)}


def test_a_loss_is_tuned_and_repeated_as_the_study_does_and_goes_on(own, invent, monkeypatch):
    trained, run = [], training.run

    def counted(experiment, **how):
        done = run(experiment, **how)
        trained.append((experiment, done.loaded))
        return done

    invent()
    monkeypatch.setattr(training, "run", counted)
    with ThreadPoolExecutor(1) as executor:
        how = {"executor": executor, "device": "cpu", "progress": False}
        first = judge("mine.py:Proxies", "tiny", **how)
        made, trained[:] = list(trained), []
        again = judge("mine.py:Proxies", "tiny", **how)
    of_search = [e for e, _ in made if e.split == "val"]
    assert [e.steps for e in of_search] == [2] * 4 + [3] * 4  # 2 candidates, 1 finalist, 1 more
    assert {e.seed for e in of_search} == {11, 12}
    assert {e.steps for e, _ in made if e.split == "test"} == {4}
    assert [e.seed for e, _ in made if e.split == "test"] == [0, 1, 2, 3]
    assert {e.loss for e, _ in made} == {"mine.py:Proxies"}
    assert all(loaded for _, loaded in trained), "a second call trains nothing"
    rows = first.regimes["tiny"].rows
    pd.testing.assert_frame_equal(rows, again.regimes["tiny"].rows)
    page = first.page()
    assert (own / "judge_Proxies.md").read_text(encoding="utf-8") == again.page()
    assert first._repr_markdown_() == str(first) == page
    at = first.regimes["tiny"].standing
    assert at.best == "proxy_anchor" == at.family_best
    assert f"Recall@1 {100 * rows['recall_at_1'].mean():.1f} [" in page
    assert re.search(r"among 3 losses\. Against the best, proxy_anchor: -\d", page)
    assert "comparisons" in page
    for arm in ("contrastive", "triplet_semihard", "proxy_anchor", "raw pixels"):
        assert page.count(f"\n| {arm} | ") == 1


def test_worker_processes_find_the_loss_by_its_name(own, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")  # with one core none is started
    base = Experiment(
        loss=f"{own / 'mine.py'}:Good",  # workers may have begun in another folder
        data_args={"train_classes": 40},
        sampler_args={"classes": 8, "per_class": 2},
        steps=2,
    )
    (run,) = sweeps.train([base], device="cpu", progress=False)
    assert run.experiment == base
    assert run.scores["recall_at_1"] > 0


def test_a_study_that_is_partly_done_judges_by_the_losses_that_are_done(own, invent):
    rules = invent(contrastive=3, proxy_anchor=1)
    assert set(compared(rules)["arm"]) == {"triplet_semihard", "raw pixels"}
    with ThreadPoolExecutor(1) as executor:
        found = judge("mine.py:Good", "tiny", executor=executor, device="cpu", progress=False)
    at = found.regimes["tiny"]
    assert at.standing.best == "triplet_semihard"
    assert {"contrastive", "proxy_anchor"} <= set(at.lacking)
    assert "*Not done yet:* tiny lacks repetitions of adaface, " in found.page()
    assert "| proxy_anchor |" not in found.page()


def test_a_study_of_which_no_loss_is_done_says_so_before_any_training(own, invent, monkeypatch):
    monkeypatch.setattr(training, "run", lambda *args, **how: pytest.fail("trained"))
    invent(contrastive=3, triplet_semihard=2, proxy_anchor=0)
    with pytest.raises(ValueError, match="no loss has all repetitions yet: first dmlkit study ti"):
        judge("mine.py:Good", "tiny")
    with pytest.raises(ValueError, match="no study 'nothing'"):
        judge("mine.py:Good", "nothing")


def test_evidence_that_other_rules_made_is_not_judged_by(invent):
    rules = invent()
    longer = dataclasses.replace(rules, base={**rules.base, "steps": 5})
    with pytest.raises(ValueError, match="no loss has all repetitions yet"):
        compared(longer)
    fewer = dataclasses.replace(rules, repetitions=dataclasses.replace(rules.repetitions, count=3))
    assert set(compared(fewer)["repetition"]) == {0, 1, 2}


def test_additions_are_of_the_family_of_their_loss_and_longer_trainings_are_no_rivals():
    names = ["n_pairs_normalized + SEC", "proxy_anchor, as many visits", "untrained network"]
    assert families(names) == dict(zip(names, ("pairs", None, None), strict=True))


def test_sensitivity_is_of_all_candidates_of_the_first_stage():
    tried = ((0, 0.3), (1, 0.8), (2, 0.7))  # candidate 0, the defaults, is the worst
    rows = [("a", s, "short", k, r) for s in (0, 1) for k, r in tried]
    rows += [("a", 0, "full", 1, 0.9)]
    frame = pd.DataFrame(rows, columns=["arm", "search", "stage", "candidate", "recall_at_1"])
    found = sensitivity(frame).loc["a"]
    assert found["median_loss"] == pytest.approx(0.1)
    assert found["default_loss"] == pytest.approx(0.5)
    assert found["failed"] == pytest.approx(1 / 3)


# What it says ---------------------------------------------------------------------------------


@pytest.fixture
def invented(own, monkeypatch):
    """A study whose trainings are invented: a loss is the best rival, plus a gain and noise."""

    def invents(gain, n=12):
        rng = np.random.default_rng(1)
        common = 0.05 * rng.standard_normal(n)
        levels = {"contrastive": 0.6, "triplet_semihard": 0.7, "proxy_anchor": 0.8, "dreml": 0.5}
        rows = [
            (arm, k, 0, level + common[k] + 0.01 * rng.standard_normal())
            for arm, level in levels.items()
            for k in range(n)
        ]
        evidence = pd.DataFrame(rows, columns=["arm", "repetition", "search", "recall_at_1"])
        trials = Table(TRIAL_KEY)
        for arm, s, c in itertools.product(levels, (0, 1), (0, 1)):
            row = dict(zip(TRIAL_KEY, (arm, s, "short", c), strict=True))
            trials.rows[trials.place(row)] = row | {"recall_at_1": 0.5}

        def through(rules, name, *_, **__):
            own = evidence[evidence["arm"] == "proxy_anchor"].assign(arm=name)
            score = own["recall_at_1"] + gain + 0.01 * rng.standard_normal(n)
            return trials.frame()[:4].assign(arm=name), own.assign(recall_at_1=score)

        monkeypatch.setattr(room, "compared", lambda rules: evidence)
        monkeypatch.setattr(room, "tables", lambda name: (trials, Table(ROW_KEY)))
        monkeypatch.setattr(room, "through", through)

    return invents


@pytest.mark.parametrize(
    ("gain", "verdict", "place"),
    [(0.05, "holds here", 1), (-0.05, "reversed here", 2), (0.0, "too small to see here", None)],
)
def test_the_page_says_the_words_of_the_ledger(own, invented, gain, verdict, place):
    invented(gain)
    found = judge("mine.py:Good", "scratch", folder=None, progress=False)
    assert found.verdict("scratch") == verdict
    page = found.page()
    assert f"**scratch: better than the best? {verdict}.**" in page
    assert place is None or f"place {place} among 4 losses" in page
    assert "over 4 comparisons" in page
    assert found.regimes["scratch"].standing.family_best == "triplet_semihard"
    assert (found.questions.loc[("scratch", "family"), "holm"] <= 0.05) == (
        place is None or gain > -0.1
    )
    assert not list(own.glob("judge_*"))


def test_the_command_prints_the_page_and_one_line_for_what_is_no_loss(own, invented, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(markup=False, width=300))
    invented(0.05)
    done = CliRunner().invoke(app, ["judge", "mine.py:Good", "--study", "scratch"])
    assert done.exit_code == 0, done.output
    assert "# Good" in done.output
    assert (own / "judge_Good.md").is_file()
    failed = CliRunner().invoke(app, ["judge", "mine.py:Counted"], env={"COLUMNS": "200"})
    assert failed.exit_code == 1
    assert "error: mine.py:Counted has no gradient" in failed.output
