"""What a study says to someone who has to choose a loss, and the table of it."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import studies
from dmlkit import ROOT, files, study
from dmlkit.cli import app
from studies import choice
from studies.choice import which_loss

COUNT = 12
RULES = studies.protocol("scratch")


def evidence(**levels):
    """Scores that scatter alike around a level, and those of two baselines."""
    rng = np.random.default_rng(0)
    given = levels | {"raw pixels": 0.1, "untrained network": 0.2}
    return pd.DataFrame(
        [
            {"arm": arm, "repetition": k, "recall_at_1": level + 0.01 * rng.standard_normal()}
            for arm, level in given.items()
            for k in range(COUNT)
        ]
    )


def trials(**batches):
    """The trials of losses whose searches chose these batches; the median is 20 points short."""
    rows = []
    for arm, chosen in batches.items():
        for search, batch in enumerate(chosen):
            settings = json.dumps({"batch": batch})
            rows += [(arm, search, "short", i, settings, r) for i, r in enumerate((0.5, 0.3, 0.1))]
            rows.append((arm, search, "full", 0, settings, 0.6))
    names = ["arm", "search", "stage", "candidate", "settings", "recall_at_1"]
    return pd.DataFrame(rows, columns=names)


BATCHES = trials(
    margin=("32 x 4", "32 x 4"), contrastive=("16 x 8", "uniform"), proxy_nca=("uniform",) * 2
)


def test_a_table_has_each_loss_the_best_first_with_its_batches_and_costs():
    found = which_loss(RULES, BATCHES, evidence(contrastive=0.6, margin=0.7, proxy_nca=0.695))
    assert list(found.index) == ["margin", "proxy_nca", "contrastive"]
    assert found["batches"].tolist() == [("32 x 4",), ("uniform",), ("16 x 8", "uniform")]
    assert found["blind"].tolist() == pytest.approx([0.2] * 3)
    assert found["apart"].tolist() == [False, False, True]
    assert found.loc["margin", "behind"] == 0
    row = found.loc["contrastive"]
    assert 0.08 < row["behind_low"] < row["behind"] < row["behind_high"] < 0.12


def test_only_losses_with_all_repetitions_and_nothing_added_are_in_it():
    frame = evidence(margin=0.7, contrastive=0.6, proxy_nca=0.5, **{"margin + SEC": 0.9})
    short = frame[~((frame["arm"] == "proxy_nca") & (frame["repetition"] == 11))]
    assert list(which_loss(RULES, BATCHES, short).index) == ["margin", "contrastive"]


def test_what_is_apart_from_the_best_is_so_by_both_tests_after_holms_correction():
    rng = np.random.default_rng(1)
    wide = pd.DataFrame({str(i): 0.01 * rng.standard_normal(COUNT) for i in range(19)})
    wide["0"] += 0.5
    wide["1"] += 0.49
    found = studies.behind_the_best(wide)
    assert not {"0"} & set(found.index)
    delta = wide["1"] - wide["0"]
    t, flips = stats.ttest_1samp(delta, 0).pvalue, study.sign_flips(delta)
    assert found.loc["1", "p"] == pytest.approx(max(t, flips), rel=1e-9)
    assert found.loc["1", ["mean", "low", "high"]].to_numpy() == pytest.approx(
        study.interval(delta)[["mean", "low", "high"]].to_numpy()
    )
    ordered = found["p"].sort_values()
    expected, alive = {}, True
    for i, (name, p) in enumerate(ordered.items()):
        alive = alive and p <= 0.05 / (len(ordered) - i)
        expected[name] = alive
    assert found["apart"].to_dict() == expected
    assert found.loc[[str(i) for i in range(2, 19)], "apart"].all()


def test_shared_classes_widen_the_interval_and_raise_the_p_value():
    rng = np.random.default_rng(2)
    wide = pd.DataFrame({name: 0.01 * rng.standard_normal(COUNT) for name in "ab"})
    wide["a"] += 0.02
    alone, shared = (studies.behind_the_best(wide, r).loc["b"] for r in (0.0, 0.3))
    delta = wide["b"] - wide["a"]
    assert shared["mean"] == alone["mean"]
    wider = (shared["high"] - shared["low"]) / (alone["high"] - alone["low"])
    assert wider == pytest.approx((1 + 0.3 * COUNT) ** 0.5)
    t = delta.mean() / delta.std() / (1 / COUNT + 0.3) ** 0.5
    assert shared["p"] == pytest.approx(2 * stats.t.cdf(t, COUNT - 1))
    assert shared["p"] > alone["p"]


def test_the_page_tells_the_table_and_what_it_comes_to():
    text = choice.markdown(RULES, BATCHES, evidence(contrastive=0.6, margin=0.7, proxy_nca=0.695))
    first, _, table = text.partition("\n\n")
    assert first.startswith("Of 3 losses `margin` has the highest mean; not told apart from it: `p")
    assert "raw pixels 1" in first
    assert "12 repetitions" in first
    rows = table.splitlines()
    assert len(rows) == 2 + 3
    assert rows[2].startswith("| `margin` | 32 x 4 | ")
    assert rows[3].endswith(", not told apart | 20 |")
    assert rows[4].startswith("| `contrastive` | 16 x 8, uniform | ")
    assert "not told apart" not in rows[4]


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a <!-- which-loss --> b")
    with pytest.raises(ValueError, match="needs a line <!-- which-loss --> and one <!-- /which"):
        files.write_between(page, "which-loss", "new")
    assert page.read_text() == "a <!-- which-loss --> b"
    page.write_text("a\n<!-- which-loss -->\nold\n<!-- /which-loss -->\nb\n")
    files.write_between(page, "which-loss", "new")
    assert page.read_text() == "a\n<!-- which-loss -->\nnew\n<!-- /which-loss -->\nb\n"


def test_the_table_is_what_the_evidence_says(tmp_path):
    written = (ROOT / "docs" / "which_loss.md").read_text()
    page = tmp_path / "page.md"
    page.write_text(written)
    done = CliRunner().invoke(app, ["study", "scratch", "--write", str(page)])
    assert done.exit_code == 0, done.output
    assert page.read_text() == written, "run dmlkit study scratch --write docs/which_loss.md"
    assert written.partition("<!-- which-loss -->")[2].count("| `") > 10
