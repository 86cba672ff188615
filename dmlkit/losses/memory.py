"""Cross-batch memory: compare each batch also with the embeddings of the batches before it."""

import torch
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.losses.contract import EmbeddingLoss, PairLoss, Pairs, of_pairs, setting, state
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

    ``loss`` must be a ``PairLoss``, which can compare two sets. All state of the memory (queue,
    labels, position, how many are filled, step) is in ``state_dict``.

    Source: Wang, Zhang, Huang and Scott 2020, "Cross-Batch Memory for Embedding Learning",
    algorithm 1, with the batch's own loss as in the authors' code.

    Raises:
        ValueError: embeddings that have not ``dim`` dimensions, or a batch larger than the memory.

    >>> from dmlkit.losses import ContrastiveLoss
    >>> loss = CrossBatchMemory(ContrastiveLoss(), dim=2, size=4)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss(x, torch.tensor([5, 6])), loss(-x, torch.tensor([5, 6]))  # 0, and 0 + ‖x − (−x)‖
    (tensor(0.), tensor(2.))
    """

    loss: nn.Module = setting()
    dim: int = setting(low=1)
    size: int = setting(1024, low=1)
    weight: float = setting(1.0, low=0, tune=("log", 0.1, 2.0))
    start_step: int = setting(0, low=0)
    queue: Tensor = state()
    queue_labels: Tensor = state()
    position: Tensor = state()
    filled: Tensor = state()
    step: Tensor = state()

    def setup(self) -> None:
        if not isinstance(self.loss, PairLoss):
            raise TypeError(
                f"loss must be a PairLoss, with a method of(pairs) to compare a batch with a "
                f"memory, but is {self.loss!r}"
            )
        self.register_buffer("queue", torch.zeros(self.size, self.dim))
        self.register_buffer("queue_labels", torch.zeros(self.size, dtype=torch.int64))
        for name in ("position", "filled", "step"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        (B, d), (M, dim) = embeddings.shape, self.queue.shape
        if d != dim:
            raise ValueError(
                f"embeddings have {d} dimensions, but the memory's have {dim}: "
                f"build it with dim={d}"
            )
        slots = (self.position + torch.arange(B, device=labels.device)) % M  # (B,)
        if self.training:
            self._remember(embeddings.detach(), labels, slots)
        same = geometry.same_label(labels, self.queue_labels)  # (B, M)
        known = torch.arange(M, device=labels.device) < self.filled  # (M,)
        positive = same & known
        if self.training:
            positive.scatter_(1, slots[:, None], False)  # a sample's own copy
        pairs = Pairs(embeddings, self.queue.to(embeddings), labels, positive, ~same & known)
        return self.loss(embeddings, labels) + self.weight * of_pairs(self.loss, pairs)

    def _remember(self, embeddings: Tensor, labels: Tensor, slots: Tensor) -> None:
        B, M = len(labels), len(self.queue)
        if B > M:
            raise ValueError(f"a batch of {B} does not fit into a memory of {M}: give size={B}")
        # New tensors, not changed ones: a backward pass may still need the memory of its step.
        self.queue = self.queue.index_copy(0, slots, embeddings.to(self.queue))
        self.queue_labels = self.queue_labels.index_copy(0, slots, labels)
        kept = B * (self.step >= self.start_step)  # before that, the next batch overwrites it
        self.position = (self.position + kept) % M
        self.filled = (self.filled + kept).clamp_max(M)
        self.step = self.step + 1
