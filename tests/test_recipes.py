"""Every recipe makes the Experiment that its source describes, and trains."""

import inspect
import shutil
import urllib.error
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from dmlkit import models, recipes, training
from dmlkit.cli.app import app
from dmlkit.data import benchmarks, grocery
from dmlkit.data.pictures import Pictures
from tests.data import trees

PAPERS = [name for name in recipes.names() if name.startswith(("sec", "see", "study"))]
EVERY = [(name, loss) for name in PAPERS for loss in (None, *recipes.read(name)[1], "proxy_anchor")]
OF_120 = ("study", "sec", "see_cub_resnet50", "see_cars_resnet50")  # images a batch; others 180


@lru_cache
def accepted(model, args, dim, crop):
    """Whether there is such a model, without its weights or its memory."""
    with torch.device("meta"):
        return models.build(model, dim=dim, image=torch.zeros(3, crop, crop), **dict(args))


@pytest.mark.parametrize("name, loss", EVERY)
def test_all_parts_of_a_recipes_experiment_can_be_built(name, loss):
    made = recipes.load(name, loss)
    assert made.model_args["pretrained"]
    args = {**made.model_args, "pretrained": False}
    assert accepted(made.model, tuple(args.items()), made.dim, made.data_args["crop"])
    own = inspect.signature(benchmarks.load).parameters, inspect.signature(Pictures).parameters
    assert set(made.data_args) <= {*own[0], *own[1]}
    classes = benchmarks.BENCHMARKS[made.data].published["train"].classes
    labels = np.repeat(np.arange(classes), np.resize(np.arange(2, 13), classes))
    train = SimpleNamespace(labels=labels, num_classes=classes)
    batch = training.build_sampler(made, train)(made.steps - 1)
    assert len(batch) == (120 if name.startswith(OF_120) else 180)
    if made.loss != "dreml":
        with torch.device("meta"):
            training.build_objective(made, train)
    net = models.build("convnet", dim=8, image=torch.zeros(1, 32, 32))
    assert training.build_optimizer(made, net, nn.Identity())
    assert 0 <= made.frozen_steps < made.steps
    assert 0 <= made.lr_decay <= 1


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_says_what_its_paper_prints(name):
    made = recipes.load(name)
    source, data, network = name.split("_", 2)
    assert made.data == data
    assert made.model == {"googlenet": "googlenet_bn"}.get(network, network)
    crop = {"resize": 256, "crop": 227 if source == "sec" else 224, "flip": True}
    assert crop.items() <= made.data_args.items()
    share = {"sec": (0.16, 1), "see": (0.2, 1)}.get(source)
    assert made.data_args.get("scale") == share
    if source == "study":
        assert (made.dim, made.optimizer, made.metric) == (64, "adam", "euclidean")
        assert recipes.load(name, "normalized_softmax").dim == 2048
    if source == "sec":
        assert (made.dim, made.optimizer, made.metric) == (512, "adam", "cosine")
        assert made.constraint["weight"] > 0
        assert made.model_args["freeze_batch_norm"]
    if source == "see":
        assert (made.dim, made.optimizer) == (512 if network == "resnet50" else 128, "adamw")
        assert made.loss_args["steps"] <= made.steps
        if network != "resnet50":
            printed = 5e-6 if network == "dino_s" else 1e-5
            assert made.lr * made.backbone_lr_factor == pytest.approx(printed)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """`dmlkit train` of a small setting on the CPU, with Runs in a folder of this test's own."""
    real = training.run
    monkeypatch.setattr(training, "run", lambda e, **args: real(e, store=tmp_path / "runs", **args))
    monkeypatch.setenv("DMLKIT_DATA", "")  # --root sets it
    small = ["train", "--root", str(tmp_path / "data"), "--steps", "1", "--device", "cpu"]
    for setting in ("crop=32", "resize=32", "check=false"):
        small += ["--set", f"data_args.{setting}"]
    return lambda *args: CliRunner().invoke(app, [*small, *args], env={"COLUMNS": "200"})


