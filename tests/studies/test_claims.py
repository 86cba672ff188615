"""A word follows from the interval; the ledger reads rows from figures, and corrects for all."""

import json

import numpy as np
import pytest

from dmlkit import statistics
from studies import claims
from studies.printed import printed

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
    how = {"overlap": 0.1, "luck": statistics.Luck(1e-4, 1e-5), "searches": 2}
    row = claims.row("A1", "fine-tuned", x, **how)
    expected = statistics.paired(x[:, None], **how).iloc[0]
    assert (row.effect, row.low, row.high) == tuple(expected[["difference", "low", "high"]])
    assert row.p[0] == expected["p"]
    assert row.effective == statistics.effective(12, 0.1)
    assert row.word == "holds here"
    assert "effective" in str(row)
    assert claims.row("A1", "fine-tuned", x, timed=True).word == ""


def test_fewer_than_five_effective_repetitions_decide_nothing():
    x = around(0.03)
    for overlap, word in ((0.1, "holds here"), (0.2, "cannot be decided here")):
        row = claims.row("A1", "fine-tuned", x, overlap=overlap)
        assert row.low > 0
        assert row.word == word


def test_every_claim_has_a_rule_a_smallest_effect_and_a_history():
    rules = {"positive", "equivalent", "below", "exact", "code", "table"}
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
    weak = claims.row("C19", "from scratch", around(0.05, spread=0.06))
    strong = claims.row("C18", "from scratch", around(0.5))
    fails = claims.row("C21", "from scratch", around(-0.05))
    opened = claims.row("C10", "from scratch", around(0.0, spread=0.3))
    written(tmp_path, weak, strong, fails, opened, claims.counted("B2", 1e-15))
    found = claims.ledger(tmp_path).set_index("claim")
    assert list(found.index) == ["B2", "C10", "C18", "C19", "C21"]
    assert found["word"].to_dict() == {
        "B2": "passed", "C10": "cannot be decided here", "C18": "holds here", "C19": "holds here",
        "C21": "reversed here",
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


def test_a_forest_says_in_color_only_what_stands_among_all_rows():
    weak = claims.row("C19", "from scratch", around(0.05, spread=0.06))
    strong = claims.row("C18", "from scratch", around(0.5))
    others = [claims.row("C10", at, around(0.0, spread=0.3)) for at in claims.CONDITIONS[:4]]
    colors = {text.get_text(): text.get_color() for text in claims.forest([weak]).axes[0].texts}
    assert colors["holds here"] != "0.5"
    among = [weak, strong, *others]
    (ax,) = claims.forest([weak], among=among).axes
    assert {t.get_text(): t.get_color() for t in ax.texts}["holds here"] == "0.5"


def mean_of(values: dict[str, float], claim="A1", spread=0.002):
    """A row of a mean over losses that have these effects."""
    each = {name: around(effect, spread=spread) for name, effect in values.items()}
    rest = {
        name: claims.Measured(np.mean([x for other, x in each.items() if other != name], axis=0))
        for name in each
    }
    return claims.row(claim, "from scratch", np.mean([*each.values()], axis=0), without=rest)


def test_a_mean_that_one_loss_carries_has_no_word_but_what_all_keep():
    even = mean_of({"a": 0.03, "b": 0.031, "c": 0.029})
    assert (even.word, even.carried) == ("holds here", ())
    carried = mean_of({"a": 0.09, "b": 0.0, "c": 0.0})
    assert (carried.word, carried.carried) == ("open", ("a",))
    assert carried.without["a"] == pytest.approx(0.0, abs=1e-12)
    low = mean_of({"a": 0.03, "b": 0.0, "c": 0.0})  # 1 point: m; the paper prints 2.4 and more
    assert low.word == "printed size excluded here"


def test_the_gain_of_a_loss_is_one_number_in_every_row_that_has_it():
    frame = claims.ledger()
    mine = frame[frame["condition"] == "from scratch"].set_index("claim")["parts"]
    both = {name.removesuffix(claims.AGAINST): gain for name, gain in mine["C19"].items()}
    assert len(both) > 4
    assert both == pytest.approx({name: mine["C9"][name] for name in both}, abs=1e-6)


def test_printed_sizes_are_those_of_the_papers_tables():
    """By hand, from the tables as printed (CUB; four pairs on ResNet50, the fifth on two)."""
    cub = [60.82 - 53.34, 67.35 - 65.31, 66.00 - 61.36, 68.79 - 66.14]
    assert printed("A1")["CUB200"] == pytest.approx(np.mean(cub) / 100)
    anchor = (88.5 - 87.7 + 86.2 - 86.1) / 2
    see = [86.5 - 84.2, 87.1 - 86.9, 87.6 - 86.8, 88.3 - 86.5, anchor]
    assert printed("B4") == {"Cars (inferred)": pytest.approx(np.mean(see) / 100)}
    assert printed("C3") == {}
