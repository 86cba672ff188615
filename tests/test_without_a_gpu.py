"""What a step on a GPU must not do, seen without one: tensors without values on a fake device.

Torch's FakeTensorMode computes shapes, types and devices and nothing else. So it refuses a number
read by the host, a shape that hangs on values, and tensors of two devices in one operation; what
copies between host and device and makes the host wait, ``_NoWaiting`` refuses. Forward passes run
on a fake ``cuda``; backward passes, which need a real driver there, run on ``meta``.
"""

import inspect
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric.plugins.precision import Precision
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from dmlkit import data, losses, retrieval, training
from dmlkit.data import glyphs
from dmlkit.losses import mining
from dmlkit.losses.contract import EmbeddingLoss
from dmlkit.losses.spherical import SphericalConstraint, SphericalExpansion, expand

B, DIM, CLASSES = 12, 8, 6
DEVICES = pytest.mark.parametrize("device", ["cuda", "meta"])

#: What may wait for the device, and why. Each is shown below to do so.
MAY_WAIT = {
    "structured_clustering": "its greedy search takes a step for each class of the batch, and so "
    "asks how many there are",
    "Trainer.check_finite": "it raises an error for what the device computed; the loop asks it "
    "once in many steps",
    "retrieval's checks": "they raise an error for embeddings that are not finite, once a search",
}


class WaitedError(AssertionError):
    """The host copied to or from the device and waited."""


class _NoWaiting(TorchDispatchMode):
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            source, target = args[0], torch.device(kwargs.get("device") or args[0].device)
            self._check(source.device, target, kwargs.get("non_blocking", False))
        elif func is torch.ops.aten.copy_.default:
            self._check(args[1].device, args[0].device, len(args) > 2 and args[2])
        return func(*args, **kwargs)

    def _check(self, source: torch.device, target: torch.device, non_blocking: bool) -> None:
        if source.type != "cpu" and target.type == "cpu":
            raise WaitedError(f"a copy from {source} to the host")
        if source.type == "cpu" and target.type != "cpu" and not non_blocking:
            raise WaitedError(f"a copy to {target} that is not non_blocking")


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    """Inside, tensors have no values, and ``device`` can be used."""
    with monkeypatch.context() as patch:
        if device == "meta":  # for which there is no autocast
            patch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield


def batch(device: str) -> tuple[Tensor, Tensor]:
    x = torch.randn(B, DIM, device=device, requires_grad=True)
    return x, torch.arange(B, device=device) % CLASSES


def step(loss: nn.Module, device: str) -> None:
    """One call of a loss, whose parameters and buffers are on the device, and its gradient."""
    state = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    there = {
        name: torch.empty_like(t, device=device).requires_grad_(t.requires_grad)
        for name, t in state.items()
    }
    x, y = batch(device)
    with _NoWaiting():
        value = functional_call(loss, there, (x, y))
    assert value.shape == ()
    assert value.device.type == device
    if device == "meta":
        wanted = [x, *(t for t in there.values() if t.requires_grad)]
        with _NoWaiting():
            gradients = torch.autograd.grad(value, wanted, allow_unused=True)
        assert gradients[0].shape == x.shape
        assert all(g is None or g.device.type == "meta" for g in gradients)


def make(name: str) -> nn.Module:
    few = {"spherical_expansion": {"points": 3}, "matryoshka": {"sizes": [3, DIM]}}  # DIM is small
    return losses.build(name, num_classes=CLASSES, dim=DIM, **few.get(name, {}))


NAMES = [entry.name for entry in losses.entries()]


@DEVICES
@pytest.mark.parametrize("name", [name for name in NAMES if name not in MAY_WAIT])
def test_a_step_of_a_loss_does_not_wait(name, device, monkeypatch):
    loss = make(name)
    with pretended(monkeypatch, device):
        step(loss, device)


@DEVICES
@pytest.mark.parametrize("name", [name for name in NAMES if name in MAY_WAIT])
def test_a_loss_that_may_wait_does(name, device, monkeypatch):
    loss = make(name)
    with pretended(monkeypatch, device), pytest.raises(RuntimeError):
        step(loss, device)


