"""How SEC, the L2 penalty and SEE work: norms, turns, groups and hard points along training.

``python -m studies.mechanism`` follows ``data/studies/mechanism.toml``, and fills
``data/evidence/mechanism.csv``; what is there is not trained again.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from dmlkit import data, geometry, retrieval, training, workers
from dmlkit.data import ImageSet
from dmlkit.losses.spherical import expand
from dmlkit.training.build import build_model, build_objective, open_fabric
from dmlkit.training.devices import repeatable_numerics
from dmlkit.training.trainer import Trainer
from studies.rules import arms, protocol
from studies.search import recipes
from studies.trainings import EVIDENCE, ROW_KEY, Plan, Table, repeated, tables

LOSSES = ("triplet_semihard", "multi_similarity", "normalized_softmax")
SEE = "normalized_softmax + SEE, code"
ARMS = (*(f"{x}{added}" for x in LOSSES for added in ("", " + SEC", " + L2")), SEE)
EVERY, WATCHED, SCORED = 50, 256, (100, 200, 400)  # steps; images; steps
GROUP = 5  # fewest test classes of a script whose Recall@1 is compared
RARE = "triplet_semihard"  # trained with a rare script


def between(norms: np.ndarray, labels: np.ndarray, groups: np.ndarray, draws: int = 200) -> float:
    """η²: the share of the norms' variance between groups, minus its mean where whole classes are
    dealt to groups at random.

    >>> norms, labels = np.repeat([1.0, 1.0, 2.0, 2.0], 2), np.arange(8) // 2
    >>> round(between(norms, labels, np.repeat(["a", "b"], 4)), 1)
    0.7
    """
    rng, codes = np.random.default_rng(0), np.unique(groups, return_inverse=True)[1]
    first, y = np.unique(labels, return_index=True, return_inverse=True)[1:]
    of_class, d = codes[first], norms - norms.mean()  # the group of each class

    def share(codes: np.ndarray) -> float:
        return float((np.bincount(codes, d) ** 2 / np.bincount(codes)).sum() / (d @ d))

    dealt = [share(rng.permutation(of_class)[y]) for _ in range(draws)]
    return share(codes) - float(np.mean(dealt))


def turn(before: np.ndarray, after: np.ndarray) -> float:
    """The mean angle between rows, in degrees, exact for small ones.

    >>> turn(np.array([[2.0, 0.0]]), np.array([[0.0, 3.0]]))
    90.0
    """
    a, b = (
        x.astype(float) / np.linalg.norm(x.astype(float), axis=1)[:, None] for x in (before, after)
    )
    chord = np.linalg.norm(a - b, axis=1)
    return round(float(np.rad2deg(2 * np.arcsin(chord / 2)).mean()), 5)


def by_script(images: ImageSet, x: np.ndarray, metric: Any) -> dict[str, list[float]]:
    """Of each script with enough classes: its mean norm over that of all images, its Recall@1."""
    sets = images.retrieval_sets(x)
    each = retrieval.by_query(**sets, scores=["recall_at_1"], metric=metric)
    norms = np.linalg.norm(x.astype(float), axis=1)
    told = {"hit": each["recall_at_1"], "norm": norms / norms.mean(), "y": images.labels}
    table = pd.DataFrame(told)
    return {
        str(script): rows[["norm", "hit"]].mean().round(6).tolist()
        for script, rows in table.groupby(images.groups)
        if rows["y"].nunique() >= GROUP
    }


def rarer(images: ImageSet, script: str) -> ImageSet:
    """The images with every fourth class of a script alone."""
    gone = np.unique(images.labels[images.groups == script])
    kept = ~np.isin(images.labels, np.delete(gone, np.s_[::4]))
    classes, labels = np.unique(images.labels[kept], return_inverse=True)
    names = tuple(images.class_names[k] for k in classes)
    return ImageSet(images.images[torch.from_numpy(kept)], labels, images.groups[kept], names)


def harder(trainer: Trainer, points: int = 8, share: float = 0.4, batches: int = 8) -> float:
    """SEE's points: the largest cosine to a wrong proxy, hardest of the points minus the sample."""
    objective: Any = trainer.objective
    p, gaps = geometry.normalize(objective.loss.loss.proxies.detach()), []
    for index in map(trainer.sampler, range(batches)):
        y = torch.from_numpy(trainer.train.labels[index])
        x = geometry.normalize(
            torch.from_numpy(training.embed(trainer.plain_model, trainer.train.images[index]))
        )
        near = (x * p[y]).sum(dim=1).topk(round(share * len(x))).indices
        x, y = x[near], y[near]
        every = torch.cat([x[:, None], expand(x, p[y], points)], dim=1) @ p.T  # (n, 1 + points, C)
        every.scatter_(2, y[:, None, None].expand(-1, every.shape[1], 1), -torch.inf)
        wrong = every.amax(dim=2)
        gaps.append(wrong[:, 1:].amax(dim=1) - wrong[:, 0])
    return float(torch.cat(gaps).mean())


