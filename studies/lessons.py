"""The rows of every lesson's verdict: ``python -m studies.lessons`` writes data/verdicts.csv.

lessons.toml, beside it, says what a lesson shows: claims, with all of their rows in the ledger, and
comparisons of its own, in every condition that has them. A lesson reads the table by
``dmlkit.figures.verdict`` and knows nothing of studies; of the ledger, the conditions and the one
test only this module knows.
"""

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dmlkit import ROOT, statistics
from dmlkit.figures import Finding
from dmlkit.figures.finding import FILE, UNTRAINED
from dmlkit.files import write_whole
from dmlkit.losses import entries
from studies import claims, confirm
from studies.answers import conditions, kept
from studies.condition import UNTRAINED as BELOW
from studies.condition import Condition, plain
from studies.printed import PRINTED

ALL = "losses"  # the median of all others of a condition
PLAN = Path(__file__).with_suffix(".toml")
#: How a student reads a condition; any other stays as it is.
PLACES = {
    "from scratch": "drawings, from scratch",
    claims.AGAIN: "drawings, searched twice",
    "from scratch, equal images": "drawings, equal images",
    "trained longer": "drawings, trained longer",
    "small batches": "drawings, small batches",
    "fine-tuned": "drawings, fine-tuned",
    claims.WHOLE: "photographs, whole network",
}
#: Data sets and networks that tables of papers name otherwise.
_SETS = {"CUB200": "CUB", "CUB200-2011": "CUB", "CARS196": "Cars", "Cars196": "Cars",
         "InShop": "In-Shop", "BN-Inception": "Inception-BN", "ResNet50": "ResNet-50"}  # fmt: skip
#: How the course calls a loss.
_TITLES = {entry.name: entry.title for entry in entries()}
#: Units of claims that are shares, which are shown in points.
_SHARES = ("Recall@1", "Recall@K", "NMI", "share of variance")


def table(
    plan: Mapping[str, list[dict[str, Any]]], ledger: pd.DataFrame, found: Iterable[Condition]
) -> pd.DataFrame:
    """The rows of all lessons of a plan, with the columns of ``Finding`` and ``lesson``."""
    rows = [
        {"lesson": lesson, **asdict(row)}
        for lesson, parts in plan.items()
        for part in parts
        for row in _rows(part, ledger, list(found))
    ]
    columns = ["lesson", *(each.name for each in fields(Finding) if each.name != "values")]
    return pd.DataFrame(rows, columns=columns)


def _rows(part: Mapping[str, Any], ledger: pd.DataFrame, found: list[Condition]) -> list[Finding]:
    of = part["of"]
    if "claim" in part:
        own = [
            replace(row, label=part.get("label", row.label))
            for row in _of_claim(of, part["claim"], ledger)
        ]
    elif "evidence" in part:
        own = [_of_evidence(of, part)]
    else:
        own = [row for at in found if (row := _compared(of, part, at))]
    if (name := part.get("hypothesis")) in (sealed := confirm.confirmed()).index:
        own.append(_confirmed(of, sealed.loc[name]))
    return [*_printed(of, _tables(part)), *own]


