"""``python -m dmlkit`` is the command ``dmlkit``; torchrun starts it so."""

from dmlkit.cli.app import app

app(prog_name="dmlkit")
