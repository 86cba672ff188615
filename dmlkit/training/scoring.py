"""What a model makes of images: embeddings, and how well they are found again."""

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dmlkit import data, geometry, retrieval
from dmlkit.training.experiment import Experiment


class DivergedError(FloatingPointError):
    """A loss, a gradient, a parameter, an embedding or its norm is no longer a finite number."""


def to_float(images: Tensor) -> Tensor:
    """Pixels as a network sees them: uint8 0..255 -> float32 0..1.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return images.float() / 255


def embedding_of(output: Any) -> Tensor:
    """The embedding in what a network gives: a tensor is it; of a tuple, a list or a mapping, as a
    Hugging Face output is, it is the only tensor (B, d).

    Raises TypeError, saying what came, where there is none or more than one.

    >>> embedding_of({"last_hidden_state": torch.ones(2, 5, 3), "pooler_output": torch.ones(2, 3)})
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    if isinstance(output, Tensor):
        return output
    several = isinstance(output, tuple | list | Mapping)
    parts = dict(output if isinstance(output, Mapping) else enumerate(output)) if several else {}
    found = [x for x in parts.values() if isinstance(x, Tensor) and x.ndim == 2]
    if len(found) == 1:
        return found[0]
    came = {name: tuple(getattr(x, "shape", ())) or type(x).__name__ for name, x in parts.items()}
    raise TypeError(
        "a network must give embeddings (B, d), or one such tensor among others, but gave "
        f"{type(output).__name__}{f' {came}' * several}: wrap it in a module that returns them"
    )


def embed(model: nn.Module, images: data.ImageSet, batch_size: int = 256) -> np.ndarray:
    """Raw embeddings of all images: (N, dim) float32, in evaluation mode, in the set's order.

    They are computed on the model's device, in its parameters' dtype (or as an autocast around
    this says). The model's output may hold more than the embedding: see ``embedding_of``.
    """
    return embed_batches(model, images.images.split(index(batch_size))).numpy()


def embed_batches(model: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """As ``embed``: batches of uint8 images (B, C, H, W) -> (N, dim) float32 on the CPU."""
    numbers = chain(model.parameters(), model.buffers(), [torch.empty(0)])  # it may have neither
    like = next(x for x in numbers if x.is_floating_point())
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            parts = []
            for batch in batches:
                pixels = to_float(batch.to(like.device)).to(like.dtype)
                output = model(pixels.contiguous(memory_format=torch.channels_last))
                parts.append(embedding_of(output))
    finally:  # where interrupted too: else it would go on with a BatchNorm that rests
        model.train(training)
    return torch.cat(parts).float().cpu()


def check_embeddings(embeddings: Tensor, when: str) -> None:
    """Raise DivergedError unless all norms of embeddings (N, dim), and so all numbers, are finite.

    >>> check_embeddings(torch.tensor([[1.0, torch.nan]]), "after step 3 of 9")
    Traceback (most recent call last):
    dmlkit.training.scoring.DivergedError: an embedding's norm is nan after step 3 of 9
    """
    norms = geometry.norms(embeddings)
    bad = norms[~norms.isfinite()]
    if len(bad):
        raise DivergedError(f"an embedding's norm is {bad[0].item()} {when}")


def score(experiment: Experiment, images: data.ImageSet, x: np.ndarray) -> dict[str, float]:
    """The scores of embeddings (N, dim) by the Experiment's metric: see ``retrieval.evaluate``."""
    return retrieval.evaluate(**images.retrieval_sets(x), metric=experiment.metric)
