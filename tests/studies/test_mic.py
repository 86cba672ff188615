"""MIC: gradients that are turned around, clusters within classes, and one head that is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dmlkit import data, retrieval, training
from dmlkit.losses import MarginLoss
from studies.mic import Adversary, MICLoss, mic
from tests.training.tiny import TINY


def adversary_by_loops(u: Tensor, v: Tensor, R: torch.nn.Sequential) -> Tensor:
    first, _, last = R
    total = u.new_zeros(())
    for a, b in zip(u, v, strict=True):
        a, b = a / a.norm(), b / b.norm()
        r = last.weight @ (first.weight @ b + first.bias).clamp_min(0) + last.bias
        total = total + sum((x * y) ** 2 for x, y in zip(a, r / r.norm(), strict=True))
    return -total / u.numel()


def two_embeddings(generator, B=6, d=4):
    x = torch.randn(2, B, d, generator=generator, dtype=torch.float64)
    return x[0].requires_grad_(), x[1].requires_grad_()


def test_the_adversary_has_its_value_and_the_embeddings_the_opposite_gradient(generator):
    """Finite differences of the value, the signs of u and v's turned by hand, those of R's not."""
    torch.manual_seed(0)
    A, (u, v) = Adversary(dim=4, hidden=16).double(), two_embeddings(generator)
    value = A(u, v)
    torch.testing.assert_close(value, adversary_by_loops(u, v, A.R), rtol=1e-12, atol=0)
    value.backward()
    for tensor, sign in ((u, -1), (v, -1), *((p, 1) for p in A.parameters())):
        flat = tensor.detach().view(-1)
        for i in range(0, len(flat), 7):
            h, old, ends = 1e-6, flat[i].item(), []
            for moved in (old + h, old - h):
                flat[i] = moved
                ends.append(A(u, v).item())
            flat[i] = old
            difference = (ends[0] - ends[1]) / (2 * h)
            assert tensor.grad.view(-1)[i].item() == pytest.approx(sign * difference, abs=1e-9)
    assert u.grad.abs().max() > 1e-3
    assert v.grad.abs().max() > 1e-4


def test_a_step_on_the_embeddings_parts_them_and_one_on_r_joins_them(generator):
    torch.manual_seed(0)
    A, (u, v) = Adversary(dim=4, hidden=16).double(), two_embeddings(generator)
    value = A(u, v)
    value.backward()
    with torch.no_grad():
        assert A(u - 0.05 * u.grad, v - 0.05 * v.grad) > value  # less correlated: nearer to 0
        for parameter in A.parameters():
            parameter -= 0.05 * parameter.grad
        assert A(u, v) < value


def loss_of(generator, weight=3.0, clusters=4):
    torch.manual_seed(0)
    loss = MICLoss(num_classes=5, dim=4, clusters=clusters, weight=weight).double()
    labels = torch.arange(5).repeat_interleave(12)
    # v: far apart classes, and within each the same two clusters
    centers = 4 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    within = torch.tensor([[0.0, 0, 0, 1.5], [0, 0, 0, -1.5]], dtype=torch.float64)
    v = centers[labels] + within[torch.arange(60) % 2]
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    return loss, torch.cat([x, v], dim=1), labels


def test_the_loss_is_its_three_terms(generator):
    loss, x, y = loss_of(generator)
    loss.refresh(x, y)
    batch = torch.arange(0, 60, 4)
    u, v = x[batch, :4], x[batch, 4:]
    unit = v / v.norm(dim=1, keepdim=True) - loss.class_means[y[batch]]
    found = torch.cdist(unit, loss.centers).argmin(dim=1)
    assert len(found.unique()) > 1
    terms = []
    for inner, part, labels in ((MarginLoss(5), u, y[batch]), (MarginLoss(4), v, found)):
        torch.manual_seed(1)  # both draw negatives; each alone here, so one call after another
        terms.append((inner.double(), part, labels))
    torch.manual_seed(1)
    value = loss(x[batch], y[batch])
    torch.manual_seed(1)
    expected = sum(inner(part, labels) for inner, part, labels in terms)
    expected = expected + 3 * adversary_by_loops(u, v, loss.adversary.R)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)


def test_first_clusters_cut_across_classes_and_later_ones_are_of_v_itself(generator):
    loss, x, y = loss_of(generator, clusters=2)
    loss.refresh(x, y)
    of = loss.clusters(x[:, 4:], y)
    for label in range(5):  # each class has both, and alternates as the images were made
        assert len(set(of[y == label][::2].tolist())) == 1
        assert len(set(of[y == label].tolist())) == 2
    assert loss.class_means.abs().max() > 0
    loss.refresh(x, y)
    assert (loss.class_means == 0).all()
    of = loss.clusters(x[:, 4:], y)
    assert all(len(set(of[y == label].tolist())) == 1 for label in range(5))


def test_clusters_are_the_same_each_time_and_part_of_the_state(generator):
    loss, x, y = loss_of(generator)
    other = MICLoss(num_classes=5, dim=4, clusters=4, weight=3.0).double()
    loss.refresh(x, y)
    other.refresh(x, y)
    assert torch.equal(loss.centers, other.centers)
    fresh = MICLoss(num_classes=5, dim=4, clusters=4, weight=3.0).double()
    fresh.load_state_dict(loss.state_dict())
    assert torch.equal(fresh.clusters(x[:, 4:], y), loss.clusters(x[:, 4:], y))
    fresh.refresh(x, y)  # its second: without class means, as the state says
    assert (fresh.class_means == 0).all()


def test_before_the_first_refresh_the_second_head_learns_no_clusters(generator):
    loss, x, y = loss_of(generator, weight=0.0)
    x.requires_grad_()
    loss(x, y).backward()
    assert (x.grad[:, 4:] == 0).all()
    assert x.grad[:, :4].abs().sum() > 0


def test_compiles_as_one_graph(generator):
    loss, x, y = loss_of(generator)
    loss.refresh(x, y)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    value = compiled(x, y)
    torch.manual_seed(1)
    torch.testing.assert_close(value, loss(x, y), rtol=1e-9, atol=0)


SMALL = replace(TINY, monitor=(), steps=6)


def recipe(experiment=SMALL, **args):
    return mic(experiment, clusters=5, device="cpu", progress=False, **args)


def test_the_recipe_trains_two_heads_and_scores_the_first():
    found = recipe()
    test = data.load("glyphs", "test", **SMALL.data_args)
    with torch.inference_mode():
        both = found.model.eval()(training.to_float(test.images))
    assert both.shape == (len(test), 2 * SMALL.dim)
    x = training.embed(found.model, test)[:, : SMALL.dim]
    np.testing.assert_allclose(x, both[:, : SMALL.dim].numpy(), rtol=1e-4, atol=1e-5)
    expected = retrieval.evaluate(**test.retrieval_sets(x), metric="cosine")
    assert found.scores == expected
    assert len(found.history) == 6
    assert found.loss.started


def test_the_recipe_is_a_function_of_its_seed():
    torch.manual_seed(5)
    first, again = recipe(), recipe()
    assert first.scores == again.scores
    assert first.history.equals(again.history)
    assert not first.history.equals(recipe(replace(SMALL, seed=1)).history)
