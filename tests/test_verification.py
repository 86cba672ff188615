"""Verification against loops over pairs, scikit-learn's ROC, and cases worked by hand."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.metrics import roc_curve

from dmlkit import retrieval, verification
from dmlkit.losses.hyperbolic import exponential_map, poincare_distances
from dmlkit.verification import error_rates, pair_error_rates, pair_scores, verify_pairs
from dmlkit.verification import verification as verify

RATES = ["fmr", "fnmr", "fnmr_macro"]
METRICS = ("cosine", "euclidean", "hamming", "poincare")
# A query at 0 and items at 1 - s: genuine s .9 .8 .6 .4, impostors .7 .5 .3 .2 .1.
LINE = {
    "embeddings": [[0.0]],
    "labels": [0],
    "gallery": [[0.1], [0.2], [0.4], [0.6], [0.3], [0.5], [0.7], [0.8], [0.9]],
    "gallery_labels": [0, 0, 0, 0, 1, 1, 1, 1, 1],
    "metric": "euclidean",
}


def clusters(classes=7, per_class=5, d=4, seed=0, whole=False):
    """Overlapping classes of 1 and more images, shuffled; whole numbers give many ties."""
    rng = np.random.default_rng(seed)
    sizes = np.array([1, *(per_class + np.arange(classes - 1) % 3)])
    labels = rng.permutation(np.repeat(10 * np.arange(classes) - 7, sizes))
    x = rng.normal(size=(classes, d))[labels // 10] + rng.normal(size=(len(labels), d))
    return ((2 * x).round() + 0.5 if whole else x), labels


def like(a, b, metric):
    """How alike two rows are, one pair at a time, as float32."""
    if metric == "cosine":
        return np.float32(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))
    if metric == "hamming":
        return np.float32(-((a > 0) != (b > 0)).sum())
    if metric == "poincare":
        a, b = (exponential_map(torch.from_numpy(z)[None], 0.1, 2.3) for z in (a, b))
        return np.float32(-poincare_distances(a, b, 0.1).item())
    return np.float32(-math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True))))


def loop_pairs(x, labels, gallery=None, gallery_labels=None, metric="cosine"):
    """(score, class, class) of every pair."""
    if gallery is None:
        places = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
        gallery, gallery_labels = x, labels
    else:
        places = [(i, j) for i in range(len(x)) for j in range(len(gallery))]
    return [(like(x[i], gallery[j], metric), labels[i], gallery_labels[j]) for i, j in places]


def loop_rates(pairs, t, weight=None):
    """FMR, FNMR and its mean over classes, with class weights, as their definitions read."""
    weight = weight or dict.fromkeys({c for _, a, b in pairs for c in (a, b)}, 1)
    wrong = every = 0
    own = {}
    for s, a, b in pairs:
        if a == b:
            own.setdefault(a, []).append(s <= t)
        else:
            every += weight[a] * weight[b]
            wrong += weight[a] * weight[b] * (s > t)
    count = sum(weight[c] * len(r) for c, r in own.items())
    micro = sum(weight[c] * sum(r) for c, r in own.items()) / count
    macro = sum(weight[c] * np.mean(r) for c, r in own.items()) / sum(weight[c] for c in own)
    return [wrong / every, micro, macro]


def queries_and_gallery():
    x, labels = clusters()
    return {
        "embeddings": x[::2], "labels": labels[::2], "gallery": x[1::2],
        "gallery_labels": labels[1::2],
    }  # fmt: skip


def alone(**args):
    x, labels = clusters(**args)
    return {"embeddings": x, "labels": labels}


def sets_of(case):
    return {"all": alone, "ties": partial(alone, whole=True), "gallery": queries_and_gallery}[
        case
    ]()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", ["all", "ties", "gallery"])
def test_thresholds_and_errors_are_those_of_loops_over_pairs(case, metric):
    sets = sets_of(case)
    pairs = loop_pairs(*sets.values(), metric=metric)
    impostors = sorted((s for s, a, b in pairs if a != b), reverse=True)
    asked = [0.01, 0.05, 0.3, 0.9]
    found = verify(**sets, fmr=asked, metric=metric, draws=5)
    assert (found.genuine, found.impostors) == (len(pairs) - len(impostors), len(impostors))
    assert list(found.rates.index) == asked
    sign = 1 if metric == "cosine" else -1
    for f, row in found.rates.iterrows():
        t = impostors[math.floor(f * len(impostors))]
        assert sign * row["threshold"] == pytest.approx(t, rel=2e-7, abs=1e-9)
        assert row[RATES].tolist() == pytest.approx(loop_rates(pairs, t), abs=1e-12)
        assert row["fmr"] <= f


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", ["all", "ties", "gallery"])
def test_eer_is_where_the_interpolated_roc_crosses(case, metric):
    sets = sets_of(case)
    pairs = loop_pairs(*sets.values(), metric=metric)
    fmr, tmr, _ = roc_curve(
        [a == b for _, a, b in pairs], [s for s, _, _ in pairs], drop_intermediate=False
    )
    # Where the line rises straight up, brentq cannot follow: points by their sum instead.
    steps = fmr + tmr  # rises from 0 to 2; the crossing has FMR = 1 - TMR
    at = brentq(lambda u: np.interp(u, np.arange(len(steps)), steps) - 1, 0, len(steps) - 1)
    expected = np.interp(at, np.arange(len(steps)), fmr)
    assert verify(**sets, metric=metric, fmr=[0.5], draws=2).eer == pytest.approx(expected)


def test_the_worked_example():
    found = verify(**LINE, fmr=[0.2])
    assert (found.eer, found.genuine, found.impostors) == (0.25, 4, 5)
    row = found.rates.loc[0.2]
    assert row["threshold"] == pytest.approx(0.5)
    assert row[RATES].tolist() == [0.2, 0.25, 0.25]


@pytest.mark.parametrize("metric", METRICS)
def test_a_query_is_no_pair_with_its_own_row_of_the_gallery(metric, monkeypatch):
    monkeypatch.setattr(verification, "BLOCK_ENTRIES", 100)
    x, labels = clusters()
    order, own = np.random.default_rng(1).permutation(len(x)), np.full(len(x), -1)
    own[order[:20]] = np.arange(20)  # the queries of the last rows are not in the gallery's first
    sets = {"gallery": x[order[:25]], "gallery_labels": labels[order[:25]]}
    places = [(i, j) for i in range(len(x)) for j in range(25) if j != own[i]]
    pairs = [(like(x[i], x[order[j]], metric), labels[i], labels[order[j]]) for i, j in places]
    found = verify(x, labels, [0.1], **sets, metric=metric, own=own, draws=40)
    assert found.genuine == sum(a == b for _, a, b in pairs)
    assert found.impostors == len(pairs) - found.genuine
    row = found.rates.iloc[0]
    t = row["threshold"] * (1 if metric == "cosine" else -1)
    assert row[RATES].tolist() == pytest.approx(loop_rates(pairs, t), abs=1e-12)
    classes = sorted(set(labels.tolist()))
    drawn = np.random.default_rng(0).multinomial(len(classes), [1 / 7] * 7, size=40)
    fnmr = [loop_rates(pairs, t, dict(zip(classes, w.tolist(), strict=True)))[1] for w in drawn]
    expected = np.percentile(fnmr, [2.5, 97.5])
    assert [row["fnmr_low"], row["fnmr_high"]] == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="gallery: these are the queries"):
        verify(x, labels, gallery=x, gallery_labels=labels)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("whole", [False, True])
def test_a_list_of_all_pairs_is_all_pairs(metric, whole):
    x, labels = clusters(whole=whole)
    pairs = np.argwhere(np.triu(np.ones((len(x), len(x))), 1))
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    listed = verify_pairs(x, pairs, same, [0.01, 0.3], metric)
    of_all = verify(x, labels, [0.01, 0.3], metric=metric)
    assert (listed.genuine, listed.impostors) == (of_all.genuine, of_all.impostors)
    assert listed.eer == pytest.approx(of_all.eer, abs=1e-12)
    columns = ["threshold", "fmr", "fnmr"]
    np.testing.assert_allclose(listed.rates[columns], of_all.rates[columns], rtol=2e-7)
    scores = pair_scores(x, pairs, metric)
    sign = 1 if metric == "cosine" else -1
    np.testing.assert_allclose(
        sign * scores, [like(x[i], x[j], metric) for i, j in pairs], rtol=1e-6, atol=1e-7
    )


def test_some_pairs_with_thresholds_of_others():
    x, labels = clusters(classes=12)
    rng = np.random.default_rng(0)
    pairs = rng.integers(len(x), size=(500, 2))
    same = (labels[pairs[:, 0]] == labels[pairs[:, 1]]).astype(int)
    assert verify_pairs(x, pairs, same, [0.2]).genuine == same.sum()
    fmr, tmr, thresholds = roc_curve(same, pair_scores(x, pairs), drop_intermediate=False)
    between = (thresholds[1:-1] + thresholds[2:]) / 2  # where > and ≥ are one
    rates = pair_error_rates(torch.from_numpy(x), torch.from_numpy(pairs), same, between)
    np.testing.assert_allclose(rates["fmr"], fmr[1:-1], atol=1e-12)
    np.testing.assert_allclose(rates["fnmr"], 1 - tmr[1:-1], atol=1e-12)


@pytest.mark.parametrize(
    "pairs, same, message",
    [
        ([[0, 1, 2]], [1], r"pairs: expected two rows .* got torch.int64 of shape \(1, 3\)"),
        ([[0.0, 1.0]], [1], "pairs: expected two rows .* got torch.float64"),
        (np.zeros((0, 2), int), [], "pairs: expected two rows"),
        ([[0, 4], [1, 2]], [1, 0], "pairs: expected rows from 0 to 3, got 0 to 4"),
        ([[0, 1], [-1, 2]], [1, 0], "pairs: expected rows from 0 to 3, got -1 to 2"),
        ([[0, 1], [1, 2]], [1], r"same: expected 0 or 1 for each of the 2 pairs, got shape \(1,\)"),
        ([[0, 1], [1, 2]], [1, -1], r"same: expected 0 or 1 .* \[-1, 1\]"),
        (
            [[0, 1], [1, 2]],
            [1, 1],
            "same: expected pairs of one class and pairs of two, got 2 and 0",
        ),
    ],
)
def test_lists_of_pairs_that_say_nothing_are_refused(pairs, same, message):
    with pytest.raises(ValueError, match=message):
        verify_pairs(np.eye(4), pairs, same)


@pytest.mark.parametrize("case", ["all", "gallery"])
def test_intervals_draw_classes_again(case):
    """Every draw as it reads: a pair of two classes as often as both were drawn together."""
    sets = sets_of(case)
    pairs = loop_pairs(*sets.values())
    classes = sorted({c for _, a, b in pairs for c in (a, b)})
    t, draws = 0.3, 60
    drawn = np.random.default_rng(3).multinomial(len(classes), [1 / 7] * 7, size=draws)
    rates = [loop_rates(pairs, t, dict(zip(classes, w.tolist(), strict=True))) for w in drawn]
    row = error_rates(**sets, thresholds=[t], seed=3, draws=draws).iloc[0]
    for name, values in zip(RATES, np.array(rates).T, strict=True):
        expected = np.percentile(values, [2.5, 97.5])
        assert [row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected, abs=1e-12)
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]


def test_more_images_of_the_same_classes_are_no_more_evidence():
    """Of copies, a bootstrap over pairs would make intervals half as wide."""
    x, labels = clusters(classes=12)
    once = error_rates(x, labels, [0.3]).iloc[0]
    twice = error_rates(np.tile(x, (2, 1)), np.tile(labels, 2), [0.3]).iloc[0]
    names = ["fmr", "fmr_low", "fmr_high"]
    assert twice[names].tolist() == pytest.approx(once[names].tolist(), abs=1e-12)


def test_a_threshold_of_one_set_of_classes_on_another():
    val, test = (clusters(seed=seed, classes=9) for seed in (1, 2))
    fixed = verify(*val, fmr=[0.02, 0.1])
    thresholds = fixed.rates["threshold"].tolist()
    there = error_rates(*test, thresholds)
    pairs = loop_pairs(*test)
    for t, (_, row) in zip(thresholds, there.iterrows(), strict=True):
        assert row[RATES].tolist() == pytest.approx(loop_rates(pairs, t), abs=1e-12)
    again = error_rates(*val, thresholds)
    assert again.to_numpy() == pytest.approx(fixed.rates.to_numpy())
    assert there["fmr"].tolist() != pytest.approx(again["fmr"].tolist())


def test_blocks_change_nothing(monkeypatch):
    args = alone(), queries_and_gallery()
    whole = [verify(**sets, fmr=[0.1]) for sets in args]
    monkeypatch.setattr(verification, "BLOCK_ENTRIES", 50)
    for sets, one in zip(args, whole, strict=True):
        blocks = verify(**sets, fmr=[0.1])
        assert (blocks.eer, blocks.genuine) == (one.eer, one.genuine)
        assert blocks.rates.to_numpy() == pytest.approx(one.rates.to_numpy(), abs=1e-12)


def test_an_fmr_counts_as_the_decimal_that_it_is():
    assert math.floor(0.29 * 100) == 28
    gallery, of_gallery = np.arange(1.0, 102.0)[:, None], np.repeat([0, 1], [1, 100])
    sets = {"gallery": gallery, "gallery_labels": of_gallery, "metric": "euclidean"}
    found = verify([[0.0]], [0], fmr=[0.29], **sets)
    assert found.rates["fmr"].tolist() == [0.29]


def test_one_is_a_list_of_one():
    sets = alone()
    assert verify(**sets, fmr=0.1).rates.equals(verify(**sets, fmr=[0.1]).rates)
    assert error_rates(**sets, thresholds=0.5).equals(error_rates(**sets, thresholds=[0.5]))
    pairs, same = [[0, 1], [2, 3], [0, 2], [1, 3]], [1, 1, 0, 0]
    assert verify_pairs(np.eye(4), pairs, same, 0.5).rates.index.tolist() == [0.5]
    assert len(pair_error_rates(np.eye(4), pairs, same, np.float32(0.5))) == 1


def test_negative_zero_is_zero():
    """A cosine of -1e-60 is -0 in float32, and tied with 0: nothing tells the two pairs apart."""
    gallery = np.array([[0.0, 1.0], [-1e-60, 1.0], [-1.0, 0.0]])
    found = verify([[1.0, 0.0]], [0], [0.5], gallery, [0, 1, 1])
    assert found.rates["threshold"].tolist() == [-1.0]
    assert found.eer == pytest.approx(1 / 3)  # with -0 below 0 it would be 0


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(0, 2**16), st.booleans())
def test_order_names_and_rotation_change_nothing(seed, tensors):
    x, labels = clusters(seed=seed % 50)
    rng = np.random.default_rng(seed)
    order, (q, _) = rng.permutation(len(x)), np.linalg.qr(rng.normal(size=(4, 4)))
    names = rng.permutation(200)[:100]
    y, of_y = 3 * x[order] @ q, names[labels[order] + 7]
    one = verify(x, labels, fmr=[0.1])
    two = verify(*map(torch.from_numpy, (y, of_y)) if tensors else (y, of_y), fmr=[0.1])
    assert two.eer == pytest.approx(one.eer)
    columns = ["threshold", *RATES]
    assert two.rates[columns].to_numpy() == pytest.approx(one.rates[columns].to_numpy(), abs=1e-6)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": [0, 1, 2, 3]}, "pairs of one class and pairs of two, got 0 and 6"),
        ({"labels": [5, 5, 5, 5]}, "pairs of one class and pairs of two, got 6 and 0"),
        ({"labels": [0, 0, 1]}, r"labels: expected int64 of shape \(4,\)"),
        ({"labels": [0.0, 0.0, 1.0, 1.0]}, "labels: expected int64 .* got torch.float64"),
        ({"embeddings": np.full((4, 2), np.nan)}, "embeddings: row 0 is not finite"),
        ({"embeddings": np.zeros((4, 2))}, "is zero and has no cosine"),
        ({"embeddings": np.eye(4) * 1e200, "metric": "euclidean"}, "distances below 2e38"),
        ({"gallery": np.eye(4)}, "expected both or neither"),
        ({"gallery": np.ones((2, 3)), "gallery_labels": [0, 1]}, "gallery: .* columns .* 4, got 3"),
        ({"fmr": [0.1]}, "fmr: expected rates from 0.25 .one of 4 impostor pairs. to below 1"),
        ({"fmr": [1.0]}, "fmr: expected rates"),
        ({"fmr": [np.nan]}, "fmr: expected rates"),
        ({"fmr": []}, "fmr: expected rates"),
        ({"metric": "dot"}, "metric: expected one of euclidean, cosine"),
    ],
)
def test_what_says_nothing_is_refused(change, message):
    good = {"embeddings": np.eye(4), "labels": [0, 0, 1, 1], "fmr": [0.5]}
    verify(**good)
    with pytest.raises(ValueError, match=message):
        verify(**good | change)


@pytest.mark.parametrize("thresholds", [[], [np.nan], [1e300]])
def test_thresholds_that_are_no_float32_are_refused(thresholds):
    with pytest.raises(ValueError, match="thresholds: expected one or more finite numbers"):
        error_rates(np.eye(4), [0, 0, 1, 1], thresholds)


def test_all_in_one_point_tells_nothing_apart():
    found = verify(np.ones((6, 3)), [0, 0, 1, 1, 2, 2], fmr=[0.5])
    assert found.rates[RATES].to_numpy().tolist() == [[0.0, 1.0, 1.0]]
    assert found.eer == pytest.approx(0.5)


def test_retrieval_hands_it_on():
    assert retrieval.verification is verification.verification
