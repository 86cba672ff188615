"""SEE with many classes: blocks that share none."""

import numpy as np
import pandas as pd
import torch

from studies import claims, many


def test_no_repetition_is_tested_on_what_it_learned_or_validated(monkeypatch):
    y = np.repeat(np.arange(many.EVERY), 2)
    x = torch.from_numpy(y).float()[:, None]  # a feature that tells the class
    monkeypatch.setattr(many, "features", lambda: (x, y))
    made = {r: many.material.__wrapped__(r) for r in range(-1, many.GRID.repetitions)}
    unseen = {r: {*at.unseen_labels} for r, at in made.items()}
    assert len(set().union(*unseen.values())) == sum(map(len, unseen.values())) == 1118
    for at in made.values():
        assert int(at.labels.max()) + 1 == max(many.GRID.classes)
        assert not {*at.features[:, 0].tolist()} & {*at.unseen[:, 0].tolist()}


def test_searches_come_first():
    searches = many.asked(pd.DataFrame(columns=[*many.KEYS, "recall_at_1"]))
    assert len(searches) == 2 * 9 * len(many.RECIPES)
    assert {row["repetition"] for row in searches} == {-1}


def test_the_kept_table_is_whole_and_both_questions_have_a_word_of_the_ledger():
    table = pd.read_csv(many.PATH)
    assert many.asked(table) == []
    assert not table.duplicated(many.KEYS).any()
    found = many.questions(table)
    assert [*found.index] == ["B4", "B6"]
    assert {*found["word"]} <= {*claims.WORDS}
