"""Cross-batch memory: compare each batch also with the embeddings of the batches before it."""

import torch
from torch import Tensor

from dmlkit.losses.contract import (
    EmbeddingLoss,
    PairLoss,
    Pairs,
    check_dim,
    setting,
    share_a_label,
    state,
)
from dmlkit.losses.table import register


@register(
    "xbm", "memory", "cross-batch memory", 2020,
    "contrastive(batch)\n+ contrastive(batch, memory)",
    wraps="contrastive",
)  # fmt: skip
class CrossBatchMemory(EmbeddingLoss):
    """XBM: a pair loss of the batch, plus the same loss of the batch against a queue of embeddings.

    L = L_pair(batch, batch) + w·L_pair(batch, memory). The memory holds the last ``size``
    embeddings (B, ``dim``) and their labels, without gradient. As published, the batch enters it
    first; a sample is never compared with its own copy there. During the first ``start_step``
    batches, while embeddings still change fast, nothing is remembered. Evaluation mode compares
    with the memory, and neither remembers nor counts.

    ``loss`` must be a ``PairLoss``, which can compare two sets. With ``num_labels`` C, labels are
    (B, C) bool, several a sample. ``remember`` adds to the memory without a loss. The memory is
    part of the state.

    Source: Wang, Zhang, Huang and Scott 2020, "Cross-Batch Memory for Embedding Learning",
    algorithm 1, with the batch's own loss as in the authors' code.

    >>> from dmlkit.losses import ContrastiveLoss
    >>> loss = CrossBatchMemory(ContrastiveLoss(), dim=2, size=4)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss(x, torch.tensor([5, 6])), loss(-x, torch.tensor([5, 6]))  # 0, and 0 + ‖x − (−x)‖
    (tensor(0.), tensor(2.))
    """

    loss: PairLoss = setting()
    dim: int = setting(low=1)
    size: int = setting(default=1024, low=1)
    weight: float = setting(default=1.0, low=0, tune=("log", 0.1, 2.0))
    start_step: int = setting(default=0, low=0)
    num_labels: int | None = setting(default=None, low=1, kw_only=True)
    queue: Tensor = state()
    queue_labels: Tensor = state()
    position: Tensor = state()
    filled: Tensor = state()
    step: Tensor = state()

    def setup(self) -> None:
        if not isinstance(self.loss, PairLoss):
            raise TypeError(f"loss must be a PairLoss, to meet a memory, but is {self.loss!r}")
        self.register_buffer("queue", torch.zeros(self.size, self.dim))
        labels = torch.zeros(self.size, dtype=torch.int64)
        if self.num_labels is not None:
            labels = torch.zeros(self.size, self.num_labels, dtype=torch.bool)
        self.register_buffer("queue_labels", labels)
        for name in ("position", "filled", "step"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def forward(
        self, embeddings: Tensor, labels: Tensor, references: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch; with ``references`` (B, d), of it with those, which are remembered.

        Row i of both has label i, as two views of an image have.
        """
        if references is None:
            return super().forward(embeddings, labels)
        self.check(embeddings, labels)
        if self.training:
            self.remember(references, labels)
        batch: Tensor = self.loss(embeddings, labels, references, labels)
        known = self._pairs(embeddings, labels)
        masks = {"positive": known.positive, "negative": known.negative}
        return batch + self.weight * self.loss(embeddings, labels, self.queue, **masks)

    def check(self, embeddings: Tensor, labels: Tensor) -> None:
        if self.num_labels is None:
            super().check(embeddings, labels)
        check_dim(embeddings, self.dim)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        slots = self._slots(len(embeddings))
        if self.training:
            self.remember(embeddings, labels)
        pairs = self._pairs(embeddings, labels)
        if self.training:
            pairs.positive.scatter_(1, slots[:, None], False)  # a sample's own copy
        batch: Tensor = self.loss(embeddings, labels)
        return batch + self.weight * self.loss.of(pairs)

    def _slots(self, batch: int) -> Tensor:
        """Where the next batch goes: (B,)."""
        return (self.position + torch.arange(batch, device=self.position.device)) % self.size

    def _pairs(self, embeddings: Tensor, labels: Tensor) -> Pairs:
        """Of a batch with the memory."""
        same = share_a_label(labels, self.queue_labels)  # (B, M)
        known = torch.arange(self.size, device=labels.device) < self.filled  # (M,)
        return Pairs(embeddings, self.queue.to(embeddings), labels, same & known, ~same & known)

    @torch.no_grad()
    def remember(self, embeddings: Tensor, labels: Tensor) -> None:
        """Put embeddings (B, d) with their labels into the memory, in the place of the oldest."""
        B, M = len(labels), self.size
        if B > M:
            raise ValueError(f"a batch of {B} does not fit into a memory of {M}: give size={B}")
        slots = self._slots(B)
        # New tensors, not changed ones: a backward pass may still need the memory of its step.
        self.queue = self.queue.index_copy(0, slots, embeddings.to(self.queue))
        self.queue_labels = self.queue_labels.index_copy(0, slots, labels)
        kept = B * (self.step >= self.start_step)  # before that, the next batch overwrites it
        self.position = (self.position + kept) % M
        self.filled = (self.filled + kept).clamp_max(M)
        self.step = self.step + 1
