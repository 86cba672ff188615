"""What the study of SEE by dimension and classes trains, and when."""

import pandas as pd

from studies import dimensions


def test_searches_come_first_and_decide_the_recipes():
    searches = dimensions.waiting(pd.DataFrame(columns=[*dimensions.KEYS, "recall_at_1"]))
    assert {row["repetition"] for row in searches} == {-1}
    assert {row["variant"] for row in searches} == {"plain, own recipe", "SEE"}
    assert len(searches) == 2 * 8 * len(dimensions.RECIPES)

    best = {"plain, own recipe": 1, "SEE": 4}
    table = pd.DataFrame(searches)
    table["recall_at_1"] = table["recipe"] == table["variant"].map(best)
    repetitions = pd.DataFrame(dimensions.waiting(table.astype({"recall_at_1": float})))
    assert len(repetitions) == dimensions.REPETITIONS * 8 * len(dimensions.VARIANTS)
    recipes = repetitions.groupby("variant")["recipe"].unique().explode().to_dict()
    assert recipes.pop("plain, own recipe") == 1
    assert set(recipes.values()) == {4}, "what is compared with SEE has SEE's recipe"


def test_the_table_has_every_training_once():
    table = pd.read_csv(dimensions.PATH)
    assert dimensions.waiting(table) == []
    assert not table.duplicated(dimensions.KEYS).any()