@DEVICES
@pytest.mark.parametrize("target", ["mean", "ema", 2.0])
@pytest.mark.parametrize("training_mode", [True, False])
def test_a_step_of_the_constraint_does_not_wait(target, training_mode, device, monkeypatch):
    constraint = SphericalConstraint(target=target, momentum=0.5).train(training_mode)
    with pretended(monkeypatch, device):
        step(constraint, device)


@DEVICES
@pytest.mark.parametrize("directions", ["simplex", "rotated", "random"])
@pytest.mark.parametrize("steps", [None, 0, 9])
@pytest.mark.parametrize("detach", [True, False])
def test_a_step_of_the_expansion_does_not_wait(detach, steps, directions, device, monkeypatch):
    see = SphericalExpansion(
        losses.NormalizedSoftmaxLoss(CLASSES, DIM),
        points=3,
        detach=detach,
        directions=directions,
        start_rate=0.3,
        steps=steps,
    )
    with pretended(monkeypatch, device):
        step(see, device)
        x, _ = batch(device)
        with _NoWaiting():
            assert expand(x, x, 3, directions=directions).device.type == device


MINING = [
    function
    for name, function in inspect.getmembers(mining, inspect.isfunction)
    if function.__module__ == mining.__name__ and not name.startswith("_")
]


@DEVICES
@pytest.mark.parametrize("function", MINING, ids=lambda f: f.__name__)
def test_mining_does_not_wait(function: Callable[..., Tensor], device, monkeypatch):
    with pretended(monkeypatch, device):
        y = torch.arange(B, device=device) % CLASSES
        same = y[:, None] == y
        known = {
            "D": torch.rand(B, B, device=device),
            "positive": same,
            "negative": ~same,
            "margin": 0.2,
            "dim": DIM,
        }
        wanted = {
            name: known[name]
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        with _NoWaiting():
            assert function(**wanted).device.type == device


@DEVICES
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_jitter_does_not_wait(dtype, device, monkeypatch):
    with pretended(monkeypatch, device):
        images = torch.empty(B, 1, 32, 32, dtype=dtype, device=device)
        with _NoWaiting():
            made = glyphs.jitter(images, torch.Generator().manual_seed(0))
        assert made.shape == images.shape
        assert made.device.type == device


# ------------------------------------------------------------------------------ a training


class Backward:
    """A Fabric of one device, whose backward pass on a fake ``cuda`` only makes gradients' room."""

    global_rank, world_size = 0, 1
    strategy = SimpleNamespace(precision=Precision())

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.autocast = nullcontext
        self.learned: list[nn.Parameter] = []

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
        self.learned = [p for group in optimizer.param_groups for p in group["params"]]
        optimizer.optimizer = optimizer  # as that around it has
        return model, optimizer

    def backward(self, value: Tensor) -> None:
        assert value.device.type == self.device.type
        if self.device.type == "meta":
            value.backward()
        else:
            for parameter in self.learned:
                parameter.grad = torch.empty_like(parameter)


def images() -> data.ImageSet:
    """24 images of 6 classes."""
    labels = np.arange(24) % CLASSES
    return data.ImageSet(
        torch.zeros(24, 1, 32, 32, dtype=torch.uint8),
        labels,
        np.array(["any"] * 24),
        tuple("abcdef"),
    )


@contextmanager
def pretended_training(
    monkeypatch: pytest.MonkeyPatch, device: str, **settings: Any
) -> Iterator[training.Trainer]:
    """A Trainer that is set up on the device; inside, tensors have no values."""
    train = images()
    experiment = training.Experiment(
        dim=DIM,
        steps=3,
        sampler_args={"classes": 4, "per_class": 3},
        # The fused kernel, which is the default, has no version for meta.
        optimizer_args={} if device == "cuda" else {"fused": False, "foreach": False},
        **settings,
    )
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)  # which wants a driver
    # FakeTensorMode refers to each parameter that it has seen, which ``Module.to`` would refuse.
    monkeypatch.setattr(weakref, "getweakrefs", lambda _: [])
    with pretended(monkeypatch, device):
        model = training.build_model(experiment, train)
        objective = training.build_objective(experiment, train)
        yield training.Trainer(experiment, model, objective, train, Backward(device))


