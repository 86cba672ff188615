"""Whatever comes: a public function answers in finite numbers, or refuses in words of its own.

Hypothesis draws arguments that are mostly right, each at times replaced by what a person might
give by mistake. An error is our own if one of dmlkit's ``raise`` statements made it, and says
which argument it is about: not what a library deeper down, or Python itself, happened to say.
"""

import functools
import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dmlkit import (
    claims,
    embedding_geometry,
    losses,
    models,
    records,
    retrieval,
    spherical,
    study,
    training,
    verification,
)
from dmlkit.data import batches
from dmlkit.index import Index
from dmlkit.losses.centers import max_mahalanobis_centers
from tests.arguments import (
    ODD,
    ODD_NUMBERS,
    C,
    D,
    finite,
    labels,
    matrices,
    outcome,
    replaced,
    rows,
)

SCORES = {
    "recall_at_k": (retrieval.recall_at_k, {"ks": (1, 2)}),
    "r_precision": (retrieval.r_precision, {}),
    "map_at_r": (retrieval.map_at_r, {}),
    "nmi": (retrieval.nmi, {"seed": 0}),
    "evaluate": (retrieval.evaluate, {"ks": (1,), "seed": 0}),
}


@pytest.mark.parametrize("name", SCORES)
@given(data=st.data())
def test_scores(name, data):
    score, given = SCORES[name]
    x = data.draw(matrices())
    args = {"embeddings": x, "labels": data.draw(labels(rows(x))), "metric": "cosine", **given}
    if name in ("recall_at_k", "r_precision", "map_at_r") and data.draw(st.booleans()):
        other = data.draw(matrices(dim=x.shape[1] if np.ndim(x) == 2 and x.shape[1] else None))
        args |= {"gallery": other, "gallery_labels": data.draw(labels(rows(other)))}
    args = replaced(data.draw, args)
    found = outcome(lambda: score(**args), *args)
    if found is not None:
        values = found.values() if isinstance(found, dict) else [found]
        assert all(0 <= value <= 1 for value in values), found


NEAR = {
    "nearest_neighbors": (retrieval.nearest_neighbors, "queries", {"k": 1, "metric": "euclidean"}),
    "hubness": (embedding_geometry.hubness, "embeddings", {"k": 1, "metric": "euclidean"}),
    "uniformity": (embedding_geometry.uniformity, "embeddings", {"t": 2.0}),
    "effective_rank": (embedding_geometry.effective_rank, "embeddings", {"centered": False}),
}


@pytest.mark.parametrize("name", NEAR)
@given(data=st.data())
def test_geometry_of_embeddings(name, data):
    measure, first, given = NEAR[name]
    args = replaced(data.draw, {first: data.draw(matrices()), **given})
    assert finite(outcome(lambda: measure(**args), "queries", *args))


