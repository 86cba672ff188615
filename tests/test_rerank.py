"""Local matches, the rule that trusts them, and ``dmlkit search --rerank`` on a small folder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from dmlkit import rerank, search, training
from dmlkit.cli import terminal
from dmlkit.cli.app import app
from dmlkit.rerank import Rule
from dmlkit.training import Experiment


def test_a_map_matches_its_own_shift_and_no_other_map(generator):
    large = torch.randn(16, 18, 18, generator=generator)
    a, b = rerank.points(large[:, :14, :14]), rerank.points(large[:, 3:17, 2:16])
    found = rerank.matches(a, b)
    assert len(found) == 11 * 12  # all that both have
    moved = a.at[found[:, 0]] - b.at[found[:, 1]]
    torch.testing.assert_close(moved, torch.tensor([[2 / 14, 3 / 14]]).expand_as(moved))
    other = rerank.points(torch.randn(16, 14, 14, generator=generator))
    assert len(rerank.matches(a, other)) < 20


@pytest.mark.parametrize("turn, scale", [(0.0, 1.0), (2.0, 0.5), (-1.0, 2.0)])
def test_matches_that_agree_are_found_among_others(turn, scale):
    rng = np.random.default_rng(0)
    z = rng.uniform(size=60) + 1j * rng.uniform(size=60)
    w = scale * np.exp(1j * turn) * z + 0.3
    w[40:] = rng.uniform(size=20) + 5 + 1j * rng.uniform(size=20)
    p, q = (torch.from_numpy(np.stack([x.real, x.imag], axis=1)) for x in (z, w))
    assert rerank.consistent(p, q).nonzero()[0].tolist() == [*range(40)]
    assert not rerank.consistent(p[:1], q[:1]).any()
    assert rerank.consistent(p, 10 * q).sum() < 6  # larger than any guess: what chance gives


def test_the_rule_is_the_best_of_those_tried_and_the_smallest():
    cosines, classes = np.array([[0.9, 0.89]] * 4), np.array([0, 0, 0, 1])
    counts, right = np.array([[10, 20], [20, 10], [10, 30], [9, 3]]), np.eye(2)[[1, 0, 1, 0]] > 0
    rule = rerank.choose(cosines, counts, right, classes)
    assert rule == Rule(0.001, 16)  # 20 matches beat 0.01 in cosine if 10 do not count
    assert right[np.arange(4), rule.scores(cosines, counts).argmax(axis=1)].all()
    assert rerank.choose(cosines, 0 * counts, right, classes) == Rule(0.0, 0)


def test_a_map_is_the_last_one_with_cells_enough():
    net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.Sequential(nn.Conv2d(3, 5, 3, padding=1)),
                        nn.MaxPool2d(2), nn.Conv2d(5, 7, 1), nn.Flatten())  # fmt: skip
    x = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(rerank.feature_maps(net, x), net[:2](x))
    with pytest.raises(ValueError, match=r"map of 16 cells a side or more, .* 8 × 8 pixels"):
        rerank.feature_maps(net, torch.rand(2, 1, 8, 8))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Six classes of eight pictures: pieces of one pattern each; and a Run of some of them."""
    folder, rng = tmp_path_factory.mktemp("rerank"), np.random.default_rng(0)
    for name in "abcdef":
        pattern = rng.integers(256, size=(11, 11, 3)).astype(np.uint8).repeat(4, 0).repeat(4, 1)
        for i in range(8):
            x, y = rng.integers(9, size=2)
            (folder / "pictures" / name).mkdir(parents=True, exist_ok=True)
            piece = Image.fromarray(pattern[x : x + 36, y : y + 36])
            piece.save(folder / "pictures" / name / f"{i}.png")
    return folder


@pytest.fixture
def run(place, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(place / "cache"))
    monkeypatch.setattr(terminal, "console", Console(markup=False, width=300))
    args = {"root": str(place / "pictures"), "test_share": 0.5, "crop": 32, "resize": 32}
    experiment = Experiment(
        data="folder", data_args=args, model_args={"widths": [8, 8]}, dim=8, steps=2,
        sampler_args={"classes": 2, "per_class": 2},
    )  # fmt: skip
    return training.run(experiment, store=place / "cache" / "runs", device="cpu", progress=False)


def test_a_search_is_re_ranked_and_measured_once(place, run):
    picture = place / "pictures" / "a" / "0.png"
    words = ["search", str(picture), "--run", run.path.name, "--pictures",
             str(place / "pictures"), "--device", "cpu", "--rerank"]  # fmt: skip
    ask = CliRunner().invoke
    first = ask(app, words, env={"COLUMNS": "300"})
    assert first.exit_code == 0, first.output
    assert "re-ranked by matches in " in first.output
    assert "is not measured: --measure does it once" in first.output
    assert "matches" in first.output
    measured = ask(app, [*words, "--measure"], env={"COLUMNS": "300"})
    assert "on 24 queries of 3 held-out classes: Recall@1 " in measured.output, measured.output
    again = ask(app, words, env={"COLUMNS": "300"})
    told = measured.output.split("what this brings ")[1].splitlines()[0]
    assert told in again.output
    kept = json.loads((run.path / rerank.KEPT).read_text())
    assert kept["after"] > kept["before"]  # of rigid patterns by an untrained network
    (run.path / rerank.KEPT).write_text(json.dumps(kept | {"rule": [1, 1]}))
    assert "is not measured" in ask(app, words, env={"COLUMNS": "300"}).output


def test_the_order_follows_the_rule(place, run):
    gallery = search.gallery(run, place / "pictures")
    made, _ = search.index(run, gallery, place / "index", device="cpu")
    picture = place / "pictures" / "b" / "3.png"
    found = search.nearest(run, gallery, made, picture, 12, "cpu")
    anew, seconds = rerank.Matcher(run, "cpu").reranked(gallery, picture, found)
    scores = rerank.rule(16 * 16).scores(anew["cosine"].to_numpy(), anew["matches"].to_numpy())
    assert (np.diff(scores) <= 0).all()
    assert sorted(anew["picture"]) == sorted(found["picture"])
    assert anew["picture"].iloc[0] == str(picture)
    assert anew["matches"].iloc[0] == anew["matches"].max()
    assert [*anew] == ["picture", "class", "place", "matches", "cosine"]
    assert seconds > 0


def test_what_cannot_be_re_ranked_is_refused(run):
    for change, message in (
        ({"metric": "euclidean"}, "adds matches to cosines, but Run .* by euclidean"),
        ({"split": "train"}, "trained on all of its classes, so none is left"),
    ):
        wrong = replace(run, experiment=replace(run.experiment, data_args={}, **change))
        with pytest.raises(ValueError, match=message):
            rerank.held_out(wrong) if "split" in change else rerank.Matcher(wrong, "cpu")
