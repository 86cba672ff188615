"""One look for each loss and each arm in the whole course: its color, its marker and its name.

The eight colors differ by more than 35 in CIELAB, in normal vision and as people with protanopia or
deuteranopia see them (Machado, Oliveira and Fernandes 2009). More losses than colors share a color,
never with the marker: ``tests/test_looks.py`` holds both, and which losses share a panel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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

#: Every loss by its short name, and every arm.
LOOKS: Mapping[str, Look] = {
    # pairs
    "contrastive": Look("contrastive", AMBER, "s"),
    "triplet_semihard": Look("semi-hard triplets", BLUE, "o"),
    "triplet_hard": Look("hard triplets", GREEN, "X"),
    "triplet_all": Look("all triplets", BROWN, "P"),
    "triplet_distance": Look("distance-weighted triplets", SKY, "*"),
    "lifted_structure": Look("lifted structure", BROWN, "*"),
    "multi_similarity": Look("multi-similarity", WINE, "^"),
    "ranked_list": Look("ranked list", GREEN, "<"),
    "margin": Look("margin loss", AMBER, "D"),
    "supcon": Look("SupCon", PURPLE, "v"),
    "circle": Look("circle loss", SKY, ">"),
    "contextual": Look("contextual similarity", WINE, "v"),
    "n_pairs": Look("N-pairs", CYAN, "D"),
    "n_pairs_normalized": Look("N-pairs, normalized", PURPLE, "X"),
    "angular": Look("angular", PURPLE, "<"),
    "irt": Look("IRT", BLUE, "^"),
    "tcm": Look("TCM", CYAN, "P"),
    # ranking
    "smooth_ap": Look("Smooth-AP", BLUE, "v"),
    "sup_ap": Look("SupAP", AMBER, "P"),
    "recall_at_k": Look("Recall@k surrogate", GREEN, "p"),
    "fast_ap": Look("FastAP", BROWN, ">"),
    # groups
    "prototypical": Look("prototypical", PURPLE, "p"),
    "structured_clustering": Look("structured clustering", AMBER, "*"),
    "htl": Look("hierarchical triplets", CYAN, "*"),
    # proxies
    "proxy_triplet": Look("proxy triplets", SKY, "X"),
    "proxy_nca": Look("Proxy-NCA", GREEN, "o"),
    "proxy_nca_pp": Look("Proxy-NCA++", CYAN, ">"),
    "normalized_softmax": Look("normalized softmax", SKY, "h"),
    "cosface": Look("CosFace", AMBER, ">"),
    "arcface": Look("ArcFace", PURPLE, "o"),
    "subcenter_arcface": Look("sub-center ArcFace", PURPLE, "D"),
    "sphereface": Look("SphereFace", WINE, "X"),
    "proxy_anchor": Look("Proxy-Anchor", BROWN, "h"),
    "soft_triple": Look("SoftTriple", BLUE, "<"),
    "pfml": Look("potential field", WINE, "<"),
    "adaface": Look("AdaFace", SKY, "s"),
    "magface": Look("MagFace", CYAN, "h"),
    "heated_up_softmax": Look("heated-up softmax", GREEN, "^"),
    # memory, ensembles, spaces
    "xbm": Look("cross-batch memory", SKY, "D"),
    "meta_class": Look("meta-classes", WINE, "p"),
    "dreml": Look("DREML", BROWN, "s"),
    "mic": Look("MIC", GREEN, "v"),
    "hyperbolic": Look("hyperbolic", CYAN, "s"),
    # synthesis, sizes
    "spherical_expansion": ARMS["SEE"],
    "embedding_expansion": Look("embedding expansion", PURPLE, "^"),
    "symmetrical_synthesis": Look("symmetrical synthesis", AMBER, "h"),
    "matryoshka": Look("Matryoshka", WINE, "o"),
    "multi_scale": Look("multi-scale", SKY, "P"),
    **ARMS,
}


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