def measured(plan: Plan) -> dict[str, Any]:
    """Train as ``training.run`` does, and look at the embeddings on the way."""
    e = plan.experiment
    train, test = (data.load(e.data, split, **e.data_args) for split in ("train", "test"))
    if "rare" in plan.facts:
        train = rarer(train, plan.facts["rare"])

    def found(x: np.ndarray) -> float:
        sets = test.retrieval_sets(x)
        return round(retrieval.recall_at_k(**sets, ks=[1], metric=e.metric)[1], 6)

    watched = train.images[np.random.default_rng(0).permutation(len(train))[:WATCHED]]
    turns, recalls = {}, {}
    with repeatable_numerics(e.threads):
        model, objective = build_model(e, train), build_objective(e, train)
        trainer = Trainer(e, model, objective, train, open_fabric(e, "cpu"))
        while trainer.step < e.steps:
            step = trainer.step
            before = training.embed(trainer.plain_model, watched) if step % EVERY == 0 else None
            trainer.advance()
            if before is not None:
                turns[step] = turn(before, training.embed(trainer.plain_model, watched))
            if trainer.step in SCORED:
                recalls[trainer.step] = found(training.embed(trainer.plain_model, test))
        x = training.embed(trainer.plain_model, test)
        norms, scripts = np.linalg.norm(x.astype(float), axis=1), by_script(test, x, e.metric)
        hits, rare = [hit for _, hit in scripts.values()], "rare" in plan.facts
        return {
            "recall_at_1": found(x),
            "norm_mean": norms.mean(), "norm_std": norms.std(),
            "between": np.nan if rare else between(norms, test.labels, test.groups),
            "gap": max(hits) - min(hits),
            "scripts": json.dumps(scripts),
            "harder": harder(trainer) if "points" in e.loss_args else np.nan,
            "quantiles": json.dumps(np.quantile(norms, np.linspace(0, 1, 41)).round(4).tolist()),
            "turns": json.dumps(turns), "recalls": json.dumps(recalls),
        }  # fmt: skip


def plans() -> tuple[list[Plan], list[Plan]]:
    """What is trained with all scripts, and with a rare one, two of them in each repetition."""
    rules, known = protocol("scratch"), arms()
    trials = tables("scratch")[0].frame()
    used = trials[[_weight(settings) > 0 for settings in trials["settings"]]]
    tuned = recipes(used)
    plain: list[Plan] = []
    rare: list[Plan] = []
    for k in range(rules.repetitions.count):
        made = {
            name: repeated(rules, known[name], k, tuned[name, k % len(rules.searches)])
            for name in ARMS
        }
        plain += made.values()
        for number, script in enumerate(_scripts(made[SEE])):
            facts = {"repetition": 2 * k + number, "rare": script}
            rare += [
                replace(plan, facts={**plan.facts, **facts})
                for name, plan in made.items()
                if name.split(" + ")[0] == RARE
            ]
    return plain, rare


def _scripts(plan: Plan) -> list[str]:
    """Two that are made rare in a repetition: drawn from those with enough classes to learn and to
    test."""
    e = plan.experiment
    classes = [
        {str(script): len(np.unique(images.labels[images.groups == script]))
         for script in np.unique(images.groups)}
        for images in (data.load(e.data, split, **e.data_args) for split in ("train", "test"))
    ]  # fmt: skip
    enough = [s for s in classes[0] if min(n.get(s, 0) for n in classes) >= GROUP]
    return [str(s) for s in np.random.default_rng(e.seed).permutation(enough)[:2]]


def main() -> None:
    for name, asked in zip(("mechanism", "rare"), plans(), strict=True):
        table = Table(ROW_KEY, EVIDENCE / f"{name}.csv")
        waiting = dict(enumerate(plan for plan in asked if table.found(plan) is None))
        for number, row in workers.outcomes(measured, {i: (p,) for i, p in waiting.items()}):
            if isinstance(row, Exception):
                raise row
            table.enter(waiting[number], row)
            table.write()


def _weight(settings: str) -> float:
    return float(json.loads(settings).get("constraint.weight", 1.0))


if __name__ == "__main__":
    main()
