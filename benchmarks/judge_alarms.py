"""How often the judge calls a copy of a known loss better, and how large a gain it finds.

``python -m benchmarks.judge_alarms [COMPARISONS]`` draws null comparisons from the evidence of all
studies that there is (see ``dmlkit.extras.standing.alarms``).
"""

import sys
from collections.abc import Callable
from typing import Any

import pandas as pd

from dmlkit.extras.judge import NoEvidenceError, families, regime
from dmlkit.extras.judgment import REGIMES
from dmlkit.extras.standing import alarms

GAINS = (0.01, 0.02, 0.03, 0.05)


def measure(
    studies: dict[str, pd.DataFrame], overlaps: dict[str, float], comparisons: int = 1000
) -> pd.DataFrame:
    """One row for each question: what is copied, the gain it is given, how often it is "better"."""
    arms = sorted({arm for frame in studies.values() for arm in frame["arm"]})
    cases: list[tuple[str | None, float, int]] = [(None, 0.0, comparisons)]
    cases += [("best", 0.0, comparisons)]
    cases += [("best", gain, max(1, comparisons // 5)) for gain in GAINS]
    rows: list[dict[str, Any]] = []
    for of, gain, count in cases:
        found = alarms(studies, families(arms), count, of=of, gain=gain, overlaps=overlaps)
        numbers = {str(key): value for key, value in found.items()}
        rows.append({"copy of": of or "any loss", "gain": gain} | numbers)
    return pd.DataFrame(rows)


def main(comparisons: int = 1000, say: Callable[[str], None] = print) -> None:
    studies, overlaps = {}, {}
    for name in REGIMES:
        try:
            known = regime(name)
        except NoEvidenceError as error:
            say(str(error))
            continue
        studies[name], overlaps[name] = known.evidence, known.overlap
        if known.missing:
            say(known.missing)
    if not studies:
        raise SystemExit(1)
    say("| copy of | gain (points) | called better (%) | 95 % interval | comparisons |")
    say("|---" * 5 + "|")
    for row in measure(studies, overlaps, comparisons).to_dict("records"):
        share, low, high = (100 * row[key] for key in ("share", "low", "high"))
        say(
            f"| {row['copy of']} | {100 * row['gain']:.0f} | {share:.1f} | [{low:.1f}, {high:.1f}] "
            f"| {row['comparisons']:.0f} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
