"""The course's commands: ``dmlkit reproduce | student | slides | grade | claims | site``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD

from dmlkit import ROOT
from dmlkit.cli import terminal
from dmlkit.cli.settings import literals
from dmlkit.cli.terminal import Scheduler, print_table, set_option, use_scheduler
from dmlkit.files import write_whole

Parameters = Annotated[list[str] | None, set_option("a parameter of the notebooks.")]


def reproduce(
    notebooks: Annotated[list[str] | None, typer.Argument(help="e.g. 00; none means all.")] = None,
    profile: Annotated[str, typer.Option(help="smoke, ci or full.")] = "ci",
    workers: Annotated[int | None, typer.Option(min=1, help="Notebooks at a time.")] = None,
    check: Annotated[bool, typer.Option(help="Compare with the committed numbers.")] = False,
    timeout: Annotated[float, typer.Option(help="Minutes that one notebook may take.")] = 120,
    build: Annotated[Path | None, typer.Option(help="Folder of what runs leave.")] = None,
    scheduler: Scheduler = None,
    settings: Parameters = None,
) -> None:
    """Run the course's notebooks and make their figures."""
    from course import reproduce

    use_scheduler(scheduler)
    if not reproduce.reproduce(
        notebooks or (), profile, workers, check, timeout, literals(settings), build
    ):
        raise typer.Exit(1)


def student(
    folder: Annotated[Path, typer.Argument(help="To be written; can be taken anywhere.")] = Path(
        "student"
    ),
    solved: Annotated[bool, typer.Option(help="Open the solutions, for a teacher.")] = False,
) -> None:
    """Copy the course without its solutions: each exercise becomes a stub."""
    from course.student import copies

    for copy in copies(folder, solved):
        terminal.console.print(str(copy))


def slides(
    folder: Annotated[Path, typer.Argument(help="To be written; can be taken anywhere.")],
) -> None:
    """Write a deck of slides for each lesson: HTML that needs no network."""
    from course import slides

    for deck in slides.write(folder):
        terminal.console.print(str(deck))


def grade(
    places: Annotated[list[Path], typer.Argument(help="A folder for each student, or notebooks.")],
    only: Annotated[list[str] | None, typer.Option(help="Notebooks: 00, repeatable.")] = None,
    minutes: Annotated[float, typer.Option(help="What one answer may take.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = 1,
    csv: Annotated[Path | None, typer.Option(help="A file to write: a row per exercise.")] = None,
    pages: Annotated[Path | None, typer.Option(help="A folder to write: a page each.")] = None,
    settings: Parameters = None,
) -> None:
    """Judge students' answers, and print who passed which exercise, and what failed."""
    from course import grade

    found = grade.grade(places, only or (), minutes, workers, literals(settings))
    if csv:
        write_whole({csv: partial(found.to_csv, index=False)})
    for page in grade.progress(found, pages) if pages else ():
        terminal.console.print(str(page))
    judged = found[found["number"] > 0]
    table = judged.pivot(index=["student", "notebook"], columns="number", values="status")
    table = table.fillna("")
    rows = ([*map(str, where), *row] for where, row in zip(table.index, table.values, strict=True))
    print_table("who passed what", ("student", "notebook", *map(str, table.columns)), rows)
    for row in found[found["said"] != ""].itertuples():
        where = row.student
        if not row.number and row.exercise:
            where += f", {row.notebook}, {row.exercise}"
        elif row.number:
            where += f", {row.notebook}, exercise {row.number} ({row.exercise})"
        terminal.console.print(f"{where}: {row.said}", highlight=False, soft_wrap=True)
    for (equal, number, exercise), rows in found[found["equal"] != ""].groupby(
        ["equal", "number", "exercise"]
    ):
        where = f"{rows['notebook'].iloc[0]}, exercise {number} ({exercise})"
        terminal.console.print(f"{equal}: equal answers to {where}", highlight=False)


def claims(
    write: Annotated[Path | None, typer.Option(help="Between <!-- claims --> marks.")] = None,
) -> None:
    """Print the ledger: what becomes of every claim in each condition, from figures/."""
    from course import ledger
    from studies.claims import ledger as read

    found = read()
    if write:
        ledger.write(write, found)
        return
    show = partial(print_table, box=SIMPLE_HEAD, show_edge=False, padding=0)
    short = [(*row[:5], row[-1]) for row in ledger.rows(found)]  # docs/ledger.md has the rest
    show("claims by conditions", (*ledger.COLUMNS[:5], ledger.COLUMNS[-1]), short)
    terminal.console.print(ledger.tally(found))


def site(
    folder: Annotated[Path | None, typer.Argument(help="To be written; else build/site.")] = None,
) -> None:
    """Write the course as a static site; what is wrong with it is an error."""
    from course.site import LIVE, build

    out = folder or ROOT / "build" / "site"
    build(out)
    if lacks := [part for part in LIVE if not (ROOT / "build" / part).exists()]:
        terminal.console.print(
            f"without {', '.join(lacks)}: make playground explainer, which needs npm"
        )
    terminal.console.print(f"{out / 'index.html'}")
