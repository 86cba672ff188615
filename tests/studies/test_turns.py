"""Turns by norm: which rates hold for all ways, and what is kept."""

import pandas as pd

from studies import claims, turns


def test_rates_are_chosen_without_a_constraint_and_then_hold_for_all_ways():
    searches = turns.waiting(pd.DataFrame(columns=[*turns.KEYS, "recall"]))
    assert {row["part"] for row in searches} == {"rates"}
    assert {row["way"] for row in searches} == {"none"}
    table = pd.DataFrame(searches)
    best = {"adam": 3e-3, "sgd": 0.1, "adamw": 1e-3}
    table["recall"] = (table["rate"] == table["optimizer"].map(best)).astype(float)
    watched = pd.DataFrame(turns.waiting(table))
    sides = len(turns.LOSSES) * len(turns.OPTIMIZERS)
    assert len(watched) == turns.REPETITIONS * sides * len(turns.WAYS)
    assert (watched["rate"] == watched["optimizer"].map(best)).all()


def test_the_kept_table_is_whole_and_its_six_questions_have_words_of_the_ledger():
    table = pd.read_csv(turns.PATH)
    assert turns.waiting(table) == []
    assert not table.duplicated(turns.KEYS).any()
    found = turns.questions(table)
    assert len(found) == 2 * len(turns.OPTIMIZERS)
    assert {*found["word"]} <= {*claims.WORDS}
    assert (found["holm"] >= found["p"]).all()
