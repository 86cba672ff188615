"""Pretrained networks fine-tuned whole on groceries: what notebook 24 shows of them.

``python -m studies.photographs`` trains the recipe on each fold, and small variants of it on the
validation classes of the first: half an hour. What is trained already is loaded.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

import dmlkit
from dmlkit import data, recipes, retrieval, training
from dmlkit.cli import terminal
from dmlkit.data import features, grocery
from dmlkit.files import write_whole
from dmlkit.training import Experiment

RECIPE = "photos_grocery_lite0"
#: Each changes one thing of the recipe, and is scored on validation classes.
VARIANTS: dict[str, dict[str, Any]] = {
    "the recipe": {},
    "no crop, mirror, color": {"data_args.scale": None, "data_args.flip": False, "color": 0.0},
    "the network rests": {"frozen_steps": 60},
    "BatchNorm learns": {"model_args.freeze_batch_norm": False},
}
#: As the recipe advises on a GPU: made on one, and kept where there is none.
ON_A_GPU = "fine-tuned, 224 pixels, H100"
_LARGE = {
    "data_args.crop": 224, "data_args.resize": 252, "precision": "bf16-mixed",
    "sampler_args": {"classes": 32, "per_class": 4},
}  # fmt: skip
_SHORT = {"steps": 60, "split": "val", "data_args.validation": True}


def experiments() -> Iterator[tuple[str, Experiment]]:
    """The recipe on each fold, then the variants, by name."""
    for fold in range(len(grocery.FOLDS)):
        yield "fine-tuned", recipes.load(RECIPE, settings={"data_args.fold": fold})
        if torch.cuda.is_available():
            yield ON_A_GPU, recipes.load(RECIPE, settings=_LARGE | {"data_args.fold": fold})
    for name, changes in VARIANTS.items():
        yield name, recipes.load(RECIPE, settings=_SHORT | changes)


def facts(name: str, experiment: Experiment, x: np.ndarray, seconds: float) -> dict[str, Any]:
    """A row of the table, of embeddings (N, d): Recall@1 is the mean over classes."""
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    found = retrieval.by_query(**images.retrieval_sets(x), metric="cosine")
    about = {"name": name, "split": experiment.split, "fold": experiment.data_args.get("fold", 0)}
    about |= {"steps": experiment.steps, "seed": experiment.seed, "seconds": round(seconds)}
    return about | {"recall_at_1": found["recall_at_1"].groupby("label").mean().mean()}


def baselines(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Rows of what learns nothing: raw pixels, and the network with random weights."""
    train, test = (data.load("grocery", s, **experiment.data_args) for s in ("train", "test"))
    random = replace(experiment, model_args={})
    with warnings.catch_warnings(action="ignore"):  # of random weights, which are meant
        network = training.embed(training.build_model(random, train), test)
    pixels = test.images.thumbnails().flatten(1).numpy()  # type: ignore[union-attr]
    yield facts("raw pixels", experiment, pixels, 0)
    yield facts("untrained network", experiment, network, 0)


def main() -> None:
    """Train, and write the table and what each fold's network makes of the classes that it tests.

    A row of the features is a photograph, embedded by the network that never saw its class.
    """
    listing = grocery.listed(grocery.located(data.default_root()))
    listing = listing.subset(listing.parts != "catalog")
    embedded, rows = np.zeros((len(listing.paths), 128), np.float32), []
    for name, experiment in experiments():
        run = training.run(experiment, device="cuda" if name == ON_A_GPU else "cpu")
        rows.append(facts(name, experiment, run.embeddings, run.seconds))
        terminal.console.print(str(rows[-1]))
        if name == "fine-tuned":
            tested = grocery.FOLDS[experiment.data_args["fold"]]
            embedded[np.isin(listing.ids, tested)] = run.embeddings
    features.write(features.FOLDER / f"grocery_{RECIPE}@128.npz", listing, embedded)
    rows += [row for name, e in experiments() if name == "fine-tuned" for row in baselines(e)]
    path = dmlkit.ROOT / "data" / "evidence" / "24_photographs.csv"
    if not torch.cuda.is_available():
        kept = pd.read_csv(path)
        rows += kept[kept["name"] == ON_A_GPU].to_dict("records")
    table = pd.DataFrame(rows).round({"recall_at_1": 6})
    write_whole({path: partial(table.to_csv, index=False)})


if __name__ == "__main__":
    main()
