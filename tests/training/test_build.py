"""From an Experiment to its parts: each part of a model learns at its own rate."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dmlkit import data, losses, training
from tests.training.tiny import TINY


class TwoParts(nn.Module):
    """A backbone and a head."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(1024, 8), nn.Tanh())
            self.head = nn.Linear(8, 8)

    def forward(self, images):
        return self.head(self.body(images))


def moved(experiment):
    """How far backbone, head and proxies moved, at every step."""
    train = data.load("glyphs", "train", **TINY.data_args)
    model, loss = TwoParts(), losses.NormalizedSoftmaxLoss(train.num_classes, 8)
    nn.init.normal_(loss.proxies, generator=torch.Generator().manual_seed(0))
    fabric = training.open_fabric(experiment, "cpu")
    trainer = training.Trainer(experiment, model, loss, train, fabric)
    parameters = [model.body[1].weight, model.head.weight, loss.proxies]
    distances = []
    for _ in range(experiment.steps):
        before = [parameter.detach().clone() for parameter in parameters]
        trainer.advance()
        pairs = zip(parameters, before, strict=True)
        distances.append([(new.detach() - old).abs().max().item() for new, old in pairs])
    return np.array(distances)  # (steps, 3)


def test_the_backbone_has_a_learning_rate_of_its_own():
    plain = replace(TINY, optimizer="sgd", lr=0.1, lr_decay=0, steps=1)
    factor = moved(replace(plain, backbone_lr_factor=0.25)) / moved(plain)
    np.testing.assert_allclose(factor, [[0.25, 1, 1]], rtol=1e-3)


def test_warm_up_begins_with_a_part_of_the_rate():
    plain = replace(TINY, optimizer="sgd", lr=0.1, lr_decay=0, steps=1)
    np.testing.assert_allclose(moved(replace(plain, warmup=4)) / moved(plain), 0.25, rtol=1e-3)


def test_clipping_scales_the_whole_gradient_to_a_norm():
    """Backbone, head and proxies by one factor; and not at all below that norm."""
    plain = replace(TINY, optimizer="sgd", lr=0.1, loss_lr_factor=1, lr_decay=0, steps=1)
    scaled, none = (moved(replace(plain, clip=norm)) / moved(plain) for norm in (1e-3, 1e9))
    np.testing.assert_allclose(scaled, np.full((1, 3), scaled[0, 0]), rtol=1e-3)
    assert scaled[0, 0] < 0.5
    assert (none == 1).all()
    train = data.load("glyphs", "train", **TINY.data_args)
    model, loss = TwoParts(), losses.NormalizedSoftmaxLoss(train.num_classes, 8)
    before = nn.utils.parameters_to_vector([*model.parameters(), *loss.parameters()])
    training.fit(model, loss, train, replace(plain, clip=1e-3), device="cpu", progress=False)
    after = nn.utils.parameters_to_vector([*model.parameters(), *loss.parameters()])
    torch.testing.assert_close((after - before).norm(), torch.tensor(0.1 * 1e-3), rtol=1e-2, atol=0)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_the_backbone_rests_while_it_warms_up(optimizer):
    args = {"momentum": 0.9} if optimizer == "sgd" else {}
    found = moved(
        replace(TINY, optimizer=optimizer, optimizer_args=args, frozen_steps=3, steps=5, lr_decay=0)
    )
    assert (found[:3, 0] == 0).all()
    assert (found[3:, 0] > 0).all()
    assert (found[:, 1:] > 0).all()
    if optimizer == "adam":  # whose first step, with nothing averaged yet, is lr in size
        np.testing.assert_allclose(found[3, 0], TINY.lr, rtol=1e-3)


def test_without_anything_to_train_it_is_said():
    train = data.load("glyphs", "train", **TINY.data_args)
    frozen, proxies = TwoParts().requires_grad_(False), losses.ProxyAnchorLoss(40, 8)
    for model in (frozen, nn.Flatten()):
        message = rf"nothing to train: .*{type(model).__name__}.*TripletLoss"
        with pytest.raises(ValueError, match=message):
            training.fit(model, losses.TripletLoss(), train, TINY, device="cpu", progress=False)
    before = proxies.proxies.detach().clone()
    training.fit(frozen, proxies, train, replace(TINY, steps=2), device="cpu", progress=False)
    assert not torch.equal(proxies.proxies, before)


@pytest.mark.parametrize("change", [{"frozen_steps": 1}, {"backbone_lr_factor": 0.1}])
def test_a_model_in_one_part_has_no_backbone_to_treat_apart(change):
    train = data.load("glyphs", "train", **TINY.data_args)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 8))
    with pytest.raises(ValueError, match="Sequential has no attribute 'head'"):
        training.fit(model, losses.TripletLoss(), train, replace(TINY, **change), device="cpu")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_at_a_rate_of_0_no_parameter_moves_and_a_warning_says_so(optimizer):
    train, asked = data.load("glyphs", **TINY.data_args), replace(TINY, lr=0, optimizer=optimizer)
    model, loss = training.build_model(asked, train), losses.ProxyAnchorLoss(40, 8)
    before = [p.detach().clone() for p in (*model.parameters(), *loss.parameters())]
    with pytest.warns(UserWarning, match="lr is 0: no parameter moves"):
        history = training.fit(model, loss, train, asked, device="cpu", progress=False)
    assert (history["gradient_norm"] > 0).all()
    for was, now in zip(before, (*model.parameters(), *loss.parameters()), strict=True):
        assert torch.equal(was, now)
