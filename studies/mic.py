"""MIC: a second head learns what classes share, so that the first need not carry it.

Source: Roth, Brattoli and Ommer 2019, "MIC: Mining Interclass Characteristics for Improved Metric
Learning", and the authors' code, with these differences. There, the first clusters are of pooled
features of the first layer; an image keeps the cluster that the last k-means gave it, or, one time
in five, has a random one; and the two margin losses take turns with batches of their own, each
with the adversary. The authors' clusters and weights: CUB 30 and 2500, Cars 150 and 500, SOP 50 and
250, In-Shop 150 and 250, at d = 128, on a pretrained network with a learning rate of 1e-5, and new
clusters every fourth epoch. What classes of Glyphs share does not help a small network there: 200
steps had a Recall@1 of 72 % on validation classes, 280 steps of the margin loss alone 81 %.
"""

from dataclasses import replace
from typing import NamedTuple

import faiss
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dmlkit import data
from dmlkit.geometry import normalize
from dmlkit.losses import EmbeddingLoss, MarginLoss
from dmlkit.training import Experiment, build_model, embed, fit, repeatable_numerics
from dmlkit.training.scoring import score


class Adversary(nn.Module):
    """A = −mean_i mean_k (u_ik · R̂(v_i)_k)² of two embeddings, whose gradients come back reversed.

    u, v are (B, d), put on the unit sphere here; R is Linear(d, ``hidden``), ReLU,
    Linear(hidden, d), and R̂ = R/‖R‖. A step down A makes R correlate with u as well as it can, and
    makes u and v less so: their gradient is −∂A/∂u and −∂A/∂v. A is at least −1/d, so that its
    weight has to be large.

    >>> A = Adversary(dim=2)
    >>> u = torch.tensor([[0.6, 0.8]])
    >>> bool(-1 / 2 <= A(u, u) <= 0)
    True
    """

    def __init__(self, dim: int, hidden: int = 512) -> None:
        super().__init__()
        self.R = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        u, v = (2 * x.detach() - x for x in (normalize(u), normalize(v)))  # the gradient reversed
        return -(u * normalize(self.R(v))).square().mean()


class MICLoss(EmbeddingLoss):
    """L = L_margin(u; class) + L_margin(v; cluster) + w A(u, v), of two embeddings side by side.

    Embeddings are [u, v] (B, 2d): u is what is kept, and v learns clusters that cut across the
    classes. Both L_margin are ``MarginLoss``; A is ``Adversary``. ``refresh`` finds the clusters by
    k-means of v, on the unit sphere, over the training set; the first time minus the mean of each
    class, as an untrained v has mostly classes to tell. An image of a batch belongs to the nearest
    center. Before the first refresh there is one cluster, of which nothing is learned.

    >>> loss = MICLoss(num_classes=2, dim=2, clusters=2, weight=0.0)
    >>> x = torch.tensor([[1.0, 0, 0, 1], [-1.0, 0, 1, 0], [0, 1.0, 0, 1]])
    >>> y = torch.tensor([0, 0, 1])
    >>> loss(x, y).item()  # as MarginLoss of the first two dimensions
    1.0
    """

    centers: Tensor
    class_means: Tensor
    started: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        clusters: int = 30,
        weight: float = 25.0,
        refresh_every: int = 400,
    ) -> None:
        super().__init__()
        self.dim, self.weight, self.refresh_every = dim, weight, refresh_every
        self.of_class, self.of_cluster = MarginLoss(num_classes), MarginLoss(clusters)
        self.adversary = Adversary(dim)
        self.register_buffer("centers", torch.zeros(clusters, dim))
        self.register_buffer("class_means", torch.zeros(num_classes, dim))
        self.register_buffer("started", torch.tensor(False))

    def refresh(self, embeddings: Tensor, labels: Tensor) -> None:
        """Find the clusters anew, from embeddings (N, 2d) and labels (N,) of the training set."""
        v = normalize(embeddings[:, self.dim :].float())
        means = torch.zeros(self.class_means.shape)
        if not self.started:
            n = torch.bincount(labels, minlength=len(means)).clamp_min(1)
            means = means.index_add_(0, labels, v) / n[:, None]
        kmeans = faiss.Kmeans(self.dim, len(self.centers), seed=0, min_points_per_centroid=1)
        kmeans.train(np.ascontiguousarray((v - means[labels]).numpy()))
        self.centers.copy_(torch.from_numpy(kmeans.centroids))
        self.class_means.copy_(means)
        self.started.fill_(True)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        u, v = embeddings.split(self.dim, dim=1)
        value = self.of_class(u, labels) + self.weight * self.adversary(u, v)
        return value + self.of_cluster(v, self.clusters(v, labels))

    @torch.no_grad()
    def clusters(self, v: Tensor, labels: Tensor) -> Tensor:
        """The cluster of each image: v (B, d), labels (B,) -> (B,)."""
        centered = normalize(v) - self.class_means[labels].to(v)
        centers = self.centers.to(v)
        # ‖x − c‖² but for ‖x‖², which no center changes
        return (centers.square().sum(dim=1) - 2 * centered @ centers.T).argmin(dim=1)


class Trained(NamedTuple):
    """The network with both heads, the loss, the history, and the scores of the first head."""

    model: nn.Module
    loss: MICLoss
    history: pd.DataFrame
    scores: dict[str, float]


def mic(
    experiment: Experiment,
    clusters: int = 30,
    weight: float = 25.0,
    *,
    device: str = "auto",
    progress: bool = True,
) -> Trained:
    """Train a network with two heads of ``experiment.dim`` dimensions each, and score the first.

    All but its loss is the Experiment's; it is not kept as a Run. Raises DivergedError where the
    training diverged.
    """
    e = replace(experiment, loss="margin", loss_args={})
    train, images = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    with repeatable_numerics(e.threads):
        torch.manual_seed(e.seed)
        loss = MICLoss(train.num_classes, e.dim, clusters, weight)
    model = build_model(replace(e, dim=2 * e.dim), train)
    history = fit(model, loss, train, e, device=device, progress=progress)
    with repeatable_numerics(e.threads):
        x = embed(model, images)[:, : e.dim]  # (N, d) of (N, 2d)
        scores = score(e, images, np.ascontiguousarray(x))
    return Trained(model, loss, history, scores)
