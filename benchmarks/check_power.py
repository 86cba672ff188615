"""How often ``reproduce --check`` cries wolf, and how large a shift it sees.

``python -m benchmarks.check_power`` simulates courses whose fresh numbers come from the committed
distribution (false alarms), or are shifted by some standard errors in one figure, one block or one
number. A standard error is that of the comparison: of the difference between the two means.
"""

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats

from course import check

FIGURES = 24
Blocks = dict[str, np.ndarray]


def course(rng: np.random.Generator, figures: int = FIGURES) -> list[tuple[int, list[int], float]]:
    """Repetitions, widths of the blocks and correlation of each figure: 200 to 600 numbers."""
    return [
        (int(rng.integers(3, 7)), rng.integers(1, 16, rng.integers(1, 4)).tolist(),
         float(rng.choice([0.0, 0.2, 0.5, 0.9])))
        for _ in range(figures)
    ]  # fmt: skip


def draw(
    rng: np.random.Generator, R: int, widths: list[int], rho: float, shape: str = "normal"
) -> Blocks:
    """One side of a figure: numbers of each block share a factor, and so do its blocks."""
    blocks = {}
    shared = rng.standard_normal((R, 1))
    for i, m in enumerate(widths):
        own, noise = rng.standard_normal((R, 1)), rng.standard_normal((R, m))
        x = np.sqrt(rho / 2) * (shared + own) + np.sqrt(1 - rho) * noise
        if shape == "counts":  # of 200 trials near 1: few distinct values, bounded and skew
            x = np.round(np.minimum(200, 196 + 3 * x)) / 200
        elif shape == "skew":
            x = np.exp(x)
        blocks[str(i)] = x
    return blocks


def levels(plan: list[tuple[int, list[int], float]]) -> check.Levels:
    """The levels that such a course is checked at."""
    rng = np.random.default_rng(0)
    drawn = [draw(rng, *figure) for figure in plan]
    records = [{key: {"values": x.tolist()} for key, x in blocks.items()} for blocks in drawn]
    return check.levels({str(i): {"numbers": record} for i, record in enumerate(records)})


def alarmed(old: Blocks, new: Blocks, at: check.Levels) -> bool:
    return bool(list(check.unlikely(old, new, at)))


def false_alarms(courses: int, shape: str = "normal", seed: int = 0, figures: int = FIGURES) -> int:
    """Of so many courses without a fault, in how many at least one number is called unlikely."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(courses):
        plan = course(rng, figures)
        at = levels(plan)
        scale = [rng.lognormal(0, 1, 20) for _ in plan]  # numbers have spreads of their own
        found += any(
            alarmed(_scaled(draw(rng, *p, shape), s), _scaled(draw(rng, *p, shape), s), at)
            for p, s in zip(plan, scale, strict=True)
        )
    return found


def _scaled(blocks: Blocks, scale: np.ndarray) -> Blocks:
    return {key: x * scale[int(key)] for key, x in blocks.items()}


def power(
    R: int, columns: int, rho: float, shift: float, grain: str = "figure", signs: str = "mixed",
    draws: int = 400, seed: int = 0,
) -> float:  # fmt: skip
    """How often a shift by so many standard errors is seen in a figure of blocks of 10 numbers."""
    rng = np.random.default_rng(seed)
    widths = [10] * (columns // 10) or [columns]
    at = levels(course(np.random.default_rng(1)))
    found = 0
    for _ in range(draws):
        old, new = draw(rng, R, widths, rho), draw(rng, R, widths, rho)
        for key in new if grain == "figure" else ["0"]:
            m = new[key].shape[1]
            move = shift * np.sqrt(2 / R) * np.ones(m)
            if signs == "mixed":
                move *= rng.choice([-1, 1], m)
            if grain == "number":
                move[1:] = 0
            new[key] = new[key] + move
        found += alarmed(old, new, at)
    return found / draws


def main(courses: int = 5000, say: Callable[[str], None] = print) -> None:
    for shape in ("normal", "counts", "skew"):
        n = courses if shape == "normal" else courses // 5
        k = false_alarms(n, shape)
        low, high = stats.binomtest(k, n).proportion_ci(method="exact")
        say(f"{shape}: {k} of {n} courses with a false alarm, rate in [{low:.5f}, {high:.5f}]")
    say("| grain | R | numbers | correlation | signs | 3 SE | 5 SE | 10 SE |\n|---|" + "---|" * 7)
    for R in (3, 4, 5, 6):
        for grain, columns, rho, signs in (
            ("figure", 30, 0.0, "mixed"), ("figure", 30, 0.5, "mixed"), ("figure", 30, 0.0, "same"),
            ("figure", 30, 0.5, "same"), ("figure", 100, 0.2, "mixed"), ("block", 30, 0.2, "mixed"),
            ("number", 30, 0.2, "mixed"),
        ):  # fmt: skip
            seen = [power(R, columns, rho, shift, grain, signs) for shift in (3, 5, 10)]
            row = f"| {grain} | {R} | {columns} | {rho} | {signs} | "
            say(row + " | ".join(f"{100 * p:.0f} %" for p in seen) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
