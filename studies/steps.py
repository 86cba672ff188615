"""Recall@1 of the recipe ``grocery64`` against its steps, beside what needs no training.

``python -m studies.steps`` writes data/evidence/grocery64_steps.csv and the tables of
docs/grocery64.md; what is there already is not
made anew, so that it can be broken off. Steps are looked at on validation classes alone; the four
folds' test classes are scored by the recipe as it is. Some 25 minutes of one quiet core.
"""

import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import dmlkit
from dmlkit import data, recipes, retrieval, training
from dmlkit.cli import terminal
from dmlkit.data import ImageSet, grocery
from dmlkit.files import write_between, write_whole
from dmlkit.training import Experiment

PATH = dmlkit.ROOT / "data" / "evidence" / "grocery64_steps.csv"
PAGE = dmlkit.ROOT / "docs" / "grocery64.md"
ABOUT = ("seen", "split", "fold")
STEPS = (200, 400, 800, 1500, 3000)
#: What has the same Recall@1 whatever is seen.
ALIKE = ("chance", "coarse class alone", "untouched Lite0")
#: What else than the recipe is tried: less of each photograph.
SETS: dict[str, dict[str, Any]] = {
    "color": {},
    "gray": {"data_args.gray": True},
    "color, 32 pixels": {"data_args.side": 32},
    "gray, 32 pixels": {"data_args.gray": True, "data_args.side": 32},
}


def experiments() -> Iterator[tuple[str, Experiment]]:
    """The recipe on each fold, by what of a photograph is seen; then its steps, on validation."""
    for name, changes in SETS.items():
        for fold in range(len(grocery.FOLDS)):
            yield name, recipes.load("grocery64", settings=changes | {"data_args.fold": fold})
    for name, changes in SETS.items():
        for steps in STEPS:
            more = {"steps": steps, "split": "val", "data_args.validation": True}
            yield name, recipes.load("grocery64", settings=changes | more)


def recall(images: ImageSet, x: np.ndarray) -> float:
    """Recall@1 of embeddings (N, d) by cosine, as a mean over classes."""
    found = retrieval.by_query(**images.retrieval_sets(x), scores=["recall_at_1"], metric="cosine")
    return found.groupby("label")["recall_at_1"].mean().mean()


def trained(experiment: Experiment) -> dict[str, Any]:
    """Recall@1 after training on one core, its milliseconds a step, and the process's megabytes."""
    e = experiment
    train, images = (data.load(e.data, split, **e.data_args) for split in ("train", e.split))
    model, objective = training.build_model(e, train), training.build_objective(e, train)
    began = time.process_time()
    training.fit(model, objective, train, e, device="cpu")
    used = time.process_time() - began  # not the clock's: others may have the core meanwhile
    return {
        "recall_at_1": recall(images, training.embed(model, images)),
        "milliseconds": 1000 * used / e.steps,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def untrained(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """What needs no training, and its Recall@1."""
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    for name, x in training.untrained(experiment, "cpu").items():
        yield {"name": name, "steps": 0, "recall_at_1": recall(images, x)}


def tables(table: pd.DataFrame) -> dict[str, str]:
    """What docs/grocery64.md shows between its marks, in Markdown, of what is there so far."""
    once = (table["seen"] == "color") | ~table["name"].isin(ALIKE)
    tested = table[once & (table["split"] == "test")].assign(
        percent=lambda t: 100 * t["recall_at_1"]
    )
    folds = tested.pivot(index=["seen", "name"], columns="fold", values="percent")
    means = folds.mean(axis=1, skipna=False)
    rows = [
        f"| {seen}: {name} | {' | '.join(map(_shown, row))} | {_shown(means[seen, name])} |"
        for (seen, name), row in zip(folds.index, folds.to_numpy(), strict=True)
    ]
    head = "| | fold 0 | 1 | 2 | 3 | mean |\n|---|---|---|---|---|---|"
    parts = {
        mark: "\n".join([head, *(row for row in rows if (": proxy_anchor" in row) == learned)])
        for mark, learned in (("baselines", False), ("trained", True))
    }
    looked = table[(table["split"] == "val") & (table["steps"] > 0)]
    lines = [
        f"| {row.seen} | {row.steps} | {_shown(100 * row.recall_at_1)} | {row.milliseconds:.0f} | "
        f"{row.steps * row.milliseconds / 1000:.0f} |"
        for row in looked.itertuples()
    ]
    head = "| | steps | Recall@1 | ms a step | s |\n|---|---|---|---|---|"
    return parts | {"steps": "\n".join([head, *lines])}


def _shown(percent: float) -> str:
    return "" if np.isnan(percent) else f"{percent:.1f}"


def main() -> None:
    """Train what is missing, write the table after each training, and the page at the end."""
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame(columns=[*ABOUT, "steps"])
    for seen, e in experiments():
        about = dict(zip(ABOUT, (seen, e.split, e.data_args.get("fold", 0)), strict=True))
        there = set(table.loc[(table[list(ABOUT)] == list(about.values())).all(axis=1), "steps"])
        rows = [] if 0 in there else list(untrained(e))
        if e.steps not in there:
            rows.append({"name": e.loss, "steps": e.steps} | trained(e))
        if not rows:
            continue
        table = pd.concat([table, pd.DataFrame([about | row for row in rows])])
        rounded = table.round({"recall_at_1": 4, "milliseconds": 1, "megabytes": 0})
        write_whole({PATH: partial(rounded.to_csv, index=False)})
        terminal.console.print(rounded.tail(len(rows)).to_string(header=False, index=False))
    for mark, written in tables(pd.read_csv(PATH)).items():
        write_between(PAGE, mark, written)


if __name__ == "__main__":
    main()
