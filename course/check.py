"""Are the committed figures still true? ``dmlkit reproduce --check`` asks, and names what is not.

Numbers are the committed ones, to 1e-5 of themselves plus 1e-9. But processors round differently,
even if all are held to one instruction set, and a training multiplies the last bit until it is as
good as one with another seed. So of random numbers (``figures.sample``, the effects of claims) the
question is whether both sides can come from one distribution. With R repetitions a side, Student's
t with 2R − 2 degrees of freedom is asked of

- every column of random numbers: the difference of the two means over its pooled standard error;
- every figure: one score X·w for each repetition, w the first principal axis of all its columns.
  The columns are scaled, and w is found, from both sides together, so that t is exact whatever the
  columns' correlation (Läuter, Glimm and Kropf 1996, Biometrical Journal 38:5).

False alarms: at most 1 in 1,000 for the whole course, half of them of columns and half of scores,
shared out by Bonferroni over all that the committed figures hold. ``benchmarks/check_power.py``
measures them, and how large a shift is seen. The notes tell how many random numbers are equal.

A figure that could not be made (``figures.kept``) is counted in the notes, and is no difference.
What a verdict's alt text says of a page's own run is compared without its numbers, which stand in
the record. What a clock judges (``figures.timing``, claims that are ``timed``) never
fails, what one draw gave as an example only has to be there, and a word fails where it turns
between *holds here* and *fails here* or *reversed here*: the notes tell of other changes.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dmlkit.figures import kind, parts
from dmlkit.figures.finding import LIVE

#: False alarms of a check of the whole course.
RATE = 1e-3
#: Numbers are equal if they differ by so much of themselves, or by so much.
RELATIVE, ABSOLUTE = 1e-5, 1e-9

# Of provenance: what is said beside the numbers, and the surroundings that they were made in.
_SETTINGS = ("notebook", "profile", "seeds", "parameters")
_SURROUNDINGS = ("device", "numerics", "datasets", "versions")
_RANDOM = ("values", "mean", "effect", "low", "high", "p")  # of a sample and of a claim
_TRAINED = re.compile(rf"[+−]?[\d.]+(?= \({LIVE})")  # by a page itself: random
_TURNED = ({"holds here", "fails here"}, {"holds here", "reversed here"})

Records = Mapping[str, Any]
Blocks = Mapping[str, np.ndarray]


def compare(
    committed: Records, made: Records, course: Records | None = None
) -> tuple[list[str], list[str]]:
    """Failures and notes of comparing figures: records, the content of a JSON, by their names.

    ``course`` holds the committed records of all figures, from which the tests are counted, where
    ``committed`` is only a part of them.

    >>> compare({"toy": {"numbers": {"n": 5}}}, {"toy": {"numbers": {"n": 6}}})[0]
    ['toy: n: committed 5, now 6']
    """
    failures, notes, around, equal = list[str](), list[str](), Counter[str](), list[bool]()
    at = levels(committed if course is None else course)
    for name in sorted(committed.keys() ^ made.keys()):
        where = "committed, but not made" if name in committed else "made, but not committed"
        failures.append(f"{name}: {where}")
    absent = [name for name, record in made.items() if not is_made(record)]
    for name in sorted(committed.keys() & made.keys() - set(absent)):
        old, new = committed[name], made[name]
        for fails, line in _differences(_said(old), _said(new)):
            (failures if fails else notes).append(f"{name}: {line}")
        before, after = (dict(samples(record["numbers"])) for record in (old, new))
        failures += [f"{name}: {line}" for line in unlikely(before, after, at)]
        for key in before.keys() & after.keys():
            if before[key].shape == after[key].shape:
                equal += list(np.isclose(before[key], after[key], RELATIVE, ABSOLUTE).flat)
        moved = _differences(_part(old, _SURROUNDINGS), _part(new, _SURROUNDINGS))
        around.update(line for _, line in moved)
    notes += [f"{line} ({n} figures)" for line, n in sorted(around.items())]
    if absent:
        count = f"{len(absent)} of {len(made)} figures ({', '.join(absent)})"
        notes.append(f"not made, as their pictures are not here: {count}")
    return failures, [*notes, f"{sum(equal)} of {len(equal)} random numbers are those committed"]


def is_made(record: Mapping[str, Any]) -> bool:
    """Whether a run made the figure itself, and did not take the committed one."""
    return bool(record.get("provenance", {}).get("made", True))


def pictures(committed: Records, kept: Mapping[str, bytes], folder: Path) -> Iterator[str]:
    """Name each picture of committed figures that is missing, or not the one a notebook keeps."""
    for name in committed:
        png = folder / f"{name}.png"
        if not png.exists():
            yield f"{name}: the committed {png.name} is missing"
        elif kept.get(name) != png.read_bytes():
            yield f"{name}: the committed {png.name} is not the picture that its notebook keeps"


# --- What is equal --------------------------------------------------------------------------------


def _said(record: Mapping[str, Any]) -> dict[str, Any]:
    words = {"alt": _TRAINED.sub("#", record.get("alt") or ""), "caption": record.get("caption")}
    return words | _part(record, _SETTINGS) | record["numbers"]


def _part(record: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: record.get("provenance", {}).get(key) for key in keys}


def _differences(old: Any, new: Any) -> Iterator[tuple[bool, str]]:
    """Whether it is a failure, and how to say it, for each value that is another one."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for key in [*before, *(key for key in after if key not in before)]:
        if key not in before or key not in after:
            yield True, f"{key}: {'not committed' if key in after else 'committed, but not made'}"
            continue
        (rule, a), (_, b) = before[key], after[key]
        line = f"{key}: committed {a!r:.80}, now {b!r:.80}"
        if rule == "equal" and not _close(a, b, RELATIVE, ABSOLUTE):
            yield True, line
        elif rule == "clock" and not _close(a, b, 0.9, 1e-3):  # another order of magnitude
            yield False, line
        elif rule == "word" and a != b:
            yield {a, b} in _TURNED, line


