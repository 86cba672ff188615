"""The playground computes what torch computes, as a graph and in a browser."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from course import exporting, playground  # noqa: E402
from dmlkit import losses  # noqa: E402

from .conftest import complaints, fits, phone, ready, without_webassembly  # noqa: E402
from .reader import touch  # noqa: E402

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # the exporters'

#: A curved space, a setting and proxies as inputs, a draw. `make site` exports and compares all.
FEW = ("hyperbolic", "normalized_softmax", "meta_class")
MISSING = "structured_clustering"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with a few losses, written as `make playground` does: from another folder."""
    if shutil.which("npm") is None:
        pytest.skip("no npm, from which the page's runtime comes")
    root = tmp_path_factory.mktemp("playground")
    with contextlib.chdir(root):
        catalog = playground.write(Path("build/playground"), [*FEW, MISSING])
    assert [loss["name"] for loss in catalog["losses"]] == [*FEW]
    (missing,) = catalog["missing"]
    assert "its steps depend on where the points are" in missing["why"]
    return root / "build" / "playground"


def test_a_graph_gives_what_torch_gives(folder: Path) -> None:
    """Against autograd on the loss as it is called, at a temperature that is an input."""
    model = (folder / "models" / "normalized_softmax.onnx").read_bytes()
    module = losses.build("normalized_softmax", num_classes=3, dim=2, temperature=0.3)
    points, proxies = torch.randn(6, 2).requires_grad_(), torch.randn(3, 2)
    module.proxies.data.copy_(proxies)
    value = module(points, playground.LABELS)
    value.backward()
    feed = {"temperature": torch.tensor(0.3), "points": points.detach(), "proxies": proxies}
    session = onnxruntime.InferenceSession(model)
    found = session.run(None, {name: tensor.numpy() for name, tensor in feed.items()})
    expected = (value.detach(), -points.grad, -module.proxies.grad)
    for ours, theirs in zip(expected, found, strict=True):
        torch.testing.assert_close(torch.tensor(theirs), ours, rtol=1e-4, atol=1e-5)


def test_a_setting_is_an_input_only_where_that_gives_the_same_loss() -> None:
    assert not playground.can_be_input("angular", "degrees")
    assert playground.can_be_input("contrastive", "negative_margin")


def test_a_difference_that_is_not_finite_counts() -> None:
    nan = torch.tensor([torch.nan])
    assert exporting.difference([torch.ones(1)], [nan]) == float("inf")
    assert exporting.difference([torch.ones(2)], [torch.tensor([1.0, 1.5])]) == 0.5


#: What the page computes for one loss: its graph on our inputs.
EVALUATE = """
const [name, settings, points, proxies, done] = arguments;
const entry = playground.catalog().losses.find((loss) => loss.name === name);
playground.evaluate(entry, settings, points, proxies).then(done, (error) => done(String(error)));
"""


def test_in_a_browser(
    folder: Path, chromium: Any, serve: Callable[[Path], str], axe: Callable[..., list[str]]
) -> None:
    from selenium.webdriver import ActionChains, Keys

    complaints(chromium)
    chromium.get(serve(folder))
    ready(chromium, "playground")
    for entry in chromium.execute_script("return playground.catalog()")["losses"]:
        name = entry["name"]
        settings = {s["name"]: playground.within(name, s["name"], 0.4) for s in entry["settings"]}
        module = playground.build(name, **settings)
        inputs = playground.sample(module, seed=11)
        flat = [z.flatten().tolist() for z in inputs[1:]]
        arguments = name, settings, inputs[0].tolist(), flat[0] if flat else []
        told = chromium.execute_async_script(EVALUATE, *arguments)
        assert not isinstance(told, str), f"{name}: {told}"
        expected = playground.formula(module)(*inputs)
        assert exporting.difference(expected, map(torch.tensor, told)) < 1e-4, name

    def value() -> str:
        chromium.execute_async_script("setTimeout(arguments[0], 500)")
        return str(chromium.find_element("id", "value").text)

    point = chromium.find_element("css selector", "#handles g")
    values = [value()]
    point.send_keys(Keys.ARROW_UP)
    values.append(value())
    ActionChains(chromium).drag_and_drop_by_offset(point, 40, 25).perform()
    values.append(value())
    chromium.execute_script("location.hash = 'normalized_softmax'")
    values.append(value())
    chromium.find_element("id", "setting-temperature").send_keys(Keys.HOME)
    values.append(value())
    assert len(set(values)) == 5
    assert axe(chromium, chromium.find_element("css selector", "body")) == []
    chromium.execute_script("location.hash = arguments[0]", MISSING)
    value()
    assert "its steps depend on" in chromium.find_element("id", "summary").text
    with phone(chromium):
        assert fits(chromium)
        point = chromium.find_element("css selector", "#handles g")
        chromium.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
        before = value(), chromium.execute_script("return scrollY")
        touch(chromium, point, 40, 30)
        assert value() != before[0]
        assert chromium.execute_script("return scrollY") == before[1], "the finger held the point"
    assert complaints(chromium) == []


def test_without_webassembly_it_says_so(
    folder: Path, chromium: Any, serve: Callable[[Path], str]
) -> None:
    with without_webassembly(chromium):
        chromium.get(serve(folder))
        ready(chromium, "playground")
        assert "lacks WebAssembly" in chromium.find_element("id", "status").text
