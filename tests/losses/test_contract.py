"""What every loss in the table promises, whatever its equation: run over all names.

That no step waits for a device is in ``tests/test_without_a_gpu.py``.
"""

import copy
import dataclasses
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dmlkit import geometry, losses
from dmlkit.losses.contract import check_labels
from dmlkit.losses.spherical import SphericalConstraint

CLASSES = 6  # of a loss with proxies; no batch below has as many dimensions
ARGS = {
    "spherical_expansion": {"points": 3},  # its 8 points need more dimensions than 4
    "matryoshka": {"sizes": [2, 4]},  # by default those from 8
}

# Losses that are not of the sphere: the length of an embedding counts.
RAW = {"lifted_structure", "n_pairs", "prototypical", "symmetrical_synthesis", "meta_class"}
RAW |= {"sphereface", "adaface", "magface", "hyperbolic"}
# The order of a class's samples means something: support and query, first and second.
ORDERED = {"prototypical", "n_pairs", "n_pairs_normalized"}
ORDERED |= {"embedding_expansion", "symmetrical_synthesis"}  # neighbors in the batch
# Each place in the batch draws its own random number.
DRAWN = {"triplet_distance", "margin", "spherical_expansion"}
# Synthetic points lie in a frame drawn in coordinates, prefixes and parts are coordinates, whatever
# way the batch is turned.
FRAMED = {"spherical_expansion", "matryoshka", "multi_scale"}
# Its greedy search meets exact ties (two points make one cluster of either), which fall by place
# in the batch or by rounding; test_groups.py compares the search with an exhaustive one instead.
TIED = {"structured_clustering"}
# The number of medoids is the number of classes in the batch: the labels decide shapes and steps.
NOT_ONE_GRAPH = {"structured_clustering"}

# Its proxies are the axes, its classes 0 .. C − 1: turned or renamed, the problem is another one.
FIXED = {"meta_class"}
# Without parameters, but labels 0 … C − 1 are places in its table of margins.
NUMBERED = {"htl"}
NAMES = [entry.name for entry in losses.entries()]

every_loss = pytest.mark.parametrize("name", NAMES)


