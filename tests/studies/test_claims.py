"""A word follows from the interval; the ledger reads rows from figures, and corrects for all."""

import json

import numpy as np
import pytest

from dmlkit import statistics
from studies import claims

RNG = np.random.default_rng(0)


def around(mean, n=12, spread=0.01):
    """Values whose mean and spread are exactly these."""
    x = RNG.standard_normal(n)
    return mean + spread * (x - x.mean()) / x.std(ddof=1)


def written(folder, *rows, name="toy"):
    record = {
        "numbers": {"claims": [row.facts() for row in rows]},
        "provenance": {"notebook": "15"},
    }
    (folder / f"{name}.json").write_text(json.dumps(record))


def test_a_row_is_the_one_test_of_its_values():
    x = around(0.03)
    row = claims.row("A1", "fine-tuned", x, overlap=0.2, luck=0.01, searches=2)
    expected = statistics.paired(x[:, None], overlap=0.2, luck=0.01, searches=2).iloc[0]
    assert (row.effect, row.low, row.high) == tuple(expected[["difference", "low", "high"]])
    assert row.p[0] == expected["p"]
    assert row.effective == statistics.effective(12, 0.2)
    assert row.word == "holds here"
    assert "effective" in str(row)
    assert claims.row("A1", "fine-tuned", x, timed=True).word == ""


def test_every_claim_has_a_rule_a_smallest_effect_and_a_history():
    rules = {"positive", "equivalent", "below", "exact", "table"}
    for name, about in claims.table().items():
        assert about["rule"] in rules, name
        assert float(about["smallest"]) >= 0, name
        assert all(
            about[key] for key in ("sentence", "claim", "measure", "unit", "before", "known")
        )


def test_values_that_are_all_the_same_have_no_interval():
    """Zero failures of four is compatible with many."""
    for values in ([0.0] * 4, [0.5]):
        with pytest.raises(ValueError, match="C18: an interval needs values that differ"):
            claims.row("C18", "from scratch", values)


def test_checks_and_tables_have_words_of_their_own():
    assert [claims.counted("B2", x).word for x in (1e-13, 1e-3)] == ["passed", "failed"]
    assert [claims.counted("B11", k, n=48).word for k in (0, 3)] == ["holds there", "fails there"]
    assert claims.counted("B11", 3, n=48).condition == claims.TABLE


def test_the_ledger_has_all_rows_in_the_claims_order_and_corrects_for_them(tmp_path):
    weak = claims.row("C19", "from scratch", around(0.05, spread=0.07))
    strong = claims.row("C18", "from scratch", around(0.5))
    fails = claims.row("C21", "from scratch", around(-0.05))
    opened = claims.row("C10", "from scratch", around(0.0, spread=0.3))
    written(tmp_path, weak, strong, fails, opened, claims.counted("B2", 1e-15))
    found = claims.ledger(tmp_path).set_index("claim")
    assert list(found.index) == ["B2", "C10", "C18", "C19", "C21"]
    assert found["word"].to_dict() == {
        "B2": "passed", "C10": "open", "C18": "holds here", "C19": "holds here",
        "C21": "fails here",
    }  # fmt: skip
    assert 0.0125 < weak.p[0] < 0.05  # alone it would stand, among four it falls
    assert found["stands"].to_dict() == {
        "B2": False, "C10": False, "C18": True, "C19": False, "C21": True,
    }  # fmt: skip


def test_one_condition_of_a_claim_has_one_home(tmp_path):
    for name in ("one", "other"):
        written(tmp_path, claims.row("C18", "from scratch", around(0.5)), name=name)
    with pytest.raises(ValueError, match="C18, from scratch: other says it once more"):
        claims.ledger(tmp_path)


def test_a_forest_shades_the_claims_side_of_the_smallest_effect():
    names = ("C18", "C16", "C17")  # positive, below, equivalent; smallest 10, 2 and 2 points
    fig = claims.forest([claims.row(name, "from scratch", around(0.05)) for name in names])
    (ax,) = fig.axes
    sides = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    left, right = ax.get_xlim()
    assert np.allclose(sides, [(10, right), (left, 2), (max(-2, left), 2)])
