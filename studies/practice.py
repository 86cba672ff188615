"""What the commands for one's own photographs rest on: galleries that grow, thresholds, steps.

``python -m studies.practice`` writes data/evidence/gallery_size.csv (two minutes on one core),
trained_products.csv (one minute) and practice_steps.csv (some fifteen minutes), each row as soon as
it is known; rows that are there are not made again. They need no photographs, but the features of
groceries that are kept here.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

import dmlkit
from dmlkit import data, openset, recipes, retrieval, training
from dmlkit.training import Experiment

FOLDER = dmlkit.ROOT / "data" / "evidence"
#: Of the gallery: what the model is fitted to, and what it is held against.
FITTED, TOLD = (20, 40, 81), (81, 200, 500, 600, 1000)
DRAWS, SHARE = 20, 0.1
KEPT = "tf_efficientnet_lite0@224"
Rows = Iterator[dict[str, Any]]


def gallery_size(there: set[tuple[str, ...]]) -> Rows:
    """Of many characters: Recall@1 measured, and told from fewer of them by ``openset.by_size``.

    The model was chosen by Glyphs, and then held against the others, once.
    """
    args = {"train_classes": 200, "val_classes": 0, "test_classes": 1000, "test_per_class": 10}
    other = {**args, "level": "hard", "class_split": 1}
    sets = {
        "glyphs": Experiment(data_args=args),
        "omniglot": Experiment(data="omniglot"),
        "hard glyphs": Experiment(loss="normalized_softmax", data_args=other),
    }
    for name, experiment in sets.items():
        images = data.load(experiment.data, "test", **experiment.data_args)
        queries, y = np.arange(len(images)) % 2 == 0, images.labels
        sizes = [n for n in TOLD if n <= images.num_classes]
        found = training.untrained(experiment)
        found["trained"] = training.run(experiment, wait=True).embeddings
        for network, x in found.items():
            met = openset.meet(x[queries], y[queries], x[~queries], y[~queries])
            measured = openset.by_size(met, sizes, SHARE).recall_at_1
            for C, draw in product(FITTED, range(DRAWS)):
                if (name, network, str(C), str(draw)) in there:
                    continue
                some = np.random.default_rng(draw).choice(images.num_classes, C, replace=False)
                told = openset.by_size(of_products(met, np.sort(some)), sizes, SHARE).recall_at_1
                key = {"set": name, "network": network, "fitted": C, "draw": draw}
                for n, was, said in zip(sizes, measured, told, strict=True):
                    yield {**key, "products": n, "measured": round(was, 4), "told": round(said, 4)}


def of_products(met: openset.Met, products: NDArray[np.integer]) -> openset.Met:
    """What is met where only these are in the gallery, and are asked for."""
    rows = np.isin(met.product, products)
    own, of = met.own[rows], met.product[rows]
    places = products[None] - (products[None] > of[:, None])  # among the others
    others = np.take_along_axis(met.others[rows], places.clip(max=met.others.shape[1] - 1), axis=1)
    keep = products[None] != of[:, None]
    return openset.Met(own, others[keep].reshape(len(own), -1), of)


def trained_products(there: set[tuple[str, ...]]) -> Rows:
    """How many strangers pass a threshold for a tenth, by the products whose strangers choose it.

    20 products are strangers to all; 61 are in the catalog. A head learns from 30 of these, and 31
    choose, as in a measured Run; from all, and all choose; from 49, and a fifth, which is kept
    apart, chooses. "right" is how many queries of the catalog are answered, and right. "low" and
    "high" are what ``openset.spread`` tells of the last, by products that did not train.
    """
    every = data.load("grocery", "test", fold=None, features=KEPT)
    x, y, asked = every.images[:].flatten(1), every.labels, every.queries
    assert asked is not None

    def met(z: NDArray[np.float32], of: NDArray[np.intp], sold: NDArray[np.intp]) -> Any:
        q, g = np.flatnonzero(asked & np.isin(y, of)), np.flatnonzero(~asked & np.isin(y, sold))
        s, own = z[q] @ z[g].T, y[q][:, None] == y[g]
        right = own[np.arange(len(q)), s.argmax(axis=1)]
        return np.where(own, -2, s).max(axis=1), y[q], s.max(axis=1), right

    for seed in range(DRAWS):
        if (str(seed),) in there:
            continue
        order = np.random.default_rng(seed).permutation(81)
        unknown, sold = order[:20], order[20:]
        ways = {
            "half": (sold[:30], sold[30:]),
            "none": (sold, sold),
            "fifth": (sold[12:], sold[:12]),
        }
        row: dict[str, Any] = {"seed": seed}
        for name, (learned, choose) in ways.items():
            z = head(x, y, learned, seed)
            likeness, product, *_ = met(z, choose, sold)
            t = openset.threshold(likeness, SHARE)
            _, _, best, right = met(z, sold, sold)
            row[f"{name} apart"] = round((met(z, unknown, sold)[0] > t).mean(), 4)
            row[f"{name} apart, right"] = round((right & (best > t)).mean(), 4)
        low, high = openset.spread(likeness, product, SHARE)
        yield row | {"low": round(low, 4), "high": round(high, 4)}


def head(
    x: torch.Tensor, y: NDArray[np.int64], classes: NDArray[np.intp], seed: int, steps: int = 200
) -> NDArray[np.float32]:
    """Embeddings (N, 128) of all by the head of notebook 26, which learned from some classes."""
    rows = np.flatnonzero(np.isin(y, classes))
    labels = torch.from_numpy(np.unique(y[rows], return_inverse=True)[1])
    mean = x[rows].mean(dim=0)
    scale = 10 / (x[rows] - mean).norm(dim=1).mean()
    centered = (x - mean) * scale
    torch.manual_seed(seed)
    linear, proxies = nn.Linear(x.shape[1], 128), nn.Parameter(torch.randn(len(classes), 128))
    rates = [{"params": linear.parameters(), "lr": 1e-3}, {"params": [proxies], "lr": 1e-2}]
    optimizer = torch.optim.AdamW(rates, weight_decay=1e-4)
    for _ in range(steps):
        batch = torch.randint(len(rows), (96,))
        cosines = F.normalize(linear(centered[rows][batch])) @ F.normalize(proxies).T
        loss = F.cross_entropy(cosines / 0.05, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return np.asarray(F.normalize(linear(centered)))


def steps(there: set[tuple[str, ...]]) -> Rows:
    """How long to train: heads on features of groceries, and networks from nothing on their pixels
    (32 a side), thinned.

    Recall@1 of 20 products that validate: none trained, none is tested on.
    """
    validation: dict[str, Any] = {"fold": 0, "validation": True, "third": 0}
    kinds = {
        "head": ("grocery", validation | {"features": KEPT}, "photos_features"),
        "network": ("grocery64", validation | {"side": 32}, "grocery64"),
    }
    thin = list(product((5, 10, 20, 40), (2, 10, 40)))
    sizes: dict[str, Any] = {
        "head": product(thin, (50, 100, 200, 400, 800, 1600)),
        "network": product(thin, (50, 200, 800)),
    }
    for kind, grid in sizes.items():
        name, args, recipe = kinds[kind]
        pool, val = (data.load(name, half, **args) for half in ("train", "val"))
        for (classes, each), length in grid:
            row = {"kind": kind, "classes": classes, "each": each, "steps": length}
            if tuple(map(str, row.values())) not in there:
                e = recipes.load(recipe, settings={"steps": length})
                yield row | fitted(e, thinned(pool, classes, each, 0), val)


def thinned(images: data.ImageSet, classes: int, each: int, seed: int) -> data.ImageSet:
    """Some of the classes, and at most so many pictures of each."""
    order = np.random.default_rng(seed).permutation(len(images))
    some = np.random.default_rng(seed).permutation(images.num_classes)[:classes]
    y = pd.Series(images.labels[order])
    rows = np.sort(order[(y.groupby(y).cumcount() < each) & y.isin(some)])
    labels = np.unique(images.labels[rows], return_inverse=True)[1]
    names = tuple(images.class_names[k] for k in np.unique(images.labels[rows]))
    shown = images.images[torch.from_numpy(rows)]
    return data.ImageSet(shown, labels, images.groups[rows], names)


def fitted(experiment: Experiment, train: data.ImageSet, test: data.ImageSet) -> dict[str, float]:
    """How well classes are found that did not train."""
    own = min(experiment.sampler_args["classes"], train.num_classes)
    e = replace(experiment, sampler_args={**experiment.sampler_args, "classes": own})
    model, objective = (
        training.build.build_model(e, train),
        training.build.build_objective(e, train),
    )
    training.fit(model, objective, train, e, device="cpu", progress=False)
    x = test.retrieval_sets(training.embed(model, test))
    recall = retrieval.recall_at_k(**x, ks=[1], metric="cosine")[1]
    return {"photographs": len(train), "recall_at_1": round(recall, 4)}


#: What is measured, and the columns that name a row.
STUDIES: Mapping[str, Any] = {
    "gallery_size": (gallery_size, ("set", "network", "fitted", "draw")),
    "trained_products": (trained_products, ("seed",)),
    "practice_steps": (steps, ("kind", "classes", "each", "steps")),
}


def write(name: str, folder: Path = FOLDER) -> Path:
    """Append the rows that are not there yet."""
    study, keys = STUDIES[name]
    path = folder / f"{name}.csv"
    there: set[tuple[str, ...]] = set()
    if path.exists():
        there = set(pd.read_csv(path, dtype=str)[list(keys)].itertuples(index=False, name=None))
    with path.open("a", newline="") as file:
        for row in study(there):
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)
            file.flush()
    return path


if __name__ == "__main__":
    for name in sys.argv[1:] or STUDIES:
        write(name)
