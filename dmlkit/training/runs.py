"""A Run on disk: its name, lock, checkpoint, publication, loading."""

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import filelock
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import data
from dmlkit.data.images import to_float
from dmlkit.data.pictures import color_histogram
from dmlkit.files import StrPath, told, write_whole
from dmlkit.models import Embedder
from dmlkit.training.build import (
    Objective,
    between,
    build_model,
    build_objective,
    model_for,
    objective_for,
    open_fabric,
)
from dmlkit.training.checkpoints import check_same, described, is_the_longer, read_checkpoint
from dmlkit.training.devices import device_type, repeatable_numerics
from dmlkit.training.experiment import Experiment
from dmlkit.training.provenance import provenance
from dmlkit.training.scoring import DivergedError, check_embeddings, embed, score
from dmlkit.training.trainer import fit

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
    class_names: tuple[str, ...] = ()  # of those; older Runs do not say

    def model(self) -> nn.Module:
        """The trained model, on the CPU, ready to embed. Raises OSError where it is damaged."""
        args = dict(self.experiment.model_args)
        if "pretrained" in args:
            args["pretrained"] = False  # what it began with is no longer needed
        experiment = replace(self.experiment, model_args=args)
        with warnings.catch_warnings(action="ignore"):  # of random weights, which do not stay
            model = model_for(experiment, torch.zeros(self.image_shape))
        return self._restored(model, "model")

    def blended(self, share: float) -> nn.Module:
        """The model with a share, 0..1, of what it has learned: see ``build.between``."""
        model = self.model()
        start = model_for(self.experiment, torch.zeros(self.image_shape)).state_dict()
        model.load_state_dict(between(start, model.state_dict(), share))
        return model

    def objective(self) -> Objective:
        """What it was trained with, on the CPU, with its learned state: proxies, a memory."""
        return self._restored(objective_for(self.experiment, self.num_classes), "objective")

    def _restored(self, module: Module, part: str) -> Module:
        with _naming(file := self.path / "checkpoint.pt"):
            state = read_checkpoint(file)
            module.load_state_dict((state["best"] or state)[part])
        return module.eval()


def baselines(experiment: Experiment, device: str = "auto") -> dict[str, dict[str, float]]:
    """What training must beat: the scores of ``untrained`` embeddings.

    >>> list(baselines(Experiment(data_args={"train_classes": 40})))
    ['raw pixels', 'untrained network']
    """
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    found = untrained(experiment, device)
    return {name: score(experiment, images, x) for name, x in found.items()}


