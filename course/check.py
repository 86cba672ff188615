"""Compare figures that were just made with the committed ones, by asking the right question.

Each kind of number is compared in its own way (see ``dmlkit.records``):

- text and plain numbers are equal, numbers to 1e-5 of themselves (plus 1e-9);
- random numbers, kept by repetition, are fine if they are equal to the last digit. Else the
  question is whether both sets can come from one distribution: another processor rounds
  otherwise, and a training that is rounded otherwise is as good as one with another seed;
- timings have the same order of magnitude;
- examples are there, in the same shape;
- a verdict fails if it has turned from reproduced to contradicted or back. One that has changed
  otherwise (to or from "undecided" or "no effect"), or that a clock decides, is named in the notes.

**The test.** For R repetitions a side, let d be the difference of two means over its standard
error, with n = 2R − 2 degrees of freedom for the spread within the two sides.

- Each number: a moderated t (Smyth 2004, Statistical Applications in Genetics and Molecular
  Biology 3:3). The variance s² is drawn towards that of the like numbers of its block,
  s̃² = (d₀s₀² + ns²) / (d₀ + n). Like numbers are correlated and know less than they seem to, so
  that at most n(1 + h)/2 degrees of freedom count, h = tr(G)² / tr(G²) with G the Gram matrix of
  the standardized residuals (half of what h says: it comes out too large just when what the
  numbers share happens to vary little).
- Each block of numbers and each figure, twice, on scores X·w of one value for each repetition: w
  equal for all columns (all have moved to one side), and w the first principal axis (they have
  moved together to any sides). The columns are scaled, and w is found, from the cross-products of
  both sides together, so that t has exactly n degrees of freedom whatever the columns'
  correlation (Läuter, Glimm and Kropf 1996, Biometrical Journal 38:5).

The repetitions are not paired, though both sides share their seeds: the differences of pairs can
be as small as rounding errors, and a test of those would find that two processors differ, which is
known. False alarms: at most 1 in 1,000 for the whole course. Half of that is aimed at, since the
moderated t is an approximation: a quarter for single numbers, and a quarter for blocks and figures,
each shared out by Bonferroni. The number of tests is counted in the committed figures, so that the
threshold is known before anything is run. ``benchmarks/check_power.py`` measures false alarms and
power.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from course.records import derived, kind, leaves, malformed, parts
from dmlkit import claims

#: False alarms of a check of the whole course.
RATE = 1e-3
# The moderated t is an approximation: half of the rate is kept back for it.
_AIM = RATE / 2
#: Exact numbers may differ by so much of themselves, and by so much in any case.
RELATIVE, ABSOLUTE = 1e-5, 1e-9
#: Times on two machines may differ by this factor; below the floor they are all alike.
FACTOR, FLOOR = 10.0, 1e-3

_SETTINGS = ("notebook", "profile", "seeds", "parameters")  # of provenance: they have to be equal


@dataclass
class Outcome:
    """What a comparison found: failures, and notes on what is no failure but worth knowing."""

    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(
    committed: Mapping[str, Any], made: Mapping[str, Any], course: Mapping[str, Any] | None = None
) -> Outcome:
    """Compare the records of figures: both map a figure's name to the content of its JSON.

    ``course`` holds the committed records of all figures, from which the tests are counted, where
    ``committed`` is only a part of them.

    >>> old = {"toy": {"alt": "", "caption": "", "provenance": {}, "numbers": {"n": 5}}}
    >>> new = {"toy": {"alt": "", "caption": "", "provenance": {}, "numbers": {"n": 6}}}
    >>> compare(old, new).failures
    ['toy: n: committed 5, now 6']
    """
    outcome = Outcome()
    course = committed if course is None else course
    at = levels({name: record for name, record in course.items() if not _faults(record)})
    for name in sorted(committed.keys() | made.keys()):
        if name not in made or name not in committed:
            where = "committed, but not made" if name in committed else "made, but not committed"
            outcome.failures.append(f"{name}: {where}")
            continue
        old, new = committed[name], made[name]
        faults = [f"{f} (committed)" for f in _faults(old)] + [f"{f} (now)" for f in _faults(new)]
        outcome.failures += [f"{name}: {line}" for line in faults]
        if faults:
            continue
        found = [*_words(old, new), *_differences(old["numbers"], new["numbers"], "")]
        found += unlikely(samples(old["numbers"]), samples(new["numbers"]), at)
        outcome.failures += [f"{name}: {line}" for line in found]
        outcome.notes += [f"{name}: {line}" for line in _moved_verdicts(old, new)]
    outcome.notes += _equal_digits(committed, made)
    return outcome


def _faults(record: Any) -> list[str]:
    """What keeps a record from being compared."""
    if found := list(malformed(record)):
        return found
    try:
        samples(record["numbers"])
    except (ValueError, TypeError, KeyError) as error:
        return [f"its random numbers cannot be read: {error!r}"]
    return []


def samples(numbers: Any, key: str = "") -> dict[str, np.ndarray]:
    """Every block of random numbers of a record as (R, columns), under its key.

    The claims of a figure that have as many repetitions each are one block.

    >>> samples({"recall": {"values": [[1, 2], [3, 4]]}, "steps": 300})
    {'recall': array([[1., 2.],
           [3., 4.]])}
    """
    found: dict[str, np.ndarray] = {}
    if kind(numbers) == "sample":
        values = np.asarray(numbers["values"], dtype=float)
        return {key: values.reshape(len(values), -1)}
    if kind(numbers) != "plain":
        return found
    columns: dict[str, list[np.ndarray]] = {}
    for path, value in parts(numbers, key):
        if kind(value) == "claim":
            column = _repetitions(value)
            columns.setdefault(f"{key} of n = {len(column)}", []).append(column)
        else:
            found |= samples(value, path)
    return found | {name: np.stack(each, 1) for name, each in columns.items() if len(each[0]) > 1}


def _repetitions(claim: Mapping[str, Any]) -> np.ndarray:
    """A claim's effect by repetition, (n,); where only its interval is known, with that spread."""
    if claim["rule"] in ("exact", "table") or claim.get("timed"):
        return np.zeros(0)
    if claim.get("values") is not None:
        return np.asarray(claim["values"], dtype=float)
    if claim["low"] is None or claim["n"] < 2:
        return np.zeros(0)
    n = claim["n"]
    error = (claim["high"] - claim["low"]) / 2 / claims.half_width(claim["rule"], n)
    pattern = np.arange(n) - (n - 1) / 2
    return claim["effect"] + pattern * error * math.sqrt(n) / pattern.std(ddof=1)


