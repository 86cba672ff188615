"""Learning rates of lesson 06: each way of training by its own test on validation characters.

``python -m studies.prototypes`` writes data/evidence/06_rates.csv, a row after each training; rows
that are there are not made again. Some two minutes of one core. 300 characters train as in lesson
06, 100 validation characters judge with five images of each, twice for each rate: by the mean, and
as neighbors with the best temperature.
"""

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

import dmlkit
from dmlkit import data, models
from dmlkit.data.batches import PK
from studies.filling import Row, fill, missing

PATH = dmlkit.ROOT / "data" / "evidence" / "06_rates.csv"
STEPS, REPEATS, N = 150, 2, 5
WAYS, RATES = ("mean", "neighbors"), (0.00125, 0.0025, 0.005, 0.01, 0.02)
TEMPERATURES = (1, 1.4, 2, 2.8, 4, 5.6, 8)
KEYS = ["trained", "lr", "seed"]


def scores(f: Tensor, s: Tensor, mean: bool, T: float = 1.0) -> Tensor:
    """The score of each class: queries (Q, d), support (P, n, d) -> (Q, P).

    >>> s = torch.tensor([[[0.0], [2.0]], [[4.0], [4.0]]])
    >>> scores(torch.tensor([[0.0]]), s, mean=True)
    tensor([[ -1., -16.]])
    """
    s = s.mean(dim=1, keepdim=True) if mean else s
    D2 = torch.cdist(f, s.flatten(0, 1)).square()
    return (-D2 / T).view(len(f), len(s), -1).logsumexp(dim=2)


def right(x: Tensor, mean: bool, T: float = 1.0) -> float:
    """Share of right answers, (classes, images, d); each image is support once."""
    y, found = torch.arange(len(x))[:, None], []
    for shift in range(0, x.shape[1], N):
        support, queries = x.roll(shift, dims=1).split([N, x.shape[1] - N], dim=1)
        picked = scores(queries.flatten(0, 1), support, mean, T).argmax(dim=1).view(len(x), -1)
        found.append((picked == y).double().mean().item())
    return sum(found) / len(found)


def work(row: Row) -> Row:
    """One training, as the cells of lesson 06 do it, and both tests."""
    torch.set_num_threads(1)
    train, val = data.load("glyphs", "train"), data.load("glyphs", "val")
    images, unseen = (each.images[:].float() / 255 for each in (train, val))
    torch.manual_seed(row["seed"])
    model = models.ConvNet(dim=64).to(memory_format=torch.channels_last)
    batches = PK(train.labels, classes=10, per_class=8, seed=row["seed"])
    optimizer, y = torch.optim.Adam(model.parameters()), torch.arange(10).repeat_interleave(4)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = row["lr"] * min(1, (1 - step / STEPS) / 0.3)
        support, queries = model(images[batches(step)]).view(10, 8, -1).chunk(2, dim=1)
        loss = F.cross_entropy(scores(queries.flatten(0, 1), support, row["trained"] == "mean"), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x = torch.cat([model.eval()(part) for part in unseen.split(250)]).view(100, 20, -1)
        at = {T: right(x, False, T) for T in TEMPERATURES}
        best = max(at, key=lambda T: at[T])
        return {"mean": round(right(x, True), 6), "neighbors": round(at[best], 6), "T": best}


def waiting(table: pd.DataFrame) -> list[Row]:
    """What is not there yet."""
    asked = [
        dict(zip(KEYS, (way, lr, seed), strict=True))
        for way in WAYS for lr in RATES for seed in range(REPEATS)
    ]  # fmt: skip
    return missing(table, KEYS, asked)


if __name__ == "__main__":
    fill(PATH, KEYS, waiting, work)
