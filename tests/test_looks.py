"""One look for each loss and arm, told apart by eyes of every kind."""

import itertools
from collections.abc import Collection

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from dmlkit import figures, losses

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 2009, table 1, severity 1.0; applied to linear RGB.
VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip
TO_XYZ = np.array(  # of sRGB's primaries; its white is the next line
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip
WHITE = np.array([0.95047, 1.0, 1.08883])
# Losses that the course draws in one panel.
PANELS = {
    "pair losses": ["contrastive", "triplet_semihard", "lifted_structure", "n_pairs", "angular",
                    "multi_similarity", "ranked_list"],
    "mining": ["triplet_semihard", "triplet_hard", "triplet_all", "triplet_distance", "margin"],
    "groups": ["prototypical", "structured_clustering", "triplet_semihard", "multi_similarity"],
    "proxies": ["normalized_softmax", "cosface", "arcface", "sphereface", "proxy_nca",
                "proxy_nca_pp", "triplet_semihard"],
    "constraint": ["triplet_all", "triplet_semihard", "n_pairs", "multi_similarity"],
    "expansion": ["normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor"],
    "what matters": ["triplet_semihard", "lifted_structure", "margin", "ranked_list", "n_pairs",
                     "prototypical", "normalized_softmax"],
    "maps": ["contrastive", "triplet_semihard", "triplet_hard", "multi_similarity", "prototypical",
             "normalized_softmax", "proxy_anchor", "hyperbolic"],
    "logs": ["margin", "n_pairs", "proxy_triplet", "triplet_semihard", "lifted_structure"],
    "ranking": ["smooth_ap", "sup_ap", "recall_at_k", "fast_ap"],
    "arms": [*figures.ARMS],
}  # fmt: skip


def lab(color: str, vision: str = "normal") -> np.ndarray:
    """CIELAB (D65) of a color, as it is seen."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    x = TO_XYZ @ seen / WHITE
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def smallest_distance(colors: Collection[str]) -> float:
    """Of the two nearest of several colors, in the vision that confuses them most."""
    return min(
        float(np.linalg.norm(lab(a, vision) - lab(b, vision)))
        for a, b in itertools.combinations(colors, 2)
        for vision in VISIONS
    )


def test_the_distance_is_the_known_one() -> None:
    np.testing.assert_allclose(lab("#ff0000"), [53.24, 80.09, 67.20], atol=0.02)
    np.testing.assert_allclose(lab("#ffffff", "deuteranopia"), [100, 0, 0], atol=0.02)
    assert smallest_distance(["#e69f00", "#d55e00"]) < 25  # so they share no panel


def test_every_loss_has_a_look_of_its_own() -> None:
    assert set(figures.LOOKS) == set(losses.names()) | set(figures.ARMS)
    looks = set(figures.LOOKS.values())  # the loss SEE and the arm SEE have one
    assert len(looks) == len(figures.LOOKS) - 1
    assert len({(look.color, look.marker) for look in looks}) == len(looks)
    assert all(look.marker in Line2D.markers for look in figures.LOOKS.values())
    assert all(
        np.linalg.norm(lab(look.color) - lab("white")) > 25 for look in figures.LOOKS.values()
    )


def test_names_are_those_of_the_field() -> None:
    looks = set(figures.LOOKS.values())
    names = {look.name for look in looks}
    assert len(names) == len(looks)
    assert not [name for name in names if "_" in name]


@pytest.mark.parametrize("panel", PANELS)
def test_what_shares_a_panel_is_told_apart_by_color(panel: str) -> None:
    looks = [figures.look(name) for name in PANELS[panel]]
    assert smallest_distance([look.color for look in looks]) > 25


@pytest.mark.parametrize("family", sorted({entry.family for entry in losses.entries()}))
def test_in_a_family_either_color_or_marker_tells(family: str) -> None:
    looks = [figures.look(entry.name) for entry in losses.entries() if entry.family == family]
    for a, b in itertools.combinations(looks, 2):
        assert a.marker != b.marker or smallest_distance([a.color, b.color]) > 25, (a, b)


def test_an_unknown_name_is_told_and_a_style_draws() -> None:
    with pytest.raises(ValueError, match=r"no look for 'triplets'; there are .*contrastive, "):
        figures.look("triplets")
    line = Line2D([0], [0], **figures.look("L2").style)
    assert (line.get_color(), line.get_marker()) == (figures.look("L2").color, "^")
