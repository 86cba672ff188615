"""What a model makes of images: embeddings, and how well they are found again."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from dmlkit import cache_folder, data, geometry, models, retrieval
from dmlkit.checks import warn_once
from dmlkit.data.images import check_pictures, to_float
from dmlkit.data.pictures import Pictures
from dmlkit.files import write_whole
from dmlkit.training.experiment import Experiment

_STRANGERS = 17  # one more than the deepest of ``retrieval.evaluate``'s scores


class DivergedError(FloatingPointError):
    """A loss, a gradient, a parameter, an embedding or its norm is no longer a finite number."""


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


def embed(
    model: nn.Module, images: data.ImageSet | Tensor | Pictures, batch_size: int = 256
) -> np.ndarray:
    """Raw embeddings of all images: (N, dim) float32, in evaluation mode, in the set's order.

    A tensor (N, C, H, W) is uint8 0..255 or float 0..1, as in an ImageSet; TypeError or ValueError
    for another.
    They are computed on the model's device, in its parameters' dtype (or as an autocast around
    this says). The model's output may hold more than the embedding: see ``embedding_of``.
    """
    if not isinstance(images, data.ImageSet):
        check_pictures(images)
    shown = images.images if isinstance(images, data.ImageSet) else images
    parts: Iterable[Tensor] = shown.split(size := index(batch_size))
    if isinstance(shown, Pictures):  # files are decoded: minutes, where there are thousands
        count = -(-len(shown) // size)
        parts = tqdm(parts, "embedding", count, unit="batch", leave=False, delay=2)
    return embed_batches(model, parts).numpy()


def embed_batches(model: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """As ``embed``: batches (B, C, H, W), see ``to_float`` -> (N, dim) float32 on the CPU."""
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
    metric = experiment.metric
    return retrieval.evaluate(**searched(images, x, metric), metric=metric)


def recall_at_1(experiment: Experiment, images: data.ImageSet, x: np.ndarray) -> float:
    """That of a look during training."""
    found = searched(images, x, experiment.metric)
    return retrieval.recall_at_k(**found, ks=[1], metric=experiment.metric)[1]


def searched(
    images: data.ImageSet, x: np.ndarray, metric: retrieval.Metric = "cosine"
) -> dict[str, Any]:
    """As ``ImageSet.retrieval_sets``, but no row that is zero, and so has no cosine, ends it.

    It becomes a row that is orthogonal to all others, of a class of its own: a miss. An all-black
    picture's raw pixels are one. A warning says how many there are.
    """
    zero = ~x.any(axis=1)
    if metric not in ("cosine", {"name": "cosine"}) or not zero.any():
        return images.retrieval_sets(x)
    first = int(np.flatnonzero(zero)[0])
    which = images.images.paths[first] if isinstance(images.images, Pictures) else f"row {first}"
    warn_once(
        f"pictures of which nothing but zeros is left: {zero.sum()} of {len(x)}, as {which}; each "
        "is a miss in Recall@K, and counts in no R-precision"
    )
    own = np.where(zero, -1 - np.arange(len(x)), images.labels)
    sets = images.retrieval_sets(np.column_stack([x, zero.astype(x.dtype)]), own)
    labels = sets["labels"]
    if "gallery" in sets:
        left = bool(np.isin(labels, sets["gallery_labels"]).any())
    else:
        left = len(np.unique(labels)) < len(labels)
    return sets if left else _missed(labels)


def _missed(labels: np.ndarray) -> dict[str, Any]:
    """Sets (Q,) of which no score is above 0: strangers are at each query, what it seeks opposite.

    Without anything to find, as where a whole network is dead, there would be no score at all.
    """
    strangers = np.full(_STRANGERS, labels.max() + 1)
    return {
        "embeddings": np.ones((len(labels), 1), np.float32),
        "labels": labels,
        "gallery": np.repeat([[1.0], [-1.0]], [_STRANGERS, len(labels)], axis=0).astype("f4"),
        "gallery_labels": np.concatenate([strangers, labels]),
    }
