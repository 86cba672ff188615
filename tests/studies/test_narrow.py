"""SEE in few dimensions on photographs: what is trained, and the kept table."""

import pandas as pd

from studies import claims, narrow


def test_searches_come_first_and_see_validation_classes_alone():
    rows = narrow.waiting(pd.DataFrame(columns=[*narrow.KEYS, "mean"]))
    assert len(rows) == 2 * len(narrow.DIMS) * len(narrow.RECIPES) * narrow.SEARCHED
    planned = [narrow.planned(row) for row in rows]
    assert {(e.split, e.data_args["validation"]) for e in planned} == {("val", True)}


def test_centers_and_duplicates_have_the_recipe_of_see():
    row = {"part": "test", "dim": 8, "way": "", "repetition": 1, "recipe": 2}
    of = {way: narrow.planned(row | {"way": way}) for way in narrow.WAYS}
    assert len({(e.lr, e.seed, e.dim, e.split) for e in of.values()}) == 1
    assert of["SEE"].loss_args["points"] == of["duplicates"].loss_args["points"] == 7
    assert of["centers"] == of["none"]  # but for its proxies, which rest


def test_the_kept_table_is_whole_and_its_question_has_a_word_of_the_ledger():
    table = pd.read_csv(narrow.PATH)
    assert narrow.waiting(table) == []
    assert not table.duplicated(narrow.KEYS).any()
    assert narrow.asked(table)["word"] in claims.WORDS
