"""Batch samplers: which images make up batch number ``step``, a pure function of (seed, step)."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Sampler

from dmlkit import geometry
from dmlkit.checks import check_count, check_range

Indices = NDArray[np.int64]


def _checked(labels: ArrayLike) -> NDArray[np.integer]:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"labels must be integers of shape (N,), not {array.dtype} of shape {array.shape}"
        )
    return array


class PK:
    """P distinct classes, K images of each: ``sampler(step)`` gives P·K indices, class after class.

    Within a class images are drawn without replacement where it has K of them, else with.
    Raises ValueError if ``labels`` holds fewer than P classes. Source: Hermans, Beyer & Leibe,
    "In Defense of the Triplet Loss" (2017), section 2.

    >>> labels = np.repeat([7, 8, 9], 5)
    >>> batch = PK(labels, classes=2, per_class=3, seed=0)(step=4)
    >>> [len(set(labels[batch[:3]])), len(set(labels[batch])), len(set(batch))]
    [1, 2, 6]
    """

    def __init__(
        self, labels: ArrayLike, classes: int = 32, per_class: int = 4, seed: int = 0
    ) -> None:
        check_count(classes=classes, per_class=per_class)
        check_count(0, seed=seed)
        labels = _checked(labels)
        self.classes, self.per_class, self.seed = classes, per_class, seed
        self._order = np.argsort(labels, kind="stable")  # class after class
        _, self._starts, self._counts = np.unique(
            labels[self._order], return_index=True, return_counts=True
        )
        if len(self._counts) < classes:
            raise ValueError(
                f"a batch of {classes} classes was asked for, but the labels hold "
                f"{len(self._counts)}: ask for fewer (the sampler's classes) or load more"
            )

    def __call__(self, step: int) -> Indices:
        rng = np.random.default_rng([self.seed, step])
        chosen = self._choose(rng)
        counts = self._counts[chosen, None]  # (P, 1)
        # The K smallest of independent uniform keys are K places drawn without replacement.
        keys = rng.random((self.classes, max(counts.max(), self.per_class)))
        keys[np.arange(keys.shape[1]) >= counts] = np.inf
        places = keys.argsort(axis=1)[:, : self.per_class]  # (P, K)
        short = np.flatnonzero(counts < self.per_class)
        if len(short):  # these draw with replacement
            places[short] = rng.random((len(short), self.per_class)) * counts[short]
        batch: Indices = self._order[self._starts[chosen, None] + places].ravel()
        return batch

    def _choose(self, rng: np.random.Generator) -> Indices:
        """The places (P,) of a batch's classes among all that there are."""
        return rng.choice(len(self._counts), self.classes, replace=False, shuffle=False)


