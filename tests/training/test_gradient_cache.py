"""The gradient of a batch in parts is that of the batch at once, with a fraction of its graph."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dmlkit import losses, models
from dmlkit.training.gradient_cache import cached_backward

IMAGES = torch.rand(48, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(48) % 12


def made(name: str) -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = models.build("convnet", dim=8, image=torch.zeros(1, 16, 16, dtype=torch.uint8))
        return model.double().eval(), losses.build(name, num_classes=12, dim=8).double()


def gradients(*modules: nn.Module) -> list[Tensor]:
    return [p.grad for module in modules for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", ["triplet_all", "multi_similarity", "supcon", "proxy_anchor"])
def test_the_gradient_is_that_of_the_whole_batch(name):
    model, loss = made(name)
    whole = copy.deepcopy(model), copy.deepcopy(loss)
    expected = whole[1](whole[0](IMAGES), LABELS)
    expected.backward()
    output = nn.Sequential(model)
    output.register_forward_hook(lambda *args: {"embeddings": args[2], "maps": None})
    found = cached_backward(output, loss, IMAGES.split(10), LABELS)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0)
    theirs, ours = gradients(*whole), gradients(model, loss)
    assert len(ours) == len(theirs) > 4
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-12)


def test_parts_of_a_generator_and_a_model_that_rests():
    found = []
    for frozen, parts in ((False, IMAGES.split(10)), (False, iter(IMAGES.split(10))), (True, None)):
        model, loss = made("proxy_anchor")
        model.requires_grad_(not frozen)
        cached_backward(model, loss, parts or IMAGES.split(10), LABELS)
        found.append(gradients(model, loss))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[0][-1:], rtol=0, atol=0)  # the proxies' alone


def test_the_same_dropout_is_drawn_in_both_passes():
    """Each embedding is linear in the mask of its pass: its gradient shows which one was drawn."""
    drop, seen = nn.Dropout(0.5), []
    drop.register_forward_hook(lambda *args: seen.append((args[2] != 0).tolist()))
    model = nn.Sequential(nn.Linear(3, 64), drop, nn.Linear(64, 8))
    cached_backward(model, losses.SupConLoss(), torch.randn(12, 3).split(5), torch.arange(12) % 4)
    assert seen[:3] == seen[3:]
    assert seen[0] != seen[1]


def test_memory_holds_the_graph_of_one_part():
    model, loss = made("supcon")
    kept: list[int] = []

    def peak(step) -> int:
        """The most bytes that autograd saves between two backward passes."""
        total, most = 0, 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total, most
            total += tensor.nbytes
            most = max(most, total)
            return tensor

        def unpack(tensor: Tensor) -> Tensor:
            nonlocal total
            total -= tensor.nbytes
            return tensor

        with saved_tensors_hooks(pack, unpack):
            step()
        return most

    kept.append(peak(lambda: loss(model(IMAGES), LABELS).backward()))
    kept.append(peak(lambda: cached_backward(model, loss, IMAGES.split(6), LABELS)))
    assert kept[1] < kept[0] / 4  # an eighth of the images; weights and the loss besides
