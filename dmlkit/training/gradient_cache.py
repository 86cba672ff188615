"""Batches far larger than memory: the gradient of a loss of all embeddings, in two passes."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from dmlkit.training.scoring import embedding_of


def cached_backward(
    model: nn.Module, loss: nn.Module, parts: Iterable[Tensor], labels: Tensor
) -> Tensor:
    """Add to all gradients what ``loss(model(batch), labels).backward()`` adds, part by part.

    Images (B, C, H, W) come in ``parts``, their labels (B,) at once. The first pass embeds
    each part and keeps no graph; the loss of all embeddings gives ∂L/∂x (B, d); the second pass
    embeds each part again and takes its rows back through the model. So memory holds the graph of
    one part, for twice the forward passes. What is random in the model is drawn alike both times.
    BatchNorm in training mode sees each part by itself, and moves its averages twice: freeze it.

    Returns the loss, without a graph.

    Source: Gao, Zhang, Han and Callan 2021, "Scaling Deep Contrastive Learning Batch Size under
    Memory Limited Setup" (GradCache).

    >>> from dmlkit import losses
    >>> model, images = nn.Linear(3, 2), torch.eye(3).repeat(2, 1)
    >>> cached_backward(model, losses.SupConLoss(), images.split(2), torch.arange(6) % 3).shape
    torch.Size([])
    """
    parts, states, embedded = list(parts), [], []
    with torch.no_grad():
        for part in parts:
            states.append(_random_state(part.device))
            embedded.append(embedding_of(model(part)))
    embeddings = torch.cat(embedded).requires_grad_()
    value: Tensor = loss(embeddings, labels)
    value.backward()
    assert embeddings.grad is not None
    gradients = embeddings.grad.split([len(part) for part in parts])
    for part, state, gradient in zip(parts, states, gradients, strict=True):
        devices = [part.device] if part.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.set_rng_state(state[0])
            if devices:
                torch.cuda.set_rng_state(state[1], part.device)
            again = embedding_of(model(part))
            if again.requires_grad:  # a frozen model's are not: what the loss learns has its own
                again.backward(gradient)
    return value.detach()


def _random_state(device: torch.device) -> tuple[Tensor, ...]:
    own = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return torch.get_rng_state(), *own
