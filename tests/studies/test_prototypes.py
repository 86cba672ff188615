"""The rates of lesson 06 are whole, and those that it takes are the best, inside."""

import pandas as pd
import torch

from studies import prototypes


def test_nothing_is_missing_and_the_best_rates_lie_inside() -> None:
    table = pd.read_csv(prototypes.PATH)
    assert prototypes.waiting(table) == []
    assert len(prototypes.waiting(table.iloc[1:])) == 1
    for way in prototypes.WAYS:
        means = table[table["trained"] == way].groupby("lr")[way].mean()
        assert means.idxmax() == 0.005


def test_both_tests_are_right_where_classes_lie_apart_and_agree_with_one_image() -> None:
    x = torch.randn(3, 10, 4, generator=torch.Generator().manual_seed(0))
    far = x + 100 * torch.eye(3, 4)[:, None]
    assert prototypes.right(far, mean=True) == prototypes.right(far, mean=False) == 1
    one = x[:, :1]
    f = x.flatten(0, 1)
    means, neighbors = (prototypes.scores(f, one, mean) for mean in (True, False))
    torch.testing.assert_close(means, neighbors)
