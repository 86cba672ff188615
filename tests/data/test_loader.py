"""Batches for a DataLoader: the samplers' own, whatever the workers, ranks and interruptions."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dmlkit.data.batches import PK, Episodic, Uniform
from dmlkit.data.loader import BatchSampler

LABELS = np.random.default_rng(0).permutation(np.repeat([3, 5, 8, 13], [12, 9, 10, 11]))
SAMPLERS = {
    PK: {"classes": 3, "per_class": 4, "seed": 1},
    Episodic: {"ways": 2, "support": 3, "query": 3, "seed": 1},
    Uniform: {"size": 12, "seed": 1},
}
STEPS = 9
of_every_kind = pytest.mark.parametrize("sampler", SAMPLERS)


def batches(sampler, **args):
    return BatchSampler(LABELS, sampler, steps=STEPS, **args, **SAMPLERS[sampler])


@of_every_kind
def test_batches_are_those_of_the_sampler(sampler):
    expected = [sampler(LABELS, **SAMPLERS[sampler])(step).tolist() for step in range(STEPS)]
    assert list(batches(sampler)) == expected
    assert len(batches(sampler)) == len(expected)
    assert {type(index) for batch in batches(sampler) for index in batch} == {int}


# Python 3.12 warns of any fork beside other threads, of which faiss and torch have some.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@of_every_kind
def test_two_workers_give_what_none_gives(sampler):
    dataset = TensorDataset(torch.arange(len(LABELS)), torch.from_numpy(LABELS))

    def loaded(workers):
        found = DataLoader(dataset, batch_sampler=batches(sampler), num_workers=workers)
        return [(index.tolist(), labels.tolist()) for index, labels in found]

    alone = loaded(0)
    assert [index for index, _ in alone] == list(batches(sampler))
    assert all(LABELS[index].tolist() == labels for index, labels in alone)
    assert loaded(2) == alone


@pytest.mark.parametrize("world_size", [2, 3])
@of_every_kind
def test_ranks_partition_every_batch_in_its_order(sampler, world_size):
    ranks = [batches(sampler, rank=r, world_size=world_size) for r in range(world_size)]
    for whole, *shares in zip(batches(sampler), *ranks, strict=True):
        assert {len(share) for share in shares} == {len(whole) // world_size}
        assert np.stack(shares, axis=1).ravel().tolist() == whole


@of_every_kind
def test_an_interrupted_training_goes_on_with_the_batch_that_it_lacks(sampler):
    whole = list(batches(sampler))
    for start in (0, 4, STEPS):
        rest = batches(sampler, start=start)
        assert list(rest) == whole[start:]
        assert list(rest) == whole[start:]  # nor does iterating move it
        assert len(rest) == STEPS - start


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"steps": 0}, "steps must be a whole number from 1, but is 0"),
        ({"start": 10}, "start must be a number from 0 to 9, but is 10"),
        ({"start": -1}, "start must be a number from 0 to 9, but is -1"),
        ({"rank": 2, "world_size": 2}, "rank must be a number from 0 to 1, but is 2"),
        ({"rank": -1}, "rank must be a number from 0 to 0, but is -1"),
        ({"world_size": 0}, "world_size must be a whole number from 1, but is 0"),
        ({"world_size": 5}, "world_size 5 cannot share a batch of 12 images equally.*'classes': 3"),
        ({"classes": 9}, "a batch of 9 classes was asked for"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        BatchSampler(LABELS, **({"steps": STEPS} | SAMPLERS[PK] | wrong))
