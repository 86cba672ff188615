"""The page's training in torch alone: what its graphs must equal, and what the film shows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course.explainer import graphs, step
from course.explainer.images import Images
from dmlkit.losses.spherical import SphericalConstraint


@dataclass(frozen=True)
class Settings:
    """What the page lets its reader choose."""

    loss: str
    numbers: dict[str, float] = field(default_factory=dict)  # of the loss
    classes: int = 8  # of a batch
    dim: int = 3
    lr: float = 0.003
    sec: float = 0.0
    seed: int = 1


def embed(weights: Sequence[Tensor], dim: int, images: Tensor) -> Tensor:
    """Embeddings (B, DIM) of images (B, C, 16, 16) uint8, by torch's own convolutions."""
    x = images.expand(-1, step.CHANNELS, -1, -1).double() / 255
    x = x - x.mean((1, 2, 3), keepdim=True)
    x = x / (x.square().mean((1, 2, 3), keepdim=True) + step.FAINT).sqrt()
    for w, b in zip(weights[0:6:2], weights[1:6:2], strict=True):
        kernel = w.view(len(w), 3, 3, -1).permute(0, 3, 1, 2)
        x = F.conv2d(x, kernel, b, stride=2, padding=1).relu()
    last = F.linear(x.permute(0, 2, 3, 1).flatten(1), *weights[6:])
    return F.pad(last[:, :dim], (0, step.DIM - dim))


def train(images: Images, settings: Settings) -> Iterator[tuple[float, Callable[[], Tensor]]]:
    """The loss of each step, and what embeds the unseen images after it, without an end."""
    start = torch.from_numpy(step.begin(settings.seed, settings.dim))
    *parts, own = start.split([*step.SIZES, step.PROXIES])
    weights = [
        nn.Parameter(part.reshape(shape)) for part, shape in zip(parts, step.SHAPES, strict=True)
    ]
    loss = graphs.build(settings.loss, **settings.numbers)
    for proxies in loss.parameters():
        proxies.data.copy_(own.view(step.CLASSES, step.DIM))
    groups = [{"params": weights, "lr": settings.lr}]
    groups.append({"params": [*loss.parameters()], "lr": settings.lr * step.PROXY_RATE})
    optimizer = torch.optim.Adam([group for group in groups if group["params"]], eps=step.EPSILON)
    constraint, k = SphericalConstraint(settings.sec), 0

    @torch.no_grad()
    def unseen() -> Tensor:
        return embed(weights, settings.dim, images.unseen)

    while True:
        k += 1
        per_class = step.BATCH // settings.classes
        labels, places = step.batch(settings.seed, k, settings.classes, per_class)
        batch = images.train[torch.from_numpy(labels * step.IMAGES + places)]
        points = embed(weights, settings.dim, batch)
        value = loss(points, torch.from_numpy(labels)) + constraint(points)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        yield float(value.detach()), unseen
