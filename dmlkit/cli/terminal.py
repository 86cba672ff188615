"""What all commands share: options, tables, and expected errors as one readable line."""

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

#: Names and paths may hold brackets and colons: nothing is markup or an emoji. Of torchrun's
#: processes one speaks.
console = Console(markup=False, emoji=False, quiet=int(os.environ.get("RANK", 0)) > 0)

_EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, RuntimeError, ImportError)


Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets, or your own; else $DMLKIT_DATA, else data/."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        envvar="DMLKIT_SCHEDULER",
        help="Address of a Dask scheduler: sweeps train on its workers, which share data/.",
    ),
]


def use_root(root: Path | None) -> None:
    """Take a folder for that of the data sets."""
    if root is not None:
        os.environ["DMLKIT_DATA"] = str(root.resolve())


def set_option(what: str) -> Any:
    """The option ``--set``, for fields of an Experiment or parameters of a notebook."""
    return typer.Option("--set", help=f"NAME=JSON, repeatable: {what}")


def use_scheduler(address: str | None) -> None:
    """Let every sweep from here on, those of notebooks too, train on a cluster that can."""
    if address:
        from dmlkit import sweeps

        os.environ["DMLKIT_SCHEDULER"] = address
        sweeps.default_executor()


class Commands(typer.core.TyperGroup):
    """Commands whose expected errors become one readable line and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):  # not every name of a file can be printed
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # which are RuntimeErrors
            raise
        except _EXPECTED as error:
            told = Text.assemble(("error: ", "bold red"), str(error) or type(error).__name__)
            Console(stderr=True).print(told, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error


def print_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Iterable[str]],
    justify: JustifyMethod = "left",
    **look: Any,
) -> None:
    """Print rows; no word is cut off."""
    table = Table(title=title, **look)
    for i, name in enumerate(head):
        table.add_column(name, justify=justify if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
