"""What distance means "same" for a Run: chosen on validation classes, measured on test classes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from dmlkit.data import load
from dmlkit.training import Run, device_type, embed
from dmlkit.verification import Verification, error_rates, verification


class Chosen(NamedTuple):
    """Thresholds, the split on which they were chosen, and their rates on that split and on test.

    ``why_test`` says why they were chosen on the test classes, if they were.
    """

    found: Verification
    split: str
    rates: dict[str, pd.DataFrame]
    why_test: str | None


def choose(run: Run, fmr: Sequence[float], device: str = "auto") -> Chosen:
    """The thresholds of a Run's embeddings at false match rates, with the error rates they have."""
    experiment, metric = run.experiment, run.experiment.metric

    def pairs(split: str) -> dict[str, Any]:
        images = load(experiment.data, split, **experiment.data_args)
        known = split == experiment.split
        x = run.embeddings if known else embed(run.model().to(device_type(device)), images)
        return images.retrieval_sets(x)

    try:
        load(experiment.data, "val", **experiment.data_args)
        split, why = "val", None
    except ValueError as error:
        split, why = "test", f"chosen on the test classes, and too good there: {error}"
    test = pairs("test")
    found = verification(**(pairs("val") if split == "val" else test), fmr=fmr, metric=metric)
    rates = {split: found.rates}
    rates["test"] = error_rates(**test, thresholds=list(found.rates["threshold"]), metric=metric)
    return Chosen(found, split, rates, why)
