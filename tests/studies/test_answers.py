"""From a study's tables to the ledger's rows: measures by conditions, and none while arms lack."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest

import studies
from dmlkit import statistics
from studies import claims
from studies.answers import STUDIES, lead
from studies.rules import is_part

RNG = np.random.default_rng(0)
COUNT = 12
SEC = ("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity")
SEE = ("normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor")


def table(arms, count=COUNT):
    """Invented rows of arms; an arm given by numbers has these as its scores."""
    given = arms if isinstance(arms, dict) else dict.fromkeys(arms)
    rows = []
    for arm, values in given.items():
        for k in range(count):
            drawn = RNG.random(len(studies.METRICS))
            scores = dict(zip(studies.METRICS, drawn, strict=True))
            if values is not None:
                scores = dict.fromkeys(studies.METRICS, float(values[k]))
            recipe = {"search": k % 2, "recipe": '{"constraint.weight": 0.1}'}
            rows.append({"arm": arm, "repetition": k} | recipe | scores)
    return pd.DataFrame(rows)


def wide(frame, metric="recall_at_1"):
    return frame.pivot(index="repetition", columns="arm", values=metric)


def additions(names, *labels):
    return [*names, *(f"{name} + {label}" for name in names for label in labels)]


def kept(**frames):
    """Evidence of the studies named, and none of the others."""
    return {name: frames.get(name, table([])) for name in STUDIES}


def values(claim, condition, **frames):
    """The values behind a claim's row, or None where there is no row."""
    found = studies.rows(studies.conditions(kept(**frames)))
    mine = [row for row in found if (row.claim, row.condition) == (claim, condition)]
    return np.array(mine[0].values) if mine else None


# Contrasts ------------------------------------------------------------------------------------


def test_a_sum_of_weights_is_zero_so_that_equal_arms_have_no_effect():
    for claim, told in studies.protocol("claims").contrasts.items():
        assert sum(told["effect"].values()) == pytest.approx(0), claim


@pytest.mark.parametrize("claim", ["A1", "A2", "B4", "B5", "B7", "C9", "C18"])
def test_every_term_of_a_contrast_is_an_arm_of_a_study(claim):
    known = {*studies.arms(), *studies.arms(studies.protocol("claims"))}
    terms = studies.protocol("claims").contrasts[claim]["effect"]
    assert {term.partition(" @ ")[0] for term in terms} <= known


def test_the_gain_of_sec_and_its_lead_over_the_penalty_are_means_over_four_losses():
    frame = table(additions(SEC, "SEC", "L2"))
    at_1 = wide(frame)
    gain = sum(at_1[f"{name} + SEC"] - at_1[name] for name in SEC) / 4
    ahead = sum(at_1[f"{name} + SEC"] - at_1[f"{name} + L2"] for name in SEC) / 4
    for study, condition in (("transfer", "fine-tuned"), ("scratch", "from scratch")):
        for claim, expected in (("A1", gain), ("A2", ahead)):
            found = values(claim, condition, **{study: frame})
            assert found == pytest.approx(expected.to_numpy())


def test_a_mean_over_losses_is_over_those_that_a_condition_has():
    frame = table(additions(SEC[:1], "SEC"))
    at_1 = wide(frame)
    expected = at_1[f"{SEC[0]} + SEC"] - at_1[SEC[0]]
    assert values("A1", "fine-tuned", transfer=frame) == pytest.approx(expected.to_numpy())
    (row,) = studies.rows(studies.conditions(kept(transfer=frame)))
    assert f"; here of {SEC[0]};" in row.measure


def test_the_gain_of_see_at_larger_k_is_a_mean_over_losses_and_k():
    frame = table(additions(SEE, "SEE, code"))
    for claim, metrics in (("B4", [1]), ("B5", [2, 4, 8, 16])):
        expected = np.zeros(COUNT)
        for name, k in itertools.product(SEE, metrics):
            at_k = wide(frame, f"recall_at_{k}")
            expected += (at_k[f"{name} + SEE, code"] - at_k[name]) / len(SEE) / len(metrics)
        assert values(claim, "fine-tuned", transfer=frame) == pytest.approx(expected)


