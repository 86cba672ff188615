"""Cross-batch memory: compare each batch also with the embeddings of the batches before it."""

from typing import Any

import torch
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.losses.contract import EmbeddingLoss, PairLoss
from dmlkit.losses.table import register


@register("xbm", "memory", {"weight": ("log", 0.1, 2.0)}, wraps="contrastive")
class CrossBatchMemory(EmbeddingLoss):
    """XBM: a pair loss of the batch, plus the same loss of the batch against a queue of embeddings.

    L = L_pair(batch, batch) + w·L_pair(batch, memory). The memory holds the last ``size``
    embeddings and their labels, without gradient. As published, the batch enters it first; what a
    sample meets there is never its own copy. During the first ``start`` batches, while embeddings
    still drift fast, nothing is remembered. Evaluation mode compares with the memory, and
    neither remembers nor counts.

    ``loss`` is a pair loss, or the short name of one, made with ``num_classes``, ``dim`` and
    ``loss_args``; it must be a ``PairLoss``, which can compare two sets.

    All of its state (queue, labels, position, how many are filled, step) is in ``state_dict``.

    Source: Wang, Zhang, Huang and Scott 2020, "Cross-Batch Memory for Embedding Learning",
    algorithm 1, with the batch's own loss as in the authors' code.

    Raises:
        ValueError: no ``dim``, or a batch larger than the memory.
        TypeError: a loss that cannot compare two sets.

    >>> loss = CrossBatchMemory(dim=2, size=4)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss(x, torch.tensor([5, 6])), loss(-x, torch.tensor([5, 6]))  # 0, and 0 + ‖x − (−x)‖
    (tensor(0.), tensor(2.))
    """

    queue: Tensor
    queue_labels: Tensor
    position: Tensor
    filled: Tensor
    step: Tensor

    def __init__(
        self,
        loss: nn.Module | str = "contrastive",
        dim: int | None = None,
        size: int = 1024,
        weight: float = 1.0,
        start: int = 0,
        num_classes: int | None = None,
        loss_args: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if dim is None:
            raise ValueError("the memory needs dim, the number of dimensions of an embedding")
        if isinstance(loss, str):
            from dmlkit.losses import build  # the table names this class too

            loss = build(loss, num_classes=num_classes, dim=dim, **loss_args or {})
        elif loss_args:
            raise ValueError("loss_args go with the name of a loss, but loss is a module")
        if not isinstance(loss, PairLoss):
            raise TypeError(
                f"{type(loss).__name__} cannot compare a batch with a memory: it is no PairLoss, "
                "with a method pair_loss(anchors, others, labels, positive, negative)"
            )
        self.inner = loss
        self.weight = weight
        self.start = start
        self.register_buffer("queue", torch.zeros(size, dim))
        self.register_buffer("queue_labels", torch.zeros(size, dtype=torch.int64))
        for name in ("position", "filled", "step"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        B, M = len(labels), len(self.queue)
        slots = (self.position + torch.arange(B, device=labels.device)) % M  # (B,)
        if self.training:
            self._remember(embeddings.detach(), labels, slots)
        same = geometry.same_label(labels, self.queue_labels)  # (B, M)
        known = torch.arange(M, device=labels.device) < self.filled  # (M,)
        positive = same & known
        if self.training:
            positive.scatter_(1, slots[:, None], False)  # a sample's own copy
        pairs = embeddings, self.queue.to(embeddings), labels, positive, ~same & known
        return self.inner(embeddings, labels) + self.weight * self.inner.pair_loss(*pairs)

    def _remember(self, embeddings: Tensor, labels: Tensor, slots: Tensor) -> None:
        B, M = len(labels), len(self.queue)
        if B > M:
            raise ValueError(f"a batch of {B} does not fit into a memory of {M}: give size={B}")
        # New tensors, not changed ones: a backward pass may still need the memory of its step.
        self.queue = self.queue.index_copy(0, slots, embeddings.to(self.queue))
        self.queue_labels = self.queue_labels.index_copy(0, slots, labels)
        kept = B * (self.step >= self.start)  # before the start, the next batch overwrites it
        self.position = (self.position + kept) % M
        self.filled = (self.filled + kept).clamp_max(M)
        self.step = self.step + 1