def _leaves(value: Any, key: str = "", rule: str = "equal") -> Iterator[tuple[str, Any]]:
    """Every single value under its key, with the rule by which it is compared: (key, (rule, …))."""
    sort = kind(value)
    if sort == "timing" or (sort == "claim" and value.get("timed")):
        rule = "clock"
    elif sort == "example":
        rule = "random"
    if not isinstance(value, dict | list | tuple):
        yield key, (rule, value)
    for path, part in parts(value, key):
        within = path.removeprefix(f"{key}/") if sort in ("sample", "claim") else ""
        inner = (
            "random"
            if within.partition("/")[0] in _RANDOM
            else "word"
            if within == "word"
            else rule
        )
        yield from _leaves(part, path, inner if rule == "equal" else rule)


def _close(a: Any, b: Any, relative: float, absolute: float) -> bool:
    if type(a) in (int, float) and type(b) in (int, float):
        return math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and bool(a == b)


# --- What is random -------------------------------------------------------------------------------


def samples(numbers: Any, key: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every block of random numbers by repetition, under its key: (R, columns).

    >>> dict(samples({"recall": {"values": [[1, 2], [3, 4]]}, "steps": 300}))
    {'recall': array([[1., 2.],
           [3., 4.]])}
    """
    if kind(numbers) in ("sample", "claim"):
        if numbers.get("values") and not numbers.get("timed"):
            x = np.asarray(numbers["values"], dtype=float)
            yield key, x.reshape(len(x), -1)
    elif kind(numbers) == "plain":
        for path, part in parts(numbers, key):
            yield from samples(part, path)


def levels(course: Records) -> tuple[float, float]:
    """How small the p-value of a column has to be, and that of a figure's score, for an alarm."""
    blocks = [dict(samples(record["numbers"])) for record in course.values()]
    columns = sum(x.shape[1] for figure in blocks for x in figure.values())
    scores = sum(len({len(x) for x in figure.values()}) for figure in blocks)
    return RATE / 2 / max(1, columns), RATE / 2 / max(1, scores)


def unlikely(old: Blocks, new: Blocks, at: tuple[float, float]) -> Iterator[str]:
    """Name the random numbers of one figure that one distribution would hardly give twice."""
    keys = [k for k in old if k in new and old[k].shape == new[k].shape and len(old[k]) > 1]
    for R in sorted({len(old[key]) for key in keys}):
        alike = [key for key in keys if len(old[key]) == R]
        names = [f"{key}, number {i}" for key in alike for i in range(old[key].shape[1])]
        a, b = (np.concatenate([side[key] for key in alike], axis=1) for side in (old, new))
        columns, score = odds(a, b)
        if score < at[1]:
            yield f"its {len(names)} numbers have moved: by chance once in {1 / score:,.0f} times"
        for i in np.flatnonzero(columns < at[0]):
            means = f"committed {a[:, i].mean():.6g}, now {b[:, i].mean():.6g}"
            yield f"{names[i]}: {means}: by chance once in {1 / columns[i]:,.0f} times"


def odds(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, float]:
    """p-values of the columns of two sides, (R, m) each -> (m,), and of the score of all.

    >>> random = np.random.default_rng(0)
    >>> columns, score = odds(random.normal(0, 1, (3, 2)), random.normal([0, 50], 1, (3, 2)))
    >>> columns < 1e-4
    array([False,  True])
    """
    R, n = len(old), 2 * len(old) - 2
    d = (new.mean(0) - old.mean(0)) * math.sqrt(R / 2)  # (m,), with the variance of one value
    within = np.concatenate([old - old.mean(0), new - new.mean(0)])  # (2R, m)
    # The variance that rounding gives: numbers have six digits, and counts and fractions of few
    # are equal in all repetitions now and then. Their step is the smallest gap of the column.
    gaps = np.diff(np.sort(np.concatenate([old, new]), axis=0), axis=0)
    step = np.where(gaps > 0, gaps, np.inf).min(0)
    least = RELATIVE * np.abs(old).max(0) + ABSOLUTE
    floor = np.maximum(np.where(np.isfinite(step), step, 0), least) ** 2 / 12  # (m,)
    s2 = (within**2).sum(0) / n
    columns = 2 * stats.t.sf(np.abs(d) / np.sqrt(np.maximum(s2, floor)), n)
    rows = np.concatenate([d[None], within])[:, s2 > floor]  # (1 + 2R, ≤ m)
    if not rows.size:
        return columns, 1.0
    scale = np.sqrt((rows**2).sum(0))
    w = np.linalg.svd(rows / scale, full_matrices=False)[2][0] / scale
    score = rows @ w  # (1 + 2R,)
    spread = max((score[1:] ** 2).sum() / n, floor[s2 > floor] @ w**2)
    return columns, float(2 * stats.t.sf(abs(score[0]) / math.sqrt(spread), n))
