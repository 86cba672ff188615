"""Measure, print and keep: ``python -m benchmarks`` writes benchmarks/RESULTS.md."""

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from course.results import RESULTS, section
from dmlkit.files import write_between

ON_A_CPU = (
    *("training", "retrieval", "sphere", "losses", "oracles", "defaults", "judge_alarms"),
    *("check_power", "sizes", "coverage", "ranks", "service"),
)
PARTS = (*ON_A_CPU, "gpu")
DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Benchmarks

Made by `python -m benchmarks` in one run on one machine. What counts is a ratio within the run;
milliseconds are of that machine.
"""


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a Markdown table, with a column for every key that a row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (row.get(column) for column in columns)
        lines.append("| " + " | ".join(_text(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:.0f}"
    return "" if cell is None else str(cell)


def losses_in_short(results: str) -> str:
    """The table of docs/losses.md, out of RESULTS.md: a row for each loss."""
    speed = {row["what"]: row for row in section(results, "losses")}
    defaults = {row["what"]: row for row in section(results, "defaults")}
    lines = [
        "| loss | oracle | largest difference: value, gradient | B = 512: ms, times faster | MB, "
        "ours / theirs | B = 2048: ms, times faster | MB | Recall@1 at defaults (%) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in section(results, "oracles"):
        difference = f"{row.get('value', '')}, {row.get('gradient', '')}"
        cells = [f"`{row['what']}`", row.get("oracle", ""), difference]
        for batch in (512, 2048):
            cells += _speed(speed.get(f"{row['what']}, B = {batch}, d = 128", {}))
        found = defaults.get(row["what"], {})
        cells.append(" ± ".join(found[k] for k in ("recall_at_1", "deviation") if k in found))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def alarms_in_short(results: str) -> str:
    """What docs/which_loss.md says of the judge, out of RESULTS.md; none if not measured."""
    rows = section(results, "judge_alarms")
    found = {(row.get("copy of"), row.get("points better")): row for row in rows}
    if ("best", "5") not in found:
        return ""
    shares = {k: f"{r['called better (%)']} % ({r['interval']})" for k, r in found.items()}
    return (
        f"Copies of a known loss, with seeds of their own, are called better than the best, or "
        f"than the best of their family, in {shares['any loss', '0']} of "
        f"{found['best', '0']['comparisons']} comparisons drawn from the evidence, copies of the "
        f"best in {shares['best', '0']}; a loss that is truly better by 3 points in "
        f"{shares['best', '3']}, by 5 points in {shares['best', '5']}."
    )


def coverage_in_short(results: str) -> str:
    """The table of docs/statistics.md: a row for each design, a column for each comparison; none
    if not measured."""
    found: dict[str, dict[str, Any]] = {}
    for row in section(results, "coverage"):
        if "design" not in row:
            return ""
        told = {key: row[key] for key in ("design", "searches", "n", "luck", "spread", "shared")}
        mine = found.setdefault(row["design"], told | {"pairs": ""})
        mine["pairs"] = row["pairs"] if row["comparison"] == "additions" else mine["pairs"]
        mine[row["comparison"]] = row["false alarms (%)"]
    return table(list(found.values()))


def ranks_in_short(results: str) -> str:
    """The table of docs/statistics.md on ranks; none if not measured."""
    return table([row for row in section(results, "ranks") if "condition" in row])


#: What this command writes into a page of docs/, between marks of these names.
IN_DOCS = {
    "losses": ("losses.md", losses_in_short),
    "alarms": ("which_loss.md", alarms_in_short),
    "coverage": ("statistics.md", coverage_in_short),
    "ranks": ("statistics.md", ranks_in_short),
}


def _speed(row: dict[str, str]) -> list[str]:
    """Time and memory of one loss at one batch size, against the library where it has it."""
    if not row:
        return ["", ""]
    ratio = f", {row['ratio']} ± {float(row['spread_percent']):.0f} %" if row["ratio"] else ""
    theirs = f" / {row['theirs_mb'] or 'failed'}" if row["ratio"] else ""
    return [f"{row['ours_ms']}{ratio}", f"{row['ours_mb']}{theirs}"]


def main(parts: Sequence[str]) -> None:
    """Measure the parts asked for; the sections of the others stay as they are."""
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    kept = RESULTS.read_text().split("\n## ")[1:] if RESULTS.exists() else []
    sections = {text.split("\n")[0]: text for text in kept}
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name()}"
    for part in parts or ON_A_CPU:
        made = table(importlib.import_module(f"benchmarks.{part}").rows())
        print(f"\n## {part}\n\n{made}", flush=True)
        sections[part] = f"{part}\n\n{machine}\n\n{made}\n"
        ordered = [sections[name].rstrip() for name in PARTS if name in sections]
        RESULTS.write_text(HEAD + "\n## " + "\n\n## ".join(ordered) + "\n")
        for mark, (page, written) in IN_DOCS.items():
            write_between(DOCS / page, mark, written(RESULTS.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