def test_shared_classes_and_the_luck_of_recipes_widen_a_row():
    frame = table(additions(SEC, "SEC"))
    rules = studies.protocol("transfer").repetitions
    (row,) = studies.rows(studies.conditions(kept(transfer=frame)))
    at = studies.conditions(kept(transfer=frame))["fine-tuned"]
    wide, of = at.wide(), np.arange(COUNT) % 2
    d = np.array([wide[f"{name} + SEC"] - wide[name] for name in SEC]).T
    kind = statistics.pair_luck(d, of, at.luck())
    how = {"overlap": rules.overlap, "luck": statistics.pair_luck(d, of, kind), "searches": 2}
    expected = statistics.paired(np.array(row.values)[:, None], pairs=0.25, **how).iloc[0]
    assert (row.low, row.high) == pytest.approx((expected["low"], expected["high"]))


def test_the_luck_of_the_gain_at_larger_k_is_that_of_its_own_metrics():
    """Of Recall@2 alone it would be four times as large here."""
    frame = table(additions(SEE, "SEE, code"))
    at = studies.conditions(kept(transfer=frame))["fine-tuned"]
    told = studies.protocol("claims").contrasts["B5"]["effect"]
    groups = {name: {t: w for t, w in told.items() if t.startswith(name)} for name in SEE}
    of, found = np.arange(COUNT) % 2, at.kind(groups, "recall_at_1")[0]
    each = {
        m: wide(frame, m) for m in ("recall_at_2", "recall_at_4", "recall_at_8", "recall_at_16")
    }
    mean = sum(each.values()) / 4
    d = np.array([mean[f"{name} + SEE, code"] - mean[name] for name in SEE]).T
    known = statistics.luck(mean[list(SEE)].to_numpy(), of)
    expected = statistics.pair_luck(d, of, statistics.pair_luck(d, of, known))
    assert found == pytest.approx(expected)


def test_what_changes_most_scores_by_nothing_was_not_tried():
    frame = table(additions(SEE, "SEE, code"))
    for name in SEE[:3]:
        same = frame.loc[frame["arm"] == name, list(studies.METRICS)].to_numpy()
        frame.loc[frame["arm"] == f"{name} + SEE, code", list(studies.METRICS)] = same
    rows = {row.claim: row for row in studies.rows(studies.conditions(kept(scratch=frame)))}
    assert rows["B4"].word == rows["B5"].word == claims.IDLE
    frame.loc[frame["arm"] == SEE[0], list(studies.METRICS)] += 0.001
    rows = {row.claim: row for row in studies.rows(studies.conditions(kept(scratch=frame)))}
    assert rows["B4"].word != claims.IDLE


def test_two_readings_of_one_training_have_the_luck_of_one_recipe():
    arm = "normalized_softmax, 2048 dimensions"
    frame, longer = table([arm, "margin"]), table(["margin, 2,000 steps"])
    at = studies.conditions(kept(scratch=table(["margin"]), claims=pd.concat([frame, longer])))
    groups = {arm: {arm: 1.0, f"{arm} @ recall_at_1_signs": -1.0}}
    luck, pairs = at["from scratch"].kind(groups, "recall_at_1")
    assert pairs == 1
    assert luck != statistics.NO_LUCK


def test_arms_of_one_recipe_have_no_luck_between_them():
    arms = ["dreml, 12 members of 12", "dreml, one network of 144"]
    (row,) = studies.rows(studies.conditions(kept(claims=table(arms))))
    alone = statistics.paired(np.array(row.values)[:, None], searches=2).iloc[0]
    assert (row.claim, row.low) == ("C15", pytest.approx(alone["low"]))


