"""Batch samplers: what a batch holds, and that it depends on seed and step alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from dmlkit.data.batches import PK, BatchSampler, Episodic, Neighbors, PairBatches, Uniform

steps = st.integers(0, 2**40)
seeds = st.integers(0, 2**32)


@st.composite
def labeled(draw: st.DrawFn) -> np.ndarray:
    """Shuffled labels of 1 to 8 classes of any int64 value, with 1 to 9 images each."""
    values = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8, unique=True))
    counts = draw(st.lists(st.integers(1, 9), min_size=len(values), max_size=len(values)))
    labels = np.repeat(np.array(values, dtype=np.int64), counts)
    return np.random.default_rng(draw(seeds)).permutation(labels)


@given(labeled(), st.integers(1, 6), seeds, steps, st.data())
def test_pk_batch_has_distinct_classes_and_no_needless_repeats(labels, per_class, seed, step, data):
    present, counts = np.unique(labels, return_counts=True)
    classes = data.draw(st.integers(1, len(present)))
    batch = PK(labels, classes, per_class, seed)(step)
    assert batch.dtype == np.int64
    assert batch.shape == (classes * per_class,)
    drawn = labels[batch].reshape(classes, per_class)
    assert (drawn == drawn[:, :1]).all()
    assert len(np.unique(drawn[:, 0])) == classes
    for label, images in zip(drawn[:, 0], batch.reshape(classes, per_class), strict=True):
        if counts[present == label].item() >= per_class:
            assert len(set(images)) == per_class


@given(labeled(), st.floats(0, 1), seeds, steps, st.data())
def test_pair_batch_is_that_of_pk_but_for_pairs_of_one_image(labels, same_image, seed, step, data):
    classes = data.draw(st.integers(1, len(np.unique(labels))))
    pairs = PairBatches(labels, classes, same_image, seed)(step).reshape(-1, 2)
    two = PK(labels, classes, 2, seed)(step).reshape(-1, 2)
    np.testing.assert_array_equal(pairs[:, 0], two[:, 0])
    one_image = pairs[:, 0] == pairs[:, 1]
    np.testing.assert_array_equal(pairs[~one_image], two[~one_image])
    if same_image in (0, 1):
        np.testing.assert_array_equal(pairs[:, 1], two[:, int(1 - same_image)])


@pytest.mark.parametrize("same_image", [0.1, 0.9])
def test_pairs_of_one_image_are_as_frequent_as_asked(same_image):
    """In every place of the batch, and no two classes or steps decide together."""
    sampler = PairBatches(np.repeat(np.arange(10), 5), 8, same_image, seed=3)
    batches = np.stack([sampler(step).reshape(8, 2) for step in range(4000)])
    one_image = (batches[:, :, 0] == batches[:, :, 1]).astype(float)  # (steps, places)
    error = np.sqrt(same_image * (1 - same_image) / 4000)
    assert np.abs(one_image.mean(axis=0) - same_image).max() < 5 * error
    correlation = np.corrcoef(np.hstack([one_image[:-1], one_image[1:]]).T)
    assert np.abs(correlation - np.eye(16)).max() < 5 / np.sqrt(3999)


@given(labeled(), seeds, steps, st.data())
def test_episode_holds_distinct_images_of_large_enough_classes(labels, seed, step, data):
    counts = np.unique(labels, return_counts=True)[1]
    support, query = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    usable = int((counts >= support + query).sum())
    if not usable:
        with pytest.raises(ValueError, match=f"only 0 of {len(counts)} classes"):
            Episodic(labels, 1, support, query)
        return
    ways = data.draw(st.integers(1, usable))
    episode = Episodic(labels, ways, support, query, seed)(step)
    drawn = labels[episode].reshape(ways, support + query)
    assert len(set(episode)) == ways * (support + query)
    assert (drawn == drawn[:, :1]).all()
    assert len(np.unique(drawn[:, 0])) == ways


@given(labeled(), st.integers(1, 6), seeds, steps, st.data())
def test_a_group_is_a_class_and_the_nearest_that_no_group_has_yet(
    labels, per_class, seed, step, data
):
    """Mean squared distances over all pairs of images on the sphere, each time over all classes."""
    present, counts = np.unique(labels, return_counts=True)
    groups = data.draw(st.integers(1, len(present)))
    size = data.draw(st.integers(1, len(present) // groups))
    sampler = Neighbors(labels, groups, size, per_class, seed)
    first = sampler(step)
    np.testing.assert_array_equal(first, PK(labels, groups * size, per_class, seed)(step))
    x, y = shown(labels, np.random.default_rng(seed))
    sampler.refresh(7 * x, y)
    batch = sampler(step)
    assert batch.shape == first.shape
    drawn = labels[batch].reshape(groups, size, per_class)
    assert (drawn == drawn[:, :, :1]).all()
    assert len(np.unique(drawn)) == groups * size
    for label, images in zip(drawn[:, :, 0].ravel(), batch.reshape(-1, per_class), strict=True):
        if counts[present == label].item() >= per_class:
            assert len(set(images)) == per_class
    unit = (x / x.norm(dim=1, keepdim=True)).numpy()
    squared = ((unit[:, None] - unit) ** 2).sum(axis=2)
    far = {
        (p, q): squared[np.ix_(labels == p, labels == q)].mean() for p in present for q in present
    }
    left = set(present.tolist())
    for group in drawn[:, :, 0].tolist():
        left -= set(group)
        ends = [max([far[p, q] for q in group if q != p], default=0.0) for p in group]
        assert any(  # one of the group is its random class: whatever is left is farther
            all(far[p, q] >= end - 1e-12 for q in left) for p, end in zip(group, ends, strict=True)
        )


def test_groups_begin_with_every_class_equally_often():
    """Alone in its group, a class is drawn as PK draws it."""
    labels = np.repeat(np.arange(10), 3)
    sampler = Neighbors(labels, groups=3, group_size=1, per_class=1)
    sampler.refresh(*shown(labels, np.random.default_rng(0)))
    drawn = labels[np.concatenate([sampler(step) for step in range(4000)])]
    share = np.bincount(drawn) / 4000
    assert np.abs(share - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 4000)  # five standard errors


def test_the_neighbors_are_the_samplers_state():
    labels = np.repeat(np.arange(20), 4)
    sampler, restored = Neighbors(labels, 2, 3), Neighbors(labels, 2, 3)
    restored.load_state_dict(sampler.state_dict())  # none yet
    np.testing.assert_array_equal(sampler(5), restored(5))
    before = sampler(5)
    sampler.refresh(*shown(labels, np.random.default_rng(0)))
    assert not np.array_equal(sampler(5), before)
    restored.load_state_dict(sampler.state_dict())
    np.testing.assert_array_equal(sampler(5), restored(5))


@given(st.integers(1, 40), seeds, st.integers(0, 10**6), st.data())
def test_uniform_visits_every_image_at_most_once_an_epoch(images, seed, epoch, data):
    size = data.draw(st.integers(1, images))
    sampler, batches = Uniform(np.zeros(images, dtype=int), size, seed), images // size
    epochs = [sampler(epoch * batches + i) for i in range(batches)]
    seen = np.concatenate(epochs)
    assert all(len(batch) == size for batch in epochs)
    assert len(set(seen)) == len(seen) == batches * size
    assert set(seen) <= set(range(images))


def samplers(seed: int) -> list[Callable[[int], np.ndarray]]:
    labels = np.repeat(np.arange(20), 12)
    neighbors = Neighbors(labels, 3, 3, 4, seed)
    neighbors.refresh(*shown(labels, np.random.default_rng(0)))
    return [
        PK(labels, 8, 4, seed),
        PairBatches(labels, 8, 0.5, seed),
        Episodic(labels, 5, 3, 3, seed),
        Uniform(labels, 32, seed),
        neighbors,
    ]


def shown(labels: np.ndarray, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings (N, 4) of images around the random centers of their classes, and the labels."""
    _, place = np.unique(labels, return_inverse=True)
    x = rng.normal(size=(place.max() + 1, 4))[place] + 0.3 * rng.normal(size=(len(labels), 4))
    return torch.from_numpy(x), torch.from_numpy(labels)


