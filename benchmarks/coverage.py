"""How often the one test finds a difference where there is none: studies are simulated in every
design in use, and analyzed by ``dmlkit.statistics`` as the studies are. The interval is that of the
test, so it holds the truth in all the others.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlkit.statistics import Luck, luck, pair_luck, paired

STUDIES = 1000
#: Of a design: searches, repetitions, luck of one arm, spread of a difference (points), arms, the
#: comparison's own pairs, all bases of its kind, shared test classes.
DESIGNS: dict[str, tuple[int, int, float, float, int, int, int, float]] = {
    "drawings": (2, 12, 1.1, 2.0, 43, 5, 9, 0.0),
    "drawings, one pair": (2, 12, 1.1, 2.0, 43, 1, 9, 0.0),
    "drawings, searched twice": (2, 12, 0.8, 1.7, 44, 5, 9, 0.0),
    "small batches, trained longer": (2, 12, 1.4, 1.5, 7, 1, 2, 0.0),
    "drawings, fine-tuned": (2, 12, 0.9, 1.2, 44, 5, 9, 0.224),
    "photographs, heads": (4, 81, 0.9, 5.5, 43, 5, 9, 0.0),
    "photographs, whole": (4, 81, 0.6, 6.0, 5, 1, 3, 0.0),
    "four searches": (4, 12, 1.1, 2.0, 44, 4, 9, 0.0),
    "twelve searches": (12, 24, 1.1, 2.0, 44, 4, 9, 0.0),
    "a search each": (12, 12, 1.1, 2.0, 44, 4, 9, 0.0),
    "one search": (1, 6, 1.1, 2.0, 44, 4, 9, 0.0),
}
ADDITIONS = "additions"
#: The luck of a comparison's own pairs over that of its kind, in variance: what scatters so, each
#: third alike, are the "additions".
KINDS = {f"{ADDITIONS}, luck x {share:g}": share for share in (0.3, 1.0, 2.0)}
#: Designs in which no loss is compared with itself.
OF_LOSSES_ALONE = ("small batches, trained longer",)


def study(rng: np.random.Generator, design: tuple[Any, ...]) -> Iterator[float]:
    """One study in which nothing differs: p of a comparison of each kind."""
    S, n, tau, spread, A, J, bases, r = design
    of = np.arange(n) % S

    def noise(k: int, sd: float) -> np.ndarray:
        shared, own = rng.standard_normal((1, k)), rng.standard_normal((n, k))
        return sd * (np.sqrt(r) * shared + np.sqrt(1 - r) * own)

    def tuned(k: int, sd: float) -> np.ndarray:
        return sd * rng.standard_normal((S, k))[of]

    def tested(d: np.ndarray, lucky: Luck, pairs: float) -> float:
        return paired(d[:, None], overlap=r, luck=lucky, searches=of, pairs=pairs)["p"].iloc[0]

    scores = tuned(A, tau) + noise(A, spread / np.sqrt(2)) + 3 * rng.standard_normal((n, 1))
    common = luck(scores, of)
    yield tested(scores[:, 0] - scores[:, 1], common, 1.0)
    others = tuned(bases - 1, np.sqrt(2) * tau) + noise(bases - 1, 0.75 * spread)
    for factor in KINDS.values():
        own = tuned(J, np.sqrt(2 * factor) * tau) + noise(J, 0.75 * spread)
        kind = pair_luck(np.c_[others, own[:, :1]], of, common)
        yield tested(own.mean(1), pair_luck(own, of, kind), 1 / J)
    same = noise(9, 0.75 * spread)
    yield tested(same[:, 0], pair_luck(same, of), 1.0)


def rows(studies: int = STUDIES) -> list[dict[str, Any]]:
    """One row for each design and kind of comparison."""
    made = []
    for name, design in DESIGNS.items():
        rng = np.random.default_rng(0)
        found = np.array([list(study(rng, design)) for _ in range(studies)])  # (studies, kinds)
        alarms = 100 * (found < 0.05).mean(0)
        S, n, tau, spread, *_, J, _, r = design
        of = dict(zip(("losses", *KINDS, "the same recipe"), alarms, strict=True))
        if name in OF_LOSSES_ALONE:
            of = {"losses": of["losses"]}
        else:  # comparisons whose luck scatters about that of their kind
            every = np.mean([of[kind] for kind in KINDS])
            of = {"losses": of.pop("losses"), ADDITIONS: every, **of}
        for kind, alarm in of.items():
            made.append({
                "design": name, "searches": S, "n": n, "luck": tau, "spread": spread,
                "shared": r, "comparison": kind, "pairs": J if kind.startswith(ADDITIONS) else 1,
                "false alarms (%)": f"{alarm:.1f}",
            })  # fmt: skip
    return made
