"""Fine-tuned on photographs: variants never see a test class, and what is kept agrees."""

import numpy as np
import pandas as pd
import pytest

import dmlkit
from dmlkit import data, retrieval
from dmlkit.data import grocery
from studies.photographs import RECIPE, experiments


def test_variants_are_scored_on_classes_that_no_fold_has_tested_yet() -> None:
    every = data.load("grocery", "test", fold=None, features="tf_efficientnet_lite0@128")
    tested = {every.class_names[c] for c in grocery.FOLDS[0]}
    chosen = [e for _, e in experiments() if e.split == "val"]
    assert len({e.hash() for e in chosen}) == len(chosen) == 4
    for experiment in chosen:
        args = {key: experiment.data_args.get(key, 0) for key in ("fold", "validation")}
        val = data.load("grocery", "val", features="tf_efficientnet_lite0@128", **args)
        assert not tested & set(val.class_names)


@pytest.mark.parametrize("fold", range(4))
def test_what_is_kept_of_a_network_scores_as_the_network_did(fold: int) -> None:
    test = data.load("grocery", "test", fold=fold, features=f"{RECIPE}@128")
    x = test.images.flatten(1).numpy()
    found = retrieval.by_query(**test.retrieval_sets(x), metric="cosine").recall_at_1
    table = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "24_photographs.csv")
    (row,) = table[(table["name"] == "fine-tuned") & (table.fold == fold)].recall_at_1
    assert np.isclose(found.groupby("label").mean().mean(), row, atol=0.01)
