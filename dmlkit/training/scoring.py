"""What a model makes of images: embeddings, and how well they are found again."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from dmlkit import cache_folder, data, geometry, models, retrieval
from dmlkit.data.images import check_pictures, to_float
from dmlkit.data.pictures import Pictures
from dmlkit.files import write_whole
from dmlkit.training.experiment import Experiment


class DivergedError(FloatingPointError):
    """A loss, a gradient, a parameter, an embedding or its norm is no longer a finite number."""


def embed(
    model: nn.Module, images: data.ImageSet | Tensor | Pictures, batch_size: int = 256
) -> np.ndarray:
    """Raw embeddings of all images: (N, dim) float32, in evaluation mode, in the set's order.

    A tensor (N, C, H, W) is uint8 0..255 or float 0..1, as in an ImageSet; TypeError or ValueError
    for another.
    They are computed on the model's device, in its parameters' dtype (or as an autocast around
    this says).
    """
    if not isinstance(images, data.ImageSet):
        check_pictures(images)
    shown = images.images if isinstance(images, data.ImageSet) else images
    return embed_batches(model, shown.split(batch_size)).numpy()


def embed_batches(model: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """As ``embed``: batches (B, C, H, W), see ``to_float`` -> (N, dim) float32 on the CPU."""
    like = next(model.parameters())
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            parts = []
            for batch in batches:
                pixels = to_float(batch.to(like.device)).to(like.dtype)
                parts.append(model(pixels.contiguous(memory_format=torch.channels_last)))
    finally:  # where interrupted too: else it would go on with a BatchNorm that rests
        model.train(training)
    return torch.cat(parts).float().cpu()


def frozen(images: data.ImageSet, network: str, batch_size: int = 64) -> data.ImageSet:
    """The set with a pretrained network's features (N, F, 1, 1) in place of its images.

    The network does not learn: its features are computed once, and kept in ``frozen`` of the cache.
    The model ``linear`` makes embeddings of them.
    """
    path = cache_folder() / "frozen" / f"{network}_{images.fingerprint[:12]}.pt"
    if not path.exists():
        model = models.build(network, dim=1, image=images[0], pretrained=True)
        model.head = nn.Identity()
        features = embed_batches(model, images.images.split(batch_size))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole({path: partial(torch.save, features)})
    return replace(images, images=torch.load(path, weights_only=True)[:, :, None, None])


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
