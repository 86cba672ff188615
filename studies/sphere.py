"""How SEC, the L2 penalty and SEE work: norms, turns, groups and hard points along training.

``python -m studies.sphere`` follows ``data/studies/sphere.toml``, and fills
``data/evidence/sphere.csv``; what is there is not trained again.
"""

import json
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


def between(norms: np.ndarray, groups: np.ndarray, draws: int = 200) -> float:
    """η²: the share of the norms' variance between groups, minus its mean over shuffled groups.

    >>> between(np.array([1.0, 1.0, 2.0, 2.0]), np.array(["a", "a", "b", "b"])) > 0.5
    True
    """
    rng, codes = np.random.default_rng(0), np.unique(groups, return_inverse=True)[1]
    count = np.bincount(codes)
    d = norms - norms.mean()

    def share(codes: np.ndarray) -> float:
        return float((np.bincount(codes, d) ** 2 / count).sum() / (d @ d))

    return share(codes) - float(np.mean([share(rng.permutation(codes)) for _ in range(draws)]))


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


def gap(images: ImageSet, x: np.ndarray) -> float:
    """Recall@1 of the best script minus that of the worst, of those with enough classes."""
    each = retrieval.by_query(**images.retrieval_sets(x), scores=["recall_at_1"])
    table = pd.DataFrame({"hit": each["recall_at_1"], "group": images.groups, "y": images.labels})
    by = table.groupby("group").agg(hit=("hit", "mean"), classes=("y", "nunique"))
    kept = by.loc[by["classes"] >= GROUP, "hit"]
    return float(kept.max() - kept.min())


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
                sets = test.retrieval_sets(training.embed(trainer.plain_model, test))
                recalls[trainer.step] = round(retrieval.recall_at_k(**sets, ks=[1])[1], 6)
        x = training.embed(trainer.plain_model, test)
        norms = np.linalg.norm(x.astype(float), axis=1)
        return {
            "recall_at_1": round(retrieval.recall_at_k(**test.retrieval_sets(x), ks=[1])[1], 6),
            "norm_mean": norms.mean(), "norm_std": norms.std(),
            "between": between(norms, test.groups), "gap": gap(test, x),
            "harder": harder(trainer) if "points" in e.loss_args else np.nan,
            "quantiles": json.dumps(np.quantile(norms, np.linspace(0, 1, 41)).round(4).tolist()),
            "turns": json.dumps(turns), "recalls": json.dumps(recalls),
        }  # fmt: skip


def main() -> None:
    rules, known = protocol("scratch"), arms()
    trials = tables("scratch")[0].frame()
    used = trials[[_weight(settings) > 0 for settings in trials["settings"]]]
    tuned, table = recipes(used), Table(ROW_KEY, EVIDENCE / "sphere.csv")
    plans = [
        repeated(rules, known[name], k, tuned[name, k % len(rules.searches)])
        for k in range(rules.repetitions.count)
        for name in ARMS
    ]
    waiting = dict(enumerate(plan for plan in plans if table.found(plan) is None))
    for number, row in workers.outcomes(measured, {i: (p,) for i, p in waiting.items()}):
        if isinstance(row, Exception):
            raise row
        table.enter(waiting[number], row)
        table.write()


def _weight(settings: str) -> float:
    return float(json.loads(settings).get("constraint.weight", 1.0))


if __name__ == "__main__":
    main()
