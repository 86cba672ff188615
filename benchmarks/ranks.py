"""How often a loss's true rank lies in the interval that docs/which_loss.md gives it: studies are
simulated in every design in use, and analyzed by ``studies.choice.ranks``.

The true scores are those of the evidence, drawn together until their spread and the errors add up
to the spread that the evidence has.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dmlkit import statistics
from studies.answers import conditions, kept
from studies.choice import SHOWN, ranks
from studies.condition import Condition, plain

STUDIES = 400


def simulated(rng: np.random.Generator, at: Condition, true: pd.Series, sd: float) -> Condition:
    """Another study of the losses whose true scores these are: its luck, and ``sd`` within a
    search, are those of the condition."""
    of, r = at.searches(), at.overlap
    place = np.unique(of, return_inverse=True)[1]
    (n,), A = of.shape, len(true)
    lucks = at.luck().sd / math.sqrt(2) * rng.standard_normal((place.max() + 1, A))
    shared, own = rng.standard_normal((1, A)), rng.standard_normal((n, A))
    rest = sd * (math.sqrt(r / (1 - r)) * shared + own)
    wide = pd.DataFrame(true.to_numpy() + lucks[place] + rest, of.index, true.index)
    rows = wide.rename_axis("arm", axis=1).stack().rename("recall_at_1").reset_index()
    return replace(at, rows=rows.assign(search=rows["repetition"].map(of)), better={})


def rows(studies: int = STUDIES) -> list[dict[str, Any]]:
    """One row for each condition: how often intervals are right, over losses and for the worst."""
    made, found = [], conditions(kept())
    for name in ("from scratch", *SHOWN):
        at, rng = found[name], np.random.default_rng(0)
        wide = at.rivals()[plain(ranks(at, 1).index)]
        of, A = at.searches()[wide.index].to_numpy(), len(wide.columns)
        rest = (wide.sub(wide.mean(axis=1), axis=0) * math.sqrt(A / (A - 1))).to_numpy()
        within = np.mean([np.var(rest[of == s], axis=0, ddof=1) for s in np.unique(of)], axis=0)
        sd, mean, S = math.sqrt(np.median(within)), wide.mean(), len(np.unique(of))
        error = sd**2 / statistics.effective(len(of), at.overlap) + at.luck().variance / 2 / S
        share = math.sqrt(max(0.0, 1 - error / mean.var()))
        true = mean.mean() + share * (mean - mean.mean())
        rank, right, width = true.rank(ascending=False), [], []
        for _ in range(studies):
            drawn = ranks(simulated(rng, at, true, sd), 1000).loc[rank.index]
            right.append((drawn["low"] <= rank) & (rank <= drawn["high"]))
            width.append((drawn["high"] - drawn["low"]).median())
        each = 100 * np.mean(right, axis=0)
        made.append({
            "condition": name, "losses": A, "error (points)": f"{100 * math.sqrt(error):.2f}",
            "true spread (points)": f"{100 * share * mean.std():.2f}",
            "right (%)": f"{each.mean():.1f}", "of the worst loss (%)": f"{each.min():.0f}",
            "places, median": f"{np.mean(width):.0f}",
        })  # fmt: skip
    return made
