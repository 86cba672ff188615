"""What each of the two processes of test_distributed.py computes, and writes down for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from dmlkit import losses, training
from dmlkit.data import ImageSet
from dmlkit.training import Experiment, Trainer, devices

CLASSES, PER_CLASS, STEPS = 4, 4, 3
CASES = {entry.name: {"loss": entry.name} for entry in losses.entries()} | {
    "xbm of multi_similarity": {
        "loss": "xbm",
        "loss_args": {"loss": "multi_similarity", "size": 24, "start_step": 1},  # filled in step 3
    },
    "see of proxy_nca_pp, as it begins": {
        "loss": "spherical_expansion",
        "loss_args": {"loss": "proxy_nca_pp", "points": 4, "start_rate": 0.2, "steps": 3},
    },
    "htl, in batches of neighbors": {
        "loss": "htl",
        "loss_args": {"refresh_every": 2},
        "sampler": "neighbors",
        "sampler_args": {"groups": 2, "group_size": 2, "per_class": 4, "refresh_every": 1},
    },
    "sec, mean": {"loss": "triplet_all", "constraint": {"weight": 0.5}},
    "sec, ema": {
        "loss": "normalized_softmax",
        "constraint": {"weight": 0.5, "target": "ema", "momentum": 0.3},
    },
}
EXPERIMENT = Experiment(
    sampler_args={"classes": CLASSES, "per_class": PER_CLASS},
    dim=12,
    optimizer="sgd",
    lr=0.05,
    loss_lr_factor=2.0,
    steps=STEPS,
    precision="64-true",
    devices=2,
)


def images() -> ImageSet:
    """Six classes of ten random pictures."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)
    labels = np.repeat(np.arange(6), 10)
    return ImageSet(torch.from_numpy(pixels), labels, labels.astype(str), tuple("abcdef"))


def model(dim: int = 12, dropout: float = 0.0) -> nn.Module:
    """A network without BatchNorm, which would see each share of a batch by itself."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Flatten(), nn.Dropout(dropout), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, dim)
        return nn.Sequential(*layers)


def trainer(experiment: Experiment, fabric: Fabric) -> Trainer:
    train = images()
    objective = training.build_objective(experiment, train)
    return Trainer(experiment, model(), objective, train, fabric)


def steps(trained: Trainer) -> dict[str, list]:
    """Values, gradients and states, step after step."""
    found: dict[str, list] = {"values": [], "gradients": [], "states": []}
    for step in range(STEPS):
        with devices.repeatable_numerics(1):
            trained.advance()
        modules = trained.model, trained.objective
        parameters = [p for module in modules for p in module.parameters()]
        found["values"].append(trained.record[step, [0, 3]].clone())  # loss, gradient's norm
        found["gradients"].append([p.grad.clone() for p in parameters if p.grad is not None])
        states = [v.clone() for module in modules for v in module.state_dict().values()]
        found["states"].append(states)
    return found


class Noting(nn.Module):
    """A loss that keeps what it saw, and a random number."""

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.seen = embeddings.detach(), labels, torch.rand(3)
        return embeddings.square().mean()


def what_a_loss_sees(fabric: Fabric) -> dict[str, tuple]:
    found, plain = {}, images()
    white = replace(plain, images=torch.full_like(plain.images, 255))
    experiment = replace(EXPERIMENT, devices=fabric.world_size)
    for name, train, dropout in (("plain", plain, 0.0), ("dropout", white, 0.5)):
        noting = Noting()
        with devices.repeatable_numerics(1):
            Trainer(experiment, model(dropout=dropout), noting, train, fabric).advance()
        found[name] = noting.seen
    return found


def rounding(fabric: Fabric) -> torch.Tensor:
    """Proxies after steps in which one device's gradients came out a little differently."""
    trained = trainer(replace(EXPERIMENT, loss="proxy_nca"), fabric)
    (proxies,) = trained.objective.parameters()
    proxies.register_hook(lambda gradient: gradient * (1 + 1e-6 * fabric.global_rank))
    steps(trained)
    return proxies.detach()


def interruption(rank: int, checkpoint: Path) -> dict[str, object]:
    """A training, and the same one interrupted before its fourth step and gone on with."""
    experiment = replace(EXPERIMENT, loss="normalized_softmax", optimizer="adam", steps=6)
    advance, begun = Trainer.advance, []

    def interrupted(trained: Trainer) -> None:
        if trained.step == 3 and not begun.count(3):
            begun.append(3)
            raise KeyboardInterrupt
        begun.append(trained.step)
        advance(trained)

    def fit(checkpoint: Path | None) -> tuple:
        torch.manual_seed(rank)  # the first one's proxies must become everybody's
        loss, net = losses.build("normalized_softmax", num_classes=6, dim=12), model()
        history = training.fit(
            net, loss, images(), experiment, device="cpu", checkpoint=checkpoint, progress=False
        )
        return history.to_numpy(), [*net.parameters(), *loss.parameters()]

    unbroken = fit(None)
    Trainer.advance = interrupted
    try:
        fit(checkpoint)
    except KeyboardInterrupt:
        saved = checkpoint.exists() or rank > 0
    resumed = fit(checkpoint)
    return {"unbroken": unbroken, "resumed": resumed, "begun": begun, "saved": saved}


def main(folder: Path) -> dict[str, object]:
    """All of it, in one of the processes."""
    torch.set_default_dtype(torch.float64)
    fabric = training.open_fabric(EXPERIMENT, "cpu")
    alone = Fabric(accelerator="cpu", devices=1, precision="64-true")
    rank, found = fabric.global_rank, {}
    for name, changes in CASES.items():
        experiment = replace(EXPERIMENT, **changes)
        found[name] = {"joined": steps(trainer(experiment, fabric))}
        if rank == 0:
            found[name]["alone"] = steps(trainer(replace(experiment, devices=1), alone))
    found["sees"] = {"joined": what_a_loss_sees(fabric), "alone": what_a_loss_sees(alone)}
    found["rounding"] = rounding(fabric)
    found["interruption"] = interruption(rank, folder / "checkpoint")
    return found
