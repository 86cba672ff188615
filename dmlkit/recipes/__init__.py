"""Published settings by name: recipes/NAME.toml -> Experiment."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dmlkit import data
from dmlkit.training import Experiment

FOLDER = Path(__file__).parent
_MOST_BASES = 16  # of a recipe, one on the other


def names() -> tuple[str, ...]:
    """The published settings that there are recipes of."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(
    name: str | None, loss: str | None = None, settings: Mapping[str, Any] | None = None
) -> Experiment:
    """The Experiment of a recipe (None: of no recipe), with what is given changed.

    A recipe is a file in ``recipes/``, or the path of another ``.toml`` file: a table
    ``[experiment]`` of fields of Experiment, to which ``[losses.NAME]`` are changes that another
    ``loss`` brings; where it has a ``base``, the name of a recipe, both are changes to that one's.

    A change that is a table changes entry by entry, but the arguments of another loss, sampler or
    optimizer start anew. ``settings`` come last, and may name an entry: ``data_args.crop``.

    Raises:
        ValueError: no such recipe, no TOML, tables of another form, a base that leads back to its
            recipe, or a name that Experiment has no field of.
        TypeError: a field of Experiment is of another type.

    >>> load("sec_cub_googlenet", "multi_similarity", {"data_args.crop": 64}).sampler_args
    {'classes': 24, 'per_class': 5}
    """
    experiment, losses = read(name) if name else ({}, {})
    if loss is not None:
        experiment = _changed(experiment, {"loss": loss} | losses.get(loss, {}))
    experiment = _changed(experiment, nested(settings or {}))
    known = [field.name for field in fields(Experiment)]
    if unknown := sorted(set(experiment) - set(known)):
        where = f"{name}: " if name else ""
        raise ValueError(
            f"{where}Experiment has no field {', '.join(unknown)}; it has {', '.join(known)}"
        )
    try:
        return Experiment(**experiment)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{f'{name}: ' if name else ''}{error}") from error


def fitted(experiment: Experiment) -> tuple[Experiment, str]:
    """The Experiment, its batches of no more classes than there are to train on, and what it says.

    Only of the samplers that draw so many ``classes``. The line is empty where nothing changed.

    Raises ValueError for fewer than two classes: nothing would be told apart.
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    there, args = train.num_classes, dict(experiment.sampler_args)
    if there < 2:
        raise ValueError(
            f"{experiment.data} has 1 class to train on: expected 2 or more, and as many to test on"
        )
    if args.get("classes", 0) <= there:
        return experiment, ""
    line = f"batches of {there} classes instead of {args['classes']}: {experiment.data} has no more"
    return replace(experiment, sampler_args=args | {"classes": there}), f"{line} to train on"


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that may name an entry, as fields of Experiment.

    >>> nested({"lr": 0.1, "loss_args.margin": 0.2})
    {'lr': 0.1, 'loss_args': {'margin': 0.2}}
    """
    changes: dict[str, Any] = {}
    for setting, value in settings.items():
        field, _, entry = setting.partition(".")
        changes = _changed(changes, {field: {entry: value} if entry else value})
    return changes


def read(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The fields of a recipe, and their changes by loss, on those of its base."""
    tables = [_table(name)]
    while "base" in tables[-1]:
        try:
            tables.append(_table(tables[-1]["base"]))
        except ValueError as error:
            raise ValueError(f"{name}: its base: {error}") from error
        if len(tables) > _MOST_BASES:
            raise ValueError(f"{name}: a recipe has {_MOST_BASES} bases at most; is it its own?")
    experiment: dict[str, Any] = {}
    losses: dict[str, dict[str, Any]] = {}
    for table in reversed(tables):
        changes = table.get("losses", {})
        losses |= {loss: _changed(losses.get(loss, {}), changes[loss]) for loss in changes}
        experiment = _changed(experiment, table.get("experiment", {}))
    return experiment, losses


def _table(name: str) -> dict[str, Any]:
    """What a recipe's file holds."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(
            f"no recipe {name!r}: there are {', '.join(names())}, or the path of a .toml file"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits is no decode error
        raise ValueError(f"{path} is no TOML: {error}") from error
    if unknown := sorted(set(table) - {"base", "experiment", "losses"}):
        raise ValueError(
            f"{path}: unknown {', '.join(unknown)}; a recipe has base, [experiment], [losses.NAME]"
        )
    losses = table.get("losses", {})
    changes = [table.get("experiment", {}), *(losses.values() if isinstance(losses, dict) else [0])]
    if not isinstance(table.get("base", ""), str) or not all(isinstance(c, dict) for c in changes):
        raise ValueError(
            f"{path}: base must be a name, [experiment] and each [losses.NAME] must be tables"
        )
    return table


def _changed(found: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields after some of them change; see ``load``."""
    after = dict(found)
    for field in ("loss", "sampler", "optimizer"):
        if field in after and changes.get(field, after[field]) != after[field]:
            after[f"{field}_args"] = {}
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(after.get(name), dict)
        after[name] = after[name] | value if both else value
    return after
