"""One step: its precision, and no wait for the device."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.precision.amp import MixedPrecision
from torch import nn

from dmlkit import data, losses, models, training
from dmlkit.data.images import to_float
from dmlkit.training import trainer
from tests.training.tiny import TINY, run


def test_monitoring_is_in_the_precision_of_training_and_scoring_in_that_of_the_model(store):
    experiment = replace(TINY, precision="bf16-mixed", steps=2)
    images = data.load("glyphs", "train", **TINY.data_args)
    model, seen = training.build_model(experiment, images), []
    model.head.register_forward_hook(lambda head, inputs, output: seen.append(output.dtype))
    fabric = training.open_fabric(experiment, "cpu")
    trained = training.Trainer(experiment, model, losses.TripletLoss(), images, fabric)
    trained.advance()
    found = trained.embed(images)
    assert set(seen) == {torch.bfloat16}
    assert found.dtype == np.float32
    result = run(experiment, store)
    again = training.embed(result.model(), data.load("glyphs", "test", **TINY.data_args))
    np.testing.assert_allclose(again, result.embeddings, rtol=1e-5, atol=1e-6)


class Black(nn.Module):
    """Gives zeros, but for the brightest of images, when it is not trained."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.head = share, nn.Linear(1024, 8)

    def forward(self, x):
        bright = x.mean(dim=(1, 2, 3)).argsort().argsort() >= self.share * len(x)
        return self.head(x.flatten(1)) * (bright[:, None] | self.training)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_rows_of_zeros_are_misses_of_a_look_and_end_no_training(share):
    train, val = (data.load("glyphs", split, **TINY.data_args) for split in ("train", "val"))
    asked = replace(TINY, steps=4, monitor_every=2)
    how = {"monitor": {"val": val}, "device": "cpu", "progress": False}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        history = training.fit(Black(share), losses.TripletLoss(), train, asked, **how)
    assert [str(each.message)[:7] for each in told] == ["picture"]  # once, of two looks
    recalls = history["val_recall_at_1"].dropna()
    assert len(recalls) == 2
    assert (recalls <= 1 - share).all()
    assert (recalls > 0).all() == (share < 1)


