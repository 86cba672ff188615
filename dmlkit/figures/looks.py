"""One look for each loss and each arm in the whole course: its color, its marker and its name.

The eight colors differ by more than 35 in CIELAB, in normal vision and as people with protanopia or
deuteranopia see them (Machado, Oliveira and Fernandes 2009). More losses than colors share a color,
never with the marker: ``tests/test_looks.py`` holds both, and which losses share a panel. A loss is
called by its title in the table of losses.
"""

import itertools
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dmlkit import losses

#: What the axis says wherever Recall@1 is drawn: always on unseen classes, always in percent.
RECALL_AXIS = "Recall@1 on unseen classes (%)"

BLUE, AMBER, WINE, CYAN = "#0000e6", "#e69f00", "#662233", "#00b4c8"
PURPLE, BROWN, GREEN, SKY = "#660077", "#994400", "#00b57a", "#6a8cff"


@dataclass(frozen=True)
class Look:
    """How one loss or one arm is drawn and called, everywhere."""

    name: str
    color: str
    marker: str
    line: str = "-"

    @property
    def style(self) -> dict[str, str]:
        """The arguments of ``axes.plot`` and of ``figures.curve``."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.line}


#: What a loss is trained with, or what it is compared with.
ARMS: Mapping[str, Look] = {
    "none": Look("no constraint", "#000000", "o"),
    "SEC": Look("SEC", BLUE, "s"),
    "L2": Look("L2 penalty", AMBER, "^", "--"),
    "SEE": Look("SEE, as in the paper", BROWN, "D"),
    "SEE code": Look("SEE, as in the code", SKY, "v", "--"),
    "raw pixels": Look("raw pixels", "#707070", "x", ":"),
    "untrained": Look("untrained network", "#b8b8b8", "+", ":"),
    "pretrained": Look("pretrained network", PURPLE, "P", "-."),
}

#: Colors and markers that were chosen, so that losses which share a panel differ; see ``_free``.
_CHOSEN: Mapping[str, tuple[str, str]] = {
    name: (color, marker)
    for color, markers in (
        (BLUE, {
            "triplet_semihard": "o", "irt": "^", "smooth_ap": "v", "soft_triple": "<"
        }),
        (AMBER, {
            "contrastive": "s", "margin": "D", "sup_ap": "P", "structured_clustering": "*",
            "cosface": ">", "symmetrical_synthesis": "h"
        }),
        (WINE, {
            "multi_similarity": "^", "contextual": "v", "sphereface": "X", "pfml": "<",
            "meta_class": "p", "matryoshka": "o"
        }),
        (CYAN, {
            "n_pairs": "D", "tcm": "P", "htl": "*", "proxy_nca_pp": ">", "magface": "h",
            "hyperbolic": "s"
        }),
        (PURPLE, {
            "supcon": "v", "n_pairs_normalized": "X", "angular": "<", "prototypical": "p",
            "arcface": "o", "embedding_expansion": "^"
        }),
        (BROWN, {
            "triplet_all": "P", "lifted_structure": "*", "fast_ap": ">", "proxy_anchor": "h",
            "dreml": "s"
        }),
        (GREEN, {
            "triplet_hard": "X", "ranked_list": "<", "recall_at_k": "p", "proxy_nca": "o",
            "heated_up_softmax": "^", "mic": "v"
        }),
        (SKY, {
            "triplet_distance": "*", "circle": ">", "proxy_triplet": "X",
            "normalized_softmax": "h", "adaface": "s", "xbm": "D", "multi_scale": "P"
        }),
    )
    for name, marker in markers.items()
}  # fmt: skip
_COLORS, _MARKERS = (BLUE, AMBER, WINE, CYAN, PURPLE, BROWN, GREEN, SKY), "os^Dv<>PX*ph"


def _free(name: str, taken: Collection[tuple[str, str]]) -> tuple[str, str]:
    """A color and a marker that no other loss has: the first from a place that the name gives."""
    every = list(itertools.product(_MARKERS, _COLORS))
    first = zlib.crc32(name.encode()) % len(every)
    pairs = ((color, marker) for marker, color in every[first:] + every[:first])
    return next(pair for pair in pairs if pair not in taken)


def _looks() -> dict[str, Look]:
    looks = {"spherical_expansion": ARMS["SEE"], **ARMS}
    taken = {(look.color, look.marker) for look in ARMS.values()} | set(_CHOSEN.values())
    for entry in losses.entries():
        if entry.name not in looks:
            pair = _CHOSEN.get(entry.name) or _free(entry.name, taken)
            taken.add(pair)
            looks[entry.name] = Look(entry.title, *pair)
    others = {"dreml": "DREML", "mic": "MIC"}  # of several networks
    return looks | {name: Look(title, *_CHOSEN[name]) for name, title in others.items()}


#: Every loss by its short name, and every arm.
LOOKS: Mapping[str, Look] = _looks()


def look(name: str) -> Look:
    """The look of a loss by its short name, or of an arm.

    Raises:
        ValueError: neither a loss nor an arm has this name.

    >>> look("triplet_semihard").name
    'semi-hard triplets'
    """
    if not isinstance(name, str) or name not in LOOKS:
        raise ValueError(f"no look for {name!r}; there are {', '.join(LOOKS)}")
    return LOOKS[name]
