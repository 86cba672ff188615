"""What the studies say to someone who has to choose a loss: groups, and settings."""

import re

import numpy as np
import pandas as pd
import pytest

import studies
from dmlkit import ROOT, files, losses, statistics
from studies import choice
from studies.condition import Condition
from studies.rules import loss_arm

COUNT = 12
NAMES = [entry.name for entry in losses.entries()][:12]


def condition(levels, spread=0.01, luck=0.0, overlap=0.0):
    """Scores that scatter alike around a level for each loss, of two searches."""
    rng = np.random.default_rng(0)
    lucks = luck * rng.standard_normal((2, len(levels)))
    rows = [
        (arm, k, k % 2, level + lucks[k % 2, i] + spread * rng.standard_normal())
        for i, (arm, level) in enumerate(levels.items())
        for k in range(COUNT)
    ]
    frame = pd.DataFrame(rows, columns=["arm", "repetition", "search", "recall_at_1"])
    return Condition("from scratch", frame, overlap, {})


def test_what_is_not_separated_from_the_best_leads_and_the_others_come_in_bands():
    levels = dict.fromkeys(NAMES, 0.70) | {NAMES[0]: 0.80, NAMES[1]: 0.7995, NAMES[2]: 0.753}
    found = choice.standings(condition(levels | {"margin + SEC": 0.9, "raw pixels": 0.2}))
    assert set(found.index) == set(NAMES), "nothing added, and no baseline"
    assert found["mean"].is_monotonic_decreasing
    assert set(found.index[found["group"] == 0]) == set(NAMES[:2])
    assert found.loc[NAMES[2], "group"] == 3  # 4 to 6 points behind
    assert set(found.loc[NAMES[3:], "group"]) <= {5, 6}


def test_a_loss_that_leads_by_the_luck_of_its_recipes_is_not_alone_in_front():
    levels = dict.fromkeys(NAMES, 0.7) | {NAMES[0]: 0.71}
    sure, lucky = (choice.standings(condition(levels, 0.004, luck)) for luck in (0.0, 0.02))
    assert (sure["group"] == 0).sum() == 1
    assert (lucky["group"] == 0).sum() > 6


def test_the_best_is_chosen_by_other_searches():
    """Where all are equal, none is behind: chosen in the same repetitions, all others would be."""
    behind = [
        choice.standings(condition(dict.fromkeys(NAMES, 0.7), 0.01 + 1e-6 * i))["behind"].mean()
        for i in range(3)
    ]
    at = condition(dict.fromkeys(NAMES, 0.7))
    naive = (at.wide().mean().max() - at.wide().mean()).mean()
    assert np.abs(behind).max() < naive / 2


def test_p_values_are_those_of_the_one_test_after_holms_correction():
    at = condition(dict.fromkeys(NAMES[1:], 0.7) | {NAMES[0]: 0.75}, overlap=0.2)
    found, wide = choice.standings(at), at.wide()
    d = wide[[NAMES[0]]].to_numpy() - wide.to_numpy()
    how = {"overlap": 0.2, "luck": at.luck(), "searches": 2}
    tests = statistics.paired(d, **how)
    expected = statistics.holm(np.where(tests["difference"] > 0, tests["p"], 1.0))
    assert found.loc[list(wide), "p"].to_numpy() == pytest.approx(expected)


def test_a_loss_whose_search_failed_is_named_and_leads_nothing():
    names = [entry.name for entry in losses.entries()][:25]
    at = condition(dict.fromkeys(names, 0.7), 0.004, 0.005)
    broken = (at.rows["arm"] == names[0]) & (at.rows["search"] == 1)
    at.rows.loc[broken, "recall_at_1"] -= 0.3
    made = {name: loss_arm(name) for name in names}
    found = choice.standings(Condition(at.name, at.rows, 0.0, made))
    assert found.index[found["group"] == -1].tolist() == [names[0]]


def test_a_group_has_its_power_and_ranks_have_intervals():
    levels = dict.fromkeys(NAMES, 0.67) | {NAMES[0]: 0.75}
    at = condition(levels, 0.02)
    ranks = choice.ranks(at)
    assert ranks.loc[NAMES[0]].max() <= 2
    assert (ranks["high"] - ranks["low"]).iloc[1:].min() > 4
    table = choice.standings(at)
    assert choice.power(table, 0.0).corrected < 0.01
    assert choice.power(table, 0.2).corrected > 0.99
    told = choice.power(table)
    assert told.alone > told.corrected
    assert str(told).endswith(f"after correction for {len(NAMES) - 1} rivals")


def test_a_loss_below_what_training_began_with_is_named_ranked_nowhere_and_no_rival():
    levels = dict.fromkeys(NAMES, 0.7) | {NAMES[3]: 0.1, "untrained network": 0.13}
    at = condition(levels)
    at = Condition(at.name, at.rows, 0.0, {name: loss_arm(name) for name in NAMES})
    table = choice.standings(at)
    assert table.index[table["group"] == -2].tolist() == [NAMES[3]]
    assert choice.by_group(table)[-1][0].startswith("did not train here")
    assert choice.power(table).rivals == len(NAMES) - 2
    assert set(choice.ranks(at).index) == {*NAMES} - {NAMES[3]}
    assert choice.ranks(at).to_numpy().max() == len(NAMES) - 1
    assert at.lost([NAMES[3]]) == [NAMES[3]]
    above = condition(levels | {"untrained network": 0.09})
    assert (choice.standings(above)["group"] != -2).all()


def test_ranks_are_wider_where_repetitions_share_classes():
    levels = {name: 0.70 - 0.004 * k for k, name in enumerate(NAMES)}
    alone, shared = (choice.ranks(condition(levels, 0.01, 0.0, r)) for r in (0.0, 0.22))
    assert (shared["high"] - shared["low"]).mean() > 1.3 * (alone["high"] - alone["low"]).mean()


def test_settings_are_those_that_the_searches_chose():
    found = choice.settings("scratch")
    recipe = studies.recipes(studies.tables("scratch")[0].frame())["proxy_anchor", 0]
    assert f"batch {recipe['batch']}" in found.loc["proxy_anchor", "chosen"]
    assert 0 < found.loc["proxy_anchor", "blind"] < 1
    trials = studies.tables("scratch")[0].frame().query("stage == 'short'")
    of = trials[trials["arm"] == "proxy_anchor"].groupby("search")[
        "recall_at_1"
    ]  # the defaults come first
    assert found.loc["proxy_anchor", "default"] == pytest.approx((of.max() - of.first()).mean())


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a <!-- which-loss --> b")
    with pytest.raises(ValueError, match="needs a line <!-- which-loss --> and one <!-- /which"):
        files.write_between(page, "which-loss", "new")
    assert page.read_text() == "a <!-- which-loss --> b"
    page.write_text("a\n<!-- which-loss -->\nold\n<!-- /which-loss -->\nb\n")
    files.write_between(page, "which-loss", "new")
    assert page.read_text() == "a\n<!-- which-loss -->\nnew\n<!-- /which-loss -->\nb\n"


def test_the_page_is_what_the_evidence_says(tmp_path):
    written = (ROOT / "docs" / "which_loss.md").read_text()
    page = tmp_path / "page.md"
    page.write_text(written)
    found = studies.conditions(studies.kept())
    files.write_between(page, "which-loss", choice.markdown(found))
    files.write_between(page, "leading", choice.leading(found))
    for name in re.findall(r"`(\w+)`", written.partition("\n2. ")[0]):  # those to take
        assert f"`{name}`" in choice.leading(found)
    assert page.read_text() == written, "run dmlkit claims --write docs/which_loss.md"
