"""Our batches for a ``torch.utils.data.DataLoader``, of any data set that has labels."""

from collections.abc import Callable, Iterator

from numpy.typing import ArrayLike
from torch.utils.data import Sampler

from dmlkit.checks import check_count, check_range
from dmlkit.data.batches import PK, Indices


class BatchSampler(Sampler[list[int]]):
    """The batches ``start`` to ``steps - 1`` of a training, as lists of indices.

        DataLoader(dataset, batch_sampler=BatchSampler(labels, PK, steps=100, classes=8), ...)

    ``sampler`` is PK, Episodic or Uniform (any function that makes ``step -> indices`` from labels
    (N,)), and ``args`` are its own; labels are in the order of the data set. Batch number ``step``
    depends on the arguments and on ``step`` alone: it is the same with any number of workers, on
    every machine, and in a training that begins at ``start`` because it was interrupted there.
    Iterating a second time gives the same batches again: let ``steps`` be those of the whole
    training, not of an epoch. (What the data set itself draws, as an augmentation does, is its own
    affair: PyTorch seeds it by worker.)

    On ``world_size`` processes all draw the same batch, and process ``rank`` is given every
    ``world_size``-th image of it, from its own on: a disjoint share, of equal size on all. A
    ``DistributedSampler`` must not be put around it, nor by a framework that does so by itself.

    Raises:
        ValueError: a number is out of its range, or the processes cannot share a batch equally.

    >>> labels = np.repeat([7, 8, 9], 5)
    >>> batches = BatchSampler(labels, PK, steps=10, classes=2, per_class=3, seed=0)
    >>> len(batches), [len(batch) for batch in batches] == [6] * 10
    (10, True)
    >>> rest = BatchSampler(labels, PK, steps=10, start=8, classes=2, per_class=3, seed=0)
    >>> list(rest) == list(batches)[8:]
    True
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
        check_count(steps=steps, world_size=world_size)
        check_range(0, steps, start=start)
        check_range(0, world_size - 1, rank=rank)
        self.steps, self.start = steps, start
        self._batch = sampler(labels, **args)
        self._share = slice(rank, None, world_size)
        if (size := len(self._batch(0))) % world_size:
            raise ValueError(
                f"world_size {world_size} cannot share a batch of {size} images equally: change "
                f"it, or the size of a batch ({args or 'now the default'})"
            )

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start, self.steps):
            yield self._batch(step)[self._share].tolist()

    def __len__(self) -> int:
        return self.steps - self.start
