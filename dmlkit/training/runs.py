"""A Run on disk: its name, lock, checkpoint, publication, loading."""

import hashlib
import io
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import filelock
import numpy as np
import pandas as pd
import torch
from torch import nn

import dmlkit
from dmlkit import data
from dmlkit.checks import check_type
from dmlkit.files import naming_full_disk, write_whole
from dmlkit.training.build import (
    Objective,
    build_model,
    build_objective,
    model_for,
    objective_for,
)
from dmlkit.training.devices import open_fabric, repeatable_numerics
from dmlkit.training.experiment import Experiment
from dmlkit.training.loop import fit
from dmlkit.training.provenance import provenance
from dmlkit.training.scoring import DivergedError, check_embeddings, embed, score
from dmlkit.training.trainer import packed

SUMS = "SHA256SUMS"  # of the other files of a Run, as `sha256sum --check` reads it
Module = TypeVar("Module", bound=nn.Module)


class RunInProgressError(RuntimeError):
    """Another process is training the same Run."""


class NotTrainedError(LookupError):
    """The Run is not on disk, and was not to be trained."""


@dataclass(frozen=True)
class Run:
    """What training an Experiment gave.

    ``scores`` are fractions (see ``retrieval.evaluate``); ``history`` has one row a step (loss,
    norm_mean, norm_spread = std/mean of the batch's norms, gradient_norm, and SPLIT_recall_at_1
    where monitored); ``embeddings`` (N, dim) and ``labels`` (N,) are of the Experiment's split;
    ``loaded`` tells whether it was found on disk or trained now.
    """

    experiment: Experiment
    scores: dict[str, float]
    history: pd.DataFrame
    embeddings: np.ndarray
    labels: np.ndarray
    seconds: float
    provenance: dict[str, str]
    path: Path
    loaded: bool
    image_shape: tuple[int, ...]  # of the images that it was trained on, (C, H, W)
    num_classes: int  # of those

    def model(self) -> nn.Module:
        """The trained model, on the CPU, ready to embed. Raises OSError where it is damaged."""
        args = dict(self.experiment.model_args)
        if "pretrained" in args:
            args["pretrained"] = False  # what it began with is no longer needed
        experiment = replace(self.experiment, model_args=args)
        return self._restored(model_for(experiment, torch.zeros(self.image_shape)), "model.pt")

    def objective(self) -> Objective:
        """What it was trained with, on the CPU, with its learned state: proxies, a memory."""
        return self._restored(objective_for(self.experiment, self.num_classes), "objective.pt")

    def _restored(self, module: Module, file: str) -> Module:
        with _naming_folder(self.path):
            state = torch.load(_checked(self.path, file), weights_only=True)
        module.load_state_dict(state)
        return module.eval()


def run(
    experiment: Experiment,
    *,
    device: str = "auto",
    store: Path | None = None,
    train: bool = True,
    wait: bool = False,
    progress: bool = True,
) -> Run:
    """Train an Experiment, go on with it where it was interrupted, or load it where it is done.

    A Run lies in a folder of the ``store`` (data/runs, see ``dmlkit.cache_folder``), named by the
    Experiment's hash and by that of all else that decides it: see ``provenance``. So what is loaded
    is what training now would give. A training that diverged leaves a file NAME.diverged, which
    says how, and is not tried again while that is there.

    It is scored by the model that it keeps, in its parameters' own precision: under bf16-mixed
    that is float32, as ``Run.model()`` embeds, where the history's monitored scores are bfloat16's.
    Under torchrun every process calls this, the first one keeps the Run, and all are given it; see
    ``fit`` for several ``devices``.

    Raises:
        RunInProgressError: another process trains it now, and ``wait`` is False.
        NotTrainedError: it is not on disk, and ``train`` is False.
        DivergedError: see ``fit``.
        OSError: the Run is damaged, as its SHA256SUMS show, or the store cannot be written to.
        ValueError: an unknown data set, model or device, or ``devices`` that are not there or
            cannot share a batch.

    >>> run(Experiment(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be a whole number from 1, but is 0
    """
    check_type(Experiment, experiment=experiment)
    fabric = open_fabric(experiment, device)
    work = _prepare(experiment, fabric.device.type)
    path = (store or dmlkit.cache_folder() / "runs") / work.name
    if not train and not _is_known(path):
        raise NotTrainedError(f"Run {work.name} is not on disk: train it first")
    first = fabric.is_global_zero
    with nullcontext() if _is_known(path) or not first else _locked(path, wait):
        # It may have ended while we waited for the lock.
        loaded, diverged = fabric.broadcast((path.exists(), _how_it_diverged(path)))
        if first and (loaded or diverged):
            _remove_checkpoint(path)
        if diverged:
            raise DivergedError(diverged)
        if not loaded:
            _train(work, path, first, device=device, progress=progress)
        done = replace(load_run(path), loaded=loaded) if first else None
        return fabric.broadcast(done)  # type: ignore[return-value] # the others' is replaced


class _Work(NamedTuple):
    """What a training needs, and its name."""

    experiment: Experiment
    model: nn.Module
    objective: Objective
    sets: Mapping[str, data.ImageSet]
    provenance: dict[str, str]

    @property
    def name(self) -> str:
        facts = json.dumps(self.provenance, sort_keys=True)
        return f"{self.experiment.hash()}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def _prepare(experiment: Experiment, device_type: str) -> _Work:
    sets = {
        split: data.load(experiment.data, split, **experiment.data_args)
        for split in dict.fromkeys(("train", experiment.split, *experiment.monitor))
    }
    with repeatable_numerics(experiment.threads):
        model = build_model(experiment, sets["train"])
        objective = build_objective(experiment, sets["train"])
    facts = provenance(experiment, model, objective, sets, device_type)
    return _Work(experiment, model, objective, sets, facts)


