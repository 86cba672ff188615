"""The search behind lesson 07 is whole, and its best settings do not stand at an edge."""

import pandas as pd

from studies import clustering


def test_nothing_is_missing_and_what_the_lesson_takes_lies_inside() -> None:
    table = pd.read_csv(clustering.PATH)
    assert clustering.waiting(table) == []
    assert len(clustering.waiting(table.iloc[1:])) == 1
    means = table.groupby(["loss", "lr"])["Recall@1"].mean()
    for name in ("γ = 5", "semi-hard triplets"):
        assert clustering.RATES[0] < means[name].idxmax() < clustering.RATES[-1]
    assert 0.00125 < means["γ = 125"].idxmax() < clustering.RATES[-1]
    swapped = means["γ = 5, with swaps"]
    assert clustering.SWAPPED[5][0] < swapped.idxmax() < clustering.SWAPPED[5][-1]
    margins = [means[f"γ = {each}"].max() for each in clustering.MARGINS]
    assert 0 < margins.index(max(margins)) < len(margins) - 1
    with_swaps = [means[f"γ = {each}, with swaps"].max() for each in clustering.SWAPPED]
    assert with_swaps.index(max(with_swaps)) == 1
