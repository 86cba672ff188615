"""The ledger as it is shown: each claim, and a row for each condition that it was tested in."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy import stats

from dmlkit.files import write_between
from studies import choice
from studies.answers import conditions, kept
from studies.claims import AGAIN, WORDS, table

#: Of ``rows``.
COLUMNS = ("claim", "condition", "", "effect", "95 % interval", "n", "Holm", "figure")


def rows(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Every row in the words of ``COLUMNS``; what is unknown is empty."""
    for _, row in frame.iterrows():
        about = table()[row["claim"]]
        interval = "" if pd.isna(row["low"]) else f"[{row['low']:+.3g}, {row['high']:+.3g}]"
        n = str(row["n"])
        if row["effective"] < row["n"]:
            n += f" ({row['effective']:.1f})"
        holm = {True: "stands", False: "falls"}[bool(row["stands"])]
        own = "" if row["measure"] == about["measure"] else f" ({row['measure']})"
        yield (
            row["claim"], row["condition"] + own, row["word"] or "a clock: no word",
            f"{row['effect']:+.3g}", interval, n,
            holm if row["word"] in WORDS[:3] else "", row["figure"],
        )  # fmt: skip


def tally(frame: pd.DataFrame) -> str:
    """How many rows of evidence have which word, with binomial intervals.

    >>> from studies import claims
    >>> tally(claims.ledger(claims.ROOT / "data"))  # where there are no figures
    'No row of evidence yet.'
    """
    every = frame[frame["word"].isin(WORDS)]
    found = every[every["condition"] != AGAIN]
    if not len(found):
        return "No row of evidence yet."
    parts = []
    for word in WORDS:
        k = int((found["word"] == word).sum())
        ends = stats.binomtest(k, len(found)).proportion_ci(method="exact")
        parts.append(f"{k} {word} ({100 * ends.low:.0f} to {100 * ends.high:.0f} %)")
    decided = found[found["word"] != "open"]
    return (
        f"Of {len(found)} rows of evidence, of {found['claim'].nunique()} claims: "
        f"{', '.join(parts)}. Of {len(decided)} words that decide, {int(decided['stands'].sum())} "
        f"stand after Holm's correction over all rows. {len(every) - len(found)} more rows repeat "
        "others after longer searches. Identities and printed tables are not counted; brackets are "
        "binomial, as if rows were independent."
    )


def markdown(frame: pd.DataFrame) -> str:
    """The tally, and a section for each claim: its rows, and, folded, its sentence and history."""
    parts = [tally(frame)]
    for name, about in table().items():
        mine = frame[frame["claim"] == name]
        parts.append(f"## {name} · {about['claim']}")
        smallest = f"{about['smallest']} {about['unit']}"
        parts.append(f"Measured: {about['measure']}; the smallest effect is {smallest}.")
        if len(mine):
            head = [column or "word" for column in COLUMNS[1:]]
            lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
            for _, *cells, figure in rows(mine):
                cells.append(f'<a href="../figures/{figure}.png">{figure}</a>')
                lines.append(f"| {' | '.join(cells)} |")
            parts.append("\n".join(lines))
        else:
            parts.append("Not tested.")
        parts.append("<details><summary>The sentence, and the history of its rule</summary>")
        parts.append(f"> {about['sentence']}\n\n{_history(about)}\n\n</details>")
    return "\n\n".join(parts)


def _history(about: dict[str, str]) -> str:
    said = [f"Before: {about['before']}" * bool(about["before"]), about["why"]]
    return " ".join([*filter(None, said), f"Known when the rule was written: {about['known']}"])


def write(page: Path, frame: pd.DataFrame) -> None:
    """Write what a page has marks for: the ledger (``<!-- claims -->``), the ``<!-- tally -->``, or
    the groups of losses (``<!-- which-loss -->``).

    Raises ValueError for a page that has none of them.
    """
    text = page.read_text(encoding="utf-8")
    makes = {
        "claims": lambda: markdown(frame),
        "tally": lambda: tally(frame),
        "which-loss": lambda: choice.markdown(conditions(kept())),
    }
    marks = [mark for mark in makes if f"<!-- {mark} -->" in text]
    for mark in marks or ["claims"]:
        write_between(page, mark, makes[mark]())
