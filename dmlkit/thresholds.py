"""What distance means "same" for a Run: chosen on validation classes, measured on test classes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from dmlkit.data import load
from dmlkit.training import Run, device_type, embed
from dmlkit.verification import Verification, error_rates, verification

#: What is shown of error rates, and under which names.
RATES = {"fmr": "FMR (%)", "fnmr": "FNMR (%)", "fnmr_macro": "FNMR, mean of classes (%)"}


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


def rows(rates: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, ...]]:
    """The FMR asked for, the split, its threshold, and each of ``RATES`` with its interval.

    ``rates`` are error rates by split, (thresholds, rates) each, of the same FMR row by row.
    """
    for i, asked in enumerate(next(iter(rates.values())).index):
        for split, table in rates.items():
            row = table.iloc[i]
            shown = (_percent(row, name) for name in RATES)
            yield (f"{asked:g}", split, f"{row['threshold']:.9g}", *shown)  # all of a float32


def _percent(row: pd.Series, name: str) -> str:
    """A rate and its interval."""
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"
