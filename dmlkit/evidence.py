"""Scores that were made once, by one key: the hash of the Experiment.

A course that trains everything anew takes too long to be run at every change. So the scores of some
sweeps are kept in ``data/evidence``, one row a training, and are given to whoever asks for those
Experiments; but a few, drawn by the commit, are trained again and must agree. Each commit draws
others, so that in time all are checked. What is not kept (fewer steps, say) is trained.
"""

import hashlib
import math
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import dmlkit
from dmlkit import study
from dmlkit.files import write_whole
from dmlkit.training import Experiment, Run

#: What is measured on a Run, and the standard deviation of that between two seeds.
Measures = Mapping[str, tuple[Callable[[Run], float], float]]

_FACTS = ("loss", "steps", "seed")  # that a row tells of its Experiment
RECALL: Measures = {"recall_at_1": (lambda run: run.scores["recall_at_1"], 0.02)}


def measured(
    name: str,
    experiments: Sequence[Experiment],
    measures: Measures = RECALL,
    *,
    keep: bool = False,
    again: int = 3,
    device: str = "auto",
) -> pd.DataFrame:
    """Measures of N Experiments: (N, measures), NaN where a training diverged.

    What ``data/evidence/NAME.csv`` holds comes from there, but ``again`` of these are trained, too,
    and must agree with it (``check_evidence``). All others are trained. With ``keep`` all
    are trained, and the file holds them afterwards. A file has one set of measures. Whether any of
    the rows were kept is in ``attrs["kept"]``: what rests on them should say so.

    Raises:
        ValueError: what was trained again does not agree.
        KeyError: the file lacks a measure: delete it, and make it anew with ``keep``.
        RuntimeError: a training failed, see ``study.train``.

    >>> measured("none", []).columns.tolist()
    ['recall_at_1']
    """
    path, rows = dmlkit.ROOT / "data" / "evidence" / f"{name}.csv", {}
    if path.exists():
        table = pd.read_csv(path, dtype={"hash": str})[["hash", *_FACTS, *measures]]
        rows = {row["hash"]: row for row in table.to_dict("records")}
    asked = {e.hash(): e for e in experiments}
    kept = [] if keep else _drawn(asked.keys() & rows.keys())
    here = {h: e for h, e in asked.items() if h not in kept[again:]}
    runs = study.train(list(here.values()), device=device)
    trained = {
        h: {"hash": h}
        | {fact: getattr(e, fact) for fact in _FACTS}
        | {key: measure(run) if run else np.nan for key, (measure, _) in measures.items()}
        for (h, e), run in zip(here.items(), runs, strict=True)
    }
    if trained and kept:
        now, then = pd.DataFrame(trained.values()), pd.DataFrame(map(rows.get, kept))
        for key, (_, spread) in measures.items():
            check_evidence(now, then, key, spread)
    if keep:
        table = pd.DataFrame((rows | trained).values())
        write_whole({path: partial(table.to_csv, index=False)})
    known = trained | {h: rows[h] for h in kept}
    values = [known[e.hash()] for e in experiments]
    found = pd.DataFrame(values, columns=list(measures), dtype=float)
    found.attrs["kept"] = bool(kept)
    return found


def sweep(
    name: str,
    base: Experiment,
    measures: Measures = RECALL,
    *,
    keep: bool = False,
    again: int = 3,
    device: str = "auto",
    **axes: Sequence[Any] | Mapping[str, Mapping[str, Any]],
) -> pd.DataFrame:
    """Measures at every point of a grid, as ``study.sweep`` gives it, and kept as by ``measured``.

    One row a point: the axes, and the measures.

    >>> sweep("none", Experiment(), seed=[])
    Traceback (most recent call last):
    ValueError: axis 'seed' must be values, one or more, but is []
    """
    places, experiments = zip(*study.grid(base, axes), strict=True)
    found = measured(name, experiments, measures, keep=keep, again=again, device=device)
    for i, axis in enumerate(axes):
        found.insert(i, axis, [place[axis] for place in places])
    return found


def commit() -> str:
    """The hash of the commit that is checked out; nothing where there is none."""
    command = ["git", "rev-parse", "HEAD"]
    with suppress(OSError):
        done = subprocess.run(command, cwd=dmlkit.ROOT, capture_output=True, text=True)
        return done.stdout.strip()
    return ""


def _drawn(hashes: Iterable[str]) -> list[str]:
    """In an order that is another at each commit."""
    key = commit()
    return sorted(hashes, key=lambda each: hashlib.sha256(f"{key} {each}".encode()).digest())


def check_evidence(
    made: pd.DataFrame,
    kept: pd.DataFrame,
    metric: str = "recall_at_1",
    spread: float = 0.012,
    complete: bool = False,
) -> int:
    """Hold trainings made now against kept ones of the same Experiments: how many there were.

    Both have one row a training, with the ``hash`` of its Experiment and its ``metric``, NaN (0
    here) if it diverged. Another processor is another seed: the evidence stands if the mean of the
    n differences is within 6 standard errors of 0, |d̄| ≤ 6 σ √(2/n), where σ is the ``spread`` of
    the metric between two seeds (of a Recall@1 on Glyphs, about 1.2 points).

    Raises:
        ValueError: they differ by more; or some of those made are not in the evidence, which is
            said only if it should be ``complete`` (a shorter training is another Experiment).

    >>> kept = pd.DataFrame({"hash": ["a", "b"], "recall_at_1": [0.82, 0.91]})
    >>> check_evidence(pd.DataFrame({"hash": ["b", "c"], "recall_at_1": [0.9, 0.7]}), kept)
    1
    """
    now, before = (f.drop_duplicates("hash").set_index("hash")[metric] for f in (made, kept))
    if complete and (missing := sorted(set(now.index) - set(before.index))):
        raise ValueError(
            f"{len(missing)} of {len(now)} trainings are not in the evidence, which other recipes "
            f"have made: {', '.join(missing)}"
        )
    both = now.index.intersection(before.index)
    moved = now[both].fillna(0).to_numpy(float) - before[both].fillna(0).to_numpy(float)
    bound = 6 * spread * math.sqrt(2 / max(1, len(moved)))
    if len(moved) and not abs(moved.mean()) <= bound:
        raise ValueError(
            f"{metric} of {len(moved)} trainings of the evidence, made again, is different by "
            f"{moved.mean():+.3g} on average: expected at most {bound:.3g}"
        )
    return len(moved)
