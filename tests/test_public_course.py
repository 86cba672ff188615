"""As tests/test_public.py, for what makes, trains on and draws pictures."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dmlkit import data, figures, losses, study, training
from dmlkit.training import Experiment
from tests.arguments import ODD, finite, outcome, replaced
from tests.data import trees

SMALL = {"crop": 8, "resize": 9, "keep_aspect": False, "flip": True, "scale": None}
FEW = dict.fromkeys(("train_classes", "val_classes", "test_classes"), 2) | dict.fromkeys(
    ("per_class", "val_per_class", "test_per_class"), 1
)
SETS = {
    "glyphs": {**FEW, "level": "hard", "class_split": 0, "seed": 0, "part": "all"},
    "omniglot": {"train_on": "small1", "validation": False, "size": 4, "class_split": None},
    "cub": {"validation": False, "class_split": 0, **SMALL},
    "folder": {
        "test_share": 0.5,
        "validation": False,
        "class_split": 0,
        "skip_unreadable": False,
        **SMALL,
    },
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where small data sets are, in the formats that were published."""
    root = tmp_path_factory.mktemp("sets")
    trees.cub(root / "cub")
    trees.classes(root / "folder")
    trees.omniglot(root / "omniglot")
    return {name: root / name for name in SETS}


@pytest.mark.parametrize("name", SETS)
@given(drawn=st.data())
def test_loading(name, places, drawn):
    args = {"name": name, "split": "train", "root": places[name], "check": name == "folder"}
    args = replaced(drawn.draw, {**args, **SETS[name]})
    images = outcome(lambda: data.load(**args), *args, "root", name)
    if images is not None:
        assert len(images) == len(images.labels) > 0
        assert images[0].dtype == torch.uint8


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    shown = torch.from_numpy(rng.integers(0, 256, (8, 1, 4, 4), dtype=np.uint8))
    return data.ImageSet(shown, np.repeat([0, 1], 4), np.array(["g"] * 8), ("a", "b"))


@given(drawn=st.data())
def test_training(pictures, drawn):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    right = {
        "model": model,
        "loss": losses.TripletLoss(),
        "train": pictures,
        "experiment": Experiment(steps=2, dim=3, sampler="uniform", sampler_args={"size": 4}),
        "device": "cpu",
        "monitor": {"val": pictures},
        "checkpoint": None,
        "progress": False,
    }
    args = replaced(drawn.draw, right)
    history = outcome(lambda: training.fit(**args), "batch", *args)
    if history is not None:
        assert len(history) == 2


@given(drawn=st.data())
def test_trainings_by_name(drawn):
    given = drawn.draw(ODD)
    assert outcome(lambda: training.run(given), "experiment") is None
    assert outcome(lambda: study.sweep(given, seed=[0]), "base") is None
    axes = {drawn.draw(st.sampled_from(("seed", "lr", "loss", "nonsense"))): given}
    for values in (axes, {"mine": axes}, {name: [value] for name, value in axes.items()}):
        outcome(lambda v=values: study.grid(Experiment(), v), "axis", *axes)


NUMBERS = {
    "losses": {"a": [0.5, 0.6]},
    "mean": figures.sample([0.5, 0.7]),
    "steps": 3,
    "none": None,
}
DATA = st.sampled_from(
    (
        NUMBERS,
        pd.DataFrame(NUMBERS["losses"]),
        {"a": np.inf},
        {"a": {1, 2}},
        {"a": "/x"},
        {"a": torch.eye(2)},
        {"a": {"values": [1.0], "mean": 2.0}},
    )
)


@pytest.fixture(scope="module", autouse=True)
def drawn_apart(tmp_path_factory):
    """Figures go to a folder of their own, and this process has no other look afterwards."""
    before, style = figures.provenance, dict(plt.rcParams)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLKIT_FIGURES", str(tmp_path_factory.mktemp("figures")))
        figures.begin_notebook("00_test", profile="ci", seeds=0, device="cpu")
        yield
    figures.provenance = before
    plt.rcParams.update(style)


@given(drawn=st.data())
def test_saving_a_figure(drawn):
    plt.close("all")
    fig = plt.figure(figsize=(0.2, 0.2))
    right = {
        "fig": fig,
        "name": "00_x",
        "data": drawn.draw(DATA),
        "alt": "words",
        "caption": "c",
        "datasets": None,
        "film": None,
    }
    args = replaced(drawn.draw, right)
    saved = outcome(lambda: figures.save(**args), "figure name", "alt text", "number", *args)
    if saved is not None:
        kept = Path(os.environ["DMLKIT_FIGURES"], f"{saved.name}.png")
        assert kept.read_bytes() == saved.png


@given(drawn=st.data())
def test_the_first_cell(drawn):
    right = {"notebook": "00_test", "profile": "ci", "seeds": 0, "device": "cpu", "steps": 3}
    args = replaced(drawn.draw, right)
    before = figures.provenance
    outcome(lambda: figures.begin_notebook(**args), "number", *args)
    figures.provenance = before


VALUES = st.sampled_from(
    ([[0.1, 0.2], [0.3, 0.5]], np.ones((1, 2)), [], [[np.nan, 1.0]], np.ones(2), np.ones((2, 2, 2)))
)
PLOTS = {
    "curve": (figures.curve, {"x": [1, 2], "values": [[0.1, 0.2], [0.3, 0.5]], "label": "a"}),
    "differences": (figures.differences, {"values": {"SEC": [1.0, 3.0]}, "margin": 1.0}),
    "dots": (
        figures.dots,
        {"rows": {"SEC": [1.0, 3.0]}, "label": "a", "shift": 0.1, "every": True},
    ),
    "letter": (figures.letter, {"name": "a  panel"}),
    "bare": (figures.bare, {"title": "panel"}),
}


@pytest.mark.parametrize("name", PLOTS)
@given(drawn=st.data())
def test_plots(name, drawn):
    plt.close("all")
    _, axes = plt.subplots()
    plot, right = PLOTS[name]
    args = replaced(
        drawn.draw, {"axes": axes, **right}, ODD | VALUES | VALUES.map(lambda v: {"r": v})
    )
    outcome(lambda: plot(**args), *args)


ROWS = {"rows": ["a", "b"]}
IMAGES = torch.zeros(2, 2, 1, 4, 4)
SHEETS = {
    "contact_sheet": (figures.contact_sheet, {"images": IMAGES, "columns": ["c", "d"], **ROWS}),
    "neighbors": (
        figures.neighbors,
        {"queries": IMAGES[:, 0], "found": IMAGES, "right": np.eye(2, dtype=bool), **ROWS},
    ),
}


@pytest.mark.parametrize("name", SHEETS)
@given(drawn=st.data())
def test_sheets(name, drawn):
    sheet, right = SHEETS[name]
    shapes = st.lists(st.integers(0, 3), min_size=4, max_size=5)
    args = replaced(drawn.draw, right, ODD | shapes.map(torch.zeros))
    plt.close("all")
    outcome(lambda: sheet(**args), *args)


@given(value=ODD, other=ODD)
def test_words(value, other):
    outcome(lambda: figures.look(value), "look")
    assert finite(outcome(lambda: figures.sample(value), "values"))
    outcome(lambda: figures.live(value, other), "fig", "alt")
