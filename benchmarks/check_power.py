"""How often ``reproduce --check`` cries wolf elsewhere, and how large a shift it sees there.

The figures are those of the course, with other numbers: fresh ones from one distribution (false
alarms), or with a shift of some standard errors in one figure or one number (power). A standard
error is that of the comparison: of the difference between the two means.
"""

import json
from functools import cache

import numpy as np
from scipy import stats

from course import check
from dmlkit import ROOT

Row = dict[str, str | float]


@cache
def course() -> tuple[list[dict[str, np.ndarray]], tuple[float, float]]:
    """The random numbers of every committed figure, and the levels that they are checked at."""
    paths = sorted((ROOT / "figures").glob("*.json"))
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    blocks = [dict(check.samples(record["numbers"])) for record in records.values()]
    return [figure for figure in blocks if figure], check.levels(records)


def draw(rng: np.random.Generator, R: int, m: int, rho: float, shape: str = "normal") -> np.ndarray:
    """Numbers of m columns in R repetitions that share a factor: (R, m)."""
    x = rho**0.5 * rng.standard_normal((R, 1)) + (1 - rho) ** 0.5 * rng.standard_normal((R, m))
    if shape == "counts":  # of 200 trials near 1: few distinct values, bounded and skew
        return np.round(np.minimum(200, 196 + 3 * x)) / 200
    return np.exp(x) if shape == "skew" else x


def false_alarms(courses: int, shape: str = "normal", seed: int = 0) -> int:
    """Of so many courses without a fault, in how many at least one number is called unlikely."""
    rng = np.random.default_rng(seed)
    figures, at = course()
    found = 0
    for _ in range(courses):
        for figure in figures:
            rho = rng.choice([0.0, 0.2, 0.5, 0.9])
            sides = [
                {key: draw(rng, len(x), x.shape[1], rho, shape) for key, x in figure.items()}
                for _ in range(2)
            ]
            if any(check.unlikely(sides[0], sides[1], at)):
                found += 1
                break
    return found


def power(R: int, rho: float, shift: float, moved: int = 30, signs: str = "mixed") -> float:
    """How often a shift by so many standard errors is seen, of some of a figure's 30 numbers."""
    rng, at, draws = np.random.default_rng(0), course()[1], 400
    found = 0
    for _ in range(draws):
        old, new = draw(rng, R, 30, rho), draw(rng, R, 30, rho)
        sign = rng.choice([-1, 1], moved) if signs == "mixed" else 1
        new[:, :moved] += shift * (2 / R) ** 0.5 * sign
        found += any(check.unlikely({"x": old}, {"x": new}, at))
    return found / draws


def rows(courses: int = 5000) -> list[Row]:
    """False alarms by the shape of the numbers, then what is seen of shifts."""
    found: list[Row] = []
    for shape in ("normal", "counts", "skew"):
        n = courses if shape == "normal" else courses // 5
        k = false_alarms(n, shape)
        low, high = stats.binomtest(k, n).proportion_ci(method="exact")
        alarms = f"{k} of {n}, 95 % interval [{low:.5f}, {high:.5f}]"
        found.append({"what": f"{shape} numbers", "courses with a false alarm": alarms})
    for R in (3, 4, 5, 6, 10):
        for what, moved, rho, signs in (
            ("all of 30 numbers", 30, 0.0, "mixed"), ("all of 30 numbers", 30, 0.5, "mixed"),
            ("all of 30 numbers", 30, 0.5, "same"), ("one of 30 numbers", 1, 0.2, "same"),
        ):  # fmt: skip
            row: Row = {"what": f"{what}, {R} repetitions, correlation {rho}, {signs} signs"}
            for shift in (3, 5, 10, 20):
                row[f"seen at {shift} SE"] = f"{100 * power(R, rho, shift, moved, signs):.0f} %"
            found.append(row)
    return found
