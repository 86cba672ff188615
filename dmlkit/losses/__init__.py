"""Every loss of the field under one call, loss(embeddings, labels); here is the table of names."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from dmlkit.losses.contract import EmbeddingLoss
from dmlkit.losses.ensembles import MetaClassLoss
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
    "MetaClassLoss",
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
    "signature",
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
    "meta_class": MetaClassLoss,
    "spherical_expansion": SphericalExpansion,
}


def names() -> tuple[str, ...]:
    """Short names of all losses, in the course's order; ``dreml`` is an ensemble, not a module.

    >>> "triplet_semihard" in names()
    True
    """
    return (*_TABLE, "dreml")


def signature(name: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a loss by its short name, with their defaults.

    Raises:
        ValueError: unknown name, or the name of an ensemble.

    >>> signature("triplet_semihard")["margin"].default
    0.2
    """
    if name == "dreml":
        raise ValueError(
            "'dreml' is no loss of one network: dmlkit.extras.dreml.dreml trains an ensemble, each "
            "member with the loss 'meta_class'"
        )
    if name not in _TABLE:
        raise ValueError(f"unknown loss {name!r}; there are {', '.join(names())}")
    return inspect.signature(_TABLE[name]).parameters


def build(
    name: str, num_classes: int | None = None, dim: int | None = None, **args: Any
) -> nn.Module:
    """Make a loss by its short name; ``num_classes`` and ``dim`` reach those that own proxies.

    Raises:
        ValueError: unknown name, the name of an ensemble, or a proxy loss without ``num_classes``
            and ``dim``.
        TypeError: an argument that the loss does not take.

    >>> build("normalized_softmax", num_classes=10, dim=4).proxies.shape
    torch.Size([10, 4])
    """
    accepted = signature(name)
    for argument, value in (("num_classes", num_classes), ("dim", dim)):
        if argument in accepted:
            if value is None:
                raise ValueError(f"loss {name!r} owns proxies: it needs {argument}")
            args[argument] = value
    unknown = sorted(set(args) - set(accepted))
    if unknown:
        raise TypeError(f"loss {name!r} takes {', '.join(accepted)}; not {', '.join(unknown)}")
    return _TABLE[name](**args)
