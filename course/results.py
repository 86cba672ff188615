"""What benchmarks/RESULTS.md says."""

from dmlkit import ROOT

RESULTS = ROOT / "benchmarks" / "RESULTS.md"


def section(results: str, part: str) -> list[dict[str, str]]:
    """The rows of one part of RESULTS.md, as it prints them."""
    lines = results.partition(f"\n## {part}\n")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
