"""DREML: many small networks, each with a random question of its own, searched as one."""

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from dmlkit import data, retrieval, sweeps
from dmlkit.geometry import normalize
from dmlkit.training import DivergedError, Experiment, Run


@dataclass(frozen=True)
class Ensemble:
    """Trained members, and what they are together.

    ``embeddings`` (N, L·D) are those of the L members' split, each member's on the unit sphere,
    side by side; so a cosine between two rows is the mean of the members' cosines. ``scores`` are
    theirs, under that cosine, as ``retrieval.evaluate`` gives them; ``labels`` are (N,).
    """

    runs: tuple[Run, ...]

    @property
    def labels(self) -> np.ndarray:
        return self.runs[0].labels

    @cached_property
    def embeddings(self) -> np.ndarray:
        members = [normalize(torch.from_numpy(run.embeddings)) for run in self.runs]
        return torch.cat(members, dim=1).numpy()  # (N, L·D)

    @cached_property
    def scores(self) -> dict[str, float]:
        e = self.runs[0].experiment
        images = data.load(e.data, e.split, **e.data_args)
        return retrieval.evaluate(**images.retrieval_sets(self.embeddings), metric="cosine")


def dreml(
    experiment: Experiment,
    members: int = 12,
    meta_classes: int = 12,
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> Ensemble:
    """Train an ensemble: ``members`` networks on random meta-classes, their embeddings joined.

    The members are Runs like all others: trained side by side by any Executor (see
    ``sweeps.train``), kept on disk, and loaded where they are there.

    Source: Xuan, Souvenir and Pless 2018, "Deep Randomized Ensembles for Metric Learning", with
    each member's embedding normalized before they are joined, as in the authors' code. The paper
    has up to 48 members of 12 meta-classes; the defaults are those of Fehérvári, Ravichandran and
    Appalaraju 2019, "Unbiased Evaluation of Deep Metric Learning Algorithms".

    Raises DivergedError where the training of a member diverged.
    """
    experiments = member_experiments(experiment, members, meta_classes)
    runs = sweeps.train(experiments, executor, device=device, progress=progress)
    if None in runs:
        raise DivergedError(f"member {runs.index(None)} of {members} diverged: lower lr")
    return Ensemble(tuple(run for run in runs if run is not None))


def member_experiments(
    experiment: Experiment, members: int = 12, meta_classes: int = 12
) -> list[Experiment]:
    """What each member of ``dreml`` trains: member l is the Experiment with ``MetaClassLoss`` on
    map l, ``meta_classes`` dimensions, and a seed made of the Experiment's and l."""
    base = replace(experiment, loss="meta_class", loss_args={}, dim=meta_classes)
    return [
        replace(
            base,
            seed=int(np.random.SeedSequence([experiment.seed, member]).generate_state(1)[0]),
            loss_args={"map_seed": member},
        )
        for member in range(members)
    ]
