"""A Run on disk: its name, lock, checkpoint, publication, loading."""

import ast
import functools
import hashlib
import inspect
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import filelock
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import dmlkit
from dmlkit import data, geometry, retrieval
from dmlkit.data import batches, glyphs
from dmlkit.training import devices
from dmlkit.training.build import Objective, build_model, build_objective
from dmlkit.training.devices import open_fabric, pinned_numerics
from dmlkit.training.experiment import Experiment
from dmlkit.training.loop import embed, fit, to_float

Module = TypeVar("Module", bound=nn.Module)


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

    def model(self) -> nn.Module:
        """The trained model, on the CPU, ready to embed."""
        train = data.load(self.experiment.data, "train", **self.experiment.data_args)
        return self._restored(build_model(self.experiment, train), "model.pt")

    def objective(self) -> "Objective":
        """What it was trained with, on the CPU, with its learned state: proxies, a memory."""
        train = data.load(self.experiment.data, "train", **self.experiment.data_args)
        return self._restored(build_objective(self.experiment, train), "objective.pt")

    def _restored(self, module: Module, file: str) -> Module:
        module.load_state_dict(torch.load(self.path / file, weights_only=True))
        return module.eval()


def baselines(experiment: Experiment, device: str = "auto") -> dict[str, dict[str, float]]:
    """What training must beat: the scores of raw pixels and of the network as it starts.

    Raises ValueError and OSError as ``run`` does.

    >>> list(baselines(Experiment(data_args={"train_classes": 40})))
    ['raw pixels', 'untrained network']
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    with pinned_numerics(experiment.threads):
        model = build_model(experiment, train).to(devices.device_type(device))
        start = embed(model, images)
    network = "pretrained" if experiment.model_args.get("pretrained") else "untrained"
    shown = images.images
    small = shown if isinstance(shown, Tensor) else shown.thumbnails()
    pixels = to_float(small).flatten(1).numpy()
    return {
        name: retrieval.evaluate(**images.retrieval_sets(embeddings), metric=experiment.metric)
        for name, embeddings in (("raw pixels", pixels), (f"{network} network", start))
    }


class RunInProgressError(RuntimeError):
    """Another process is training the same Run."""


class NotTrainedError(LookupError):
    """The Run is not on disk, and was not to be trained."""


def run(
    experiment: Experiment,
    *,
    device: str = "auto",
    store: Path | None = None,
    wait: bool = False,
    progress: bool = True,
    train: bool = True,
) -> Run:
    """Train an Experiment, go on with it where it was interrupted, or load it where it is done.

    A Run lies in a folder of the ``store`` (data/runs, see ``dmlkit.cache_folder``), named by the
    Experiment's hash and by that of all else that decides it: the sources it executes, its images,
    the pretrained weights it starts from, torch, the kind of device. So what is loaded is what
    training now would give.

    It is scored by the model that it keeps, in its parameters' own precision: under bf16-mixed
    that is float32, as ``Run.model()`` embeds, where the history's monitored scores are bfloat16's.
    Under torchrun every process calls this, the first one keeps the Run, and all are given it; see
    ``fit`` for several ``devices``.

    Raises:
        RunInProgressError: another process trains it now, and ``wait`` is False.
        NotTrainedError: it is not on disk, and ``train`` is False.
        DivergedError: the loss is no longer finite.
        ValueError: an unknown loss, data set, model, sampler, optimizer or device, or ``devices``
            that are not there or cannot share a batch.

    >>> run(Experiment(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be positive, but is 0
    """
    store = store or dmlkit.cache_folder() / "runs"
    fabric = open_fabric(experiment, device)
    sets = {
        split: data.load(experiment.data, split, **experiment.data_args)
        for split in dict.fromkeys(("train", experiment.split, *experiment.monitor))
    }
    with pinned_numerics(experiment.threads):
        model = build_model(experiment, sets["train"])
        objective = build_objective(experiment, sets["train"])
    provenance = _provenance(experiment, model, objective, sets, fabric.device.type)
    context = hashlib.sha256(json.dumps(provenance, sort_keys=True).encode()).hexdigest()[:12]
    path = store / f"{experiment.hash()}-{context}"
    if not train and not path.exists():
        raise NotTrainedError(f"Run {path.name} is not in {store}: train it first")
    first = fabric.is_global_zero
    with nullcontext() if path.exists() or not first else _locked(path, wait):
        loaded = fabric.broadcast(path.exists())  # it may have been finished while we waited
        if not loaded:
            began = time.monotonic()
            checkpoint = path.with_suffix(".checkpoint")
            if first:
                _tidy(path)
            history = fit(
                model, objective, sets["train"], experiment, device=device,
                monitor={split: sets[split] for split in experiment.monitor},
                checkpoint=checkpoint, progress=progress,
            )  # fmt: skip
            if first:
                with pinned_numerics(experiment.threads):
                    result = _score(experiment, model, sets[experiment.split])
                seconds = time.monotonic() - began
                states = {"model.pt": model, "objective.pt": objective}
                _publish(path, experiment, states, history, result, provenance, seconds)
                checkpoint.unlink(missing_ok=True)
        run = replace(load_run(path), loaded=loaded) if first else None
        return fabric.broadcast(run)  # type: ignore[return-value] # the others' is replaced


def _locked(path: Path, wait: bool) -> AbstractContextManager[object]:
    """The right to train a Run, which one process at a time can have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return filelock.FileLock(path.with_suffix(".lock")).acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise RunInProgressError(
            f"another process is training Run {path.name} now: wait for it, then load it"
        ) from None


def _tidy(path: Path) -> None:
    """Remove what processes left that were killed while they wrote this Run, which is locked."""
    for leftover in path.parent.glob(f"{path.name}.*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.suffix not in (".lock", ".checkpoint"):
            leftover.unlink()


def _score(
    experiment: Experiment, model: nn.Module, images: data.ImageSet
) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    embeddings = embed(model, images)
    scores = retrieval.evaluate(**images.retrieval_sets(embeddings), metric=experiment.metric)
    return scores, embeddings, images.labels


def _publish(
    path: Path,
    experiment: Experiment,
    states: Mapping[str, nn.Module],
    history: pd.DataFrame,
    result: tuple[dict[str, float], np.ndarray, np.ndarray],
    provenance: dict[str, str],
    seconds: float,
) -> None:
    """Write the whole folder beside, then rename it: a Run is there complete, or not at all."""
    scores, embeddings, labels = result
    facts = {
        "experiment": asdict(experiment),
        "scores": scores,
        "seconds": seconds,
        "provenance": provenance,
    }
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as beside:
        folder = Path(beside) / "run"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(facts, indent=1))
        history.to_csv(folder / "history.csv", index=False)
        np.savez(folder / "embeddings.npz", embeddings=embeddings, labels=labels)
        for file, module in states.items():
            state = {name: value.cpu() for name, value in module.state_dict().items()}
            torch.save(state, folder / file)
        folder.rename(path)


def load_run(path: Path) -> Run:
    """The Run that a folder keeps, as ``run`` left it. Raises OSError for any other folder."""
    try:
        facts = json.loads((path / "run.json").read_text())
        with np.load(path / "embeddings.npz") as arrays:
            embeddings, labels = arrays["embeddings"], arrays["labels"]
        history = pd.read_csv(path / "history.csv")
    except (OSError, ValueError, KeyError) as error:
        raise OSError(
            f"Run {path} cannot be read ({error}): delete that folder to train it anew"
        ) from error
    return Run(
        Experiment(**facts["experiment"]), facts["scores"], history, embeddings, labels,
        facts["seconds"], facts["provenance"], path, loaded=True,
    )  # fmt: skip


def _provenance(
    experiment: Experiment,
    model: nn.Module,
    objective: nn.Module,
    sets: Mapping[str, data.ImageSet],
    device: str,
) -> dict[str, str]:
    """What decides a Run besides its Experiment: images, weights, sources, torch, device."""
    modules = {type(m).__module__ for m in (*model.modules(), *objective.modules())}
    modules |= {module.__name__ for module in (data, batches, devices, glyphs, geometry, retrieval)}
    modules |= {type(images.images).__module__ for images in sets.values()}
    modules |= {__name__, "dmlkit.losses.mining"}
    sources = sorted(name for name in modules if name.startswith("dmlkit"))
    facts = {f"images of {split}": images.fingerprint[:12] for split, images in sets.items()}
    if experiment.model_args.get("pretrained"):
        facts["weights"] = _digest(model)
    code = "".join(_code(inspect.getsource(sys.modules[name])) for name in sources)
    return facts | {
        "sources": hashlib.sha256(code.encode()).hexdigest()[:12],
        "torch": torch.__version__,
        "device": device,
    }


def _digest(model: nn.Module) -> str:
    """SHA-256 of weights, whatever file they came from."""
    whole = hashlib.sha256()
    for value in model.state_dict().values():
        whole.update(value.contiguous().numpy())
    return whole.hexdigest()[:12]


@functools.cache  # a Run that is only loaded would spend most of its time here
def _code(source: str) -> str:
    """SHA-256 of a module's code without comments, docstrings, layout: they change no result."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
