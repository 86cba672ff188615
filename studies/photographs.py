"""Pretrained networks fine-tuned whole on groceries: what notebook 24 shows of them.

``python -m studies.photographs`` trains the recipe on each fold, and small variants of it on the
validation classes of the first: half an hour. What is trained already is loaded.

``python -m studies.photographs crops`` writes data/evidence/24_crops.json, six minutes of one core:
does the whole network gain by its layers, or by its crops? **Rule**, committed before the run. At
128 pixels three views of each photograph are drawn as the recipe draws them (cropped, mirrored,
recolored; its 200 steps meet a photograph three times), and pass once through the untouched
network. A head learns from these views by the recipe's loss, batches and schedule, its rate one of
three, chosen on validation classes; a second head learns so from the one plain view. The quantity
is the whole network (``fine-tuned``, known) minus the head on crops, Recall@1 in points, with a
95 % interval over the four folds: above 0 *layers help beyond crops*, else *open*. Three seeds a
head. Known before: heads of one view, of 300 steps without schedule, are 11.3 points behind.
"""

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import dmlkit
from dmlkit import data, losses, recipes, retrieval, training
from dmlkit.cli import terminal
from dmlkit.data import features, grocery
from dmlkit.data.batches import PK
from dmlkit.data.pictures import recolor
from dmlkit.files import write_whole
from dmlkit.lessons.what_came_after import pretrained
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


VIEWS, RATES, SEEDS, STEPS, PLAIN = 3, (3e-4, 1e-3, 3e-3), 3, 200, "tf_efficientnet_lite0@128"


def view(number: int) -> torch.Tensor:
    """Features (N, 1280) of all photographs, each cropped, mirrored and recolored anew; kept."""
    kept = dmlkit.cache_folder() / f"24_view{number}.pt"
    if kept.exists():
        return torch.load(kept)
    pictures = data.load(
        "grocery", "test", fold=None, crop=128, resize=144, scale=[0.5, 1.0]
    ).images
    parts = torch.arange(len(pictures)).split(64)
    batch = pictures.stream(  # type: ignore[union-attr]
        lambda step: parts[step].numpy(), number, len(parts), torch.device("cpu")
    )
    network, fresh = pretrained(), torch.Generator().manual_seed(number)
    with torch.no_grad():
        found = [network(recolor(batch(k).float() / 255, fresh, 0.2)) for k in range(len(parts))]
    torch.save(torch.cat(found), kept)
    return torch.cat(found)


def head_of(seen: torch.Tensor, labels: np.ndarray, rate: float, seed: int) -> nn.Linear:
    """A head by the recipe's schedule, from views (V, N, 1280): one of each is drawn at a step."""
    torch.manual_seed(seed)
    head, y = nn.Linear(1280, 128), torch.from_numpy(labels)
    loss = losses.build("proxy_anchor", num_classes=int(y.max()) + 1, dim=128)
    groups = [{"params": head.parameters()}, {"params": loss.parameters(), "lr": 10 * rate}]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / 20, (1 - s / STEPS) / 0.3)
    )
    batches, draws = PK(labels, classes=16, per_class=4, seed=seed), np.random.default_rng(seed)
    for step in range(STEPS):
        i = batches(step)
        which = draws.integers(len(seen), size=len(i))
        loss(head(seen[which, i]), y[i]).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return head.requires_grad_(False)


def crops() -> None:
    """Heads on views as the recipe draws them, and on the plain view, in all folds."""
    every = data.load("grocery", "test", fold=None, features=PLAIN)
    names = np.array(every.class_names)[every.labels]
    plain = every.images.flatten(1)
    views = {"crops": torch.stack([*map(view, range(VIEWS))]), "one view": plain[None]}
    table: dict[str, list[Any]] = {name: [] for name in views}

    def part(split: str, fold: int, **more: Any) -> tuple[Any, np.ndarray]:
        found = data.load("grocery", split, fold=fold, features=PLAIN, **more)
        rows = np.flatnonzero(np.isin(names, found.class_names))
        assert torch.equal(found.images.flatten(1), plain[rows])
        return found, rows

    def scores(head: nn.Linear, images: Any, rows: np.ndarray) -> dict[str, float]:
        sets = images.retrieval_sets(head(plain[rows]).numpy())
        found = retrieval.by_query(**sets, metric="cosine")["recall_at_1"].groupby("label").mean()
        return {images.class_names[k]: round(100 * v, 3) for k, v in found.items()}

    for fold in range(len(grocery.FOLDS)):
        (few, few_rows), (val, val_rows) = (
            part(s, fold, validation=True) for s in ("train", "val")
        )
        (train, rows), (test, test_rows) = (part(s, fold) for s in ("train", "test"))
        for name, seen in views.items():
            tried = {}
            for rate in RATES:
                head = head_of(seen[:, few_rows], few.labels, rate, 0)
                tried[rate] = np.mean([*scores(head, val, val_rows).values()])
            best = max(RATES, key=lambda rate: tried[rate])
            heads = [head_of(seen[:, rows], train.labels, best, seed) for seed in range(SEEDS)]
            found = [scores(head, test, test_rows) for head in heads]
            table[name].append({"rate": best, "by_class": found})
            mean = np.mean([[*each.values()] for each in found])
            terminal.console.print(f"fold {fold}, {name}: rate {best:g}, {mean:.1f} %")
    path = dmlkit.ROOT / "data" / "evidence" / "24_crops.json"
    text = json.dumps(table, separators=(",", ":")) + "\n"
    write_whole({path: partial(Path.write_text, data=text, encoding="utf-8")})


if __name__ == "__main__":
    crops() if sys.argv[1:] == ["crops"] else main()
