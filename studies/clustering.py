"""What lesson 07 keeps: `python -m studies.clustering` makes data/evidence/07_clustering.json.

Structured clustering and semi-hard triplets: learning rates and margins on validation characters,
after 150 and after 600 steps; then 600 steps with the best of each, six times, each with other test
characters. What is there is not trained again.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

import dmlkit
from dmlkit import data, figures, geometry, losses, models
from dmlkit.data.batches import PK
from dmlkit.files import write_whole

FILE = dmlkit.ROOT / "data" / "evidence" / "07_clustering.json"
SHORT, LONG, REPEATS, PARTS = 150, 600, 2, 6
MARGINS = {SHORT: (1, 5, 25, 125), LONG: (5, 25)}
RATES = {SHORT: (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08), LONG: (0.0025, 0.005, 0.01, 0.02)}
TRIPLETS = "semi-hard triplets"


def loss_of(kind: str) -> nn.Module:
    """The loss of a row: a margin, "γ = 5", with the paper's swaps or without, or triplets.

    >>> loss_of("γ = 5").gamma, loss_of("γ = 5, with swaps").pam_steps
    (5.0, 5)
    """
    if kind == TRIPLETS:
        return losses.build("triplet_semihard", margin=0.2)
    margin, _, swaps = kind.removeprefix("γ = ").partition(", ")
    return losses.StructuredClusteringLoss(gamma=float(margin), pam_steps=5 if swaps else 0)


def recall(x: Tensor, labels: NDArray[np.intp]) -> float:
    """Recall@1 in percent, each image against all others."""
    x, y = geometry.normalize(x.double()), torch.from_numpy(labels)
    return 100 * (y[(x @ x.T).fill_diagonal_(-2).argmax(dim=1)] == y).double().mean().item()


def train(
    kind: str, lr: float, seed: int, steps: int, images: Tensor, labels: NDArray[np.intp]
) -> nn.Module:
    """A network, trained as the cells of lesson 07 train it."""
    torch.manual_seed(seed)
    model = models.ConvNet(dim=64).to(memory_format=torch.channels_last)
    batches, loss = PK(labels, classes=16, per_class=4, seed=seed), loss_of(kind)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * min(1, (steps - step) / (0.3 * steps))
        i = batches(step)
        value = loss(model(images[i]), torch.from_numpy(labels[i]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model.eval()


def score(model: nn.Module, images: Tensor, labels: NDArray[np.intp]) -> float:
    """Recall@1 of a network on these images."""
    with torch.no_grad():
        return recall(torch.cat([model(part) for part in images.split(250)]), labels)


def designs() -> Iterator[tuple[str, float, int, int]]:
    """Kind, rate, seed and steps of all trainings that validation characters judge."""
    for steps, margins in MARGINS.items():
        for kind in [f"γ = {each}" for each in margins] + [TRIPLETS]:
            for lr in RATES[steps]:
                yield from ((kind, lr, seed, steps) for seed in range(REPEATS))
    yield from (("γ = 5, with swaps", 0.01, seed, SHORT) for seed in range(REPEATS))


def main(file: Path = FILE) -> None:
    """Train what is missing, and write the record after each training."""
    torch.set_num_threads(1)
    record = json.loads(file.read_text("utf-8")) if file.exists() else {}
    record |= {key: record.get(key, {}) for key in ("validation", "test")}
    own, seen, unseen = (data.load("glyphs", part) for part in ("train", "val", "test"))
    images = own.images.float() / 255
    for kind, lr, seed, steps in tqdm(list(designs()), "search"):
        key = f"{kind}/{lr}/{seed}/{steps}"
        if key not in record["validation"]:
            model = train(kind, lr, seed, steps, images, own.labels)
            found = score(model, seen.images.float() / 255, seen.labels)
            record["validation"][key] = round(found, 4)
            write_whole(file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    pool = torch.cat([images, unseen.images.float() / 255])
    labels = np.hstack([own.labels, 300 + unseen.labels])
    place = np.hstack([np.arange(len(s)) % (len(s) // s.num_classes) for s in (own, unseen)])
    parts = np.array_split(np.random.default_rng(0).permutation(400), PARTS)
    for k in tqdm(range(PARTS), "test"):
        tested = np.isin(labels, parts[k])
        rows, asked = np.flatnonzero(~tested), np.flatnonzero(tested & (place < 20))
        for kind, lr in best(record["validation"]).items():
            key = f"{kind}/{lr}/{k}/{LONG}"
            if key not in record["test"]:
                y = np.unique(labels[rows], return_inverse=True)[1]
                model = train(kind, lr, 10 + k, LONG, pool[rows], y)
                record["test"][key] = round(score(model, pool[asked], labels[asked]), 4)
                write_whole(file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def best(validation: dict[str, float]) -> dict[str, float]:
    """The margin and rate, and the rate of triplets, that find most after the long training."""

    def first(*kinds: str) -> tuple[str, float]:
        def mean(each: tuple[str, float]) -> float:
            return sum(validation[f"{each[0]}/{each[1]}/{seed}/{LONG}"] for seed in range(REPEATS))

        return max(itertools.product(kinds, RATES[LONG]), key=mean)

    return dict([first(*(f"γ = {each}" for each in MARGINS[LONG])), first(TRIPLETS)])


if __name__ == "__main__":
    main()
