"""Published settings by name: recipes/NAME.toml -> Experiment."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

from dmlkit import data
from dmlkit.checks import check_arguments
from dmlkit.files import StrPath
from dmlkit.training import Experiment

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The published settings that there are recipes of."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(
    name: StrPath | None, loss: str | None = None, settings: Mapping[str, Any] | None = None
) -> Experiment:
    """The Experiment of a recipe (None: of no recipe), with what is given changed.

    A recipe is a file in ``recipes/``, or the path of another ``.toml`` file: a table
    ``[experiment]`` of fields of Experiment, to which ``[losses.NAME]`` are changes that another
    ``loss`` brings; where it has a ``base``, the name of a recipe, both are changes to that one's.

    Changes are ``merged``; ``settings`` come last, and may name an entry: ``data_args.crop``.

    >>> load("sec_cub_googlenet", "multi_similarity", {"data_args.crop": 64}).sampler_args
    {'classes': 24, 'per_class': 5}
    """
    experiment, losses = read(name) if name else ({}, {})
    if loss is not None:
        experiment = merged(experiment, {"loss": loss} | losses.get(loss, {}))
    experiment = merged(experiment, nested(settings or {}))
    check_arguments("Experiment", [field.name for field in fields(Experiment)], experiment)
    return Experiment(**experiment)


def fitted(experiment: Experiment) -> tuple[Experiment, str]:
    """The Experiment, its batches of no more classes than there are to train on, and what it says.

    Only of the samplers that draw so many ``classes``. The line is empty where nothing changed.
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    there, args = train.num_classes, dict(experiment.sampler_args)
    if args.get("classes", 0) <= there:
        return experiment, ""
    line = f"batches of {there} classes instead of {args['classes']}: {experiment.data} has no more"
    return replace(experiment, sampler_args=args | {"classes": there}), f"{line} to train on"


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Experiment put together: later ones win, tables within them are merged, but the
    arguments of another loss, sampler or optimizer start anew.

    >>> merged({"seed": 1, "data_args": {"level": "hard"}}, {"data_args": {"seed": 2}})
    {'seed': 1, 'data_args': {'level': 'hard', 'seed': 2}}
    """

    def add(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
        anew: dict[str, Any] = {
            f"{name}_args": {}
            for name in ("loss", "sampler", "optimizer")
            if name in below and above.get(name, below[name]) != below[name]
        }
        below = below | anew
        tables = {
            key: add(below[key], value)
            for key, value in above.items()
            if isinstance(value, Mapping) and isinstance(below.get(key), dict)
        }
        return {**below, **above, **tables}

    return reduce(add, parts, {})


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that may name an entry, at any depth, as fields of Experiment.

    >>> nested({"lr": 0.1, "loss_args.margin": 0.2})
    {'lr': 0.1, 'loss_args': {'margin': 0.2}}
    """
    tables = (
        reduce(lambda inner, key: {key: inner}, reversed(name.split(".")), value)
        for name, value in settings.items()
    )
    return merged(*tables)


def read(name: StrPath) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The fields of a recipe, and their changes by loss, on those of its base."""
    path = Path(name)
    path = path if path.suffix == ".toml" else FOLDER / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(names())
        raise ValueError(f"no recipe '{name}': there are {there}, or the path of a .toml file")
    table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    check_arguments(f"the recipe {path}", ("base", "experiment", "losses"), table)
    experiment, losses = read(table["base"]) if "base" in table else ({}, {})
    for loss, changes in table.get("losses", {}).items():
        losses[loss] = merged(losses.get(loss, {}), changes)
    return merged(experiment, table.get("experiment", {})), losses