def _is_known(path: Path) -> bool:
    return path.exists() or _diverged(path).exists()


def _diverged(path: Path) -> Path:
    return path.with_name(f"{path.name}.diverged")


def _how_it_diverged(path: Path) -> str | None:
    """What a training said when it diverged, or nothing where none did."""
    file = _diverged(path)
    if not file.exists():
        return None
    try:
        told = json.loads(file.read_text())["error"]
    except (OSError, ValueError, KeyError) as error:
        raise OSError(f"{file} cannot be read ({error}): delete it to train anew") from error
    return f"{told} [known from {file}: delete it to train anew]"


def _locked(path: Path, wait: bool) -> AbstractContextManager[object]:
    """The right to train a Run, which one process at a time can have."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(path.with_suffix(".lock")).acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise RunInProgressError(
            f"another process is training Run {path.name} now: wait for it, then load it"
        ) from None
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: to train a Run, its folder must be one that can be written to; set "
            "$DMLKIT_CACHE, or store, to another",
            str(path.parent),
        ) from error


def _train(work: _Work, path: Path, first: bool, **how: Any) -> None:
    """Train and score, and publish the Run, or that there is none: the ``first`` process does."""
    began, checkpoint = time.monotonic(), path.with_suffix(".checkpoint")
    if first:
        _remove_leftovers(path)
    try:
        history = fit(
            work.model, work.objective, work.sets["train"], work.experiment, checkpoint=checkpoint,
            monitor={split: work.sets[split] for split in work.experiment.monitor}, **how,
        )  # fmt: skip
        if first:
            _score_and_publish(work, path, history, began)
    except DivergedError as error:
        if first:
            facts = _facts(work, began) | {"error": str(error)}
            text = json.dumps(facts, indent=1)
            write_whole({_diverged(path): lambda beside: beside.write_text(text)})
            checkpoint.unlink(missing_ok=True)
        raise
    if first:
        checkpoint.unlink(missing_ok=True)


def _remove_checkpoint(path: Path) -> None:
    """Of a Run that is done: its process may have been killed before it could."""
    with suppress(OSError):  # in a folder that is only to be read
        path.with_suffix(".checkpoint").unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Remove what processes left that were killed while they wrote this Run, which is locked."""
    for leftover in path.parent.glob(f"{path.name}.*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.suffix not in (".lock", ".checkpoint"):
            leftover.unlink()


def _facts(work: _Work, began: float) -> dict[str, Any]:
    """What is written of a training, however it ended."""
    train = work.sets["train"]
    return {
        "experiment": asdict(work.experiment),
        "seconds": time.monotonic() - began,
        "provenance": work.provenance,
        "image_shape": list(train[0].shape),
        "num_classes": train.num_classes,
    }


def _score_and_publish(work: _Work, path: Path, history: pd.DataFrame, began: float) -> None:
    """By the model that was trained; all that is to be kept of it."""
    images = work.sets[work.experiment.split]
    with repeatable_numerics(work.experiment.threads):
        embeddings = embed(work.model, images)
        check_embeddings(torch.from_numpy(embeddings), "after the last step: lower lr")
        scores = score(work.experiment, images, embeddings)
    facts, arrays = _facts(work, began) | {"scores": scores}, io.BytesIO()
    np.savez(arrays, embeddings=embeddings, labels=images.labels)
    files = {
        "run.json": json.dumps(facts, indent=1).encode(),
        "history.csv": history.to_csv(index=False).encode(),
        "embeddings.npz": arrays.getvalue(),
    }
    for file, module in (("model.pt", work.model), ("objective.pt", work.objective)):
        files[file] = packed({name: value.cpu() for name, value in module.state_dict().items()})
    _publish(path, files)


def _publish(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the whole folder beside, then rename it: a Run is there complete, or not at all."""
    sums = b"".join(_sum(name, content) for name, content in files.items())
    beside = path.with_name(f"{path.name}.new")
    beside.mkdir()
    try:
        for name, content in (dict(files) | {SUMS: sums}).items():
            with naming_full_disk(path / name):
                (beside / name).write_bytes(content)
        beside.rename(path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _sum(name: str, content: bytes) -> bytes:
    """The line of ``SUMS`` for a file."""
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()


def _checked(path: Path, name: str) -> io.BytesIO:
    """A file of a Run, as it was written; ValueError for any other."""
    content = (path / name).read_bytes()
    if _sum(name, content) not in (path / SUMS).read_bytes():
        raise ValueError(f"{name} is damaged: its SHA-256 is another than {SUMS} says")
    return io.BytesIO(content)


@contextmanager
def _naming_folder(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OSError(
            f"Run {path} cannot be read ({error}): delete that folder to train it anew"
        ) from error


def load_run(path: Path) -> Run:
    """The Run that a folder keeps, as ``run`` left it. Raises OSError for any other folder."""
    with _naming_folder(path):
        facts = json.load(_checked(path, "run.json"))
        facts["experiment"] = Experiment(**facts["experiment"])
        facts["image_shape"] = tuple(facts["image_shape"])
        with np.load(_checked(path, "embeddings.npz")) as arrays:
            facts |= {"embeddings": arrays["embeddings"], "labels": arrays["labels"]}
        history = pd.read_csv(_checked(path, "history.csv"))
        return Run(**facts, history=history, path=path, loaded=True)
