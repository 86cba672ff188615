"""How often the judge calls a copy of a known loss better, and how large a gain it finds.

Null comparisons are drawn from the evidence of all studies that there is (see
``studies.standing.alarms``).
"""

from typing import Any

import pandas as pd

from studies.judge import compared, families
from studies.judgment import REGIMES
from studies.rules import protocol
from studies.standing import alarms

GAINS = (0.01, 0.02, 0.03, 0.05)


def measure(
    studies: dict[str, pd.DataFrame], overlaps: dict[str, float], comparisons: int = 2000
) -> list[dict[str, Any]]:
    """One row for each question: what is copied, the gain it is given, how often it is "better"."""
    arms = sorted({arm for frame in studies.values() for arm in frame["arm"]})
    cases: list[tuple[str | None, float, int]] = [(None, 0.0, comparisons)]
    cases += [("best", 0.0, comparisons)]
    cases += [("best", gain, max(1, comparisons // 5)) for gain in GAINS]
    rows = []
    for of, gain, count in cases:
        found = alarms(studies, families(arms), count, of=of, gain=gain, overlaps=overlaps)
        share, low, high = (f"{100 * found[name]:.1f}" for name in ("share", "low", "high"))
        rows.append({
            "copy of": of or "any loss", "points better": f"{100 * gain:.0f}",
            "called better (%)": share, "interval": f"{low} to {high}", "comparisons": count,
        })  # fmt: skip
    return rows


def rows() -> list[dict[str, Any]]:
    """Rows of the studies by which the judge judges."""
    rules = [protocol(name) for name in REGIMES]
    overlaps = {each.name: each.repetitions.overlap for each in rules}
    return measure({each.name: compared(each) for each in rules}, overlaps)