@pytest.mark.parametrize("which", range(5))
def test_batches_are_a_pure_function_of_seed_and_step(which):
    order = [3, 900, 0, 3, 7]
    first = [samplers(1)[which](step) for step in order]  # a fresh sampler for each
    shared = samplers(1)[which]
    again = [shared(step) for step in reversed(order)][::-1]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], samplers(2)[which](3))


@pytest.mark.parametrize("which", range(5))
def test_changing_a_batch_does_not_change_the_next(which):
    sampler = samplers(0)[which]
    before = sampler(0).copy()
    sampler(0)[:] = -1
    np.testing.assert_array_equal(sampler(0), before)


@pytest.mark.parametrize(
    "make, batches",
    [
        (
            lambda labels: PK(labels, 3, 4, seed=7),
            {
                0: [13, 2, 35, 10, 9, 15, 21, 22, 14, 11, 25, 19],
                10**6: [34, 5, 6, 36, 21, 28, 29, 9, 24, 38, 39, 39],
            },
        ),
        (
            lambda labels: PK(labels, 2, 9, seed=7),
            {5: [24, 38, 24, 39, 39, 39, 39, 39, 39, 7, 5, 32, 23, 36, 7, 32, 5, 36]},
        ),
        (
            lambda labels: Episodic(labels, 2, 2, 3, seed=7),
            {0: [29, 21, 22, 15, 28, 25, 19, 14, 30, 11], 5: [26, 17, 12, 10, 2, 34, 6, 7, 36, 23]},
        ),
        (
            lambda labels: Uniform(labels, 9, seed=7),
            {5: [34, 32, 6, 16, 33, 35, 28, 17, 7], 10**6: [1, 5, 32, 6, 4, 36, 11, 33, 37]},
        ),
    ],
)
def test_batches_are_those_of_committed_runs(make, batches):
    """Recorded from the sampler that evidence in the repository was trained with."""
    labels = np.random.default_rng(0).integers(0, 6, 40)  # 8, 6, 3, 10, 6 and 7 images
    sampler = make(labels)
    assert {step: sampler(step).tolist() for step in batches} == batches


