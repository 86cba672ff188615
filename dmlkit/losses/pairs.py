"""Losses of pairs and triplets, in the course's order: every pair of the batch is a spring."""

from torch import Tensor

from dmlkit import geometry
from dmlkit.losses import mining
from dmlkit.losses.contract import EmbeddingLoss, masked_mean


class ContrastiveLoss(EmbeddingLoss):
    """Pull positives closer than one margin, push negatives farther than another.

    L = mean⁺ [D − m₊]₊ + mean⁻ [m₋ − D]₊, each mean over its non-zero pairs; D is the distance on
    the unit sphere.

    Source: Hadsell, Chopra and LeCun 2006, "Dimensionality Reduction by Learning an Invariant
    Mapping", in the unsquared form of later libraries.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> ContrastiveLoss()(x, torch.tensor([5, 5]))
    tensor(1.4142)
    """

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 0.5) -> None:
        super().__init__()
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        D = geometry.distances(geometry.normalise(embeddings))  # (B, B)
        pull = (D - self.positive_margin).relu()
        push = (self.negative_margin - D).relu()
        positive = geometry.same_label(labels) & (pull > 0)
        negative = geometry.different_label(labels) & (push > 0)
        return masked_mean(pull, positive) + masked_mean(push, negative)


class TripletLoss(EmbeddingLoss):
    """Every positive shall be nearer to its anchor than a negative, by a margin.

    L = mean over (a, p) of [D²ap − D²an + m]₊ on the unit sphere. Which n counts is the mining;
    ``"semihard"`` takes the nearest negative that is farther than p, else the farthest negative.

    Source: Schroff, Kalenichenko and Philbin 2015, "FaceNet", equation 3 and section 3.2.

    Raises:
        ValueError: unknown mining.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> TripletLoss()(x, torch.tensor([5, 5, 6]))  # mean of [2 − 4 + 0.2]₊ and [2 − 2 + 0.2]₊
    tensor(0.1000)
    """

    def __init__(self, margin: float = 0.2, mining: str = "semihard") -> None:
        super().__init__()
        if mining not in ("semihard",):
            raise ValueError(f"mining must be 'semihard', but is {mining!r}")
        self.margin = margin
        self.mining = mining

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        D2 = geometry.squared_distances(geometry.normalise(embeddings))  # (B, B)
        positive = geometry.same_label(labels)
        negative = geometry.different_label(labels)
        n = mining.semihard_negatives(D2.detach(), negative)  # (B, B): for each (a, p), an index
        hinge = (D2 - D2.gather(1, n) + self.margin).relu()
        return masked_mean(hinge, positive & negative.any(dim=1, keepdim=True))
