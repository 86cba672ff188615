"""What a checkpoint is of, and whether a training may go on from it."""

import zipfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dmlkit import data
from dmlkit.training.build import lr_factor
from dmlkit.training.experiment import Experiment

#: What may differ in a training that goes on: how long it is, and what is looked at meanwhile.
_FREE = ("steps", "monitor", "monitor_every")


def described(
    experiment: Experiment, model: nn.Module, objective: nn.Module, train: data.ImageSet
) -> dict[str, Any]:
    """What decides a training: the Experiment, model and loss as they were built, training set."""
    return {
        "experiment": asdict(experiment),
        "model as built": _settings(model),
        "loss as built": _settings(objective),
        "training set": train.fingerprint[:12],
    }


def _settings(module: nn.Module) -> list[str]:
    """The classes of a module and of its parts, with the numbers and texts that they hold."""
    texts = []
    for part in module.modules():
        held = ", ".join(
            f"{name}={value!r}"
            for name, value in sorted(vars(part).items())
            if isinstance(value, int | float | str) and name[0] != "_" and name != "training"
        )
        texts.append(f"{type(part).__qualname__}({held})")
    return texts


def check_same(
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    otherwise: str = "give another path, or delete that file",
) -> None:
    """ValueError where a checkpoint is another training's, with the first thing that differs."""
    for name in {**expected["experiment"], **expected}:
        was, now = ({**each["experiment"], **each}.get(name) for each in (found, expected))
        if was == now or name in ("experiment", *_FREE):
            continue
        if isinstance(now, list):  # parts of a module
            pairs = zip_longest(was or (), now, fillvalue="nothing")
            was, now = next(pair for pair in pairs if pair[0] != pair[1])
        raise ValueError(
            f"the checkpoint is of another training: {name} was {was} there, and is {now}: "
            f"{otherwise}"
        )


def is_the_longer(before: Experiment, now: Experiment, step: int) -> bool:
    """Whether the steps of one so far are also those of the other, which has more of them.

    >>> short = Experiment(lr_decay=0)
    >>> is_the_longer(short, replace(short, steps=600), step=280)
    True
    >>> short = Experiment(lr_decay=0.3)  # its last steps were small
    >>> is_the_longer(short, replace(short, steps=600), step=280)
    False
    """
    rates = [
        [lr_factor(k, e.steps, e.lr_decay, e.warmup, e.schedule) for k in range(step)]
        for e in (before, now)
    ]
    looked = step % now.monitor_every == 0 or not now.monitor  # the end of a training is looked at
    return before == replace(now, steps=before.steps) and rates[0] == rates[1] and looked


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What ``torch.save`` wrote; BadZipFile where that has changed, which torch would not see."""
    with zipfile.ZipFile(path) as file:
        if damaged := file.testzip():
            raise zipfile.BadZipFile(f"{damaged} in it is not as it was written")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
