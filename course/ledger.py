"""The ledger as it is shown: one row for each claim, on the command line and in a page."""

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from dmlkit.claims import table
from dmlkit.files import write_between

#: Of ``rows``.
COLUMNS = ("claim", "part", "verdict", "effect", "interval", "n", "Holm", "figure")
_HEAD = (
    "", "claim", "verdict", "primary part", "after Holm", "would decide it", "other parts",
    "made with", "evidence", "on the paper's own data",
)  # fmt: skip


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each claim, whose verdict is that of its primary part, ``open`` if there is none.

    Columns: verdict, effect (of the primary part, in words), holm (``stands`` or ``falls``, where
    it was tested and decided), needed (repetitions that would decide it), others (how many of each
    verdict among the secondary parts), made_with, figures.

    Raises ValueError for a claim with several primary parts.
    """
    rows = {}
    for claim in table():
        mine = frame[frame["claim"] == claim]
        if len(main := mine[mine["primary"]]) > 1:
            raise ValueError(f"{claim} has {len(main)} primary parts, in {', '.join(main.figure)}")
        counts = mine.loc[~mine["primary"], "verdict"].value_counts().to_dict()
        rows[claim] = {
            **dict.fromkeys(("effect", "holm", "needed"), ""), "verdict": "open",
            **(_primary(main.iloc[0]) if len(main) else {}),
            "others": ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())),
            "made_with": ", ".join(dict.fromkeys((main if len(main) else mine)["made_with"])),
            "figures": ", ".join(dict.fromkeys(mine["figure"])),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def rows(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Every part of every claim in the words of ``COLUMNS``; what is unknown is empty."""
    for _, row in frame.iterrows():
        interval = "" if pd.isna(row["low"]) else f"[{row['low']:+.3g}, {row['high']:+.3g}]"
        part = f"primary: {row['part']}" if row["primary"] else row["part"]
        holm = _primary(row)["holm"] if row["primary"] else ""
        numbers = (f"{row['effect']:+.3g}", interval, str(row["n"]), holm)
        yield (row["claim"], part, row["verdict"], *numbers, row["figure"])


def _primary(row: pd.Series) -> dict[str, str]:
    """A primary part in a few words."""
    effect, needed = f"{row['effect']:.3g}", row["needed"]
    if not pd.isna(row["low"]):
        effect = f"{row['effect']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"
    tested = not pd.isna(row["p"]) and row["verdict"] != "undecided"
    known = "no number" if math.isinf(needed) else f"{needed:.0f}"
    return {
        "verdict": row["verdict"],
        "effect": f"{effect} {table()[row['claim']]['unit']}, n = {row['n']}",
        "holm": ("stands" if row["holm"] else "falls") if tested else "",
        "needed": "" if pd.isna(needed) else known,
    }


def tally(frame: pd.DataFrame) -> str:
    """How many claims of each kind have which verdict: identities and tables are no evidence.

    >>> from dmlkit import ROOT, claims
    >>> tally(claims.verdicts(ROOT / "data"))  # where there are no figures
    'Of 31 claims that runs settle: 31 open. Not counted as evidence: 4 identities (4 open), and \
4 claims about printed tables (4 open).'
    """
    found = summary(frame)["verdict"]
    kinds = pd.Series({claim: row["kind"] for claim, row in table().items()})
    each = {
        kind: ", ".join(f"{n} {v}" for v, n in sorted(found[kinds == kind].value_counts().items()))
        for kind in kinds
    }
    total = kinds.value_counts()
    return (
        f"Of {total['evidence']} claims that runs settle: {each['evidence']}. Not counted as "
        f"evidence: {total['identity']} identities ({each['identity']}), and {total['table']} "
        f"claims about printed tables ({each['table']})."
    )


def markdown(frame: pd.DataFrame) -> str:
    """The summary as a Markdown table, with links to the figures and the recipes, and the tally."""
    lines = [tally(frame), "", f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|"]
    for name, row in summary(frame).iterrows():
        figures = [f"[{f}](../figures/{f}.png)" for f in row["figures"].split(", ") if f]
        claim, recipes = (table()[str(name)][key] for key in ("claim", "recipes"))
        own = ", ".join(f"`{recipe}`" for recipe in recipes.split())
        known = row[["verdict", "effect", "holm", "needed", "others", "made_with"]]
        lines.append(f"| {' | '.join([str(name), claim, *known, ', '.join(figures), own])} |")
    return "\n".join(lines)


def write(page: Path, frame: pd.DataFrame) -> None:
    """Write what a page has marks for: the table ``<!-- claims -->``, the tally ``<!-- tally -->``.

    Raises ValueError for a page without either.
    """
    text = page.read_text(encoding="utf-8")
    if "<!-- tally -->" in text:
        write_between(page, "tally", tally(frame))
    if "<!-- claims -->" in text or "<!-- tally -->" not in text:
        write_between(page, "claims", markdown(frame))
