"""A study of a few steps, followed in earnest or with invented scores."""

import json
import zlib
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import dmlkit
from dmlkit.extras import reality
from dmlkit.extras.reality import trainings

TINY = """
[base]
steps = 4
dim = 8
model_args = { widths = [2, 4, 4, 4] }
data_args = { train_classes = 40, per_class = 4, val_per_class = 2, test_per_class = 2 }
[ranges]
lr = ["log", 1e-3, 1e-1]
loss_lr_factor = ["log", 1.0, 100.0]
[choices.batch]
"4 x 3" = { sampler = "pk", sampler_args = { classes = 4, per_class = 3 } }
"uniform" = { sampler = "uniform", sampler_args = { size = 12 } }
[tuning]
candidates = 3
short_steps = 2
steps = 3
finalists = 2
rounds = 2
extra = 2
edge = 0.05
reach = 0.25
[[searches]]
fields.seed = 1
fields.data_args = { part = "develop", class_split = 1, val_classes = 20, test_classes = 0 }
[[searches]]
fields.seed = 2
fields.data_args = { part = "develop", class_split = 2, val_classes = 20, test_classes = 0 }
[repetitions]
count = 4
numbered = ["seed", "data_args.class_split"]
overlap = 0.0
fields = { data_args = { part = "evaluate", test_classes = 20, val_classes = 0 } }
"""
NAMES = ("contrastive", "proxy_nca_pp")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Runs of these tests go elsewhere; Glyphs stay where they are."""
    kept = dmlkit.cache_folder()
    kept.joinpath("glyphs").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(dmlkit, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "glyphs").symlink_to(kept / "glyphs")


@pytest.fixture
def read(tmp_path):
    """Rules of a text, some of whose lines are others."""

    def reads(**changes):
        text = TINY
        for old, new in changes.items():
            lines = TINY.splitlines()
            text = text.replace(next(line for line in lines if line.startswith(f"{old} =")), new)
        (tmp_path / "tiny.toml").write_text(text)
        return reality.protocol("tiny", tmp_path)

    return reads


@pytest.fixture
def begin(tmp_path):
    """Go on with the study whose tables are in a folder."""

    def goes_on(rules, folder="kept", names=NAMES, **how):
        kept = [
            reality.Table(("arm", "search", "stage", "candidate"), tmp_path / folder / "t.csv"),
            reality.Table(("arm", "repetition"), tmp_path / folder / "e.csv"),
        ]
        arms = reality.chosen_arms(names)
        with ThreadPoolExecutor(1) as executor:
            how = {"executor": executor, "device": "cpu", "progress": False} | how
            done = reality.follow(rules, arms, *kept, **how)
        return done, *(pd.read_csv(table.path) for table in kept if table.path.is_file())

    return goes_on


@pytest.fixture
def guessed(monkeypatch):
    """Trainings that cost nothing: what they find is a number made of their Experiment."""
    seen = []

    def guess(plan, device="auto", store=None, favors=None):
        seen.append(plan)
        settings = json.loads(plan.facts.get("settings", "{}"))
        chance = zlib.crc32(plan.hash.encode()) / 2**32
        value = settings.get(favors, chance)
        where = {"device": "cpu", "numerics": "none", "torch": "0", "code": "a"}
        scores = dict.fromkeys(reality.METRICS, value)
        return {**where, "seconds": 1.0, "diverged": False, **scores}

    monkeypatch.setattr(trainings, "trained", guess)
    return seen
