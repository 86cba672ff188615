"""When training harms: groceries with few classes and few photographs, against a frozen network.

``python -m studies.thinned`` writes data/evidence/25_thinned.csv, a row for each way, cell and
fold; what is there already is not made anew, so that it can be broken off. A cell is so many
classes of a fold's training part, and so many photographs of each. Heads need no photographs; whole
networks need the archive. Steps and ridge are chosen by a third of the training classes, which is
held out; 60 classes leave none to hold out, and take what 40 took. Some ten minutes of one quiet
core for heads, ten for whole networks at 128 pixels.

**Whole networks at 224 pixels**: rules committed before any training by them; some 90 minutes of
one core. Known by then: at 128 pixels 60 steps from 5 classes x 10 photographs brought a network
6.7 points over itself, to where untouched features of 224 pixels are; at 224 pixels 60 classes with
all their photographs brought 13.4 (that is the positive control: this recipe can gain). Steps stay
at 60 and all else as in that recipe, photos_grocery_lite0; nothing is searched. Three draws of
photographs (5 x 10) with a training each are made; one of 20 x 10 was planned, and not made. The
first draw was known (+7.1 points) when the other two began. The unit is a class, its mean over
draws; intervals are t-intervals over the 81 classes, and one point matters. Beside them stands the
interval over the draws, each the mean over the classes.

- Asked first: 5 x 10, all the way, minus untouched. Its interval above 0, and the mean at least 1:
  *train it*; below 0: *leave it*; its upper end below 1: *no gain that matters*; else open.
- Asked second: halfway (WiSE-FT) minus all the way, 5 x 10. Above 0: halfway is the safer way.
- Asked third: of classes that have kin, the same coarse class, among those tested in their fold:
  how often the nearest photograph of another class is of that coarse class, all the way minus
  untouched. Below 0: something is forgotten.
"""

import copy
import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dmlkit
from dmlkit import data, losses, recipes, training
from dmlkit.cli import terminal
from dmlkit.data import ImageSet, grocery
from dmlkit.files import write_whole
from studies.networks import whitening
from studies.practice import KEPT

PATH = dmlkit.ROOT / "data" / "evidence" / "25_thinned.csv"
CLASSES, EACH = (5, 10, 20, 40, 60), (2, 5, 10, 20, 40)
STEPS, RIDGES, RATE = (20, 60, 200), (0.1, 1.0), 3e-4
#: Whole networks: classes, photographs of each, pixels and draw; their steps; and how far weights
#: go from untouched (0, for the first draw) to trained (1).
WHOLE = ((5, 10, 128, 0), *((5, 10, 224, draw) for draw in range(3)))
WHOLE_STEPS, SHARES = 60, (0.0, 0.5, 1.0)
COLUMNS = ["arm", "fold", "measure", "setting", "held_out", "mean", "by_class"]


def rows_of(images: ImageSet, classes: int, each: int, seed: int) -> np.ndarray:
    """So many photographs of so many classes, drawn; of a class that has fewer all."""
    rng = np.random.default_rng(seed)
    some = rng.permutation(images.num_classes)[:classes]
    order = rng.permutation(len(images))
    y = pd.Series(images.labels[order])
    return np.sort(order[(y.groupby(y).cumcount() < each) & y.isin(some)])


def vectors(images: ImageSet) -> Tensor:
    """Features (N, D) of length 1."""
    return F.normalize(torch.as_tensor(images.images[:]).flatten(1))


def principal(x: Tensor) -> nn.Linear:
    """The head that turns features (N, D), seen from their mean, to their 128 principal axes."""
    layer = nn.Linear(x.shape[1], 128)
    with torch.no_grad():
        layer.weight.copy_(torch.linalg.eigh(x.T.cov())[1][:, -128:].T)
        layer.bias.copy_(-layer.weight @ x.mean(dim=0))
    return layer


