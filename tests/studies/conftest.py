"""A study of a few steps, followed in earnest or with invented scores."""

import json
import zlib
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import dmlkit
import studies
from studies import trainings
from studies.follow import chosen_arms, follow
from studies.trainings import ROW_KEY, TRIAL_KEY, Table
from tests.studies.tiny import TINY
from tests.training.tiny import share_glyphs

NAMES = ("contrastive", "proxy_nca_pp")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Runs of these tests go elsewhere; Glyphs stay where they are."""
    share_glyphs(tmp_path / "cache")
    monkeypatch.setattr(dmlkit, "cache_folder", lambda: tmp_path / "cache")


@pytest.fixture
def read(tmp_path):
    """Rules of a text, some of whose lines are others."""

    def reads(**changes):
        text = TINY
        for old, new in changes.items():
            lines = TINY.splitlines()
            text = text.replace(next(line for line in lines if line.startswith(f"{old} =")), new)
        (tmp_path / "tiny.toml").write_text(text)
        studies.protocol.cache_clear()
        return studies.protocol("tiny", tmp_path)

    return reads


@pytest.fixture
def begin(tmp_path):
    """Go on with the study whose tables are in a folder, and read them."""

    def goes_on(rules, folder="kept", names=NAMES, only=None):
        kept = [
            Table(key, tmp_path / folder / name)
            for key, name in ((TRIAL_KEY, "t.csv"), (ROW_KEY, "e.csv"))
        ]
        with ThreadPoolExecutor(1) as executor:
            follow(rules, chosen_arms(names), *kept, only, executor=executor, device="cpu")
        return [pd.read_csv(table.path) for table in kept if table.path.is_file()]

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
        scores = dict.fromkeys(studies.METRICS, value)
        return {**where, "seconds": 1.0, "diverged": False, **scores}

    monkeypatch.setattr(trainings, "trained", guess)
    return seen
