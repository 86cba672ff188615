"""SEC where half of the products are rare; SEE begun late, and where photographs are few.

``python -m studies.scarce`` writes data/evidence/scarce.csv after each repetition; what is there is
not made anew, so that it can be broken off. Some fifteen minutes of one quiet core. These rules
were written before any training by them. Known by then: the sealed study (both of its parts), every
row of the ledger, lessons 14, 15, 17, 21 and 29, and how long a step takes.

**All parts.** grocery64 at 32 pixels; network, batches and 300 steps of the study grocery64, each
loss at its candidate 0: nothing is tuned, so that no choice sees a class that is tested. Repetition
r trains on the 60 or 61 products of fold r mod 4, with one seed for all ways of training; there are
eight. They run one after another: if 900 core-seconds are over, the last that is whole is the
last that counts, and at least six do. A cell is a product in a repetition, and a difference has the
two-way clustering of the sealed study. Batches hold products equally often: a rare one is seen as
often as others, by fewer photographs.

**Halves** (A6b). Whole coarse classes are dealt to two halves of about as many products. In one
training the first half keeps three photographs of each product, in its twin the second, so that a
product is compared with itself. Half of each product's photographs of each visit never train: they
are its queries, and the gallery of the other visit (where a product is common, near copies of them
train: that is a part of what rarity costs). Semi-hard triplets: alone; with SEC (0.3, in
its paper's range); with L2 at 0.03, as in the sealed study, and at its authors' 0.0001.

- Control: alone, rarity costs Recall@1 (interval below 0), or nothing is said.
- Main: what rarity changes, with SEC minus without. Positive, by 2 points (A6b's smallest effect):
  SEC helps the rare; negative: they pay. Beside it both L2, SEC minus each, what SEC and L2 change
  for rare and for common products, raw norms, and test products whose kin, the same coarse class,
  were rare or not (some 50 products: a wide interval, which decides nothing).

**Curriculum** (B8). Proxy-Anchor, the loss of the authors' scripts, on all photographs; eight
points, λ = 0.2, up to 40 % of a batch, a mean, detached: as in the scripts. Without points; their
share rising, as there; 40 % from the first step; 40 % from the middle. The rising and the early way
once more where the points reach the network (attached). Unseen products.

- Main: rising minus from the first step, in B8's measure and with its smallest effect, 1.5 points.
  Positive: early points hinder. Beside it: the middle minus the first step; each minus none.

**Few**. Where points should help if they do anywhere: three photographs of each product, 60
products, 16 dimensions; normalized softmax, of which the largest gain is printed (2.3). Without
points; with SEE as in the scripts; with the same mean attached, which is the printed sum at
λ = 0.025 (the sealed study tried 0.1 to 1, and lost). Control: six photographs without points.
Unseen products.

- Control: six photographs find more than three (interval above 0), or nothing is said.
- Main: SEE as in the scripts minus none, with B4's smallest effect, 0.5 points. Beside it the
  attached mean, and how much of what three more photographs add the points do.

The three main questions are corrected together by Holm's. Words are the ledger's. All of it is of
one small network, of one loss in each part, at one setting of each method: never of the papers.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats

import dmlkit
from dmlkit import data, statistics, training
from dmlkit.cli import terminal
from dmlkit.data import ImageSet, grocery
from dmlkit.files import write_whole
from dmlkit.training import Experiment
from dmlkit.training.build import build_model, build_objective, open_fabric
from dmlkit.training.devices import repeatable_numerics
from dmlkit.training.trainer import Trainer
from studies import claims
from studies.confirm import means
from studies.rules import arms, experiment, protocol
from studies.views import found

PATH = dmlkit.ROOT / "data" / "evidence" / "scarce.csv"
COLUMNS = ["part", "way", "repetition", "fold", "of", "mean", "by_class"]
# Eight were planned; the clock's rule ended them after seven, which a later call must not undo.
REPETITIONS, LEAST, SECONDS = 7, 6, 900
SIDE, FEW = 32, 3  # pixels; photographs
SHARE = 0.4  # of a batch, that SEE expands at most


class Way(NamedTuple):
    """How one is trained: an arm of the sealed study, settings of it, and from which share of the
    steps on SEE has points (0: as the arm says)."""

    arm: str
    settings: Mapping[str, Any] = {}
    late: float = 0.0


_EARLY = {"loss_args.start_rate": SHARE, "loss_args.end_rate": SHARE}
_LATE = {"loss_args.start_rate": 0.0, "loss_args.end_rate": 0.0}
_MEAN = {"loss_args.weight": 0.2}  # of the attached form, by default eight times as much
_CODE, _ATTACHED = "proxy_anchor + SEE, code", "proxy_anchor + SEE, paper"
#: Ways by part.
HALVES = {
    "none": Way("triplet_semihard"),
    "SEC": Way("triplet_semihard + SEC"),
    "L2": Way("triplet_semihard + L2"),
    "L2, its authors'": Way("triplet_semihard + L2", {"constraint.weight": 1e-4}),
}
CURRICULUM = {
    "none": Way("proxy_anchor"),
    "rising": Way(_CODE),
    "first step": Way(_CODE, _EARLY),
    "middle": Way(_CODE, _LATE, late=0.5),
    "rising, attached": Way(_ATTACHED, _MEAN),
    "first step, attached": Way(_ATTACHED, _MEAN | _EARLY),
}
FEW_WAYS = {
    "none": Way("normalized_softmax"),
    "SEE": Way("normalized_softmax + SEE, code"),
    "SEE, attached": Way("normalized_softmax + SEE, paper", _MEAN),
    "twice the photographs": Way("normalized_softmax"),
}
#: What is asked first of each part: plus, minus, the claim, its smallest effect and printed size.
MAIN = {
    "halves": ("SEC", "none", "A6b", None),
    "curriculum": ("rising", "first step", "B8", None),
    "few": ("SEE", "none", "B4", 0.023),
}
Told = tuple[str, dict[str, float]]  # of which products, and the number of each


# What is trained ------------------------------------------------------------------------------


def some(images: ImageSet, rows: NDArray[Any], queries: Any = None) -> ImageSet:
    """Some photographs of every class."""
    kept = {"images": images.images[rows], "labels": images.labels[rows]}
    return replace(images, **kept, groups=images.groups[rows], attributes={}, queries=queries)


def ranks(keys: list[NDArray[Any]], seed: int) -> NDArray[np.int64]:
    """The place of each row among those of the same keys, in a random order: (N,)."""
    order = np.random.default_rng(seed).permutation(len(keys[0]))
    place = pd.DataFrame([key[order] for key in keys]).T.groupby([*range(len(keys))]).cumcount()
    back = np.empty(len(order), dtype=np.int64)
    back[order] = place.to_numpy()
    return back


def halves(images: ImageSet, seed: int) -> NDArray[np.bool_]:
    """Of each class whether it is in the first half: whole groups, of as many classes as can be."""
    of = pd.Series(images.groups).groupby(images.labels).first()
    sizes = of.value_counts().sort_index().sample(frac=1, random_state=seed)
    count, first = [0, 0], set()
    for group, size in sizes.sort_values(ascending=False, kind="stable").items():
        side = int(count[1] < count[0])
        count[side] += int(size)
        first |= {group} if side == 0 else set()
    return of.isin(first).to_numpy()


def planned(way: Way, r: int, dim: int = 64) -> Experiment:
    """The training of a way in a repetition: candidate 0 of the sealed study, but for its classes,
    pixels and seed."""
    rules = protocol("grocery64")
    where = {"dim": dim, "seed": 401 + r, "split": "test"}
    where["data_args"] = {"fold": r % len(grocery.FOLDS), "side": SIDE}
    return experiment(rules, arms(rules)[way.arm], way.settings, rules.base["steps"], where)


def trained(
    e: Experiment, train: ImageSet, late: float = 0.0, proxies: torch.Tensor | None = None
) -> Any:
    """The network after training; with ``late`` SEE has points from that share of the steps on, and
    with ``proxies`` (C, d) a proxy loss has these, at rest."""
    with repeatable_numerics(e.threads):
        model, objective = build_model(e, train), build_objective(e, train)
        if proxies is not None:
            resting: Any = objective.loss
            resting.proxies.requires_grad_(False).copy_(proxies)
        trainer = Trainer(e, model, objective, train, open_fabric(e, "cpu"))
        while trainer.step < e.steps:
            if late and trainer.step == round(late * e.steps):
                see: Any = trainer.objective.loss
                see.start_rate = see.end_rate = SHARE
            trainer.advance()
        return trainer.plain_model


# What is measured -----------------------------------------------------------------------------


def of_halves(way: Way, r: int) -> Iterator[Told]:
    """By product: Recall@1 and raw norm where it was rare and where not; of unseen products
    Recall@1 where their kin were rare and where not."""
    e = planned(way, r)
    images, test = (data.load(e.data, split, **e.data_args) for split in ("train", "test"))
    visit, seed = images.attributes["list"] == "test", e.seed
    there = pd.Series(visit).groupby([images.labels, visit]).transform("size").to_numpy()
    out = ranks([images.labels, visit], seed) < there // 2
    own = some(images, out, visit[out])
    first, names = halves(images, seed), np.array(images.class_names)
    kin = [pd.Series(own.groups).groupby(own.labels).first()[side] for side in (first, ~first)]
    told: dict[str, dict[str, float]] = {}
    for rare, related in zip((first, ~first), kin, strict=True):
        left = np.flatnonzero(~out)
        few = ranks([images.labels[left]], seed) < FEW
        model = trained(e, some(images, left[few | ~rare[images.labels[left]]]))
        x = training.embed(model, own.images)
        recall, n = found(x, own), np.linalg.norm(x.astype(float), axis=1)
        norm = (pd.Series(n / n.mean()).groupby(names[own.labels]).mean().round(4)).to_dict()
        for state, which in (("rare", rare), ("common", ~rare)):
            for what, value in (("", recall), ("norm, ", norm)):
                told.setdefault(what + state, {}).update({k: value[k] for k in names[which]})
        unseen = found(training.embed(model, test.images), test)
        group = dict(zip(np.array(test.class_names)[test.labels], test.groups, strict=True))
        for name, value in unseen.items():
            if group[name] in {*images.groups}:
                state = "kin rare" if group[name] in {*related} else "kin common"
                told.setdefault(state, {})[name] = value
    yield from told.items()


def of_unseen(way: Way, r: int, dim: int = 64, each: int = 0) -> Iterator[Told]:
    """Recall@1 by unseen product, of a training on so many photographs of each (0: all)."""
    e = planned(way, r, dim)
    images, test = (data.load(e.data, split, **e.data_args) for split in ("train", "test"))
    if each:
        images = some(images, ranks([images.labels], e.seed) < each)
    yield "unseen", found(training.embed(trained(e, images, way.late), test.images), test)


def parts(r: int) -> Iterator[tuple[str, str, Any]]:
    """Everything that is trained in a repetition: part, way, and what measures it."""
    for name, way in HALVES.items():
        yield "halves", name, partial(of_halves, way, r)
    for name, way in CURRICULUM.items():
        yield "curriculum", name, partial(of_unseen, way, r)
    for name, way in FEW_WAYS.items():
        each = 2 * FEW if name.startswith("twice") else FEW
        yield "few", name, partial(of_unseen, way, r, 16, each)


# What it says ---------------------------------------------------------------------------------


@cache
def products() -> list[str]:
    """All 81, in the order of a table's columns."""
    return [*data.load("grocery64", "test", fold=None).class_names]