def test_a_side_that_was_searched_less_leaves_a_row_undecided():
    """A weight most of whose box its paper does not have, and a recipe of another training."""
    sure = np.linspace(0.5, 0.51, COUNT)
    arms = {"triplet_all": sure, "triplet_all + SEC": sure + 0.3 + 0.01 * RNG.random(COUNT)}
    slow = table({"prototypical, long and slow": sure + 0.2 * RNG.random(COUNT)})
    frame = table({**arms, "prototypical": sure})
    frame.loc[frame["search"] == 1, "recipe"] = '{"constraint.weight": 0.0}'
    found = studies.rows(studies.conditions(kept(scratch=frame, claims=slow)))
    rows = {row.claim: row for row in found if row.claim in ("A1", "C21")}
    assert rows["A1"].low > 0.2
    assert {row.word for row in rows.values()} == {"cannot be decided here"}
    assert rows["A1"].measure.endswith(
        "; unequal search: SEC's weights 0.001 to 1 and 0, its authors' 0.1 to 5: of its recipes "
        "1 have weight 0, 0 below, 1 in, 0 above"
    )
    assert rows["C21"].measure.endswith("; borrowed recipes: prototypical, long and slow")
    assert [claims.reason(row.facts()) for row in rows.values()] == [
        "unequal search", "borrowed recipes",
    ]  # fmt: skip


def test_an_arm_of_the_claims_study_is_compared_with_one_of_scratch():
    ours = table({"SEE, random points": np.linspace(0.4, 0.5, COUNT)})
    theirs = table({"normalized_softmax + SEE, code": np.linspace(0.6, 0.65, COUNT)})
    found = values("B7", "from scratch", claims=ours, scratch=theirs)
    assert found == pytest.approx(np.linspace(0.6, 0.65, COUNT) - np.linspace(0.4, 0.5, COUNT))


def test_the_gain_by_a_stronger_network_is_beyond_the_median_of_six_others():
    strong, weak = table(studies.SEVEN), table(studies.SEVEN)
    row = studies.stronger(kept(wide=strong, transfer=weak))
    for k in range(COUNT):
        gains = [wide(strong).at[k, arm] - wide(weak).at[k, arm] for arm in studies.SEVEN]
        others = sorted(gains[1:])
        assert row.values[k] == pytest.approx(gains[0] - (others[2] + others[3]) / 2)
    assert row.effective < COUNT


def test_longer_trainings_and_small_batches_are_conditions_of_their_own():
    frame = table(
        [f"{loss}{ending}" for loss in ("normalized_softmax", "margin", "triplet_semihard")
         for ending in (", 2,000 steps", ", 32 images")]
    )  # fmt: skip
    for condition, ending in (
        ("trained longer", ", 2,000 steps"),
        ("small batches", ", 32 images"),
    ):
        at_1 = wide(frame[frame["arm"].str.endswith(ending)])
        at_1.columns = [name.removesuffix(ending) for name in at_1]
        expected = lead(at_1, "normalized_softmax", pd.Series(np.arange(COUNT) % 2))
        found = values("C5", condition, claims=frame)
        assert found == pytest.approx(expected.to_numpy())


def test_photographs_are_tested_over_classes_whose_seeds_are_averaged():
    rows = pd.DataFrame(
        [{"arm": arm, "repetition": k, "search": k % 4, "recipe": "{}", "recall_at_1": 0.0,
          "by_class": json.dumps({f"{k % 4} {c}": 0.1 * c + 0.01 * k + gain for c in range(5)})}
         for arm, gain in (("triplet_semihard", 0.0), ("triplet_semihard + SEC", 0.05))
         for k in range(8)]
    )  # fmt: skip
    frame = studies.by_class(rows)
    assert len(frame) == 2 * 20
    one = frame[(frame["arm"] == "triplet_semihard") & (frame["repetition"] == "2 3")].iloc[0]
    assert (one["search"], one["recall_at_1"]) == (2, pytest.approx(0.3 + 0.01 * (2 + 6) / 2))