# --- What is compared exactly ---------------------------------------------------------------------


def _words(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for part in ("alt", "caption"):
        if old[part] != new[part]:
            yield f"{part}: committed {old[part]!r}, now {new[part]!r}"
    for part in _SETTINGS:
        yield from _differences(
            old["provenance"].get(part), new["provenance"].get(part), f"provenance/{part}"
        )


def _differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """Name what differs, where it is not a question of chance."""
    moved = f"{key}: committed {_short(old)}, now {_short(new)}"
    sort = kind(old)
    if sort != kind(new):
        yield f"{moved}: a {kind(new)} instead of a {sort}"
    elif sort == "example":
        if _shape(old) != _shape(new):
            yield f"{moved}: an example of another shape"
    elif sort == "timing":
        yield from _other_magnitude(old["timing"], new["timing"], key)
    elif sort == "sample":
        yield from _other_sample(old, new, key)
    elif sort == "claim":
        yield from _other_claim(old, new, key)
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _inside(old, new, key)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _inside(dict(enumerate(old)), dict(enumerate(new)), key)
    elif not _same(old, new):
        yield moved


def _inside(old: Mapping[Any, Any], new: Mapping[Any, Any], key: str) -> Iterator[str]:
    for name in [*old, *(name for name in new if name not in old)]:
        path = f"{key}/{name}" if key else str(name)
        if name not in new:
            yield f"{path}: committed {_short(old[name])}, but missing now"
        elif name not in old:
            yield f"{path}: {_short(new[name])} now, but not committed"
        else:
            yield from _differences(old[name], new[name], path)


def _same(old: Any, new: Any) -> bool:
    if type(old) in (int, float) and type(new) in (int, float):
        return math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(old) is type(new) and old == new


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return "number" if type(value) in (int, float) else type(value).__name__


def _other_magnitude(old: Any, new: Any, key: str) -> Iterator[str]:
    if _shape(old) != _shape(new):
        yield f"{key}: committed {_short(old)}, now {_short(new)}: timings of another shape"
        return
    for (name, a), (_, b) in zip(leaves(old, key), leaves(new, key), strict=True):
        if type(a) in (int, float):
            less, more = sorted((abs(a), abs(b)))
            if more > FACTOR * max(less, FLOOR):
                yield f"{name}: committed {a!r}, now {b!r}: another order of magnitude"
        elif a != b:
            yield f"{name}: committed {a!r}, now {b!r}"


def _other_sample(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> Iterator[str]:
    shapes = [np.shape(record["values"]) for record in (old, new)]
    if shapes[0] != shapes[1]:
        yield f"{key}: committed random numbers of shape {shapes[0]}, now {shapes[1]}"
    for record, when in ((old, "committed"), (new, "now")):
        yield from (f"{key}/{line} ({when})" for line in derived(record))
    if shapes[0][:1] == (1,):  # one repetition has no spread to compare with
        yield from _differences(old["values"], new["values"], f"{key}/values")
    # Means and intervals follow from the values.
    left_out = {"values", "mean", "low", "high"}
    yield from _inside(_without(old, left_out), _without(new, left_out), key)


def _without(record: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in keys}


def _other_claim(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> Iterator[str]:
    left_out = {"verdict", "effect", "low", "high", "values"}
    yield from _inside(_without(old, left_out), _without(new, left_out), key)
    for record, when in ((old, "committed"), (new, "now")):
        yield from (f"{key}/{line} ({when})" for line in derived(record))
    before, after = old["verdict"], new["verdict"]
    if _has_turned(old, new):
        yield f"{key}: {old['claim']} {old['part']} has turned from {before} to {after}"
    if len(_repetitions(old)) != len(_repetitions(new)):
        yield f"{key}: {old['claim']} {old['part']} has other repetitions than committed"
    if old["rule"] == "table" and not _same(old["effect"], new["effect"]):
        yield f"{key}/effect: committed {old['effect']!r}, now {new['effect']!r}"


def _has_turned(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a verdict says the reverse; what a clock decides is another machine's business."""
    both = {old["verdict"], new["verdict"]}
    return both == {"reproduced", "contradicted"} and not old.get("timed")


# --- What is random -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    """How small a probability has to be: for one number, and for one score of many."""

    column: float
    score: float


def levels(course: Mapping[str, Any]) -> Levels:
    """Share the false alarms out over all tests of the committed figures."""
    blocks = [samples(record["numbers"]) for record in course.values()]
    columns = sum(each.shape[1] for figure in blocks for each in figure.values())
    groups = sum(len(_groups(figure)) for figure in blocks)
    return Levels(_AIM / 2 / max(1, columns), _AIM / 2 / max(1, 2 * groups))


def _groups(blocks: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """Blocks whose numbers are looked at together: each by itself, and all of a figure."""
    shown = {key: x for key, x in blocks.items() if " of n = " not in key}
    groups = {key: [key] for key, x in shown.items() if x.shape[1] > 1}
    for R in sorted({len(x) for x in shown.values()}):
        alike = [key for key, x in shown.items() if len(x) == R]
        if len(alike) > 1:
            groups[f"all numbers of {R} repetitions"] = alike
    return groups


def unlikely(
    old: Mapping[str, np.ndarray], new: Mapping[str, np.ndarray], at: Levels
) -> Iterator[str]:
    """Name the random numbers that one distribution would hardly give."""
    pairs = {
        key: settled(old[key], new[key])
        for key in old.keys() & new.keys()
        if old[key].shape == new[key].shape and len(old[key]) > 1
    }
    for key in [key for key in old if key in pairs]:
        p = column_odds(*pairs[key])
        for i in np.flatnonzero(p < at.column):
            a, b = (x[:, i].mean() for x in pairs[key])
            yield f"{key}, number {i}: committed {a:.6g}, now {b:.6g}: {_in_words(p[i])}"
    for name, keys in _groups(old).items():
        together = [pairs[key] for key in keys if key in pairs]
        if together:
            sides = [np.concatenate(side, axis=1) for side in zip(*together, strict=True)]
            smallest = min(score_odds(*sides))
            if smallest < at.score:
                m = sides[0].shape[1]
                yield f"{name}: its {m} numbers have moved together: {_in_words(smallest)}"


def _in_words(p: float) -> str:
    return f"by chance once in {1 / max(p, 1e-15):,.0f} times"


def settled(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of a block, where columns that are equal but for rounding are made equal."""
    same = np.isclose(new, old, rtol=RELATIVE, atol=ABSOLUTE).all(0)
    return old, np.where(same, old, new)


def column_odds(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The p-value of each column of a block, (R, m) a side -> (m,): a moderated t (see above).

    >>> rng = np.random.default_rng(0)
    >>> column_odds(rng.normal(0, 1, (3, 2)), rng.normal([0, 50], 1, (3, 2))) < 1e-4
    array([False,  True])
    """
    d, residuals, n = _contrast(old, new)
    floor = _rounding(old)
    s2 = np.maximum((residuals**2).sum(0) / n, floor)
    random = s2 > floor
    prior, strength = _prior(s2[random], n)
    scaled = residuals[:, random] / np.sqrt(s2[random])
    gram = scaled @ scaled.T
    h = np.trace(gram) ** 2 / (gram**2).sum() if random.any() else 1.0
    freedom = min(strength + n, n * (1 + h) / 2)
    weight = 1.0 if math.isinf(strength) else strength / (strength + n)
    moderated = np.where(random, weight * prior + (1 - weight) * s2, s2)
    t = np.abs(d) / np.sqrt(moderated)
    return 2 * stats.t.sf(t, np.where(random, freedom, n))


def score_odds(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """p-values of many columns at once, (R, m) a side: of their average, and of their main axis.

    >>> rng = np.random.default_rng(0)
    >>> old, new = rng.normal(size=(2, 6, 30))
    >>> max(score_odds(old, new + 5)) < 1e-6 < min(score_odds(old, new))
    True
    """
    d, residuals, n = _contrast(old, new)
    random = (residuals**2).sum(0) / n > _rounding(old)  # the others are judged one by one
    rows = np.concatenate([d[None], residuals])[:, random]  # (1 + 2R, m)
    if rows.shape[1] < 2 or not rows[0].any():
        return 1.0, 1.0
    scale = np.sqrt((rows**2).sum(0))
    rows /= scale
    axis = np.linalg.svd(rows, full_matrices=False)[2][0]
    weights = np.stack([np.ones_like(axis), axis], 1)  # (m, 2)
    scores = rows @ weights  # (1 + 2R, 2)
    # Sums of counts can be equal by chance in every repetition: rounding leaves that much open.
    floor = (_rounding(old)[random] / scale**2) @ weights**2
    t = np.abs(scores[0]) / np.sqrt(np.maximum((scores[1:] ** 2).sum(0) / n, floor))
    average, main = 2 * stats.t.sf(t, n)
    return float(average), float(main)


def _contrast(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Difference of the means with the variance of one value, residuals (2R, m), and their df."""
    R = len(old)
    d = (new.mean(0) - old.mean(0)) * math.sqrt(R / 2)
    return d, np.concatenate([old - old.mean(0), new - new.mean(0)]), 2 * R - 2


def _rounding(old: np.ndarray) -> np.ndarray:
    """The variance that rounding alone gives each column of the committed numbers, step² / 12.

    The step of counts, and of fractions of few, is the smallest gap between two repetitions of a
    column, over the block; that of a count which is the same each time is 1. All numbers are kept
    to six digits.
    """
    gaps = np.diff(np.sort(old, axis=0), axis=0)
    gap = gaps[gaps > 0].min(initial=math.inf)
    largest = np.abs(old).max(0)
    count = (gaps == 0).all(0) & (largest > 1) & (largest == largest.round())
    step = np.where(count, 1.0, gap if math.isfinite(gap) else 0.0)
    return np.maximum(step, RELATIVE * largest + ABSOLUTE) ** 2 / 12


def _prior(s2: np.ndarray, n: int) -> tuple[float, float]:
    """The variance s₀² that like columns share, and for how many degrees of freedom it counts.

    By the mean and the spread of log s² (Smyth 2004, section 6.2).
    """
    if len(s2) < 3:
        return 0.0, 0.0
    e = np.log(s2) - special.digamma(n / 2) + math.log(n / 2)
    excess = e.var(ddof=1) - special.polygamma(1, n / 2)
    if excess <= special.polygamma(1, 5e3):
        return float(s2.mean()), math.inf
    half = optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 1e4)
    return math.exp(e.mean() + special.digamma(half) - math.log(half)), 2 * half


# --- Notes ----------------------------------------------------------------------------------------


def _moved_verdicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for a, b in zip(*(record["numbers"].get("claims", []) for record in (old, new)), strict=False):
        before, after = a["verdict"], b["verdict"]
        if before != after and not _has_turned(a, b):
            yield f"{a['claim']} {a['part']}: committed {before}, now {after}"


def _equal_digits(committed: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """How many random numbers are equal to the last digit, with the numerics of both sides."""
    equal = total = 0
    both = [
        n for n in committed.keys() & made.keys() if not [*_faults(committed[n]), *_faults(made[n])]
    ]
    for name in both:
        old, new = (samples(side[name]["numbers"]) for side in (committed, made))
        for key in old.keys() & new.keys():
            if old[key].shape == new[key].shape:
                equal += int((old[key] == new[key]).sum())
                total += old[key].size
    if total:
        theirs, ours = (
            "/".join(sorted({side[name]["provenance"].get("numerics", "unknown") for name in both}))
            for side in (committed, made)
        )
        line = f"{equal} of {total} random numbers are equal to the last digit; numerics: "
        line += f"{ours} here, {theirs} committed"
        if equal < total and theirs == ours:
            line += ": threads, code or libraries have moved the others"
        yield line
