"""Measure, print and keep: ``python -m benchmarks`` writes benchmarks/RESULTS.md."""

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ON_A_CPU = ("training", "retrieval", "sphere", "losses", "pictures")
PARTS = (*ON_A_CPU, "kills", "gpu")  # the last two are measured only when they are asked for
RESULTS = Path(__file__).parent / "RESULTS.md"
README = Path(__file__).parent.parent / "README.md"
BETWEEN = "<!-- losses -->\n", "<!-- /losses -->"  # of the README: what is made by this command
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
    """The README's table, out of RESULTS.md: ratios of time and memory at both batch sizes."""
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for line in results.partition("\n## losses\n")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| what |"):
            columns = cells
        elif len(cells) > 2 and ", B = " in cells[0]:
            row = dict(zip(columns, cells, strict=True))
            name, batch = cells[0].split(", ")[:2]
            if row["ratio"]:
                rows.setdefault(name, {})[batch] = row
    lines = [
        "| loss | B = 512: times faster | MB, ours / theirs | B = 2048: times faster | MB |",
        "|---|---|---|---|---|",
    ]
    for name, sizes in rows.items():
        cells = [f"`{name}`"]
        for batch in ("B = 512", "B = 2048"):
            row = sizes.get(batch, {})
            spread = f"{float(row['spread_percent']):.0f} %" if row else ""
            cells.append(f"{row['ratio']} ± {spread}" if row else "")
            cells.append(f"{row['ours_mb']} / {row['theirs_mb'] or 'failed'}" if row else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
        before, _, rest = README.read_text().partition(BETWEEN[0])
        after = rest.partition(BETWEEN[1])[2]
        short = losses_in_short(RESULTS.read_text())
        README.write_text(before + BETWEEN[0] + short + "\n" + BETWEEN[1] + after)


if __name__ == "__main__":
    main(sys.argv[1:])