# What is not complete -------------------------------------------------------------------------


def test_there_is_no_row_until_each_arm_has_all_repetitions():
    ours, theirs = table(["SEE, random points"]), table(["normalized_softmax + SEE, code"])
    assert values("B7", "from scratch", claims=ours, scratch=theirs) is not None
    twice = pd.concat([ours.iloc[:-1], ours.iloc[:1]])  # as many rows, not repetitions
    other = ours.assign(repetition=lambda rows: rows["repetition"] + 1)
    for lacking in (ours.iloc[:-1], twice, other):
        assert values("B7", "from scratch", claims=lacking, scratch=theirs) is None


def test_what_is_not_complete_is_in_no_table_of_scores():
    rules = studies.protocol("scratch")
    frame = pd.concat([table(["a"]), table(["b"], count=COUNT - 1)])
    assert list(studies.scores(rules, frame)) == ["a"]
    assert studies.scores(rules, pd.DataFrame()).shape == (COUNT, 0)


# The worst, the best, the order ---------------------------------------------------------------


def levels(**changes):
    """All eleven losses at 0.5 in every repetition, but for some, and for what nobody would see."""
    given = dict.fromkeys(studies.ELEVEN, 0.5) | changes
    return {loss: value + 1e-6 * RNG.random(COUNT) for loss, value in given.items()}


@pytest.mark.parametrize(
    "claim, changes, effect",
    [
        ("C3", {"triplet_semihard": 0.4}, 0.1),  # the worst, by what it is behind the next
        ("C3", {"margin": 0.2}, -0.3),
        ("C4", {"structured_clustering": 0.7, "margin": 0.6}, 0.1),
        ("C4", {"margin": 0.6}, -0.1),
        ("C5", {"normalized_softmax": 0.45, "ranked_list": 0.7}, -0.25),
        ("C5", {"normalized_softmax": 0.7}, 0.2),
    ],
)
def test_the_worst_and_the_best_are_held_against_the_nearest_other(claim, changes, effect):
    found = values(claim, "from scratch", scratch=table(levels(**changes)))
    assert found == pytest.approx(np.full(COUNT, effect), abs=2e-5)


def test_a_rival_is_chosen_by_other_searches():
    """One that is ahead by the recipe of one search is not the rival in that search."""
    searches = pd.Series([0, 1, 0, 1])
    frame = pd.DataFrame({"a": np.zeros(4), "b": [9.0, 0, 9.0, 0], "c": np.full(4, 1.0)})
    assert lead(frame, "a", searches).tolist() == [-1.0, 0.0, -1.0, 0.0]
    assert len(studies.ELEVEN) == 11
    assert "dreml" not in studies.ELEVEN


# The evidence that is there -------------------------------------------------------------------


def test_the_evidence_has_the_recipes_of_its_trials():
    rules = studies.protocol("scratch")
    trials, rows = (kept.frame() for kept in studies.tables("scratch"))
    if not len(rows):
        pytest.skip("the study has not begun")
    chosen = studies.recipes(trials)
    arms = rows[~rows["arm"].isin(studies.baselines(rules))]
    for row in arms.itertuples():
        assert json.loads(row.recipe) == chosen[row.arm, row.search], (row.arm, row.search)


def test_the_rules_ask_for_all_of_the_evidence_that_is_kept():
    for name, frame in studies.kept().items():
        assert len(frame) == len(studies.tables(name)[1].rows)


def test_rows_that_the_rules_do_not_ask_for_are_left_out():
    rules = studies.protocol("scratch")
    fewer = dataclasses.replace(
        rules, repetitions=dataclasses.replace(rules.repetitions, count=COUNT - 1)
    )
    assert list(studies.scores(fewer, table(["a"])).index) == list(range(COUNT - 1))