def test_pk_draws_every_class_and_every_image_equally_often():
    labels = np.repeat(np.arange(10), [5, 20] * 5)
    sampler = PK(labels, classes=5, per_class=5)
    drawn = np.concatenate([sampler(step) for step in range(4000)])
    expected = np.where(labels % 2, 0.5 * 5 / 20, 0.5)  # chance of an image to be in a batch
    share = np.bincount(drawn, minlength=len(labels)) / 4000
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / 4000)  # five standard errors


def test_samplers_leave_the_global_random_state_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the state under test
    for sampler in samplers(0):
        sampler(0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: PK([0, 0, 1], classes=3),
            "3 classes was asked for, but the labels hold 2: .*the sampler's classes",
        ),
        (lambda: PK([0, 1], classes=0), "classes must be a whole number from 1, but is 0"),
        (lambda: PK([0, 1], classes=2, per_class=0), "per_class must be a whole number from 1"),
        (lambda: Neighbors([0, 1, 2], groups=2, group_size=2), "4 classes was asked for"),
        (lambda: Neighbors([0, 1], groups=0), "groups must be a whole number from 1, but is 0"),
        (
            lambda: Neighbors([0, 1], 1, 1, refresh_every=0),
            "refresh_every must be a whole number from 1",
        ),
        (lambda: PK([[0, 1]]), r"integers of shape \(N,\), not int64 of shape \(1, 2\)"),
        (lambda: PK([0.0, 1.0]), "not float64"),
        (lambda: PairBatches([0, 1], 2, same_image=1.1), "same_image must be .*0 to 1, but is 1.1"),
        (
            lambda: PairBatches([0, 1], 2, same_image=float("nan")),
            "same_image must be .*but is nan",
        ),
        (lambda: Episodic([0, 0, 1, 1], ways=2, support=1, query=2), "only 0 of 2 classes"),
        (
            lambda: Episodic([0, 0], ways=1, support=0, query=1),
            "support must be a whole number from 1",
        ),
        (
            lambda: Uniform([0, 1], size=3),
            "a batch of 3 was asked for, but there are 2 images: .*size",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# For a DataLoader --------------------------------------------------------------------------------

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
        return [(index.tolist(), labels.tolist()) for _ in range(2) for index, labels in found]

    alone, twice = loaded(0), batches(sampler)
    assert [index for index, _ in alone] == [*twice, *twice]
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
        assert len(rest) == STEPS - start
        assert list(rest) == whole[start:]


@of_every_kind
def test_each_pass_is_the_next_epoch_also_of_a_training_that_goes_on(sampler):
    """The loop that everybody writes sees what one long training does."""
    step = sampler(LABELS, **SAMPLERS[sampler])
    expected = [step(number).tolist() for number in range(4 * STEPS)]
    loader = DataLoader(torch.arange(len(LABELS)), batch_sampler=(own := batches(sampler)))
    assert [batch.tolist() for _ in range(4) for batch in loader] == expected
    rest = batches(sampler, start=4)
    for each in (own, rest):
        each.set_epoch(2)
    assert [*own, *own] == expected[2 * STEPS :]
    assert [*rest, *rest] == expected[2 * STEPS + 4 :]
    assert len(rest) == STEPS
    ranks = [batches(sampler, rank=r, world_size=2) for r in range(2)]
    for epoch in (0, 1):
        for whole, *shares in zip(expected[epoch * STEPS :], *ranks, strict=False):
            assert np.stack(shares, axis=1).ravel().tolist() == whole


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"start": 10}, "start must be a number from 0 to 9, but is 10"),
        ({"rank": 2, "world_size": 2}, "rank must be a number from 0 to 1, but is 2"),
        ({"world_size": 5}, "world_size 5 cannot share a batch of 12 images equally"),
    ],
)
def test_what_cannot_be_shared_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        BatchSampler(LABELS, **({"steps": STEPS} | SAMPLERS[PK] | wrong))