def untrained(experiment: Experiment, device: str = "auto") -> dict[str, np.ndarray]:
    """Embeddings without training, by name, of the Experiment's split: raw pixels (or features that
    are kept), a histogram of colors, and the network as it starts (on features, a head), a
    published one without its head; then what is known of the set: see ``data.references``.
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    pretrained = experiment.model_args.get("pretrained")
    with repeatable_numerics(experiment.threads):
        model = build_model(experiment, train)
        start = f"{'pretrained' if pretrained else 'untrained'} network"
        if pretrained and isinstance(model, Embedder):
            model.head, start = nn.Identity(), "untouched features"
        x = embed(model.to(device_type(device)), images)
    shown = images.images
    pixels = to_float(shown) if isinstance(shown, Tensor) else shown.thumbnails()
    if shown.shape[2:] == (1, 1):
        return {"untouched features": pixels.flatten(1).numpy(), "random head": x}
    found = {"raw pixels": pixels.flatten(1).numpy()}
    if pixels.shape[1] == 3:
        found["color histogram"] = color_histogram(pixels).numpy()
    known = data.references(experiment.data, experiment.split, experiment.data_args)
    return found | {start: x} | known


class _Work(NamedTuple):
    """What a training needs, where its Run is to be, and what says how it diverged."""

    experiment: Experiment
    model: nn.Module
    objective: Objective
    sets: dict[str, data.ImageSet]
    provenance: dict[str, str]
    path: Path
    diverged: Path
    start: Path | None  # the checkpoint that it goes on from


def run(
    experiment: Experiment,
    *,
    device: str = "auto",
    store: StrPath | None = None,
    train: bool = True,
    wait: bool = False,
    progress: bool = True,
    start: Run | None = None,
) -> Run:
    """Train an Experiment, go on with it where it was interrupted, or load it where it is done.

    A Run lies in a folder of the ``store`` (data/runs, see ``dmlkit.cache_folder``), named by the
    Experiment's hash and by that of all else that decides it: see ``provenance``. So what is loaded
    is what training now would give. A training that diverged leaves a file NAME.diverged, which
    says how, and is not tried again while that is there.

    With a ``start``, a Run of fewer ``steps``, it goes on from there. Where the learning rate was
    the same so far (lr_decay=0), it is the Run of that many steps, to the bit; else it is another
    one, with the start in its provenance.

    It is scored by the model that it keeps, in its parameters' own precision: under bf16-mixed
    that is float32, as ``Run.model()`` embeds, where the history's monitored scores are bfloat16's.
    Under torchrun every process calls this, the first one keeps the Run, and all are given it; see
    ``fit`` for several ``devices``.

    Raises:
        RunInProgressError: another process trains it now, and ``wait`` is False.
        NotTrainedError: it is not on disk, and ``train`` is False.
        DivergedError: see ``fit``.
        OSError: the Run is damaged.
        ValueError: an unknown data set, model or device, ``devices`` that cannot share a batch, or
            a ``start`` of another training.

    >>> run(Experiment(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be a whole number from 1, but is 0
    """
    fabric = open_fabric(experiment, device)
    folder = Path(store or dmlkit.cache_folder() / "runs")
    work = _prepare(experiment, fabric.device.type, folder, start)
    path, first = work.path, fabric.is_global_zero
    known = path.exists() or work.diverged.exists()
    if not known and not train:
        raise NotTrainedError(f"Run {path.name} is not on disk: train it first")
    with _locked(path, wait) if first and not known else nullcontext():
        # It may have ended while we waited for the lock.
        diverged = work.diverged.read_text() if work.diverged.exists() else None
        loaded, diverged = fabric.broadcast((path.exists(), diverged))
        if diverged:
            told = json.loads(diverged)["error"]
            raise DivergedError(f"{told} [from {work.diverged}: delete it to train anew]")
        if not loaded:
            _train(work, first, device=device, progress=progress)
        done = replace(load_run(path), loaded=loaded) if first else None
        return fabric.broadcast(done)  # type: ignore[return-value] # the others' is replaced


def _prepare(experiment: Experiment, device_type: str, store: Path, start: Run | None) -> _Work:
    sets = {
        split: data.load(experiment.data, split, **experiment.data_args)
        for split in dict.fromkeys(("train", experiment.split, *experiment.monitor))
    }
    with repeatable_numerics(experiment.threads):
        model = build_model(experiment, sets["train"])
        objective = build_objective(experiment, sets["train"])
    facts, begun = provenance(experiment, model, objective, sets, device_type), None
    if start is not None:
        before = start.experiment
        with _naming(begun := start.path / "checkpoint.pt"):
            there = read_checkpoint(begun)["of"]
        same = f"set it as in {start.path.name}, or leave the start out"
        check_same(there, described(experiment, model, objective, sets["train"]), same)
        if start.provenance != facts or not is_the_longer(before, experiment, before.steps):
            facts["start"] = start.path.name
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    path = store / f"{experiment.hash()}-{digest}"
    diverged = path.with_name(f"{path.name}.diverged")
    return _Work(experiment, model, objective, sets, facts, path, diverged, begun)


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """The right to train a Run, which one process at a time can have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path.with_suffix(".lock"), timeout=-1 if wait else 0):
            yield
    except filelock.Timeout:
        raise RunInProgressError(
            f"another process is training Run {path.name} now: wait for it, then load it"
        ) from None


def _train(work: _Work, first: bool, **how: Any) -> None:
    """Train and score, and publish the Run, or that there is none: the ``first`` process does."""
    began, checkpoint = time.monotonic(), work.path.with_suffix(".checkpoint")
    experiment, train = work.experiment, work.sets["train"]
    facts = {
        "experiment": asdict(experiment),
        "provenance": work.provenance,
        "image_shape": list(train[0].shape),
        "num_classes": train.num_classes,
        "class_names": train.class_names,
    }
    if first and work.start is not None and not checkpoint.exists():
        write_whole({checkpoint: partial(shutil.copy, work.start)})
    how["monitor"] = {split: work.sets[split] for split in experiment.monitor}
    try:
        history = fit(work.model, work.objective, train, experiment, checkpoint=checkpoint, **how)
        if not first:
            return
        images = work.sets[experiment.split]
        with repeatable_numerics(experiment.threads):
            x = embed(work.model, images)
            check_embeddings(torch.from_numpy(x), "after the last step: lower lr")
            facts["scores"] = score(experiment, images, x)
        facts["seconds"] = time.monotonic() - began
        _publish(work, facts, history, x, checkpoint)
    except DivergedError as error:
        if first:
            facts |= {"seconds": time.monotonic() - began, "error": str(error)}
            text = json.dumps(facts, indent=1)
            write_whole({work.diverged: lambda beside: beside.write_text(text)})
            checkpoint.unlink(missing_ok=True)
        raise


def _publish(
    work: _Work, facts: dict[str, Any], history: pd.DataFrame, x: np.ndarray, checkpoint: Path
) -> None:
    """Write the whole folder beside, then rename it: a Run is there complete, or not at all."""
    beside = work.path.with_name(f"{work.path.name}.new")
    shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed: this one has the lock
    beside.mkdir()
    history.to_csv(beside / "history.csv", index=False)
    np.savez(
        beside / "embeddings.npz", embeddings=x, labels=work.sets[work.experiment.split].labels
    )
    shutil.copy(checkpoint, beside / "checkpoint.pt")
    facts |= {"sha256": _sha256(facts, beside)}
    (beside / "run.json").write_text(json.dumps(facts, indent=1))  # last: by it Runs are found
    beside.rename(work.path)
    checkpoint.unlink()


def _sha256(facts: dict[str, Any], path: Path) -> str:
    """Of what has no checksum of its own: the facts, as run.json has them, and the history."""
    whole = json.dumps(facts).encode() + (path / "history.csv").read_bytes()
    return hashlib.sha256(whole).hexdigest()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Inside, whatever a damaged file is refused with names the Run."""
    try:
        yield
    except Exception as error:
        raise OSError(
            f"{path} cannot be read ({told(error)}): delete that Run to train it anew"
        ) from None


def load_run(path: StrPath) -> Run:
    """The Run that a folder keeps, as ``run`` left it. Raises OSError for any other folder."""
    path = Path(path)
    if not (path / "run.json").is_file():
        raise FileNotFoundError(f"{path} is no Run: it has no run.json")
    with _naming(path):
        facts = json.loads((path / "run.json").read_text())
        if facts.pop("sha256", None) not in (None, _sha256(facts, path)):  # older Runs have none
            raise ValueError("run.json or history.csv is not as it was written")
        facts["experiment"] = Experiment(**facts["experiment"])
        facts["image_shape"] = tuple(facts["image_shape"])
        facts["class_names"] = tuple(facts.get("class_names", ()))
        # NumPy sees a byte that was flipped in these.
        with (path / "embeddings.npz").open("rb") as file, np.load(file) as arrays:
            facts |= {"embeddings": arrays["embeddings"], "labels": arrays["labels"]}
        history = pd.read_csv(path / "history.csv")
        return Run(**facts, history=history, path=path, loaded=True)
