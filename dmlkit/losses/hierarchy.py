"""HTL: a tree of the classes as they lie in the embedding, and margins that are read off it."""

import numpy as np
import torch
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses import mining
from dmlkit.losses.contract import EmbeddingLoss, check_labels, setting, state
from dmlkit.losses.table import register


def class_distances(embeddings: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Mean squared distances on the unit sphere between the images of classes, and within each.

    d_pq = mean over i in p and j in q of ‖x_i − x_j‖² = m_p + m_q − 2 r̄_pᵀr̄_q, and s_c = the
    mean over i ≠ j in c of ‖x_i − x_j‖² = 2 n_c (m_c − ‖r̄_c‖²) / (n_c − 1), with r̄ the means of
    classes and m their mean squared norms. Embeddings (N, d), labels (N,) in 0..C − 1 -> (C, C),
    (C,), in float64. What has no pair of images is NaN.
    """
    check_labels(labels, num_classes)
    x = geometry.normalize(embeddings.detach().to(geometry.float64_of(embeddings.device)))  # (N, d)
    n = torch.bincount(labels, minlength=num_classes).to(x)  # (C,)
    means = x.new_zeros(num_classes, x.shape[1]).index_add_(0, labels, x) / n[:, None]  # (C, d)
    squared = x.new_zeros(num_classes).index_add_(0, labels, x.square().sum(dim=1)) / n  # (C,)
    between = (squared[:, None] + squared - 2 * means @ means.T).clamp_min(0)
    within = 2 * n * (squared - means.square().sum(dim=1)).clamp_min(0) / (n - 1)
    return between, within.masked_fill(n == 1, torch.nan)


def tree_margins(
    embeddings: Tensor, labels: Tensor, num_classes: int, beta: float = 0.1, levels: int = 16
) -> Tensor:
    """The margin of a triplet by the classes of its anchor and its negative, off a tree of classes.

    The tree joins the classes by average linkage of their distances d_pq (``class_distances``),
    each class counting once. With d_0 = mean_c s_c and the thresholds d_l = d_0 + l (4 − d_0)/L,
    H(p, q) is the first level l on which the node that joins p and q is not higher than d_l, and
    the margin is α_pq = [β + d_H(p,q) − s_p]₊, with s_p = d_0 for a class of one image.
    Embeddings (N, d), labels (N,) in 0..C − 1 -> (C, C) in float64, 0 on the diagonal, and β where
    a class has no image.

    Source: Ge et al. 2018 (see ``HierarchicalTripletLoss``), where linkage is not named, and a
    margin may be negative.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> tree_margins(x, torch.tensor([0, 0, 1, 1]), num_classes=2)  # H = 7, d_H = 2.5375
    tensor([[0.0000, 1.8375],
            [0.6375, 0.0000]], dtype=torch.float64)
    """
    between, within = (t.cpu() for t in class_distances(embeddings, labels, num_classes))
    d_0 = within.nanmean().nan_to_num(0)  # 0 where no class has two images
    margins = torch.full_like(between, beta).fill_diagonal_(0)
    present = np.flatnonzero(~between.diagonal().isnan().numpy())
    if len(present) > 1:
        distances = between.numpy()[np.ix_(present, present)]
        joined = cophenet(linkage(squareform(distances, checks=False), "average"))
        height = torch.from_numpy(squareform(joined))  # of the node that joins two classes
        step = (4 - d_0) / levels
        level = ((height - d_0) / step - 1e-9).ceil().clamp(0, levels)  # rounding is no level
        spread = torch.where(within.isnan(), d_0, within)[present, None]
        alpha = (beta + d_0 + level * step - spread).clamp_min(0)
        margins[np.ix_(present, present)] = alpha.fill_diagonal_(0)
    return margins


@register(
    "htl", "groups", "hierarchical triplets", 2018,
    r"$[D_{ap}^2-D_{an}^2+m_{y_a y_n}]_+$",
    "margins from a tree of classes",
)  # fmt: skip
class HierarchicalTripletLoss(EmbeddingLoss):
    """HTL: triplets with margins of their own, larger from classes that a tree has far apart.

    L = 1/(2Z) Σ over triplets (a, p, n) of [D²_ap − D²_an + α_{y_a y_n}]₊ on the unit sphere, with
    Z the number of those that are not zero. The margins α (C, C), part of the state, come from
    ``tree_margins``; before the first tree all are β. A training calls ``refresh`` with embeddings
    of the whole training set, at its start and every ``refresh_every`` steps.

    Source: Ge, Huang, Dong and Scott 2018, "Deep Metric Learning with Hierarchical Triplet Loss",
    from two independent notes of the paper, which agree. Not verified: L = 16 levels, a new tree
    every epoch, and whether Z counts all triplets.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> loss = HierarchicalTripletLoss(num_classes=2)
    >>> before = loss(x, y)
    >>> loss.refresh(x, y)
    >>> before, loss(x, y)  # 2.3 / 6, and 5.75 / 8
    (tensor(0.3833), tensor(0.7188))
    """

    num_classes: int = setting(low=1)
    beta: float = setting(default=0.1, low=0, tune=("log", 0.02, 0.5))
    levels: int = setting(default=16, low=1)
    refresh_every: int = setting(default=200, low=1)
    margins: Tensor = state()

    def setup(self) -> None:
        C = self.num_classes
        margins = torch.full((C, C), float(self.beta)).fill_diagonal_(0)
        self.register_buffer("margins", margins)

    def refresh(self, embeddings: Tensor, labels: Tensor) -> None:
        """Grow a new tree from embeddings (N, d) and labels (N,) of the training set."""
        C = len(self.margins)
        self.margins.copy_(tree_margins(embeddings, labels, C, self.beta, self.levels))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check_labels(labels, len(self.margins))
        positive, negative = geometry.same_label(labels), geometry.different_label(labels)
        D2 = geometry.squared_distances(geometry.normalize(embeddings))  # (B, B)
        # D²_an − α, and D²_ap as it is: triplets without a margin, as α is 0 within a class.
        shifted = D2 - self.margins[labels[:, None], labels].to(D2)
        count = mining.active_triplets(shifted.detach(), positive, negative, margin=0.0)
        return (count * shifted).sum() / (2 * count.relu().sum().clamp_min(1))
