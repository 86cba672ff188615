"""The loss of one member of an ensemble; ``dmlkit.extras.dreml`` trains all of them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit.losses.contract import EmbeddingLoss


class MetaClassLoss(EmbeddingLoss):
    """Classify into ``dim`` meta-classes, each a random handful of the classes.

    L = mean of −log softmax(f)_{m(y)}, with the raw embedding f (B, dim) itself as the logits: the
    proxies are fixed, the rows of the identity, so that fᵀe_k = f_k. The map m, drawn from
    ``map_seed``, is balanced: the numbers of classes in two meta-classes differ by at most one.

    m is in ``state_dict``, as ``meta_classes`` (num_classes,).

    Source: Xuan, Souvenir and Pless 2018, "Deep Randomized Ensembles for Metric Learning"; raw
    logits as in the authors' code.

    Raises:
        ValueError: embeddings that have not ``dim`` dimensions.

    >>> loss = MetaClassLoss(num_classes=4, dim=2)
    >>> loss.meta_classes.bincount()
    tensor([2, 2])
    >>> f = torch.tensor([[2.0, 0.0], [0.0, 2.0]])  # log(1 + e⁻²) if both are right
    >>> loss(f, torch.stack([(loss.meta_classes == k).int().argmax() for k in (0, 1)]))
    tensor(0.1269)
    """

    meta_classes: Tensor

    def __init__(self, num_classes: int, dim: int, map_seed: int = 0) -> None:
        super().__init__()
        shuffled = torch.randperm(num_classes, generator=torch.Generator().manual_seed(map_seed))
        self.dim = dim
        self.register_buffer("meta_classes", shuffled % dim)

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if embeddings.shape[1] != self.dim:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} dimensions, but there are {self.dim} "
                f"meta-classes: build the loss with dim={embeddings.shape[1]}"
            )
        return F.cross_entropy(embeddings, self.meta_classes[labels])
