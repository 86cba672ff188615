"""The search behind lesson 07 is whole, and its best settings do not stand at an edge."""

import pandas as pd

from studies import clustering


def test_nothing_is_missing_and_what_the_lesson_takes_lies_inside() -> None:
    table = pd.read_csv(clustering.PATH)
    assert clustering.waiting(table) == []
    assert len(clustering.waiting(table.iloc[1:])) == 1
    means = table.groupby(["loss", "lr"])["Recall@1"].mean()
    for name in ("γ = 5", clustering.TRIPLETS):
        assert clustering.RATES[0] < means[name].idxmax() < clustering.RATES[-1]
    margins = [means[f"γ = {each}"].max() for each in clustering.MARGINS]
    assert 0 < margins.index(max(margins)) < len(margins) - 1
