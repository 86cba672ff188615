"""Several embeddings side by side, each with a loss of its own."""

import copy
from dataclasses import InitVar

from torch import Tensor, nn

from dmlkit.losses.contract import EmbeddingLoss, setting
from dmlkit.losses.table import register


@register(
    "multi_scale", "sizes", "multi-scale", 2019,
    r"$\sum_h \mathrm{ranked\ list}(f_h)$"
    "\nh: three parts",
    wraps="ranked_list", tuned=False,
)  # fmt: skip
class MultiScaleLoss(EmbeddingLoss):
    """The sum of one loss for each part of an embedding that is several, joined.

    L = Σ_h loss_h(f_h, y), with f = [f_1, …, f_H] (B, d) cut into ``parts`` H parts of equal size;
    where d is no multiple of H, the first are larger by one. Each part has a copy of ``loss``, with
    its own parameters and state: one with proxies must be made for the size of a part.

    Source: Wang et al. 2019, "Ranked List Loss for Deep Metric Learning" (RLL-(L, M, H)), as in the
    authors' code, which has three heads of 512 dimensions with a weight of 1 each.

    Raises:
        ValueError: embeddings with fewer dimensions than parts.

    >>> import torch
    >>> from dmlkit.losses import ContrastiveLoss
    >>> loss = MultiScaleLoss(ContrastiveLoss(), parts=2)
    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 1.0]])
    >>> loss(x, torch.tensor([5, 5]))  # 2 + √2
    tensor(3.4142)
    """

    loss: InitVar[nn.Module]
    parts: int = setting(default=3, low=1)

    def __post_init__(self, loss: nn.Module) -> None:
        super().__post_init__()
        self.losses = nn.ModuleList(copy.deepcopy(loss) for _ in range(self.parts))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        H, d = len(self.losses), embeddings.shape[1]
        if d < H:
            raise ValueError(f"embeddings have {d} dimensions, which are not {H} parts")
        total = embeddings.new_zeros(())
        for loss, part in zip(self.losses, embeddings.tensor_split(H, dim=1), strict=True):
            total = total + loss(part, labels)
        return total