PAIRS = {
    "alignment": (embedding_geometry.alignment, {}),
    "verification": (
        verification.verification,
        {"fmr": (0.5,), "metric": "cosine", "seed": 0, "draws": 20},
    ),
    "error_rates": (
        verification.error_rates,
        {"thresholds": (0.5,), "metric": "cosine", "seed": 0, "draws": 20},
    ),
    "threshold_consistency": (
        verification.threshold_consistency,
        {"fmr": (0.5, 0.9), "points": 3, "metric": "cosine"},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_pairs(name, data):
    measure, given = PAIRS[name]
    x = data.draw(matrices())
    args = replaced(data.draw, {"embeddings": x, "labels": data.draw(labels(rows(x))), **given})
    outcome(lambda: measure(**args), *args)


@pytest.mark.parametrize("name", [entry.name for entry in losses.entries()])
@given(data=st.data())
def test_losses(name, data):
    own = {key: p.default for key, p in losses.signature(name).items()}
    own = {key: value for key, value in own.items() if value is not inspect.Parameter.empty}
    args = {"num_classes": C, "dim": D, **own}
    if odd := data.draw(st.booleans()):
        args = replaced(data.draw, args)
    loss = outcome(lambda: losses.build(name, **args), *args)
    if loss is None:
        assert odd
        return
    x = torch.as_tensor(data.draw(matrices(dim=data.draw(st.sampled_from((D, D, D, None))))))
    y = torch.as_tensor(data.draw(labels(rows(x))))
    found = outcome(lambda: loss(x, y), "embeddings", "labels", *args)
    if found is not None:
        assert found.shape == ()
        if not odd:
            assert finite(found) == finite(x)  # a NaN shows, and comes from nothing else


@given(data=st.data())
def test_spherical_constraint(data):
    args = replaced(data.draw, {"weight": 1.0, "target": "ema", "momentum": 0.5})
    x = torch.as_tensor(data.draw(matrices()))
    found = outcome(lambda: spherical.SphericalConstraint(**args)(x), "embeddings", *args)
    too_large = 1e30 in args.values()  # for float32: the penalty is infinite
    assert found is None or finite(found) or not finite(x) or too_large


@given(data=st.data())
def test_expansion(data):
    x, w = (torch.as_tensor(data.draw(matrices(dim=D))) for _ in range(2))
    args = replaced(data.draw, {"points": 2, "directions": "simplex"})
    same = w.ndim and x.ndim and data.draw(st.booleans())
    call = functools.partial(
        spherical.expand, x[: len(w)] if same else x, w[: len(x)] if same else w, **args
    )
    found = outcome(call, "embeddings", "proxies", *args)
    assert found is None or finite(found) or not (finite(x) and finite(w))


@given(data=st.data())
def test_centers(data):
    args = replaced(data.draw, {"classes": 3, "dim": 2, "norm": 1.0, "steps": 3, "seed": 0})
    assert finite(outcome(lambda: max_mahalanobis_centers(**args), *args))
    points = data.draw(ODD)
    assert finite(outcome(lambda: spherical.simplex(points), "points"))


VALUES = st.lists(st.floats(-1, 1) | st.sampled_from(ODD_NUMBERS), max_size=6)
TESTS = {
    "interval": (study.interval, {"values": [0.1, 0.3], "level": 0.95, "overlap": 0.0}),
    "sign_flips": (study.sign_flips, {"values": [0.1, 0.3], "alternative": "greater"}),
    "repetitions": (study.repetitions, {"sd": 1.0, "margin": 1.0, "power": 0.8}),
    "holm": (study.holm, {"p": np.array([[0.1, 0.2]]), "level": 0.05}),
    "settle": (claims.settle, {"claim": "C5", "values": [0.1, 0.3], "margin": 0.01, "overlap": 0}),
    "record": (claims.record, {"claim": "C5", "effect": 0.1, "interval": (0.0, 0.2), "n": 3}),
    "half_width": (claims.half_width, {"rule": "positive", "n": 3}),
    "sample": (records.sample, {"values": [0.1, 0.3]}),
}


@pytest.mark.parametrize("name", TESTS)
@given(data=st.data())
def test_statistics(name, data):
    function, right = TESTS[name]
    args = replaced(data.draw, right, ODD | VALUES)
    outcome(lambda: function(**args), *args)


@given(data=st.data())
def test_comparisons_of_a_sweep(data):
    frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [0.5, 0.6, 0.6, 0.8]})
    frame = frame.iloc[: data.draw(st.integers(0, 4))]
    args = replaced(data.draw, {"axis": "loss", "baseline": "a", "metric": "r", "pair": ["seed"]})
    outcome(lambda: study.compare(frame, **args), "no rows", *args)
    args.pop("baseline")
    outcome(lambda: study.ranks(frame, **args), "no rows", *args)


@given(data=st.data())
def test_experiments(data):
    right = {f.name: f.default for f in training.Experiment.__dataclass_fields__.values()}
    right = {key: value for key, value in right.items() if isinstance(value, int | float | str)}
    args = replaced(data.draw, right)
    outcome(lambda: training.Experiment(**args).hash(), *args)


SAMPLERS = {
    batches.PK: {"classes": 2, "per_class": 2, "seed": 0},
    batches.Neighbors: {"groups": 1, "group_size": 2, "per_class": 2, "seed": 0},
    batches.PairBatches: {"classes": 2, "same_image": 0.5, "seed": 0},
    batches.Episodic: {"ways": 2, "support": 1, "query": 1, "seed": 0},
    batches.Uniform: {"size": 2, "seed": 0},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(data=st.data())
def test_samplers(sampler, data):
    y = data.draw(labels(data.draw(st.integers(0, 12))))
    args = replaced(data.draw, {"labels": y, **SAMPLERS[sampler]})
    found = outcome(lambda: sampler(**args), *args, "batch", "episode")
    if found is not None:
        batch = found(0)
        assert batch.dtype == np.int64
        assert 0 <= batch.min() <= batch.max() < len(args["labels"])


@given(data=st.data())
def test_models(data):
    right = {"name": "convnet", "dim": D, "image": torch.zeros(1, 32, 32)}
    args = replaced(data.draw, right)
    more = data.draw(st.sampled_from(("widths", "head", "pooling", "pretrained", "nonsense")))
    if data.draw(st.booleans()):
        args[more] = data.draw(ODD)
    outcome(lambda: models.build(**args), "model", *args)


@given(data=st.data())
def test_an_index(data):
    x = data.draw(matrices())
    args = replaced(data.draw, {"embeddings": x, "kind": "flat"})
    index = outcome(lambda: Index.build(**args), *args)
    if index is not None:
        args = replaced(data.draw, {"queries": data.draw(matrices()), "k": 1})
        assert finite(outcome(lambda: index.search(**args), *args))
