"""One step: its precision, and no wait for the device."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dmlkit import data, losses, training
from tests.training.tiny import TINY, run


def test_monitoring_is_in_the_precision_of_training_and_scoring_in_that_of_the_model(store):
    experiment = replace(TINY, precision="bf16-mixed", steps=2)
    images = data.load("glyphs", "train", **TINY.data_args)
    model, seen = training.build_model(experiment, images), []
    model.head.register_forward_hook(lambda head, inputs, output: seen.append(output.dtype))
    fabric = training.open_fabric(experiment, "cpu")
    trainer = training.Trainer(experiment, model, losses.TripletLoss(), images, fabric)
    trainer.advance()
    found = trainer.embed(images)
    assert set(seen) == {torch.bfloat16}
    assert found.dtype == np.float32
    result = run(experiment, store)
    again = training.embed(result.model(), data.load("glyphs", "test", **TINY.data_args))
    np.testing.assert_allclose(again, result.embeddings, rtol=1e-5, atol=1e-6)


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
