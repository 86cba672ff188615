"""``--set NAME=VALUE`` on the command line: read, and named where a setting is refused."""

import inspect
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, NoReturn

#: As Python writes them, since JSON's own spelling is easily missed.
_WORDS = {"True": True, "False": False, "None": None}


def literals(settings: Sequence[str] | None) -> dict[str, Any]:
    """Settings by name: values are JSON, Python's True, False and None, or strings without quotes.

    Raises ValueError for what is no NAME=VALUE, for broken JSON, and for a number that is none.

    >>> literals(["steps=10", "metric=euclidean"])
    {'steps': 10, 'metric': 'euclidean'}
    """
    found: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise ValueError(f"a setting is --set NAME=VALUE, but this is --set {setting!r}")
        found[name] = _WORDS[value] if value in _WORDS else _literal(name, value)
    return found


def _literal(name: str, value: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"--set {name}: {constant} is no number that a setting can have")

    try:
        return json.loads(value, parse_constant=refuse)
    except json.JSONDecodeError as error:
        if value.lstrip()[:1] in ("{", "[", '"'):
            raise ValueError(
                f"--set {name}: {value!r} is no JSON from character {error.pos + 1} on: names and "
                f"""texts are in double quotes, as in --set 'data_args={{"crop": 32}}'"""
            ) from None
        return value


def named(message: str, options: Iterable[str] = (), fields: bool = True) -> str:
    """An error's message, in which fields and arguments are named as the command line sets them.

    ``options`` are those that a command has of its own; ``fields`` says whether its ``--set`` sets
    those of Experiment.

    >>> named("lr must be a number, but is 'fast'")
    "--set lr must be a number, but is 'fast'"
    >>> named("there is a val split only with validation=True")
    'there is a val split only with --set data_args.validation=true'
    """
    places, options = _places() if fields else {}, set(options)

    def option(name: str) -> str:
        if name in options:
            return f"--{name.replace('_', '-')}"
        return f"--set {places[name]}" if name in places else name

    def replaced(match: re.Match[str]) -> str:
        name, rest = match.group("name"), match.group("rest")
        if option(name) == name:
            return match.group()
        return option(name) + ("=" + rest[1:].lower() if rest.startswith("=") else rest)

    message = re.sub(r"^(?P<name>\w+)(?P<rest> must be\b|: expected\b)", replaced, message)
    message = re.sub(r"the sampler's (?P<name>\w+)(?P<rest>)", replaced, message)
    return re.sub(r"(?<![\w./-])(?P<name>\w+)(?P<rest>=(True|False|\d+)\b)", replaced, message)


def _places() -> dict[str, str]:
    """Where a setting of a name belongs: itself a field, or an entry of one."""
    from dmlkit import data, losses, training
    from dmlkit.training.experiment import SAMPLERS

    found: dict[str, str] = {}
    for entry in losses.entries():
        found |= {name: f"loss_args.{name}" for name in losses.signature(entry.name)}
    for make in SAMPLERS.values():
        found |= {name: f"sampler_args.{name}" for name in inspect.signature(make).parameters}
    for name in data.LOADERS:
        found |= {argument: f"data_args.{argument}" for argument in data.arguments(name)}
    return found | {field.name: field.name for field in fields(training.Experiment)}
