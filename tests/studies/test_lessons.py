"""What a verdict shows of the ledger, of conditions and of printed tables."""

import dataclasses
import json
import tomllib

import numpy as np
import pandas as pd
import pytest

import studies
from dmlkit.figures import Finding
from dmlkit.figures.finding import FILE
from studies import claims, lessons
from studies.answers import Condition
from tests.studies.test_claims import around, written

RNG = np.random.default_rng(0)


def condition(name, **arms):
    rows = [
        {"arm": arm, "repetition": k, "search": k % 2, "recall_at_1": value}
        for arm, values in arms.items()
        for k, value in enumerate(values)
    ]
    return Condition(name, pd.DataFrame(rows), 0.0, {})


def test_all_rows_of_a_claim_are_shown_in_points(tmp_path):
    written(
        tmp_path,
        claims.row("A1", "from scratch", around(0.03)),
        claims.row("A1", "photographs, head", around(-0.02, n=81)),
        claims.row("A2", "from scratch", around(0.0)),
    )
    plan = {"14_x": [{"claim": "A1", "of": "SEC"}]}
    found = lessons.table(plan, claims.ledger(tmp_path), [])
    kinds = found["kind"] == "printed"
    printed, found = found[kinds], found[~kinds]
    assert printed["n"].tolist() == 4 * ["SEC's repository"]
    assert found["label"].tolist() == ["drawings, from scratch", "photographs, head"]
    assert found["effect"].tolist() == pytest.approx([3.0, -2.0])
    assert found["n"].tolist() == ["12 repetitions", "81 products"]
    assert found["stands"].tolist() == [True, True]


def test_a_comparison_is_shown_where_both_sides_are_and_never_stands():
    values = RNG.random(12)
    both = condition("from scratch", a=values + 0.05 + 0.001 * RNG.random(12), b=values)
    lacking = condition("fine-tuned", a=values)
    plan = {"09_x": [{"of": "a minus b", "plus": ["a"], "minus": ["b"], "smallest": 0.01}]}
    (row,) = lessons.table(plan, pd.DataFrame(columns=["claim"]), [both, lacking]).to_dict(
        "records"
    )
    assert row["label"] == "drawings, from scratch"
    assert row["effect"] == pytest.approx(5.0, abs=0.2)
    assert row["word"] == "ahead"
    assert not row["stands"]


def test_what_a_failed_search_left_out_is_counted_or_is_all_there_is():
    values = RNG.random(12)
    arms = {name: values + 0.001 * RNG.random(12) for name in ("a", "b", "c", "d")}
    at = dataclasses.replace(condition("from scratch", **arms), borrowed={("b", 1): "far below"})
    both = {"of": "two", "plus": ["a", "b"], "minus": ["c", "d"], "smallest": 0.01}
    alone = {"of": "one", "plus": ["b"], "minus": ["c"], "smallest": 0.01}
    plan = {"09_x": [both, alone]}
    found = lessons.table(plan, pd.DataFrame(columns=["claim"]), [at]).set_index("of")
    assert list(found.index) == ["two", "one"]
    assert found["note"].tolist() == ["1 of 2 losses", ""]
    assert found.loc["two", "effect"] == pytest.approx(100 * (arms["a"] - arms["c"]).mean())
    assert found.loc["one", "word"] == claims.FAILED


def test_a_comparison_by_product_pairs_the_products_of_all_folds(tmp_path, monkeypatch):
    rows = [
        {"arm": arm, "measure": "recall_at_1", "by_class": json.dumps({f"{fold}": 0.5 + more})}
        for arm, more in (("a", 0.1), ("b", 0.0))
        for fold, more in ((0, 2 * more), (1, 3 * more))
    ]
    folder = tmp_path / "data" / "evidence"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(folder / "own.csv", index=False)
    monkeypatch.setattr(lessons, "ROOT", tmp_path)
    part = {"of": "a minus b", "evidence": "own", "plus": "a", "minus": "b", "label": "there",
            "smallest": 0.01}  # fmt: skip
    (row,) = lessons.table({"27_x": [part]}, pd.DataFrame(), []).to_dict("records")
    assert (row["effect"], row["n"], row["word"]) == (
        pytest.approx(25.0),
        "2 products",
        "not separated",
    )


def test_a_comparison_by_repetition_is_at_one_setting_and_without_searches(tmp_path, monkeypatch):
    rows = [
        {"repetition": k, "dim": dim, "variant": variant, "recall_at_1": (k + dim) * more}
        for k in (-1, 1, 2)
        for dim in (3, 8)
        for variant, more in (("a", 0.02), ("b", 0.01))
    ]
    folder = tmp_path / "data" / "evidence"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(folder / "own.csv", index=False)
    monkeypatch.setattr(lessons, "ROOT", tmp_path)
    part = {"of": "a minus b", "evidence": "own", "at": {"dim": 8}, "plus": "a", "minus": "b",
            "label": "there", "smallest": 0.01}  # fmt: skip
    (row,) = lessons.table({"17_x": [part]}, pd.DataFrame(), []).to_dict("records")
    assert (row["effect"], row["n"]) == (pytest.approx(9.5), "2 repetitions")


def printed(file, pairs):
    told = {"by": "its authors", "files": [file], "metrics": ["R@1"], "pairs": pairs}
    part = {"of": "SEC", "plus": ["a"], "minus": ["b"], "smallest": 0.01, "printed": told}
    found = lessons.table({"14_x": [part]}, pd.DataFrame(columns=["claim"]), [])
    assert (found["kind"] == "printed").all()
    return dict(zip(found["label"], found["effect"].round(2), strict=True))


def test_a_printed_size_is_the_mean_over_losses_of_each_data_set_and_network():
    sizes = printed(
        "extra_sec_repo_results",
        [[f"{m}+SEC", m] for m in ("Triplet", "Semihard", "NormNpair", "MS")],
    )
    assert sizes == {"CUB": 4.2, "Cars": 4.37, "SOP": 3.57, "In-Shop": 2.41}
    sizes = printed("unbiased_table2", [["Prototype Loss", "Triplet Semihard"]])
    assert sizes == {"CUB (Inception-BN)": -3.1, "CUB (ResNet-50)": 6.2}


def test_a_row_of_the_ledger_names_its_one_loss_and_why_nothing_is_decided(tmp_path):
    measure = "gain of SEC; here of triplet_semihard; unequal search: SEC's weights 0.001 to 1"
    row = claims.row("A1", "photographs, head", around(-0.02, n=81), measure=measure)
    written(tmp_path, dataclasses.replace(row, word=claims.UNDECIDED))
    plan = {"14_x": [{"claim": "A1", "of": "SEC"}]}
    *_, found = lessons.table(plan, claims.ledger(tmp_path), []).to_dict("records")
    assert found["note"] == "semi-hard triplets alone; unequal search"
    assert found["planned"]


def test_the_kept_table_is_that_of_the_evidence(committed_figures):
    plan = tomllib.loads(lessons.PLAN.read_text(encoding="utf-8"))
    found = list(studies.conditions(studies.kept()).values())
    made = lessons.table(plan, claims.ledger(committed_figures), found)
    kept = pd.read_csv(FILE, keep_default_na=False, na_values={"low": "", "high": "", "margin": ""})
    assert [*kept] == ["lesson", *(f for f in Finding.__dataclass_fields__ if f != "values")]
    pd.testing.assert_frame_equal(
        made.fillna({"n": ""}), kept, rtol=1e-4, check_dtype=False,
        obj="python -m studies.lessons makes it anew; data/verdicts.csv",
    )  # fmt: skip
