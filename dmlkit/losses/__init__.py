"""Every loss of the field under one call, loss(embeddings, labels); here is the table of names."""

from dmlkit.losses.contract import EmbeddingLoss
from dmlkit.losses.groups import PrototypicalLoss, StructuredClusteringLoss
from dmlkit.losses.hierarchy import HierarchicalTripletLoss
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
    MetaClassLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    ProxyTripletLoss,
    SoftTripleLoss,
    SphereFaceLoss,
)
from dmlkit.losses.scales import MultiScaleLoss
from dmlkit.losses.spherical import HeatedUpSoftmaxLoss, SphericalExpansion
from dmlkit.losses.table import Entry, build, entries, entry, names, signature

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "EmbeddingLoss",
    "Entry",
    "HeatedUpSoftmaxLoss",
    "HierarchicalTripletLoss",
    "HyperbolicLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "MetaClassLoss",
    "MultiScaleLoss",
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
    "entries",
    "entry",
    "names",
    "signature",
]