def test_a_failed_search_leaves_its_loss_out_of_a_mean_and_is_named(monkeypatch):
    frame = table({name: RNG.random(COUNT) for name in additions(SEE, "SEE, code")})
    broken = {("normalized_softmax", 1): ("normalized_softmax, minibatches", 0.9)}
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: broken)
    part = table({"normalized_softmax, minibatches": RNG.random(COUNT)})
    at = studies.conditions(kept(scratch=frame, claims=part))
    (row,) = [r for r in studies.rows(at) if (r.claim, r.condition) == ("B4", "from scratch")]
    at_1 = wide(frame)
    gains = np.array([at_1[f"{name} + SEE, code"] - at_1[name] for name in SEE[1:]])
    assert row.failed == ("normalized_softmax",)
    assert row.values == pytest.approx(gains.mean(0))
    assert row.center[0] == pytest.approx(np.median(gains, axis=0).mean())
    assert list(row.without) == list(row.parts) == list(SEE[1:])
    assert row.without["cosface"] == pytest.approx(gains[1:].mean())


def test_the_luck_of_losses_and_of_pairs_is_without_those_that_are_named_as_failed(monkeypatch):
    arms = additions(SEE, "SEE, code")
    frame = table({name: RNG.normal(0.7, 0.01, COUNT) for name in arms})
    lost = (frame["arm"] == "arcface") & (frame["search"] == 1)
    frame.loc[lost, "recall_at_1"] -= 0.3
    broken = {("arcface", 1): ("normalized_softmax, minibatches", 0.9)}
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: broken)
    part = table({"normalized_softmax, minibatches": RNG.normal(0.7, 0.01, COUNT)})
    at = studies.conditions(kept(scratch=frame, claims=part))["from scratch"]
    assert {arm for arm, _ in at.failed} == {"arcface"}
    sound = wide(frame)[[name for name in SEE if name != "arcface"]]
    of, none = np.arange(COUNT) % 2, np.zeros(len(sound.columns), dtype=bool)
    assert at.luck() == pytest.approx(statistics.luck(sound.to_numpy(), of, none))
    alone = at.kind({"arcface": {"arcface": -1.0, "arcface + SEE, code": 1.0}}, "recall_at_1")[0]
    assert alone.sd < 0.02


def test_the_recipe_of_a_failed_search_counts_as_failed_where_it_is_borrowed(monkeypatch):
    def found(*losses):
        names = [f"{loss}, 2,000 steps" for loss in losses]
        part = table(["normalized_softmax, minibatches", *names])
        at = studies.conditions(kept(scratch=table(studies.ELEVEN), claims=part))
        longer = at["trained longer"]
        assert "normalized_softmax" in longer.lost(["normalized_softmax", "margin"])
        assert at["from scratch"].lost(names) == ["normalized_softmax, 2,000 steps"]
        rows = {r.claim: r for r in studies.rows(at) if r.condition == "trained longer"}
        return rows["C3"], rows["C5"]

    broken = {("normalized_softmax", 1): ("normalized_softmax, minibatches", 9.0)}
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: broken)
    few = found("normalized_softmax", "margin", "triplet_semihard")
    assert [row.word for row in few] == ["search failed"] * 2
    more = found("normalized_softmax", "margin", "triplet_semihard", "n_pairs")
    assert more[0].word != "search failed"
    assert re.search(r"; of 2 others; against \w+( and \w+)?$", more[0].measure)
    assert {row.failed for row in (*few, *more)} == {("normalized_softmax",)}


