"""What every loss of this package promises: loss(embeddings, labels) -> scalar."""

import torch
from torch import Tensor, nn

from dmlkit import geometry


class EmbeddingLoss(nn.Module):
    """A loss of raw embeddings (B, d) and int64 labels (B,), returning a scalar.

    Half-precision embeddings are computed on in float32, whatever the autocast state. A batch
    without a positive or a negative pair gives a zero that still has a gradient path. A batch with
    NaN or inf gives NaN, whatever the equation. A subclass writes its equation in ``loss``.

    Raises:
        ValueError: embeddings are not (B, d), B and d at least 1, or labels are not (B,).
        TypeError: embeddings are not floating point, or labels are not int64.
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Check the batch, then compute the loss in float32 (float64 stays float64)."""
        check_batch(embeddings, labels)
        if embeddings.dtype in (torch.float16, torch.bfloat16):
            embeddings = embeddings.float()
        with torch.autocast(embeddings.device.type, enabled=False):
            # An equation may pass over a row, as a hinge or a mask does. 0 · NaN and 0 · inf are
            # NaN, so that a training that has diverged shows, without a wait for the device.
            return self.loss(embeddings, labels) + (0 * embeddings.detach()).sum()

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The equation."""
        raise NotImplementedError


class PairLoss(EmbeddingLoss):
    """A loss of anchors with other embeddings: those of the batch itself, or those of a memory.

    A subclass writes its equation in ``pair_loss``.
    """

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The equation over the pairs of the batch."""
        positive, negative = geometry.same_label(labels), geometry.different_label(labels)
        return self.pair_loss(embeddings, embeddings, labels, positive, negative)

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        """The equation over the pairs that count.

        Anchors (B, d), others (N, d), the anchors' labels (B,), and the masks (B, N) of positive
        and of negative pairs -> scalar; a pair that is in neither mask does not count.
        """
        raise NotImplementedError


def check_embeddings(embeddings: Tensor) -> None:
    """Refuse what is not (B, d) of floating point, B and d at least 1.

    >>> check_embeddings(torch.ones(3))
    Traceback (most recent call last):
    ValueError: embeddings must be (B, d), but are (3,)
    """
    if embeddings.ndim != 2:
        raise ValueError(f"embeddings must be (B, d), but are {tuple(embeddings.shape)}")
    if 0 in embeddings.shape:
        raise ValueError(
            f"embeddings must have at least one row and one dimension, "
            f"but are {tuple(embeddings.shape)}"
        )
    if not embeddings.is_floating_point():
        raise TypeError(f"embeddings must be floating point, but are {embeddings.dtype}")


def check_batch(embeddings: Tensor, labels: Tensor) -> None:
    """Refuse what is not a batch, naming what was expected and what came.

    >>> check_batch(torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64))
    Traceback (most recent call last):
    ValueError: labels must be (4,), one for each of the 4 embeddings, but are (3,)
    """
    check_embeddings(embeddings)
    B = len(embeddings)
    if labels.shape != (B,):
        raise ValueError(
            f"labels must be ({B},), one for each of the {B} embeddings, "
            f"but are {tuple(labels.shape)}"
        )
    if labels.dtype != torch.int64:
        raise TypeError(f"labels must be torch.int64, but are {labels.dtype}")


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Refuse labels outside 0..C − 1; on a GPU by an assertion there, for which no step waits."""
    known = ((labels >= 0) & (labels < num_classes)).all()
    rule = f"labels must be from 0 to {num_classes - 1}, as num_classes is {num_classes}"
    try:
        torch._assert_async(known, rule)  # it compiles, and has no public name
    except RuntimeError as error:
        raise ValueError(f"{rule}, but are from {labels.min()} to {labels.max()}") from error


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values where the mask holds, and a zero with a gradient path where it never does.

    >>> masked_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    tensor(1.5000)
    """
    return torch.where(mask, values, 0).sum() / mask.count_nonzero().clamp_min(1)


def masked_logsumexp(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """log Σ exp(value) where the mask holds, and the lowest finite number where it never does.

    A finite fill keeps the gradient of an empty row at 0, where −∞ would make it NaN.

    >>> masked_logsumexp(torch.zeros(2, 2), torch.tensor([[True, True], [True, False]]), dim=1)
    tensor([0.6931, 0.0000])
    """
    return torch.where(mask, values, torch.finfo(values.dtype).min).logsumexp(dim)
