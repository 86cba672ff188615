"""Forms of SEC and of SEE from scratch (sphere.toml), each minus another arm, by the one test."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dmlkit import statistics
from dmlkit.statistics import Luck
from studies import claims
from studies.condition import Condition
from studies.rules import arms, protocol
from studies.trainings import tables

SOFTMAX = "normalized_softmax"
_AGAIN = {SOFTMAX: {f"{SOFTMAX}, 2,000 steps": 1.0, SOFTMAX: -1.0}}


@dataclass(frozen=True)
class Forms:
    """All arms from scratch, and their scores (repetitions, arms) by what softmax is in them.

    One of softmax's searches failed. So there are three: "as searched", "searched twice", and
    "restricted", the better of two searches where a form has one.
    """

    at: Condition
    scores: Mapping[str, pd.DataFrame]
    same: Luck  # of two trainings with one recipe, as in C21; a pair's own, where that is larger

    def minus(self, arm: str, other: str, softmax: str = "restricted") -> dict[str, float]:
        """An arm minus another, in points: mean, low and high."""
        d = self.scores[softmax][arm] - self.scores[softmax][other]
        groups = {self.at.base(other): {arm: 1.0, other: -1.0}}
        measured = self.at.measured(d, groups, "recall_at_1")
        if self.at.source(arm) == self.at.source(other) != SOFTMAX:
            own = statistics.pair_luck(
                d.to_numpy()[:, None], np.asarray(measured.searches), self.same
            )
            measured = replace(measured, luck=max(own, self.same))  # by its variance
        return dict(zip(("mean", "low", "high"), (100 * x for x in measured.ends()), strict=True))

    def by_search(self, arm: str, other: str) -> list[float]:
        """The same mean in each of the two searches."""
        d = self.at.wide()[arm] - self.at.wide()[other]
        return (100 * d.groupby(self.at.searches).mean()).tolist()


def forms(found: Mapping[str, Condition]) -> Forms:
    """The forms, of the conditions that ``studies.conditions`` gives."""
    at, further = found["from scratch"], tables("sphere")[1].frame()
    known = pd.concat([at.rows, further[~further["arm"].isin(at.rows["arm"])]])
    same = at.kind(_AGAIN, "recall_at_1")[0]
    at = replace(at, rows=known, made={**at.made, **arms(protocol("sphere"))})
    own, twice = at.wide(), found[claims.AGAIN].wide()[SOFTMAX]
    each = {"as searched": own[SOFTMAX], "searched twice": twice}
    each["restricted"] = at.rivals()[SOFTMAX]
    scores = {how: own.assign(**{SOFTMAX: mine}) for how, mine in each.items()}
    return Forms(at, scores, same)
