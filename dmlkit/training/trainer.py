"""One step after another: the state of a training, which knows no loss by name."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from dmlkit import data, geometry
from dmlkit.data import glyphs
from dmlkit.files import write_whole
from dmlkit.training import devices
from dmlkit.training.build import (
    Objective,
    build_optimizer,
    build_sampler,
    lr_factor,
    refreshed,
    split_parameters,
)
from dmlkit.training.experiment import Experiment
from dmlkit.training.scoring import (
    DivergedError,
    check_embeddings,
    embed,
    embed_batches,
    to_float,
)

LARGEST_NORM = torch.finfo(torch.float32).max ** 0.5  # 1.8e19
HISTORY = ("loss", "norm_mean", "norm_spread", "gradient_norm")
_DEVICE_STRIDE = 1_000_000_007  # between the seeds of two devices, far above that of two steps


class Trainer:
    """The state of a training: what a step changes, what a checkpoint holds.

    Every random choice of a step is a function of (seed, step), so that a training which goes on
    from a checkpoint is the unbroken one, bit for bit.

    On W devices each embeds every W-th image of the batch, and gathers all embeddings. So each
    computes the objective of the whole batch, with the same random numbers, memories and proxies,
    and has its whole gradient: that of the objective's own parameters as it is, that of its own
    embeddings to take back through the model.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: nn.Module,
        objective: nn.Module,
        train: data.ImageSet,
        fabric: Fabric,
    ) -> None:
        self.experiment, self.fabric, self.train = experiment, fabric, train
        device = fabric.device
        self.share = slice(fabric.global_rank, None, fabric.world_size)  # of every batch
        self.labels = torch.from_numpy(train.labels).to(device)
        self.sampler: Any = build_sampler(experiment, train)
        self.images = self._images()
        self.refreshed = refreshed(objective, self.sampler)
        model = model.to(memory_format=torch.channels_last)
        self.objective = objective.to(device)
        optimizer = build_optimizer(experiment, model.to(device), self.objective)
        self.plain_model = model  # neither compiled nor in DDP, which waits for the others
        self.backbone = split_parameters(model)[0]  # which rests during frozen_steps
        if experiment.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.record = torch.full((experiment.steps, len(HISTORY)), torch.nan, device=device)
        self.monitored: dict[str, dict[int, float]] = {}
        self.step = 0
        self.within_step = False  # begun and not ended: no state to keep

    def advance(self) -> None:
        """One step: batch, embeddings, objective, gradient, update, record."""
        experiment, step = self.experiment, self.step
        self.within_step = True
        self._refresh()
        seed = experiment.seed * 1_000_003 + step
        own_seed = seed + self.fabric.global_rank * _DEVICE_STRIDE
        images, labels = self._batch(own_seed)
        factor = lr_factor(step, experiment.steps, experiment.lr_decay)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        devices.seed(own_seed)  # for dropout
        embeddings = self._gathered(self.model(images))  # (B, d)
        devices.seed(seed)  # for losses that sample, alike on every device
        value = self.objective(embeddings, labels)
        self.optimizer.zero_grad()
        self.fabric.backward(value)
        self._adjust_gradients()
        self._note(value.detach(), embeddings.detach())
        self.optimizer.step()
        self.step += 1
        self.within_step = False

    def _images(self) -> Tensor | Callable[[int], Tensor]:
        """All on the device, to be indexed there; or files, decoded ahead of a step."""
        e, images = self.experiment, self.train.images
        if isinstance(images, Tensor):
            return images.to(self.fabric.device)
        return images.stream(self.sampler, e.seed, e.steps, self.fabric.device, self.share)

    def _refresh(self) -> None:
        """Show the training set to what asks for it at this step: see ``Refreshed``."""
        due = [part for part in self.refreshed if self.step % part.refresh_every == 0]
        if not due:
            return
        first = self.fabric.is_global_zero  # BatchNorm's averages are not alike on all devices
        x = self.fabric.broadcast(self.embed(self.train) if first else None)
        for part in due:
            part.refresh(torch.from_numpy(x), torch.from_numpy(self.train.labels))
        if self.sampler in due and not isinstance(self.images, Tensor):
            self.images = self._images()  # what was decoded ahead is of batches that are no more

    def _note(self, value: Tensor, embeddings: Tensor) -> None:
        """Write the step's row of HISTORY, on the device."""
        norms = geometry.norms(embeddings.float())
        mean = norms.mean()
        tiny = torch.finfo(mean.dtype).tiny
        spread = norms.std(correction=0) / mean.clamp_min(tiny)  # 0 where all norms are 0
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        gradient_norm = torch.nn.utils.get_total_norm(gradients)
        self.record[self.step] = torch.stack([value, mean, spread, gradient_norm])

    def _batch(self, seed: int) -> tuple[Tensor, Tensor]:
        """This device's share of the step's images (B/W, C, H, W), and all of its labels (B,)."""
        index = torch.from_numpy(self.sampler(self.step))
        if self.fabric.device.type == "cuda":
            index = index.pin_memory()  # else the copy would wait for the device
        index = index.to(self.fabric.device, non_blocking=True)
        images = (
            self.images[index[self.share]]
            if isinstance(self.images, Tensor)
            else self.images(self.step)
        )
        images = (
            glyphs.jitter(images, torch.Generator().manual_seed(seed))
            if self.experiment.augment
            else to_float(images)
        )
        return images.contiguous(memory_format=torch.channels_last), self.labels[index]

    def _gathered(self, embeddings: Tensor) -> Tensor:
        """The whole batch's embeddings, in its order: (B/W, d) on each of W devices -> (B, d).

        Going back, each device's own rows of ∂L/∂embeddings, which all devices have in full, go
        through its model. One process would sum over all rows; DDP takes the mean over the devices
        of their sums, hence the factor W. Fabric's gather would send the gradients around as well.
        """
        W = self.fabric.world_size
        if W == 1:
            return embeddings
        shares = [torch.empty_like(embeddings) for _ in range(W)]
        torch.distributed.all_gather(shares, embeddings.detach().contiguous())
        embeddings.register_hook(lambda gradient: gradient * W)
        shares[self.fabric.global_rank] = embeddings
        return torch.stack(shares, dim=1).flatten(0, 1)  # row i of device r is row i·W + r

    def _adjust_gradients(self) -> None:
        """None for a backbone that rests; the first device's, for what the objective learns."""
        if self.step < self.experiment.frozen_steps:
            for parameter in self.backbone:
                parameter.grad = None  # the optimizer passes over it, and its averages stay empty
        if self.fabric.world_size > 1:
            for parameter in self.objective.parameters():
                if parameter.grad is not None:  # equal but for the last bits of GPUs, which add up
                    torch.distributed.broadcast(parameter.grad, 0)

    def embed(self, images: data.ImageSet) -> np.ndarray:
        """As ``embed``, under the training's precision; DivergedError where one is not finite."""
        with self.fabric.autocast():
            x = embed(self.plain_model, images)
        check_embeddings(torch.from_numpy(x), self._after_step())
        return x

    def check_finite(self) -> float:
        """The last loss.

        Raises DivergedError, with the first such step, where a number of the record is not finite,
        or the norms are so large that float32 cannot hold their squares.
        """
        rows = self.record[: self.step].cpu()
        # Half precision scales its loss, and passes over a step whose gradient overflows by that.
        watched = rows[:, :3] if self.experiment.precision == "16-mixed" else rows
        bad = ~watched.isfinite()
        bad[:, 1] |= rows[:, 1] > LARGEST_NORM  # gradients have long been 0
        if bad.any():
            first = int(bad.any(dim=1).nonzero()[0])
            columns = zip(HISTORY, rows[first].tolist(), bad[first].tolist(), strict=False)
            names = [f"{name} became {x}" for name, x, is_bad in columns if is_bad]
            raise DivergedError(f"{', '.join(names)} at step {first + 1}{self._settings()}")
        return float(rows[-1, 0])

    def check_last_update(self) -> None:
        """DivergedError where the last update, which no step after it would show, left a parameter
        or an embedding that is not finite.
        """
        for part in (self.model, self.objective):
            for name, parameter in part.named_parameters():
                if not parameter.isfinite().all():
                    raise DivergedError(f"parameter {name} is not finite {self._after_step()}")
        few = self.train.images[:: max(1, len(self.train) // 32)]
        with self.fabric.autocast():
            check_embeddings(embed_batches(self.plain_model, [few]), self._after_step())

    def _after_step(self) -> str:
        return f"after step {self.step}{self._settings()}"

    def _settings(self) -> str:
        e, loss = self.experiment, self.objective
        name = type(loss.loss if isinstance(loss, Objective) else loss).__name__
        return (
            f" of {e.steps} (loss {name}, optimizer {e.optimizer!r}, lr {e.lr}): lower lr, or the "
            "weight of a constraint"
        )

    def history(self) -> pd.DataFrame:
        """One row a step so far."""
        frame = pd.DataFrame(self.record[: self.step].cpu().double().numpy(), columns=list(HISTORY))
        frame.insert(0, "step", np.arange(1, self.step + 1))
        for split, recalls in self.monitored.items():
            frame[f"{split}_recall_at_1"] = frame["step"].map(recalls)
        return frame

    def state(self) -> dict[str, Any]:
        """All that the remaining steps depend on."""
        return {
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "record": self.record,
            "monitored": self.monitored,
            "step": self.step,
            "sampler": self.sampler.state_dict() if self.sampler in self.refreshed else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state that ``state`` gave."""
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.record.copy_(state["record"])
        self.monitored, self.step = state["monitored"], state["step"]
        if self.sampler in self.refreshed:
            self.sampler.load_state_dict(state["sampler"])

    def save(self, path: Path) -> None:
        """Write a checkpoint: the SHA-256 of a packed state, then the state."""
        state = packed(self.state())
        content = hashlib.sha256(state).digest() + state
        write_whole({path: lambda beside: beside.write_bytes(content)})


def packed(value: object) -> bytes:
    """What ``torch.save`` writes; to a full disk it would write without saying which, and that."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, of which nothing is unpacked before its SHA-256 is found right.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not as it was written.
    """
    with path.open("rb") as file:
        seal, state = file.read(hashlib.sha256().digest_size), file.read()
    if hashlib.sha256(state).digest() != seal:
        raise ValueError("its SHA-256 is another than when it was written")
    return torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
