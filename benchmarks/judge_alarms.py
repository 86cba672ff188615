"""How often the judge calls a copy of a known loss better, and how large a gain it finds.

Null comparisons are drawn from the evidence of all studies that there is (see
``studies.standing.alarms``).
"""

from typing import Any

from studies.judge import compared, families
from studies.judgment import REGIMES
from studies.rules import protocol
from studies.standing import alarms

#: What is copied (None: any loss), how much better it is made, and in how many comparisons.
CASES: list[tuple[str | None, float, int]] = [
    *((None, 0.0, 2000), ("best", 0.0, 2000)),
    *(("best", gain, 400) for gain in (0.01, 0.02, 0.03, 0.05)),
]


def rows() -> list[dict[str, Any]]:
    """One row for each question: what is copied, the gain it is given, how often it is "better"."""
    rules = [protocol(name) for name in REGIMES]
    overlaps = {each.name: each.repetitions.overlap for each in rules}
    studies = {each.name: compared(each) for each in rules}
    of_arms = families(sorted({arm for frame in studies.values() for arm in frame["arm"]}))
    made = []
    for of, gain, count in CASES:
        found = alarms(studies, of_arms, count, of=of, gain=gain, overlaps=overlaps)
        share, low, high = (f"{100 * found[name]:.1f}" for name in ("share", "low", "high"))
        made.append({
            "copy of": of or "any loss", "points better": f"{100 * gain:.0f}",
            "called better (%)": share, "interval": f"{low} to {high}", "comparisons": count,
        })  # fmt: skip
    return made
