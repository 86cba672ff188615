"""The sizes that papers print of what they claim, as ``data/reported`` has their tables."""

from collections.abc import Mapping
from functools import cache

import pandas as pd

from dmlkit import ROOT

#: Tables that print the size of a claim: file, pairs of methods, metrics, whose.
_SEC_FILE = "extra_sec_repo_results"
#: How these tables call our losses.
_SEC: Mapping[str, str] = {
    "triplet_all": "Triplet", "triplet_semihard": "Semihard", "n_pairs_normalized": "NormNpair",
    "multi_similarity": "MS",
}  # fmt: skip
_SEE: Mapping[str, str] = {
    "normalized_softmax": "NSoftmax", "cosface": "CosFace", "arcface": "ArcFace",
    "proxy_nca_pp": "ProxyNCA++", "proxy_anchor": "PA",
}  # fmt: skip
PRINTED = {
    "A1": (_SEC_FILE, _SEC, "+SEC", "", ["R@1"], "SEC's repository"),
    "A2": (_SEC_FILE, _SEC, "+SEC", "+L2-reg", ["R@1"], "SEC's repository"),
    "B4": ("see_table2", _SEE, "+SEE", "", ["R@1"], "SEE's authors"),
    "B5": ("see_table2", _SEE, "+SEE", "", ["R@2", "R@4", "R@8"], "SEE's authors"),
}  # fmt: skip


@cache
def printed(claim: str, losses: tuple[str, ...] = ()) -> dict[str, float]:
    """The sizes that a table of its authors prints of a claim, by data set (as shares), means over
    these losses, or all of its, each the mean over its networks and ranks; none where it prints
    none. SEC's is a picture in their repository.

    >>> {data: round(100 * size, 1) for data, size in printed("A1").items()}
    {'CUB200': 4.2, 'Cars196': 4.4, 'InShop': 2.4, 'SOP': 3.6}
    >>> {data: round(100 * size, 2) for data, size in printed("B4", ("proxy_anchor",)).items()}
    {'Cars (inferred)': 0.45}
    """
    if claim not in PRINTED:
        return {}
    file, names, new, old, metrics, _ = PRINTED[claim]
    table = pd.read_csv(ROOT / "data" / "reported" / f"{file}.csv")
    wide = table[table["metric"].isin(metrics)].pivot_table(
        index=["dataset", "backbone", "metric"], columns="method", values="value"
    )
    methods = [name for loss, name in names.items() if not losses or loss in losses]
    gains = pd.DataFrame({name: wide[name + new] - wide[name + old] for name in methods})
    return {str(data): float(part.mean().mean()) / 100 for data, part in gains.groupby(level=0)}


def printed_ranks(claim: str) -> str:
    """At which ranks a claim's printed sizes are, where Recall@1 is not meant.

    >>> printed_ranks("B5"), printed_ranks("B4")
    (' at R@2, R@4, R@8', '')
    """
    metrics = PRINTED[claim][4] if claim in PRINTED else ["R@1"]
    return f" at {', '.join(metrics)}" * (metrics != ["R@1"])
