"""Every loss of the field under one call, loss(embeddings, labels); here is the table of names.

Remarks on each loss are in docs/losses.md.
"""

from dmlkit.losses.contract import EmbeddingLoss, PairLoss, Pairs, setting
from dmlkit.losses.contrasts import CircleLoss, ContextualLoss, SupConLoss
from dmlkit.losses.groups import PrototypicalLoss, StructuredClusteringLoss
from dmlkit.losses.hierarchy import HierarchicalTripletLoss
from dmlkit.losses.hyperbolic import HyperbolicLoss
from dmlkit.losses.memory import CrossBatchMemory
from dmlkit.losses.n_pairs import AngularLoss, NPairsLoss
from dmlkit.losses.pairs import (
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    RankedListLoss,
    TripletLoss,
)
from dmlkit.losses.potential import PotentialFieldLoss
from dmlkit.losses.proxies import (
    ArcFaceLoss,
    CosFaceLoss,
    MetaClassLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    ProxyTripletLoss,
    SoftTripleLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
)
from dmlkit.losses.quality import AdaFaceLoss, MagFaceLoss
from dmlkit.losses.ranking import FastAPLoss, RecallAtKLoss, SmoothAPLoss, SupAPLoss
from dmlkit.losses.regularizers import IRTLoss, ThresholdConsistentMarginLoss, koleo
from dmlkit.losses.sizes import MatryoshkaLoss, MultiScaleLoss
from dmlkit.losses.spherical import HeatedUpSoftmaxLoss, SphericalExpansion
from dmlkit.losses.synthesis import EmbeddingExpansionLoss, SymmetricalSynthesisLoss
from dmlkit.losses.table import Entry, build, entries, entry, names, signature

__all__ = [
    "AdaFaceLoss",
    "AngularLoss",
    "ArcFaceLoss",
    "CircleLoss",
    "ContextualLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "EmbeddingExpansionLoss",
    "EmbeddingLoss",
    "Entry",
    "FastAPLoss",
    "HeatedUpSoftmaxLoss",
    "HierarchicalTripletLoss",
    "HyperbolicLoss",
    "IRTLoss",
    "LiftedStructureLoss",
    "MagFaceLoss",
    "MarginLoss",
    "MatryoshkaLoss",
    "MetaClassLoss",
    "MultiScaleLoss",
    "MultiSimilarityLoss",
    "NPairsLoss",
    "NormalizedSoftmaxLoss",
    "PairLoss",
    "Pairs",
    "PotentialFieldLoss",
    "PrototypicalLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "ProxyTripletLoss",
    "RankedListLoss",
    "RecallAtKLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SphericalExpansion",
    "StructuredClusteringLoss",
    "SubCenterArcFaceLoss",
    "SupAPLoss",
    "SupConLoss",
    "SymmetricalSynthesisLoss",
    "ThresholdConsistentMarginLoss",
    "TripletLoss",
    "build",
    "entries",
    "entry",
    "koleo",
    "names",
    "setting",
    "signature",
]