@DEVICES
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "augment": False,
            "frozen_steps": 1,
            "model": "resnet18",
            "model_args": {"pretrained": False},
        },
        {"loss": "proxy_anchor", "constraint": {"target": "ema"}},
    ],
    ids=["default", "plain images", "with parameters and a constraint"],
)
def test_a_step_of_a_training_does_not_wait(settings, device, monkeypatch):
    """Batch, embeddings, objective, gradient, update and record."""
    with pretended_training(monkeypatch, device, **settings) as trainer:
        with _NoWaiting():
            trainer.advance()
            trainer.advance()
        assert trainer.step == 2


@DEVICES
def test_the_look_at_the_record_waits(device, monkeypatch):
    with pretended_training(monkeypatch, device) as trainer:
        trainer.advance()
        with _NoWaiting(), pytest.raises(WaitedError, match="to the host"):
            trainer.check_finite()


# ------------------------------------------------------------------------------ retrieval


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "poincare"])
@pytest.mark.parametrize("other_gallery", [True, False])
@pytest.mark.parametrize("k", [5, 39])  # a few, and the whole ranking
def test_retrieval_stays_on_the_device(k, other_gallery, metric, monkeypatch):
    """With the numbers that its checks read, and no others, given by hand: all is well."""
    monkeypatch.setattr(Tensor, "__bool__", lambda _: False)  # no row is bad
    monkeypatch.setattr(Tensor, "item", lambda _: 1.0)  # the spread
    with pretended(monkeypatch, "cuda"):
        x = torch.randn(40, DIM, device="cuda")
        y = torch.randn(50, DIM, device="cuda") if other_gallery else None
        with _NoWaiting():
            found = retrieval.nearest_neighbors(x, k, y, metric=metric)
        assert all(part.shape == (40, k) and part.device.type == "cuda" for part in found)


def test_retrievals_checks_wait(monkeypatch):
    with pretended(monkeypatch, "cuda"), pytest.raises(RuntimeError):
        retrieval.nearest_neighbors(torch.randn(40, DIM, device="cuda"), 5)


# ------------------------------------------------------------------------------ this test itself


class ReadsANumber(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.sum() * embeddings.norm().item()


class AsksATensor(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.sum() if (labels > 0).any() else embeddings.mean()


class ShapesByValues(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings[labels > 0].sum()


class MakesATensorOnTheHost(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings * torch.ones(len(embeddings), 1)).sum()


class ForgetsATensorOnTheHost(EmbeddingLoss):
    def setup(self) -> None:
        self.weight = torch.ones(B, 1)  # no buffer

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings * self.weight).sum()


class CountsOnTheHost(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.sum() + labels.cpu().to(embeddings.device).sum()


class CopiesWaiting(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return (embeddings * torch.ones(len(embeddings), 1).to(embeddings.device)).sum()


@DEVICES
@pytest.mark.parametrize(
    "bad, message",
    [
        (ReadsANumber, "_local_scalar_dense"),
        (AsksATensor, "_local_scalar_dense"),
        (ShapesByValues, "nonzero"),
        (MakesATensorOnTheHost, "two (different )?devices"),
        (ForgetsATensorOnTheHost, "two (different )?devices"),
        (CountsOnTheHost, "to the host"),
        (CopiesWaiting, "not non_blocking"),
    ],
)
def test_a_loss_that_waits_is_caught(bad, message, device, monkeypatch):
    with (
        pretended(monkeypatch, device),
        pytest.raises((RuntimeError, WaitedError), match=message),
    ):
        step(bad(), device)


class Good(EmbeddingLoss):
    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        weight = torch.ones(len(embeddings), 1, device=embeddings.device)
        return (torch.where(labels[:, None] > 0, embeddings, 0) * weight).sum()


@DEVICES
def test_a_loss_that_does_the_same_on_the_device_is_not(device, monkeypatch):
    with pretended(monkeypatch, device):
        step(Good(), device)
