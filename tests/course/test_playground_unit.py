"""What the playground exports is what torch computes, and what cannot be exported says why."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from course import playground  # noqa: E402
from dmlkit import losses  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters', about themselves


def test_a_setting_is_an_input_of_the_graph(tmp_path: Path) -> None:
    told = playground.export("normalized_softmax", tmp_path)
    session = onnxruntime.InferenceSession((tmp_path / told["graphs"][0]["file"]).read_bytes())
    module = losses.build("normalized_softmax", num_classes=3, dim=2, temperature=0.3)
    points, proxies = torch.randn(6, 2).requires_grad_(), torch.randn(3, 2)
    with torch.no_grad():
        module.proxies.copy_(proxies)
    value = module(points, playground.LABELS)
    value.backward()
    feed = {"temperature": torch.tensor(0.3), "points": points.detach(), "proxies": proxies}
    found = session.run(None, {name: tensor.numpy() for name, tensor in feed.items()})
    torch.testing.assert_close(torch.tensor(found[0]), value.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found[1]), -points.grad, rtol=1e-4, atol=1e-5)
    assert told["proxies"] == [3, 2]


def test_draws_are_inputs(tmp_path: Path) -> None:
    told = playground.export("triplet_distance", tmp_path)
    assert told["draws"] == [[6, 6]]
    assert told["difference"] < playground.TOLERANCE


def test_a_setting_that_no_input_can_be_has_a_graph_for_each_of_a_few_values() -> None:
    assert not playground.can_be_inputs("angular", ["degrees"])
    assert playground.can_be_inputs("contrastive", ["negative_margin"])
    assert playground.spread("angular", "degrees", 3) == [30, 45, 60]


@pytest.mark.parametrize("name", ["structured_clustering", "dreml"])
def test_what_cannot_be_exported_says_why(name: str, tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, ValueError)) as raised:
        playground.export(name, tmp_path)
    assert len(playground._reason(raised.value)) > 20
    assert list(tmp_path.iterdir()) == []


def test_the_draws_of_a_loss_are_those_that_were_given() -> None:
    given = torch.tensor([0.25, 0.75])
    with playground.Draws([given]) as draws:
        assert torch.equal(torch.rand(2), given)
        assert torch.rand(3).shape == (3,)
    assert [len(taken) for taken in draws.taken] == [2, 3]


def test_a_difference_that_is_not_finite_counts() -> None:
    nan = torch.tensor([torch.nan])
    assert playground.difference([torch.ones(1)], [nan]) == float("inf")
    assert playground.difference([torch.ones(2)], [torch.tensor([1.0, 1.5])]) == 0.5
