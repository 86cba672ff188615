"""Norms anew: each way has a rate of its own, the control that of none."""

import json

import pandas as pd
import pytest

from studies import anew, claims


def test_each_way_has_the_rate_that_validates_best():
    searches = anew.waiting(pd.DataFrame(columns=[*anew.KEYS, "mean"]))
    assert len(searches) == anew.SEARCHED * len(anew.WAYS) * len(anew.RATES)
    table = pd.DataFrame(searches)
    best = dict(zip(anew.WAYS, [3e-3, 1e-3, 1e-3, 3e-3, 9e-3, 3e-3], strict=True))
    table["mean"] = (table["rate"] == table["way"].map(best)).astype(float)
    tested = pd.DataFrame(anew.waiting(table))
    assert tested["way"].nunique() == len(anew.WAYS) + 1
    rates = tested.groupby("way")["rate"].unique().explode().to_dict()
    assert rates == best | {anew.TWICE: best["none"]}


def test_the_same_share_of_each_norm_costs_the_same():
    costs = [way["weight"] * way["target"] ** 2 for way in anew.WAYS.values() if "target" in way]
    assert costs == pytest.approx([costs[0]] * 4)


def test_the_kept_table_is_whole_and_both_questions_have_a_word_of_the_ledger():
    table = pd.read_csv(anew.PATH)
    assert anew.waiting(table) == []
    assert not table.duplicated(anew.KEYS).any()
    found = anew.questions(table)
    assert [*found.index] == [*anew.ASKED]
    assert {*found["word"]} <= {*claims.WORDS}
    for fold, rows in table[table["part"] == "test"].groupby(table["repetition"] % 4):
        row = {"part": "test", "way": "none", "repetition": fold, "rate": 1e-3}
        e = anew.planned(row)
        learned = {*anew.data.load(e.data, "train", **e.data_args).class_names}
        assert not any(learned & {*json.loads(each)} for each in rows["by_class"])