class Neighbors(PK):
    """Groups of neighboring classes: random ones, each with its m − 1 nearest, K images of each.

    ``sampler(step)`` gives groups·group_size·per_class indices, class after class. The groups of a
    batch are drawn one after another, and share no class: a class's nearest are the nearest of
    those that are left. Distances of classes are mean squared distances of their images on the unit
    sphere, which class means give: those of the last ``refresh``. A training calls it at its start
    and every ``refresh_every`` steps; the batches before the first are those of PK. So a batch is
    a function of (seed, step) and of the class means, which are the sampler's state. Source: Ge,
    Huang, Dong and Scott 2018, "Deep Metric Learning with Hierarchical Triplet Loss", by third
    hands; what it does when groups overlap is not known.

    >>> labels = np.repeat([6, 7, 8, 9], 5)
    >>> sampler = Neighbors(labels, groups=1, group_size=2, per_class=3)
    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [-0.9, 0.1]])
    >>> sampler.refresh(x.repeat_interleave(5, dim=0), torch.from_numpy(labels))
    >>> sorted({tuple(sorted(set(labels[sampler(step)].tolist()))) for step in range(9)})
    [(6, 7), (8, 9)]
    """

    def __init__(
        self,
        labels: ArrayLike,
        groups: int = 8,
        group_size: int = 4,
        per_class: int = 4,
        seed: int = 0,
        refresh_every: int = 50,
    ) -> None:
        check_count(groups=groups, group_size=group_size, refresh_every=refresh_every)
        super().__init__(labels, groups * group_size, per_class, seed)
        self.groups, self.group_size, self.refresh_every = groups, group_size, refresh_every
        self._means: Tensor | None = None  # (C, d), of classes in the order of their labels

    def refresh(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take class means from embeddings (N, d) of all images, and their labels (N,)."""
        x, C = geometry.normalize(embeddings.double()), len(self._counts)
        place = labels.unique(return_inverse=True)[1]
        means = x.new_zeros(C, x.shape[1]).index_add_(0, place, x)
        self._means = means / torch.from_numpy(self._counts)[:, None]

    def state_dict(self) -> dict[str, Tensor]:
        """The class means, if there are any yet."""
        return {} if self._means is None else {"means": self._means}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a state that ``state_dict`` gave."""
        self._means = state.get("means")

    def _choose(self, rng: np.random.Generator) -> Indices:
        if self._means is None:
            return super()._choose(rng)
        means = self._means.numpy()
        free, chosen = np.ones(len(means), dtype=bool), []
        for _ in range(self.groups):
            first = rng.choice(np.flatnonzero(free))
            near = means @ means[first]  # −½ d_pq but for a constant
            near[~free], near[first] = -np.inf, np.inf
            group = np.argpartition(-near, self.group_size - 1)[: self.group_size]
            free[group] = False
            chosen.append(group)
        return np.concatenate(chosen)


class PairBatches(PK):
    """Two views of each class: two of its images or, at times, one image twice.

    ``sampler(step)`` gives 2·classes indices, class after class, as PK with two images of each; but
    with the probability ``same_image``, drawn for each class alone, the second view is the image of
    the first. Such a pair differs by its augmentation only: without augmentation the two are
    identical, and the gradient of their distance or cosine is 0. Source: the sampling for N-pairs
    in the code of the comparison study (0.1 in its logs); N-pairs as published has
    ``same_image=0``.

    >>> labels = np.repeat([7, 8, 9], 5)
    >>> batch = PairBatches(labels, classes=3, same_image=1.0)(step=4)
    >>> bool((batch[::2] == batch[1::2]).all())
    True
    """

    def __init__(
        self, labels: ArrayLike, classes: int = 64, same_image: float = 0.1, seed: int = 0
    ) -> None:
        check_range(0, 1, same_image=same_image)
        super().__init__(labels, classes, 2, seed)
        self.same_image = same_image

    def __call__(self, step: int) -> Indices:
        pairs = super().__call__(step).reshape(-1, 2)
        rng = np.random.default_rng([self.seed, step, 1])  # PK has [seed, step]
        same = rng.random(len(pairs)) < self.same_image
        pairs[same, 1] = pairs[same, 0]
        return pairs.ravel()


class Episodic(PK):
    """N-way episodes: class after class, ``support`` images and then ``query`` others.

    ``sampler(step)`` gives ways·(support + query) distinct indices; reshaped to
    (ways, support + query), the first ``support`` columns are the support set. Classes with fewer
    than support + query images never take part; raises ValueError if fewer than ``ways`` remain.
    Source: Snell, Swersky & Zemel, "Prototypical Networks" (2017), algorithm 1.

    >>> labels = np.repeat([0, 1, 2], [10, 3, 10])
    >>> episode = Episodic(labels, ways=2, support=2, query=3)(step=0).reshape(2, 5)
    >>> sorted(set(labels[episode[:, :2]].ravel().tolist()))
    [0, 2]
    """

    def __init__(
        self, labels: ArrayLike, ways: int = 12, support: int = 5, query: int = 5, seed: int = 0
    ) -> None:
        check_count(ways=ways, support=support, query=query)
        labels = _checked(labels)
        self.ways, self.support, self.query = ways, support, query
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        self._usable = np.flatnonzero(counts[inverse] >= support + query)
        usable_classes = int((counts >= support + query).sum())
        if usable_classes < ways:
            raise ValueError(
                f"an episode of {ways} ways with {support} support and {query} query images "
                f"was asked for, but only {usable_classes} of {len(counts)} classes have "
                f"{support + query} images: ask for fewer ways or smaller sets"
            )
        super().__init__(labels[self._usable], ways, support + query, seed)

    def __call__(self, step: int) -> Indices:
        return self._usable[super().__call__(step)]


class Uniform:
    """Images drawn regardless of class: every epoch is a fresh permutation, cut into batches.

    ``sampler(step)`` gives ``size`` distinct indices; the last, incomplete batch of an epoch is
    left out. Raises ValueError if there are fewer images than ``size``.

    >>> sampler = Uniform(np.zeros(6, dtype=int), size=3, seed=0)
    >>> sorted(np.concatenate([sampler(0), sampler(1)]).tolist())
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, labels: ArrayLike, size: int = 128, seed: int = 0) -> None:
        check_count(size=size)
        check_count(0, seed=seed)
        self.images, self.size, self.seed = len(_checked(labels)), size, seed
        if self.images < size:
            raise ValueError(
                f"a batch of {size} was asked for, but there are {self.images} images: ask for "
                "fewer (the sampler's size) or load more"
            )
        self._epoch, self._permutation = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> Indices:
        epoch, batch = divmod(step, self.images // self.size)
        if epoch != self._epoch:  # kept between calls only to save time
            self._permutation = np.random.default_rng([self.seed, epoch]).permutation(self.images)
            self._epoch = epoch
        return self._permutation[batch * self.size : (batch + 1) * self.size].copy()


class BatchSampler(Sampler[list[int]]):
    """Batches as lists of indices, ``steps`` an epoch: each pass over it is the next epoch::

        loader = DataLoader(dataset, batch_sampler=BatchSampler(labels, PK, steps=100, classes=8))
        for epoch in range(20):
            for images, y in loader: ...

    ``sampler`` is one of the above (any function that makes ``step -> indices`` from labels (N,)),
    and ``args`` are its own; labels are in the order of the data set. Batch ``step`` of epoch e is
    ``sampler(e * steps + step)``, which depends on nothing but the arguments: it is the same with
    any number of workers, on every machine, and in a training that was interrupted and goes on at
    ``start`` of the epoch that ``set_epoch`` gives (else of the first one).

    On ``world_size`` processes all draw the same batch, and process ``rank`` is given every
    ``world_size``-th image of it, from its own on: a disjoint share, of equal size on all. A
    ``DistributedSampler`` must not be put around it, nor by a framework that does so by itself.

    Raises ValueError where the processes cannot share a batch equally.

    >>> labels = np.repeat([7, 8, 9], 5)
    >>> batches = BatchSampler(labels, PK, steps=10, classes=2, per_class=3, seed=0)
    >>> first, second = list(batches), list(batches)
    >>> rest = BatchSampler(labels, PK, steps=10, start=8, classes=2, per_class=3, seed=0)
    >>> [list(rest) == first[8:], list(rest) == second, first == second]
    [True, True, False]
    """

    def __init__(
        self,
        labels: ArrayLike,
        sampler: Callable[..., Callable[[int], Indices]] = PK,
        *,
        steps: int,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
        **args: int,
    ) -> None:
        check_range(0, steps, start=start)
        check_range(0, world_size - 1, rank=rank)
        self.steps, self.start, self.epoch = steps, start, 0  # of the pass that comes next
        self._batch = sampler(labels, **args)
        self._share = slice(rank, None, world_size)
        if (size := len(self._batch(0))) % world_size:
            raise ValueError(
                f"world_size {world_size} cannot share a batch of {size} images equally"
            )

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of an epoch, counted from 0; those after it follow."""
        check_count(0, epoch=epoch)
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        # Runs at the first batch: a DataLoader with workers makes an iterator that it never uses.
        first = self.epoch * self.steps
        steps = range(first + self.start, first + self.steps)
        self.epoch, self.start = self.epoch + 1, 0
        for step in steps:
            yield self._batch(step)[self._share].tolist()

    def __len__(self) -> int:
        return self.steps - self.start
