"""The studies' commands: ``dmlkit study | judge``."""

from pathlib import Path
from typing import Annotated

import typer

from dmlkit.cli import terminal
from dmlkit.cli.settings import literals
from dmlkit.cli.terminal import Device, Scheduler, set_option, use_scheduler


def study(
    name: Annotated[str, typer.Argument(help="Its rules: the name of a file of data/studies.")],
    arms: Annotated[list[str] | None, typer.Option(help="A name, repeatable; else all.")] = None,
    only: Annotated[
        str | None,
        typer.Option(help="search, further or repetitions; of a sealed study unseal."),
    ] = None,
    status: Annotated[bool, typer.Option(help="Say what is done, and train nothing.")] = False,
    sample: Annotated[int, typer.Option(help="Rows of its evidence to train anew.")] = 0,
    key: Annotated[str, typer.Option(help="What draws them: a commit's hash.")] = "",
    device: Device = "auto",
    scheduler: Scheduler = None,
) -> None:
    """Tune and compare every loss by written rules, or go on where that was broken off."""

    from studies import follow

    use_scheduler(scheduler)
    for line in follow.command(name, arms or (), only, status, sample, key, device):
        terminal.console.print(line, highlight=False, soft_wrap=True)


def judge(
    loss: Annotated[str, typer.Argument(help="mylosses.py:MyLoss, or package.module:MyLoss.")],
    study: Annotated[
        list[str] | None,
        typer.Option(help="scratch or transfer, repeatable, else both; or grocery64."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Of the page, judge_MyLoss.md.")] = Path(),
    device: Device = "auto",
    scheduler: Scheduler = None,
    settings: Annotated[list[str] | None, set_option("an argument of the loss.")] = None,
) -> None:
    """Put a loss of your own through the study: one page that says where it stands."""

    from studies.judge import judge
    from studies.judgment import REGIMES

    use_scheduler(scheduler)
    args = literals(settings)
    found = judge(loss, study or REGIMES, loss_args=args, folder=folder, device=device)
    terminal.console.print(found.page(), highlight=False, soft_wrap=True)
