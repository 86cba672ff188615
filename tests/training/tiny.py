"""The smallest Experiment that trains, and what tests do with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmlkit
from dmlkit import training
from dmlkit.training import Experiment, Run

TINY = Experiment(
    data_args={"train_classes": 40, "val_classes": 20, "test_classes": 20},
    sampler_args={"classes": 8, "per_class": 4},
    model_args={"widths": [4, 8, 8, 8]},
    dim=8,
    steps=12,
    monitor=("val",),
    monitor_every=6,
)


def share_glyphs(cache: Path) -> None:
    """A test's own cache, but for Glyphs: drawing them anew would take most of its time."""
    glyphs = (dmlkit.cache_folder() / "glyphs").resolve()
    glyphs.mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    (cache / "glyphs").symlink_to(glyphs)


def run(experiment: Experiment, store: Path, **args: Any) -> Run:
    return training.run(experiment, store=store, device="cpu", progress=False, **args)


def before_each_step(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call ``act(step)`` first, in place of what was to be called before."""
    advance = getattr(training.Trainer.advance, "watched", training.Trainer.advance)

    def watched(trainer: training.Trainer) -> None:
        act(trainer.step)
        advance(trainer)

    watched.watched = advance  # type: ignore[attr-defined]
    monkeypatch.setattr(training.Trainer, "advance", watched)


def interrupt_before(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """As Jupyter's Stop does."""

    def act(now: int) -> None:
        if now == step:
            raise KeyboardInterrupt

    before_each_step(monkeypatch, act)


def assert_same_run(a: Run, b: Run) -> None:
    pd.testing.assert_frame_equal(a.history, b.history)
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert a.scores == b.scores


def flipped(content: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
