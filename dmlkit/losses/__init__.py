"""Every loss of the field under one call, loss(embeddings, labels); here is the table of names."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from dmlkit.losses.contract import EmbeddingLoss
from dmlkit.losses.groups import PrototypicalLoss, StructuredClusteringLoss
from dmlkit.losses.hyperbolic import HyperbolicLoss
from dmlkit.losses.memory import CrossBatchMemory
from dmlkit.losses.pairs import (
    AngularLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairsLoss,
    RankedListLoss,
    TripletLoss,
)
from dmlkit.losses.proxies import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    ProxyTripletLoss,
    SoftTripleLoss,
    SphereFaceLoss,
)
from dmlkit.losses.spherical import HeatedUpSoftmaxLoss, SphericalExpansion

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "EmbeddingLoss",
    "HeatedUpSoftmaxLoss",
    "HyperbolicLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NPairsLoss",
    "NormalizedSoftmaxLoss",
    "PrototypicalLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "ProxyTripletLoss",
    "RankedListLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SphericalExpansion",
    "StructuredClusteringLoss",
    "TripletLoss",
    "build",
    "names",
]

_TABLE: dict[str, Callable[..., nn.Module]] = {
    "contrastive": ContrastiveLoss,
    "triplet_semihard": partial(TripletLoss, mining="semihard"),
    "triplet_hard": partial(TripletLoss, mining="hard"),
    "triplet_all": partial(TripletLoss, mining="all"),
    "triplet_distance": partial(TripletLoss, mining="distance"),
    "lifted_structure": LiftedStructureLoss,
    "n_pairs": NPairsLoss,
    "angular": AngularLoss,
    "multi_similarity": MultiSimilarityLoss,
    "ranked_list": RankedListLoss,
    "margin": MarginLoss,
    "prototypical": PrototypicalLoss,
    "structured_clustering": StructuredClusteringLoss,
    "proxy_triplet": ProxyTripletLoss,
    "proxy_nca": ProxyNCALoss,
    "proxy_nca_pp": ProxyNCAPlusPlusLoss,
    "normalized_softmax": NormalizedSoftmaxLoss,
    "heated_up_softmax": HeatedUpSoftmaxLoss,
    "cosface": CosFaceLoss,
    "arcface": ArcFaceLoss,
    "sphereface": SphereFaceLoss,
    "proxy_anchor": ProxyAnchorLoss,
    "soft_triple": SoftTripleLoss,
    "xbm": CrossBatchMemory,
    "hyperbolic": HyperbolicLoss,
    "spherical_expansion": SphericalExpansion,
}


def names() -> tuple[str, ...]:
    """Short names of all losses, in the course's order.

    >>> "triplet_semihard" in names()
    True
    """
    return tuple(_TABLE)


def build(
    name: str, num_classes: int | None = None, dim: int | None = None, **args: Any
) -> nn.Module:
    """Make a loss by its short name; ``num_classes`` and ``dim`` reach those that own proxies.

    Raises:
        ValueError: unknown name, or a proxy loss without ``num_classes`` and ``dim``.
        TypeError: an argument that the loss does not take.

    >>> build("normalized_softmax", num_classes=10, dim=4).proxies.shape
    torch.Size([10, 4])
    """
    if name not in _TABLE:
        raise ValueError(f"unknown loss {name!r}; there are {', '.join(_TABLE)}")
    accepted = inspect.signature(_TABLE[name]).parameters
    for argument, value in (("num_classes", num_classes), ("dim", dim)):
        if argument in accepted:
            if value is None:
                raise ValueError(f"loss {name!r} owns proxies: it needs {argument}")
            args[argument] = value
    unknown = sorted(set(args) - set(accepted))
    if unknown:
        raise TypeError(f"loss {name!r} takes {', '.join(accepted)}; not {', '.join(unknown)}")
    return _TABLE[name](**args)