def half_precision(experiment, device, growth_interval=2):
    """16-mixed on a CPU, where Fabric would take bfloat16: its scale doubles every few steps."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=growth_interval)
    fabric = Fabric(
        accelerator="cpu",
        devices=1,
        plugins=MixedPrecision("16-mixed", "cpu", scaler),  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def test_half_precision_notes_and_clips_gradients_without_its_scale(monkeypatch):
    train, found = data.load("glyphs", "train", **TINY.data_args), []
    experiment = replace(TINY, steps=4, clip=0.01, optimizer="sgd", lr=1.0, monitor=())
    for precision in ("32-true", "16-mixed"):
        if precision == "16-mixed":
            constant = partial(half_precision, growth_interval=100)
            monkeypatch.setattr(trainer, "open_fabric", constant)
        kind = replace(experiment, precision=precision)
        model = training.build_model(kind, train)
        before = [p.detach().clone() for p in model.parameters()]
        history = training.fit(
            model, losses.SupConLoss(), train, kind, device="cpu", progress=False
        )
        moved = [(p.detach() - b).norm() for p, b in zip(model.parameters(), before, strict=True)]
        found.append([*history["gradient_norm"], torch.stack(moved).norm()])
    np.testing.assert_allclose(found[1], found[0], rtol=0.1)  # 256 times, if it were scaled
    assert 0.01 < found[0][-1] < 0.04  # four steps of a norm of 0.01


def test_half_precision_goes_on_with_its_scale_to_the_bit(monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "open_fabric", half_precision)
    train, path = data.load("glyphs", "train", **TINY.data_args), tmp_path / "checkpoint"
    whole = replace(TINY, precision="16-mixed", steps=9, lr_decay=0, monitor=())
    found = []
    for parts in ([9], [5, 9]):
        torch.manual_seed(0)
        model, loss = training.build_model(whole, train), losses.ContrastiveLoss()
        for steps in parts:
            experiment = replace(whole, steps=steps)
            history = training.fit(
                model, loss, train, experiment, device="cpu", checkpoint=path, progress=False
            )
            model = model if steps == 9 else training.build_model(whole, train)
        scale = torch.load(path, weights_only=True)["scaler"]["scale"]
        found.append([model.state_dict(), history["loss"].to_list(), scale])
        path.unlink()
    assert found[0][2] == 2.0**12  # doubled in steps 2, 4, 6 and 8
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_pictures_as_bytes_and_as_floats_train_and_embed_alike(augment, dtype):
    experiment, found = replace(TINY, steps=3, augment=augment), []
    images = data.load("glyphs", "train", **TINY.data_args)
    for train in (images, replace(images, images=images.images.to(dtype) / 255)):
        model, loss = training.build_model(experiment, images), losses.TripletLoss()
        history = training.fit(model, loss, train, experiment, device="cpu", progress=False)
        found.append([*history["loss"], *training.embed(model, train)[:, 0]])
        assert np.array_equal(training.embed(model, train), training.embed(model, images.images))
    np.testing.assert_allclose(found[1], found[0], rtol=0 if dtype == torch.float32 else 1e-4)
    with pytest.raises(TypeError, match=r"pictures must .* but are ndarray"):
        training.embed(model, images.images.numpy())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"loss": "proxy_anchor", "constraint": {"weight": 0.1}},
        {"loss": "htl", "sampler": "neighbors", "sampler_args": {"groups": 2}},  # once refreshed
    ],
)
def test_a_step_never_makes_the_host_wait_for_the_gpu(precision, change):
    experiment = replace(TINY, precision=precision, augment=True, **change)
    train = data.load("glyphs", "train", **TINY.data_args)
    model = training.build_model(experiment, train)
    objective = training.build_objective(experiment, train)
    fabric = training.open_fabric(experiment, "cuda")
    trainer = training.Trainer(experiment, model, objective, train, fabric)
    trainer.advance()  # loads kernels, allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_each_image_of_each_step_has_colors_of_its_own(generator):
    """Which the seed and the step decide."""
    image = torch.randint(0, 256, (1, 3, 8, 8), generator=generator, dtype=torch.uint8)
    labels = np.array([0, 0, 1, 1])
    same = data.ImageSet(image.repeat(4, 1, 1, 1), labels, labels.astype(str), ("a", "b"))
    args = {"sampler_args": {"classes": 2, "per_class": 2}, "model_args": {"widths": [4]}}
    experiment = training.Experiment(dim=4, color=0.3, **args)
    fabric = training.open_fabric(experiment, "cpu")
    model = training.build_model(experiment, same)
    trainer = training.Trainer(experiment, model, losses.TripletLoss(), same, fabric)
    first, again, later = (trainer._batch(seed)[0] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert len(torch.unique(torch.cat([first, later]), dim=0)) == 8
    trainer.experiment = replace(experiment, color=0.0, mirror=True)
    turned = torch.cat([trainer._batch(seed)[0] for seed in range(20)])
    plain = to_float(image).expand_as(turned)
    as_it_is, mirrored = ((turned == each).all(dim=(1, 2, 3)) for each in (plain, plain.flip(3)))
    assert (as_it_is ^ mirrored).all()
    assert 20 < mirrored.sum() < 60  # of 80


def test_features_of_a_frozen_network_are_computed_once(store, generator, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(store))
    images = data.load("glyphs", "test", **TINY.data_args)
    features = training.frozen(images, "convnet")
    model = models.build("convnet", 1, images[0], pretrained=True)
    expected = [layer for layer in model if layer is not model.head]
    x = training.embed(torch.nn.Sequential(*expected), images)
    np.testing.assert_array_equal(features.images[:, :, 0, 0].numpy(), x)
    monkeypatch.setattr(models, "build", None)  # would be called in vain
    assert torch.equal(training.frozen(images, "convnet").images, features.images)
    assert (features.labels == images.labels).all()


def test_a_head_on_committed_features_finds_more_of_unseen_groceries(store):
    args = {"features": "tf_efficientnet_lite0@128", "fold": 1}
    experiment = training.Experiment(
        data="grocery", data_args=args, model="linear", dim=128, loss="proxy_anchor", lr=1e-3,
        sampler_args={"classes": 16, "per_class": 4}, steps=100,
    )  # fmt: skip
    untouched = training.baselines(experiment)["untouched features"]["recall_at_1"]
    assert untouched == pytest.approx(0.821, abs=0.001)
    assert run(experiment, store).scores["recall_at_1"] > untouched + 0.03