def head(
    x: Tensor, labels: Tensor, z: Tensor, seed: int, start: nn.Linear | None = None
) -> dict[int, Tensor]:
    """Embeddings (M, 128) of z by a linear head on x, after each number of steps.

    It begins as start, else at random values and seen from the mean of x.
    """
    torch.manual_seed(seed)
    mean, found = x.mean(dim=0), {}
    layer = nn.Linear(x.shape[1], 128)
    if start is not None:
        mean, layer = torch.zeros_like(mean), copy.deepcopy(start)
    loss = losses.build("normalized_softmax", num_classes=int(labels.max()) + 1, dim=128,
                        temperature=1 / 8)  # fmt: skip
    rates: Any = [
        {"params": layer.parameters(), "lr": RATE},
        {"params": loss.parameters(), "lr": 10 * RATE},
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=1e-4)
    for step in range(1, STEPS[-1] + 1):
        batch = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        loss(layer(x[batch] - mean), labels[batch]).backward()
        optimizer.step()
        if step in STEPS:
            found[step] = F.normalize(layer(z - mean)).detach()
    return found


def ways(
    train: ImageSet, cell: tuple[int, int], test: ImageSet, seed: int, start: nn.Linear | None
) -> Iterator[Any]:
    """Each way and setting, with what it makes of the photographs of test.

    With a start only the head that begins so.
    """
    rows = rows_of(train, *cell, seed)
    x, z = vectors(train), vectors(test)
    labels = torch.from_numpy(np.unique(train.labels[rows], return_inverse=True)[1])
    if start is not None:
        for step, f in head(x[rows], labels, z, seed, start).items():
            yield ("head from principal axes", step), f
        return
    for step, f in head(x[rows], labels, z, seed).items():
        yield ("head", step), f
        yield ("head and untouched", step), torch.cat([f, z], dim=1)  # the mean of both cosines
    for ridge, layer in zip(RIDGES, whitening(x[rows], labels, RIDGES, 0), strict=True):
        yield ("whitening", ridge), layer(z)


def scored(f: Any, test: ImageSet) -> pd.Series:
    """Recall@1 of each class, on another visit."""
    z, q, y = F.normalize(torch.as_tensor(f)), test.queries, test.labels
    assert q is not None
    found = y[~q][(z[q] @ z[~q].T).argmax(dim=1)]
    return pd.Series(found == y[q]).groupby(y[q]).mean().set_axis(test.class_names)


def heads(fold: int, turned: bool) -> Iterator[dict[str, Any]]:
    """Rows of all cells of a fold: what is chosen by held-out classes, then scored on the test.

    If turned, heads begin as the principal axes of all photographs that they may learn from,
    without their labels.
    """
    load = partial(data.load, "grocery", features=KEPT, fold=fold)
    train, test = load("train"), load("test")
    part, held = (load(half, validation=True, third=0) for half in ("train", "val"))
    starts = [principal(vectors(own)) if turned else None for own in (part, train)]
    pairs = list(zip((part, train), (held, test), starts, strict=True))
    first = [scored(start(z) if start else z, other)
             for _, other, start in pairs for z in (vectors(other),)]  # fmt: skip
    row = {"arm": "principal axes" if turned else "untouched", "setting": 0}
    yield row | {"held_out": first[0].mean(), "by_class": first[1]}
    for C, n in product(CLASSES, EACH):
        tried, found = (
            {key: scored(f, other) for key, f in ways(own, (C, n), other, fold, start)}
            for own, other, start in pairs
        )
        for way in dict.fromkeys(way for way, _ in found):
            means = {setting: tried[w, setting].mean() for w, setting in found if w == way}
            best = max(means, key=means.__getitem__)
            row = {"arm": f"{way}, {C} × {n}", "setting": best, "held_out": means[best]}
            yield row | {"by_class": found[way, best]}


