"""The sphere under one name: what dmlkit.losses.spherical and its centers hold."""

from dmlkit.losses.centers import max_mahalanobis_centers
from dmlkit.losses.spherical import (
    HeatedUpSoftmaxLoss,
    SphericalConstraint,
    SphericalExpansion,
    expand,
    simplex,
)

__all__ = [
    "HeatedUpSoftmaxLoss", "SphericalConstraint", "SphericalExpansion", "expand",
    "max_mahalanobis_centers", "simplex",
]  # fmt: skip
