"""What the command line prints: tables, and expected errors as one readable line."""

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from dmlkit.settings import named

#: Names and paths may hold brackets: nothing is markup. Of torchrun's processes one speaks.
console = Console(markup=False, quiet=int(os.environ.get("RANK", 0)) > 0)

_EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, RuntimeError, ImportError)
_WIDTHS = {"verdict": 12, "other parts": 15, "effect": 9, "interval": 11}


class Commands(typer.core.TyperGroup):
    """Commands whose expected errors become one readable line and exit status 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # which are RuntimeErrors
            raise
        except _EXPECTED as error:
            told = _in_our_words(error, self.get_command(ctx, ctx.invoked_subcommand or ""))
            line = Text.assemble(("error: ", "bold red"), told)
            Console(stderr=True).print(line, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from error
        except Exception as error:
            _say_how_to_set(error)
            raise


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings for the user are a line, without the line of code that gave them."""
    usual = warnings.formatwarning

    def said(message: Any, category: type[Warning], *where: Any, **more: Any) -> str:
        ours = category is UserWarning
        return f"warning: {message}\n" if ours else usual(message, category, *where, **more)

    warnings.formatwarning = said
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _in_our_words(error: Exception, command: Any) -> str:
    """What went wrong, in words of the command line."""
    message = str(error) or type(error).__name__
    denied = (errno.EACCES, errno.EPERM, errno.EROFS)
    if isinstance(error, OSError) and error.filename and error.errno in denied:
        return (
            f"{error.filename} cannot be read or written ({error.strerror}): DMLKIT_CACHE=FOLDER "
            "puts what dmlkit makes elsewhere, and `reproduce --build FOLDER` what notebooks leave"
        )
    params = [] if command is None else command.params
    options = [param.name for param in params if param.param_type_name == "option"]
    fields = command is not None and command.name == "train"
    return named(message, options, fields)


def _say_how_to_set(error: Any) -> None:
    """Add to Typer's error of an unknown option that a field of Experiment is no option."""
    option = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if option and any(known.name == "settings" for known in error.ctx.command.params):
        error.message += f". Other settings are given as --set {option}=VALUE."


def print_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Iterable[str]],
    justify: JustifyMethod = "left",
    **look: Any,
) -> None:
    """Print rows; no word is cut off, and no verdict or number is broken."""
    table = Table(title=title, **look)
    for i, name in enumerate(head):
        side = justify if i else "left"
        table.add_column(name, justify=side, overflow="fold", min_width=_WIDTHS.get(name))
    for row in rows:
        table.add_row(*row)
    console.print(table)