def kindred(f: Any, test: ImageSet) -> pd.Series:
    """How often the nearest photograph of another class, on another visit, is of the same coarse
    class, by class; of classes that have such kin."""
    z, q, y, coarse = F.normalize(torch.as_tensor(f)), test.queries, test.labels, test.groups
    assert q is not None
    s = (z[q] @ z[~q].T).masked_fill(torch.from_numpy(y[q][:, None] == y[~q]), -2)
    hit = pd.Series(coarse[~q][s.argmax(dim=1)] == coarse[q]).groupby(y[q]).mean()
    has = pd.Series(y).groupby(coarse).transform("nunique").groupby(y).first() > 1
    return hit.set_axis(test.class_names)[has.to_numpy()]


def named(C: int, n: int, pixels: int, draw: int) -> str:
    """What a whole network is called in the table, before how far its weights went."""
    more = f", {pixels} pixels, draw {draw}" if pixels > 128 else ""
    return f"whole network, {C} × {n}{more}"


def whole(fold: int, C: int, n: int, pixels: int, draw: int) -> Iterator[dict[str, Any]]:
    """Rows of a network that was fine-tuned whole, and of weights between it and untouched."""
    settings: dict[str, Any] = {"steps": WHOLE_STEPS, "data_args.fold": fold, "seed": draw}
    settings |= {"data_args.crop": pixels, "data_args.resize": pixels * 9 // 8}
    settings |= {"sampler_args": {"classes": min(C, 16), "per_class": 4}}
    e = recipes.load("photos_grocery_lite0", settings=settings)
    train, test = (data.load("grocery", half, **e.data_args) for half in ("train", "test"))
    some = thin(train, rows_of(train, C, n, seed=fold + len(grocery.FOLDS) * draw))
    model: Any = training.build.build_model(e, some)
    before = copy.deepcopy(model.backbone.state_dict())
    objective = training.build.build_objective(e, some)
    training.fit(model, objective, some, e, device="cpu", progress=False)
    after = copy.deepcopy(model.backbone.state_dict())
    model.head = nn.Identity()
    for share in SHARES[draw > 0 :]:
        model.backbone.load_state_dict(between(before, after, share))
        f = training.embed(model, test)
        for measure, found in (("recall_at_1", scored(f, test)), ("coarse_at_1", kindred(f, test))):
            arm = f"{named(C, n, pixels, draw)}, {share:g}"
            yield {"arm": arm, "measure": measure, "setting": share, "by_class": found}


def between(before: dict[str, Tensor], after: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Weights on the straight line from one network to another (WiSE-FT; counts stay)."""
    return {
        name: torch.lerp(value, after[name], share) if value.is_floating_point() else value
        for name, value in before.items()
    }


def thin(images: ImageSet, rows: np.ndarray) -> ImageSet:
    """Some photographs, still as files."""
    old, labels = np.unique(images.labels[rows], return_inverse=True)
    names = tuple(images.class_names[k] for k in old)
    pictures: Any = images.images
    return ImageSet(pictures.subset(rows), labels, images.groups[rows], names)


def main() -> None:
    """Measure what is missing, and write the table after each part."""
    torch.set_num_threads(1)
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame(columns=COLUMNS)
    folds = range(len(grocery.FOLDS))
    parts = [("untouched", fold, partial(heads, fold, turned=False)) for fold in folds]
    parts += [("principal axes", fold, partial(heads, fold, turned=True)) for fold in folds]
    parts += [
        (f"{named(*of)}, 1", fold, partial(whole, fold, *of)) for of, fold in product(WHOLE, folds)
    ]
    for arm, fold, measured in parts:
        if ((table["arm"] == arm) & (table["fold"] == fold)).any():
            continue
        new = pd.DataFrame(measured())
        new = new.assign(fold=fold, measure=new.get("measure", "recall_at_1"))
        new["mean"] = [each.mean() for each in new["by_class"]]
        new["by_class"] = [json.dumps(each.round(4).to_dict()) for each in new["by_class"]]
        table = pd.concat([table, new.round(4)]).reindex(columns=COLUMNS)
        write_whole({PATH: partial(table.to_csv, index=False)})
        terminal.console.print(new.drop(columns="by_class").to_string(header=False, index=False))


if __name__ == "__main__":
    main()
