"""Findings tried anew: what is kept is what the rules ask for."""

import json

import numpy as np
import pandas as pd
import pytest

from studies import anew, claims


def test_the_kept_table_is_whole():
    table = pd.read_csv(anew.PATH)
    tested = table[table["part"] == "test"]
    assert len(tested) == anew.REPETITIONS * len(anew.WAYS)
    assert not tested.duplicated(["way", "repetition"]).any()
    assert {way: {anew.chosen(table, way)} for way in anew.WAYS} == {
        way: {*rates} for way, rates in tested.groupby("way")["rate"]
    }
    means = [np.mean([*json.loads(each).values()]) for each in table["by_class"]]
    assert table["mean"].tolist() == pytest.approx(means, abs=1e-4)


def test_a_question_has_a_word_of_the_ledger_and_products_that_were_not_trained():
    table = pd.read_csv(anew.PATH)
    found = anew.questions(table)
    assert {*found["word"]} <= {*claims.WORDS}
    for fold, rows in table[table["part"] == "test"].groupby(table["repetition"] % 4):
        e = anew.planned("none", 1e-3, int(fold), 0)
        trained = {*anew.data.load(e.data, "train", **e.data_args).class_names}
        assert not any(trained & {*json.loads(each)} for each in rows["by_class"])
