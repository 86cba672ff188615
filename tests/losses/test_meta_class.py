"""A member's loss is plain cross-entropy on a balanced map of the classes, which is its state."""

import pytest
import torch

from dmlkit import losses
from dmlkit.losses.proxies import MetaClassLoss
from tests.losses.oracles import assert_same, batch


def test_a_member_is_cross_entropy_of_the_embedding_as_logits(generator):
    x, y = batch(generator, classes=6, per_class=4, dim=3)
    loss = MetaClassLoss(num_classes=6, dim=3, map_seed=2)

    def oracle(z):
        """−log of the softmax, term by term, with the proxies written out."""
        total = z.new_zeros(())
        for f, label in zip(z, y.tolist(), strict=True):
            logits = torch.stack([f @ proxy for proxy in torch.eye(3, dtype=z.dtype)])
            m = int(loss.meta_classes[label])
            total = total - torch.log(logits.exp()[m] / logits.exp().sum())
        return total / len(z)

    assert_same(lambda z: loss(z, y), oracle, x)


@pytest.mark.parametrize("classes, dim", [(300, 12), (300, 144), (7, 3), (3, 7), (5, 1)])
@pytest.mark.parametrize("map_seed", range(3))
def test_the_map_is_balanced(classes, dim, map_seed):
    sizes = MetaClassLoss(classes, dim, map_seed).meta_classes.bincount(minlength=dim)
    assert sizes.sum() == classes
    assert len(sizes) == dim
    assert sizes.max() - sizes.min() <= 1


def test_the_map_is_random_by_its_seed_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    maps = [MetaClassLoss(300, 12, seed).meta_classes for seed in (0, 1, 0)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(maps[0], maps[2])
    both = maps[0] * 12 + maps[1]
    assert len(both.unique()) > 100  # of 144: independent maps share no structure
    assert not torch.equal(maps[0], torch.arange(300) % 12)


def test_the_map_is_state(generator):
    x, y = batch(generator, classes=6, per_class=2, dim=3)
    one, other = (MetaClassLoss(6, 3, seed) for seed in (0, 1))
    assert one(x, y) != other(x, y)
    other.load_state_dict(one.state_dict())
    assert one(x, y) == other(x, y)
    assert not list(one.parameters())


def test_the_table_names_the_member_and_points_to_the_ensemble():
    loss = losses.build("meta_class", num_classes=6, dim=3, map_seed=4)
    assert torch.equal(loss.meta_classes, MetaClassLoss(6, 3, 4).meta_classes)
    assert {"meta_class", "dreml"} <= set(losses.names())
    with pytest.raises(ValueError, match=r"studies\.dreml"):
        losses.build("dreml", num_classes=6, dim=3)