def groceries(root):
    """The archive, unpacked as one does by hand."""
    classes = (int(grocery.FOLDS[k][0]) for k in (0, 1, 2))
    shutil.unpack_archive(trees.grocery(root / "download", tuple(classes)), root)


PAIRS = ("--set", "sampler_args.classes=2", "--set", "sampler_args.per_class=2")
AT_ONCE = ("--set", "frozen_steps=0", "--set", "warmup=0")


@pytest.mark.parametrize(
    "recipe, tree, others",
    [
        ("study_cub_googlenet", trees.cub, PAIRS),
        (
            "study_cub_resnet50",
            trees.cub,
            ("--loss", "normalized_softmax", "--set", "sampler_args.size=4"),
        ),
        ("sec_cars_googlenet", trees.cars, PAIRS),
        ("see_inshop_resnet50", trees.inshop, PAIRS),
        ("see_sop_dino_s", trees.sop, (*PAIRS, "--set", "loss_args.start_rate=1.0")),
        (
            "photos_grocery_lite0",
            groceries,
            (*PAIRS, *AT_ONCE),
        ),
    ],
)
def test_a_recipe_trains_on_a_tree_in_the_published_format(train, tmp_path, recipe, tree, others):
    tree(tmp_path / "data")
    result = train("--recipe", recipe, *others, "--set", "model_args.pretrained=false")
    assert result.exit_code == 0, result.output
    assert "recall_at_1" in result.output
    (run,) = (path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists())
    assert str(tmp_path / "data") not in (run / "run.json").read_text()  # no path of a machine


def test_a_recipe_without_its_weights_says_which_file_it_wants(train, tmp_path, monkeypatch):
    def no_network(*args, **others):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    trees.cub(tmp_path / "data")
    result = train("--recipe", "sec_cub_googlenet", *PAIRS)
    assert result.exit_code == 1
    assert "place https://download.pytorch.org/models/googlenet-1378be20.pth in" in result.stderr
    assert f"in {tmp_path}/hub/checkpoints" in result.stderr


def written(path, text):
    path.write_text(text)
    return str(path)


def test_changes_are_entry_by_entry_but_for_another_loss_sampler_or_optimizer(tmp_path):
    base = """
        [experiment]
        loss = "triplet_all"
        loss_args = { margin = 1.0 }
        data_args = { crop = 224, flip = true }
        sampler = "pk"
        sampler_args = { classes = 8, per_class = 2 }
        constraint = { weight = 1.0 }
        [losses.margin]
        lr = 0.5
        sampler = "uniform"
        sampler_args = { size = 7 }
        """
    first = written(tmp_path / "first.toml", base)
    second = written(
        tmp_path / "second.toml",
        f'base = "{first}"\n[experiment]\ndata_args.crop = 32\n[losses.margin]\ndim = 3\n',
    )
    made = recipes.load(second, settings={"sampler_args.classes": 4, "constraint": None})
    assert made.data_args == {"crop": 32, "flip": True}
    assert made.sampler_args == {"classes": 4, "per_class": 2}
    assert made.loss_args == {"margin": 1.0}
    assert made.constraint is None
    other = recipes.load(Path(second), "margin", {"seed": 5})
    assert (other.loss, other.loss_args, other.sampler_args) == ("margin", {}, {"size": 7})
    assert (other.lr, other.dim, other.seed, other.data_args["crop"]) == (0.5, 3, 5, 32)
    both = {"sampler_args.size": 9, "sampler": "uniform"}  # in whatever order
    assert recipes.load(second, settings=both).sampler_args == {"size": 9}
    assert recipes.load(None, "margin", {"steps": 9}) == training.Experiment(loss="margin", steps=9)


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("[experiment]\nhue = 1", TypeError, "Experiment takes loss, .*; not hue"),
        ("[experiment", ValueError, "Expected"),
        ("[experimnt]", TypeError, "takes base, experiment, losses; not experimnt"),
        (
            'base = "nothing"',
            ValueError,
            "there are grocery64, photos_features, photos_grocery_lite0, photos_scratch",
        ),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        recipes.load(written(tmp_path / "mine.toml", text))