def test_of_a_loss_whose_search_failed_nothing_is_said_and_it_is_no_rival(monkeypatch):
    broken = {("structured_clustering", 0): ("structured_clustering, 16 x 8", 9.0)}
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: broken)
    worst = levels(structured_clustering=0.1)
    part = table(worst | {"structured_clustering, 16 x 8": np.full(COUNT, 0.9)})
    at = studies.conditions(kept(scratch=table(worst), claims=part))
    rows = {r.claim: r for r in studies.rows(at) if r.condition == "from scratch"}
    assert {rows[claim].failed for claim in ("C3", "C4")} == {("structured_clustering",)}
    assert rows["C4"].word == "search failed"
    assert rows["C3"].effect == pytest.approx(0.0, abs=2e-5)  # not against the 0.1
    _, of, rivals = rows["C3"].measure.partition("; of 9 others; against ")
    assert of
    assert re.fullmatch(r"\w+( and \w+)?", rivals)
    assert "structured_clustering" not in rivals


def test_a_contrast_may_have_a_condition_and_a_measure_of_its_own():
    frame = table(["prototypical, 4 episodes", "prototypical, 32 images"])
    frame["recipe"] = '{"batch": "8 x 4"}'
    at_1 = wide(frame)
    (row,) = studies.rows(studies.conditions(kept(claims=frame)))
    assert (row.claim, row.condition) == ("C12", "from scratch, equal images")
    assert row.measure == (
        "4 episodes per batch minus 1, equal images; unequal search: kinds of batch: 1 of "
        "prototypical, 4 episodes (chose 8 x 4), 4 of prototypical, 32 images (chose 8 x 4)"
    )
    assert row.word == claims.UNDECIDED
    d = at_1["prototypical, 4 episodes"] - at_1["prototypical, 32 images"]
    assert row.values == pytest.approx(d.to_numpy())


# Restrictions ---------------------------------------------------------------------------------


def test_no_loss_loses_to_its_own_restriction_but_additions_are_compared_as_searched(monkeypatch):
    frame = table(
        {"normalized_softmax": [0.5] * COUNT, "normalized_softmax, minibatches": [0.9] * COUNT}
    )
    better = {("normalized_softmax", 1): ("normalized_softmax, minibatches", 0.1)}
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: better)
    at = studies.conditions(kept(scratch=frame))["from scratch"]
    assert at.rivals()["normalized_softmax"].tolist() == [0.5, 0.9] * (COUNT // 2)
    assert at.wide()["normalized_softmax"].tolist() == [0.5] * COUNT


def test_searched_twice_takes_of_both_passes_what_the_better_recipe_made(monkeypatch):
    best = {("dreml", 0): {"lr": 0.1}, ("dreml", 1): {"lr": 0.2}}
    monkeypatch.setattr("studies.answers.recipes", lambda trials: best)
    monkeypatch.setattr("studies.answers.restricted", lambda *passes: {("dreml", 1): ("part", 0.1)})
    first = table({"dreml": [0.5] * COUNT, "raw pixels": [0.1] * COUNT})
    first["recipe"] = [json.dumps({"lr": 0.1})] * COUNT + ["{}"] * COUNT
    second = table({"dreml": [0.9] * COUNT}).query("search == 1")
    second["recipe"] = json.dumps({"lr": 0.2})
    parts = table({"part": [0.7] * COUNT, "other": [0.7] * COUNT})

    def found(further):
        every = kept(scratch=first, scratch_further=further, claims=parts)
        return studies.conditions(every)["from scratch, searched twice"]

    assert found(second).wide()["dreml"].tolist() == [0.5, 0.9] * (COUNT // 2)
    assert found(second).rivals()["dreml"].tolist() == [0.5, 0.7] * (COUNT // 2)
    assert set(found(second).wide()) == {"dreml", "raw pixels", "part"}
    assert "dreml" not in found(second[1:]).wide()


def test_a_part_of_an_arm_has_fewer_choices_and_nothing_else_is_another():
    whole, parts = studies.arms(), studies.arms(studies.protocol("claims"))
    found = {
        name
        for name, told in studies.protocol("claims").arms.items()
        if is_part(parts[name], whole[told["of"]])
    }
    assert found == {
        "normalized_softmax, minibatches", "structured_clustering, 16 x 8",
        "structured_clustering, 64 x 2",
    }  # fmt: skip
