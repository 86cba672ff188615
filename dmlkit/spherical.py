"""The sphere under one name: what dmlkit.losses.spherical holds."""

from dmlkit.losses.spherical import (
    HeatedUpSoftmaxLoss,
    SphericalConstraint,
    SphericalExpansion,
    expand,
    max_mahalanobis_centers,
    simplex,
)

__all__ = [
    "HeatedUpSoftmaxLoss", "SphericalConstraint", "SphericalExpansion", "expand",
    "max_mahalanobis_centers", "simplex",
]  # fmt: skip