def every_loss_but(exceptions: set[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [n for n in NAMES if n not in exceptions])


# A loss with a parameter per class takes labels 0 … C − 1 only, and learns from a single sample.
without_parameters = pytest.mark.parametrize(
    "name",
    [
        n
        for n in NAMES
        if n not in FIXED
        and not list(losses.build(n, num_classes=2, dim=8, **ARGS.get(n, {})).parameters())
    ],
)

few_examples = settings(max_examples=settings.default.max_examples * 8 // 100)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A shuffled batch of raw float64 embeddings (B, d) of classes of unequal sizes."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=CLASSES - 1))
    classes = torch.randperm(CLASSES, generator=generator)[: len(sizes)]
    labels = classes.repeat_interleave(torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    dim = draw(st.sampled_from([4, 8]))
    x = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return draw(st.sampled_from([0.3, 0.6])) * x, labels


def plain(batch: int, dim: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """A batch for what no property varies: float64 embeddings, labels 0, 1, 2, 0, 1, 2, …"""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    return x, torch.arange(batch) % classes


def make(name: str, dim: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return losses.build(name, num_classes=CLASSES, dim=dim, **ARGS.get(name, {})).to(dtype)


def value(loss: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of a first batch: a schedule or memory stays untouched, draws are the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return copy.deepcopy(loss)(x, y)


def value_and_gradient(loss: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    L = value(loss, x, y)
    return L.detach(), torch.autograd.grad(L, x)[0]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@every_loss_but(DRAWN | TIED)
@few_examples
@given(batches(), st.randoms(use_true_random=False))
def test_order_of_the_batch_does_not_count(name, batch, random):
    x, y = batch
    order = torch.tensor(random.sample(range(len(y)), len(y)))
    if name in ORDERED:  # mix the classes, but keep each class's samples in their order
        kept = torch.empty_like(order)
        kept[y[order].argsort(stable=True)] = y.argsort(stable=True)
        order = kept
    loss = make(name, x.shape[1])
    before, gradient = value_and_gradient(loss, x, y)
    after, permuted = value_and_gradient(loss, x[order], y[order])
    assert_close(after, before)
    assert_close(permuted, gradient[order])


@every_loss_but(TIED | FIXED)
@few_examples
@given(batches(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=CLASSES, unique=True))
def test_names_of_classes_do_not_count(name, batch, other_names):
    """Any int64 for a loss of pairs; a loss with a parameter per class has those permuted alike."""
    x, y = batch
    loss = make(name, x.shape[1])
    renamed = copy.deepcopy(loss)
    others = torch.tensor(other_names[:CLASSES])
    if list(loss.parameters()) or name in NUMBERED:
        others = others.argsort()  # a permutation of the classes
        for old, new in zip(loss.parameters(), renamed.parameters(), strict=True):
            rows = new.detach().view(CLASSES, -1)
            rows[others] = old.detach().view(CLASSES, -1).clone()
    assert_close(value(renamed, x, others[y]), value(loss, x, y))


@every_loss_but(TIED | FRAMED | FIXED)
@few_examples
@given(batches())
def test_rotation_does_not_count(name, batch):
    x, y = batch
    Q = torch.linalg.qr(plain(x.shape[1], x.shape[1])[0])[0]
    loss = make(name, x.shape[1])
    turned = copy.deepcopy(loss)
    for w in turned.parameters():
        if w.shape[-1] == x.shape[1]:
            w.data = w.data @ Q
    before, gradient = value_and_gradient(loss, x, y)
    after, rotated = value_and_gradient(turned, x @ Q, y)
    assert_close(after, before)
    assert_close(rotated, gradient @ Q)


@every_loss_but(RAW)
@few_examples
@given(batches(), st.integers(-8, 8))
def test_length_does_not_count_on_the_sphere(name, batch, power):
    """L(αx) = L(x) with α a power of two, the gradient falls as 1/α and has no radial part."""
    x, y = batch
    loss = make(name, x.shape[1])
    before, gradient = value_and_gradient(loss, x, y)
    after, scaled = value_and_gradient(loss, 2.0**power * x, y)
    assert_close(after, before)
    assert_close(2.0**power * scaled, gradient)
    assert_close((gradient * x).sum(dim=1), torch.zeros(len(x), dtype=x.dtype))


@pytest.mark.parametrize("name", sorted(RAW))
def test_length_counts_off_the_sphere(name):
    x, y = plain(12, 4)
    loss = make(name, 4)
    assert value(loss, 2 * x, y) != value(loss, x, y)


AXES = [0, 1, 2, 3, 0, 1]  # of the proxies of degenerate batches


def degenerate() -> dict[str, tuple[Tensor, Tensor]]:
    x = torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(0))
    apart, paired = torch.arange(CLASSES), torch.arange(CLASSES) // 2
    return {
        "one class": (x, torch.zeros_like(apart)),
        "all classes different": (x, apart),
        "one sample": (x[:1], apart[:1]),
        "two of one class": (x[:2], paired[:2]),
        "two of two classes": (x[:2], apart[:2]),
        "duplicates within classes": (x[paired], paired),
        "duplicates across classes": (torch.cat([x, x]), torch.cat([paired, (paired + 1) % 3])),
        "whole batch equal": (x[:1].expand(CLASSES, 4), paired),
        "opposite": (torch.cat([x, -x]), torch.cat([paired, paired])),
        "a zero vector": (x * (apart > 0)[:, None], paired),
        "all zero": (0 * x, paired),
        "norms of 1e-6": (1e-6 * x, paired),
        "norms of 1e6": (1e6 * x, paired),
        "norms from 1e-6 to 1e6": (x * torch.logspace(-6, 6, CLASSES)[:, None], paired),
        "on the proxies": (torch.eye(4)[AXES], apart),
        "opposite to the proxies": (-torch.eye(4)[AXES], apart),
    }


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_degenerate_batches_have_finite_values_and_gradients(name, dtype):
    wide = torch.promote_types(dtype, torch.float32)
    loss = make(name, 4, wide)
    for w in loss.parameters():  # on the samples, opposite (where a cosine is ±1), long, short, 0
        if w.shape[-1] == 4:
            w.data.view(CLASSES, -1, 4)[:] = (
                torch.tensor([1, 1, -1, 1e6, 1e-6, 0])[:, None, None] * torch.eye(4)[AXES, None]
            )
    for case, (x, y) in degenerate().items():
        if dtype == torch.float64 and "proxies" not in case:
            continue
        z, again = x.to(dtype).requires_grad_(), copy.deepcopy(loss)
        L = again(z, y)
        assert (L.shape, L.dtype, L.requires_grad) == ((), wide, True), case
        assert L.isfinite(), case
        for gradient in torch.autograd.grad(L, [z, *again.parameters()], materialize_grads=True):
            assert gradient.isfinite().all(), case


@without_parameters
def test_a_sample_alone_has_nothing_to_learn(name):
    x, y = plain(1, 4)
    L = make(name, 4)(x.requires_grad_(), y)
    L.backward()
    assert L == 0
    assert (x.grad == 0).all()


@every_loss
def test_a_batch_that_is_not_finite_has_no_finite_loss(name):
    """Whatever the equation passes over: a training that has diverged must show."""
    loss, (x, y) = make(name, 4), plain(12, 4)
    for bad in (float("nan"), float("inf"), -float("inf")):
        for where in (slice(None), slice(3, 4), *((3, i) for i in range(4))):
            z = x.clone()
            z[where] = bad
            assert not value(loss, z, y).isfinite(), (bad, where)


@every_loss_but(RAW)
def test_no_norm_is_too_large(name):
    """Squares of 1e25 are beyond float32: the loss is the same, or shows that it failed."""
    x, y = plain(12, 4)
    loss = make(name, 4, torch.float32)
    L = value(loss, 1e25 * x.float(), y)
    torch.testing.assert_close(L, value(loss, x.float(), y), rtol=1e-4, atol=1e-4)


@every_loss_but(TIED | DRAWN)  # where a draw differs between precisions
@few_examples
@given(batches())
def test_single_precision_is_close_to_double(name, batch):
    x, y = batch
    single = value(make(name, x.shape[1], torch.float32), x.float(), y)
    assert_close(single.double(), value(make(name, x.shape[1]), x.float().double(), y), 1e-3)


@every_loss
def test_autocast_does_not_change_the_loss(name):
    x, y = plain(12, 4)
    x = x.bfloat16().requires_grad_()
    loss = make(name, 4, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value(loss, x, y)
    inside.backward()
    assert x.grad.dtype == torch.bfloat16
    assert torch.equal(inside, value(loss, x.float(), y))


class _NoFloat64(TorchDispatchMode):
    """As Apple's GPUs, which lack it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **kwargs or {})
        if any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in tree_leaves(found)):
            raise TypeError(f"{func} gives float64")
        return found


@every_loss
def test_float64_is_not_needed(name, monkeypatch):
    x, y = plain(12, 4)
    expected = value_and_gradient(make(name, 4, torch.float32), x.float(), y)
    monkeypatch.setattr(geometry, "float64_of", lambda device: torch.float32)
    with _NoFloat64():
        found = value_and_gradient(make(name, 4, torch.float32), x.float(), y)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@every_loss_but(NOT_ONE_GRAPH)
def test_compiles_as_one_graph(name):
    torch.compiler.reset()
    loss, (x, y) = make(name, 8), plain(12, 8)
    ours = torch.compile(copy.deepcopy(loss), backend="eager", fullgraph=True)
    for f in (x, 2 * x):  # two steps, for losses with a state
        values = []
        for each in (ours, loss):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                z = f.clone().requires_grad_()
                L = each(z, y)
                values.append((L.detach(), torch.autograd.grad(L, z)[0]))
        assert_close(values[0][0], values[1][0])
        assert_close(values[0][1], values[1][1])
    for before, after in zip(loss.state_dict().values(), ours.state_dict().values(), strict=True):
        assert_close(after, before)


@without_parameters
def test_large_labels_are_not_merged(name):
    """2²⁴ and 2²⁴ + 1 are one number in float32."""
    if name in NUMBERED:
        return  # no label is large
    loss = make(name, 4)
    x, y = plain(12, 4, classes=2)
    assert value(loss, x, y) != 0
    assert value(loss, x, y + 2**24) == value(loss, x, y)


@every_loss
def test_refuses_what_is_no_batch(name):
    loss = make(name, 4)
    x, y = plain(6, 4)
    for wrong_x, wrong_y, error in (
        (x[:, :, None], y, ValueError),
        (x[0], y, ValueError),
        (x[:0], y[:0], ValueError),
        (x[:, :0], y, ValueError),
        (x, y[:, None], ValueError),
        (x, y[:5], ValueError),
        (x, y.int(), TypeError),
        (x, y.double(), TypeError),
        (x.long(), y, TypeError),
        (x.numpy(), y, TypeError),
        ((x, x), y, TypeError),
        (x, y.numpy(), TypeError),
        (x, y.tolist(), TypeError),
    ):
        with pytest.raises(error, match=r"embeddings|labels"):
            loss(wrong_x, wrong_y)


@pytest.mark.parametrize("there", [True, False])
def test_labels_are_checked_where_a_device_has_no_assertion(there, monkeypatch):
    def no_such_operation(*args):
        raise NotImplementedError("not implemented for the MPS device")

    if not there:
        monkeypatch.setattr(torch, "_assert_async", no_such_operation)
    check_labels(torch.tensor([0, 3]), 4)
    with pytest.raises(ValueError, match="from 0 to 3, as num_classes is 4, but are from 0 to 4"):
        check_labels(torch.tensor([0, 4]), 4)


@pytest.mark.parametrize("name", [n for n in NAMES if "num_classes" in losses.signature(n)])
def test_a_label_that_is_no_class_is_refused(name):
    """Cross-entropy skips −100 silently, and −1 is the last row of a table."""
    loss, (x, y) = make(name, 4), plain(6, 4)
    for label in (-100, -1, CLASSES, 2**40):
        y[2] = label
        with pytest.raises(ValueError, match=f"labels must be .* num_classes is 6, .*{label}"):
            loss(x, y)


@pytest.mark.parametrize("name", [n for n in NAMES if "dim" in losses.signature(n)])
def test_embeddings_of_another_dimension_are_refused(name):
    for dim in (4, 12):
        with pytest.raises(ValueError, match=f"{dim} dimensions, but the loss is of 8: .*={dim}"):
            make(name, 8)(*plain(6, dim))


@every_loss
def test_settings_may_be_numpys(name):
    loss = make(name, 8)
    given = {f.name: getattr(loss, f.name) for f in dataclasses.fields(loss) if f.init}
    numbers = {key: x for key, x in given.items() if type(x) in (int, float)}
    args = {"num_classes": CLASSES, "dim": 8, **ARGS.get(name, {}), **numbers}
    torch.manual_seed(0)
    other = losses.build(name, **{key: np.asarray(x)[()] for key, x in args.items()}).double()
    x, y = plain(12, 8)
    assert_close(value(other, x, y), value(loss, x, y))


def wrong(field: dataclasses.Field) -> list[object]:
    """What is out of the range of a setting, or none of its choices."""
    low, high = field.metadata.get("range", (None, None))
    if field.metadata.get("in"):
        return ["no such choice"]
    if field.type not in (int, float, int | None, float | None):
        return []
    found = [float("nan"), -float("inf"), "1", True]
    found += [] if low is None else [low - 1]
    found += [] if high in (None, float("inf")) else [high + 1]
    found += [] if high == float("inf") else [float("inf")]
    return found + ([2.5] if field.type in (int, int | None) else [])


MADE_BY = {getattr(entry.make, "func", entry.make): entry.name for entry in losses.entries()}


@pytest.mark.parametrize("cls, name", [*MADE_BY.items(), (SphericalConstraint, "")])
def test_a_setting_out_of_its_range_is_refused_by_name(cls, name):
    sizes = {"num_classes": CLASSES, "dim": 8, **ARGS.get(name, {})} if name else {}
    for field in dataclasses.fields(cls):
        for bad in wrong(field) if field.init else ():
            told = f"^{field.name} must be .*, but is {re.escape(repr(bad))}$"
            with pytest.raises(ValueError, match=told):
                losses.build(name, **sizes | {field.name: bad}) if name else cls(
                    **{field.name: bad}
                )


@pytest.mark.parametrize(
    "name, args, message",
    [
        ("contrastive", {"negative_margin": -0.1}, "negative_margin must be a number from 0"),
        ("sup_ap", {"negative_margin": 2.0}, "negative_margin must be a number from -1.0 to 1.0"),
        ("contextual", {"weight": 0.5, "regularization": 0.7}, "together be at most 1"),
        ("magface", {"upper_norm": 1.0}, "upper_norm must be above lower_norm"),
        ("magface", {"upper_margin": 0.4}, "upper_margin lower_margin"),
        ("recall_at_k", {"k": []}, "k must hold at least one"),
        ("recall_at_k", {"k": [1, 0]}, "k must hold at least one whole number from 1"),
        ("spherical_expansion", {"points": 8}, "points must be a number from 1 to 7"),
        *(
            ("matryoshka", {"sizes": sizes}, "sizes must be distinct whole numbers from 1 to dim")
            for sizes in ([], [0, 8], [8, 9], [4, 4], [2.0, 8])
        ),
        ("matryoshka", {"sizes": [4, 8], "weights": [1.0]}, "weights must be 2"),
        ("matryoshka", {"sizes": [4, 8], "weights": [1.0, 0.0]}, "weights must be 2, above 0"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(name, args, message):
    with pytest.raises(ValueError, match=message):
        losses.build(name, num_classes=CLASSES, dim=8, **args)


@pytest.mark.parametrize("target", ["median", -1.0, float("inf"), float("nan")])
def test_a_norm_to_hold_is_one(target):
    with pytest.raises(ValueError, match=f"target must be .* but is {target!r}"):
        SphericalConstraint(target=target)


def test_nothing_is_a_share_of_a_norm_of_0():
    with pytest.raises(ValueError, match="target must be above 0, but is 0"):
        SphericalConstraint(target=0.0, relative=True)


@every_loss
def test_state_round_trip(name):
    """Two batches on, a copy made from the saved state gives the same third loss."""
    x, y = plain(12, 8)
    original = make(name, 8)
    restored = losses.build(name, num_classes=CLASSES, dim=8, **ARGS.get(name, {})).double()
    original(x, y)
    original(x.flip(1), y)
    restored.load_state_dict(original.state_dict())
    assert torch.equal(value(restored, x.roll(1, 1), y), value(original, x.roll(1, 1), y))
