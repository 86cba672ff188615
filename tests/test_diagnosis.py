"""``dmlkit diagnose``: every illness is really made and found, and healthy Runs have none."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import dmlkit
from dmlkit import cli, terminal, training
from dmlkit.diagnosis import diagnose
from dmlkit.training import Experiment

FEW = {"per_class": 10, "train_classes": 60, "test_classes": 60, "test_per_class": 10}
EIGHT = {"data_args": FEW | {"train_classes": 8}, "sampler_args": {"classes": 8, "per_class": 4}}
SMALL = {"data_args": FEW, "sampler_args": {"classes": 8, "per_class": 4}}
PROXIES = {"loss": "normalized_softmax", "steps": 3, "data_args": FEW}
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
    "stuck at the margin": Experiment(lr=1.0, steps=30, data_args=FEW),
    "no active triplets": Experiment(steps=90, loss_args={"margin": 0.02}, **EIGHT),
    "too few positives": Experiment(
        loss="contrastive", sampler="uniform", sampler_args={"size": 32}, steps=20, data_args=FEW
    ),
    "idle proxies": Experiment(sampler_args={"classes": 4, "per_class": 8}, **PROXIES),
    "learning rate too high": Experiment(lr=0.3, steps=20, **SMALL),
    "learning rate too low": Experiment(lr=1e-6, steps=20, **SMALL),
    "dimensions unused": Experiment(loss="contrastive", lr=0.1, steps=60, **SMALL),
    "norms adrift": Experiment(loss="proxy_anchor", lr=1.0, steps=40, **SMALL),
    "over-fitted classes": Experiment(steps=60, **EIGHT),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train an Experiment, or load its Run."""
    store = tmp_path_factory.mktemp("diagnosis")
    return lambda e: training.run(e, store=store, device="cpu", progress=False)


@pytest.fixture
def healthy(trained):
    return trained(HEALTHY["triplets"])


def seen(run):
    return {finding.name: finding.seen for finding in diagnose(run, "cpu")}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_not_called_ill(kind, trained):
    assert seen(trained(HEALTHY[kind])) == {}


@pytest.mark.parametrize("name", ILL)
def test_an_illness_is_found_in_a_training_that_has_it(name, trained):
    found = diagnose(trained(ILL[name]), "cpu")
    assert name in [finding.name for finding in found]
    for finding in found:
        assert (dmlkit.ROOT / "notebooks" / f"{finding.notebook}.ipynb").is_file()


def test_a_narrow_cone_with_its_classes_apart_is_no_collapse(healthy):
    x = healthy.embeddings / np.linalg.norm(healthy.embeddings, axis=1, keepdims=True)
    x = (0.05 * x + np.eye(1, x.shape[1])).astype(np.float32)
    cone = replace(healthy, embeddings=x, scores={"recall_at_1": 0.7})
    assert "collapsed" not in seen(cone)
    assert "collapsed" in seen(replace(cone, scores={"recall_at_1": 0.1}))


def test_a_loss_near_its_margin_is_not_stuck_where_images_are_apart(healthy):
    history = healthy.history.assign(loss=0.2)
    assert "stuck at the margin" not in seen(replace(healthy, history=history))
    point = np.ones_like(healthy.embeddings)
    assert "stuck at the margin" in seen(replace(healthy, history=history, embeddings=point))


def test_triplets_that_run_out_near_the_end_have_done_their_work(healthy):
    for share, ill in ((0.7, False), (0.4, True)):
        loss = np.where(healthy.history["step"] > share * 60, 1e-5, healthy.history["loss"])
        found = seen(replace(healthy, history=healthy.history.assign(loss=loss)))
        assert ("no active triplets" in found) == ill


def test_proxies_need_no_positives(trained):
    uniform = {"sampler": "uniform", "sampler_args": {"size": 32}}
    assert "too few positives" not in seen(trained(Experiment(**PROXIES, **uniform)))


@pytest.mark.parametrize("factor, ill", [(1e-6, True), (0.0, False), (1.0, False)])
def test_proxies_that_stay_are_idle_unless_they_are_meant_to(factor, ill, trained):
    found = seen(trained(Experiment(loss_lr_factor=factor, **PROXIES)))
    assert ("proxies of 100% moved" in found.get("idle proxies", "")) == ill


@pytest.mark.parametrize("column", ["loss", "gradient_norm"])
def test_a_loss_or_gradient_that_rises_tells_of_a_high_learning_rate(column, healthy):
    rising = np.geomspace(0.1, 10, 60)
    ill = replace(healthy, history=healthy.history.assign(**{column: rising}))
    assert "rose from" in seen(ill)["learning rate too high"]
    falling = replace(healthy, history=healthy.history.assign(**{column: rising[::-1]}))
    assert "learning rate too high" not in seen(falling)


@pytest.mark.parametrize("loss", ["sphereface", "magface"])
def test_a_loss_whose_margin_makes_it_rise_is_not_called_ill(loss, trained):
    """It grows from step to step in SphereFace, and with the norms in MagFace."""
    run = trained(Experiment(loss=loss, steps=20, **SMALL))
    risen = replace(run, history=run.history.assign(loss=np.linspace(1, 9, 20)))
    assert "learning rate too high" not in seen(risen)


def test_unseen_classes_that_were_once_found_better_tell_of_over_fitting(healthy):
    recalls = np.full(60, np.nan)
    recalls[[19, 39, 59]] = 0.5, 0.62, 0.54
    history = healthy.history.assign(test_recall_at_1=recalls)
    found = seen(replace(healthy, history=history))
    assert "fell from 62.0% after step 40 to 54.0%" in found["over-fitted classes"]
    assert seen(replace(healthy, history=history.replace(0.62, 0.57))) == {}


def test_noise_of_many_dimensions_has_hubs(healthy):
    noise = np.random.default_rng(0).normal(size=(len(healthy.labels), 256)).astype(np.float32)
    offset = replace(healthy, embeddings=noise + 2)  # near the mean are the hubs
    assert "hubs" in seen(offset)


def test_without_the_training_images_the_rest_is_diagnosed(healthy, monkeypatch, tmp_path):
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path))
    elsewhere = replace(healthy.experiment, data="cub", data_args={})
    run = replace(healthy, experiment=elsewhere, embeddings=np.ones_like(healthy.embeddings))
    with pytest.warns(UserWarning, match="batches and training classes were not examined"):
        found = seen(replace(run, scores={"recall_at_1": 0.01}))
    assert "collapsed" in found


def test_the_command_says_it_in_words(trained, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(width=300))
    for experiment, words in (
        (HEALTHY["triplets"], "nothing wrong was found"),
        (ILL["learning rate too low"], "learning rate too low: the weights moved by only"),
    ):
        path = str(trained(experiment).path)
        done = CliRunner().invoke(cli.app, ["diagnose", path, "--device", "cpu"])
        assert done.exit_code == 0, done.output
        assert words in done.output
    assert "notebooks/15_fair_comparison.ipynb" in done.output