def cells(table: pd.DataFrame, part: str, way: str, of: str = "unseen") -> NDArray[np.float64]:
    """Recall@1, as a share, of each product in each repetition, NaN where there is none: (S, C)."""
    mine = table[(table["part"] == part) & (table["way"] == way) & (table["of"] == of)]
    each = [json.loads(text) for text in mine.sort_values("repetition")["by_class"]]
    return pd.DataFrame(each).reindex(columns=products()).to_numpy(dtype=float)


def contrast(difference: NDArray[np.float64]) -> pd.Series:
    """The mean of a difference in cells, and its interval, in points; see ``confirm.means``."""
    return means([100 * difference]).of([1.0])


def cost_of_rarity(table: pd.DataFrame, way: str, of: str = "{}") -> NDArray[np.float64]:
    """Where a product is rare minus where it is common, in cells."""
    rare, common = (cells(table, "halves", way, of.format(s)) for s in ("rare", "common"))
    return rare - common


def questions(table: pd.DataFrame) -> pd.DataFrame:
    """The three main questions: those of ``contrast``, word, and p of what it says after Holm's."""
    rows = {}
    for part, (plus, minus, claim, size) in MAIN.items():
        made = partial(cost_of_rarity, table) if part == "halves" else partial(cells, table, part)
        at, margin = (
            contrast(made(plus) - made(minus)),
            100 * float(claims.table()[claim]["smallest"]),
        )
        word = statistics.word(
            "positive", at["effect"], at["low"], at["high"], margin,
            None if size is None else 100 * size, at["least"],
        )  # fmt: skip
        against = {"too small to see here": margin, "printed size excluded here": 100 * (size or 0)}
        t = (at["effect"] - against.get(word, 0.0)) / at["error"]
        rows[part] = {**at, "word": word, "p": float(2 * stats.t.sf(abs(t), at["df"]))}
    frame = pd.DataFrame(rows).T
    return frame.assign(holm=statistics.holm(frame["p"].to_numpy(dtype=float)))


def main() -> None:
    """Train what is missing, and write the table after each repetition."""
    table = pd.read_csv(PATH) if PATH.exists() else pd.DataFrame(columns=["repetition"])
    torch.set_num_threads(1)
    for r in range(REPETITIONS):
        if (table["repetition"] == r).any():
            continue
        if r >= LEAST and time.process_time() > SECONDS:
            break
        rows = []
        for part, way, measured in parts(r):
            about = {"part": part, "way": way, "repetition": r, "fold": r % len(grocery.FOLDS)}
            rows += [about | {"of": of, "by_class": by} for of, by in measured()]
            terminal.console.print(part, way, r, f"{time.process_time():.0f} s")
        new = pd.DataFrame(rows)
        means_ = [round(float(np.mean([*by.values()])), 4) for by in new["by_class"]]
        new = new.assign(mean=means_, by_class=new["by_class"].map(json.dumps))
        table = pd.concat([table, new[COLUMNS]] if len(table) else [new[COLUMNS]])
        write_whole({PATH: partial(table.to_csv, index=False)})


if __name__ == "__main__":
    main()