def _tables(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Where sizes are printed: of a claim, the tables that the ledger has."""
    if part.get("claim") not in PRINTED:
        return part.get("printed")
    file, names, new, old, metrics, by = PRINTED[part["claim"]]
    pairs = [(name + new, name + old) for name in names.values()]
    return {"by": by, "files": [file], "pairs": pairs, "metrics": metrics}


def _of_claim(of: str, claim: str, ledger: pd.DataFrame) -> Iterator[Finding]:
    about = claims.table()[claim]
    share = about["unit"] in _SHARES
    unit = f"points of {about['unit']}" if share else about["unit"]
    scale = 100 if share else 1
    for row in ledger[ledger["claim"] == claim].to_dict("records"):
        if row["low"] is None or math.isnan(row["low"]):
            continue  # an identity or a printed table: no effect to draw
        effect, low, high = (scale * float(row[key]) for key in ("effect", "low", "high"))
        yield Finding(
            of, "study", PLACES.get(row["condition"], row["condition"]), effect, low, high,
            _n(row["n"], row["effective"], row["condition"]), row["word"] or "a clock: no word",
            True, bool(row["stands"]), scale * row["margin"], unit, _note(row),
        )  # fmt: skip


#: Hypotheses against sizes that are printed of another form.
_OTHER = {
    "SEC, not L2": "L2 at 100 times its authors' weight",
    "SEE, paper": "no size of this form is printed",
}


def _confirmed(of: str, row: pd.Series) -> Finding:
    """A hypothesis of the sealed study; a word that hangs on one loss is none."""
    word = confirm.said(row)
    note = _OTHER.get(str(row.name), "")
    if not row["stands"] and not note:
        note = f"{row['word']}, but not without one loss"
    return Finding(
        of, "study", "photographs, from scratch", row["effect"], row["low"], row["high"],
        "12 searches, planned", word, True, True, note=note,
    )  # fmt: skip


def _note(row: Mapping[str, Any]) -> str:
    """Of a row of the ledger: the one loss that a mean has here, and why an interval beyond zero
    decides nothing."""
    alone = re.search(r"; here of (\w+)", row["measure"])
    beyond = row["low"] > 0 or row["high"] < 0
    said = [_part(len(row["parts"]), row["failed"]), alone and f"{_TITLES[alone[1]]} alone"]
    return "; ".join(filter(None, [*said, beyond and claims.reason(row)]))


def _part(left: int, out: Sequence[str]) -> str:
    """Of how many losses a mean is, where a search of others failed."""
    return f"{left} of {left + len(out)} losses" * bool(out)


def _of_evidence(of: str, part: Mapping[str, Any]) -> Finding:
    """A comparison in evidence of its own: by product, one training in each fold, of Recall@1 or of
    a probe with so many ``labels``; or by repetition, ``at`` one setting, of Recall@1."""
    rows = pd.read_csv(ROOT / "data" / "evidence" / f"{part['evidence']}.csv")
    if "at" in part:
        rows = rows[rows["repetition"] >= 0]  # below 0 are searches
        there = (rows[[*part["at"]]] == pd.Series(part["at"])).all(axis=1)
        scores = rows[there].pivot(index="repetition", columns="variant", values="recall_at_1")
        plus, minus, each = scores[part["plus"]], scores[part["minus"]], "repetitions"
    else:
        probe, each = "labels" in part, "products"
        rows = rows[rows["measure"] == ("probe" if probe else "recall_at_1")]
        rows = rows[rows["labels"] == part["labels"]] if probe else rows
        plus, minus = (
            pd.concat(
                [pd.Series(json.loads(by)) for by in rows.loc[rows["arm"] == arm, "by_class"]]
            )
            for arm in (part["plus"], part["minus"])
        )
    effect, low, high, n = statistics.interval(100 * (plus - minus))
    count, margin = f"{n:.0f} {each}", 100 * part["smallest"]
    return Finding(
        of, "study", part["label"], effect, low, high, count, _apart(low, high), margin=margin,
        unit=part.get("unit", Finding.unit),
    )  # fmt: skip


def _apart(low: float, high: float) -> str:
    return "ahead" if low > 0 else "behind" if high < 0 else "not separated"


def _compared(of: str, part: Mapping[str, Any], at: Condition) -> Finding | None:
    """A comparison in one condition; nothing where a side is missing there, or where it is not
    asked for. Of a mean over losses those of which a search failed are left out and named."""
    if at.name not in part.get("where", [at.name]):
        return None
    losses = plain(at.wide().dropna(axis=1))
    plus = _side(part["plus"], losses)
    minus = [x for x in _side(part["minus"], losses) if part["minus"] != ALL or x not in plus]
    # No loss loses to its own restriction; an addition is compared with its loss as searched.
    own = {*plus, *minus} <= {*losses}
    scores = (at.rivals() if own else at.wide()).dropna(axis=1)
    if not minus or not {*plus, *minus} <= {*scores}:
        return None
    lost = {*at.lost([*plus, *minus])} - ({arm for arm, _ in at.better} if own else set())
    kept = _without(plus, minus, lost)
    row = tested(scores, *(kept or (plus, minus)), at, middle=part["minus"] == ALL)
    effect, low, high = (100 * float(row[key]) for key in ("difference", "low", "high"))
    n, left = len(scores), len(kept[0]) if kept else len(plus)
    count = _n(n, statistics.effective(n, at.overlap), at.name)
    label, margin = part.get("label", PLACES.get(at.name, at.name)), 100 * part["smallest"]
    word = _apart(low, high) if kept else _lost(at, lost)
    note = _part(left, plus[left:])
    return Finding(of, "study", label, effect, low, high, count, word, margin=margin, note=note)


def _lost(at: Condition, arms: Collection[str]) -> str:
    why = {at.failed.get((at.source(arm), 0)) for arm in arms}
    return UNTRAINED if BELOW in why else claims.FAILED


def _side(told: Any, there: Sequence[str]) -> list[str]:
    """Arms by name, or all losses of a condition."""
    return [*(there if told == ALL else told)]


def _without(
    plus: Sequence[str], minus: Sequence[str], lost: Collection[str]
) -> tuple[list[str], list[str]] | None:
    """Both sides without what is lost, pair by pair where each loss is on both; None where a side
    is empty then."""
    if len(plus) == len(minus):
        pairs = [pair for pair in zip(plus, minus, strict=True) if not {*pair} & {*lost}]
        left, right = [a for a, _ in pairs], [b for _, b in pairs]
    else:
        left, right = ([arm for arm in side if arm not in lost] for side in (plus, minus))
    return (left, right) if left and right else None


def tested(
    scores: pd.DataFrame, plus: Sequence[str], minus: Sequence[str], at: Condition, middle: bool
) -> pd.Series:
    """The mean of some arms minus that of others, or minus their median, which losses that did not
    train do not move: (n, arms) -> the row of the one test."""
    groups: dict[str, dict[str, float]] = {}
    for names, sign in ((plus, 1.0), (minus, -1.0)):
        for arm in names:
            groups.setdefault(at.base(arm), {})[arm] = sign / len(names)
    against = scores[[*minus]]
    values = scores[[*plus]].mean(axis=1)
    values -= against.median(axis=1) if middle else against.mean(axis=1)
    return at.measured(values, groups, "recall_at_1").test()


def _n(n: int, effective: float, condition: str) -> str:
    """What was repeated."""
    if "photographs" in condition:
        trained = ", {} of {} trainings".format(*claims.TRAINED)
        return f"{n} products" + trained * bool(claims.unequal(condition))
    return f"{n} repetitions" + f", as {effective:.1f} new" * (effective < n)


def _printed(of: str, told: Mapping[str, Any] | None) -> Iterator[Finding]:
    """What a paper prints, in points: of each data set and each network that have both, the mean
    of the pairs."""
    if told is None:
        return
    reported = ROOT / "data" / "reported"
    frame = pd.concat(pd.read_csv(reported / f"{file}.csv") for file in told["files"])
    frame = frame[frame["metric"].isin(told["metrics"])]
    keys = ["dataset", "backbone", "metric"]
    wide = frame.pivot_table(index=keys, columns="method", values="value", sort=False)
    gains = pd.DataFrame({new: wide[new] - wide[old] for new, old in told["pairs"]})
    for name, part in gains.dropna(how="all").groupby(level="dataset", sort=False):
        data = told.get("data") or _SETS.get(str(name), str(name).partition(" (")[0])
        networks = part.groupby(level="backbone", sort=False)
        for network, sizes in networks:
            label = data + f" ({_SETS.get(network, network)})" * (len(networks) > 1)
            yield Finding(of, "printed", label, float(sizes.mean().mean()), n=told["by"])


def main(file: Path = FILE) -> None:
    """Write the table of all lessons."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    made = table(plan, claims.ledger(), list(conditions(kept()).values()))
    text = made.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_whole({file: partial(Path.write_text, data=text, encoding="utf-8")})


if __name__ == "__main__":
    main()
