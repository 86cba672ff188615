"""The Explainer trains in a browser as torch does."""

import json
import shutil
import subprocess
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from course.explainer import graphs, images, page, step, training
from dmlkit import ROOT

from .conftest import PHONE, complaints, fits

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # the exporters'

#: A share of the losses: one of pairs, one of triplets, one of proxies. `make explainer` has all.
FEW = ("triplet_hard", "multi_similarity", "cosface")
#: The rounding of two machines grows at each step, and flips a choice of a mined pair at last.
STEPS = 10
TRAIN = """
const [settings, count, done] = arguments;
explainer.change(settings).then(() => explainer.steps(count)).then((frame) =>
  done({ value: frame.value, points: Array.from(frame.points), settings: frame.settings }),
  (error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("no npm, from which the page's runtime comes")
    folder = tmp_path_factory.mktemp("explainer") / "page"
    catalog = page.write(folder, [*FEW, "structured_clustering"])
    assert [loss["name"] for loss in catalog["losses"]] == [*FEW]
    assert "its steps depend on where the points are" in catalog["missing"][0]["why"]
    return folder


def test_the_page_is_small(folder: Path) -> None:
    files = [f for f in folder.rglob("*") if f.is_file() and "ort" not in f.parts]
    assert sum(f.stat().st_size for f in files) < 5e6


def test_in_a_browser(folder: Path, chromium: Any, serve: Callable[[Path], str]) -> None:
    complaints(chromium)
    chromium.get(serve(folder))
    chromium.execute_async_script("explainer.ready.then(arguments[0])")
    sets = images.glyphs(), images.groceries()
    for i, name in enumerate(FEW):
        found, dim, classes = sets[i % 2], (2, 3, 16)[i], (4, 8, 16)[i]
        asked = {"data": found.title, "loss": name, "dim": dim, "classes": classes, "sec": 0.5}
        told = chromium.execute_async_script(TRAIN, asked, STEPS)
        assert not isinstance(told, str), f"{name}: {told}"
        chosen = told["settings"]
        numbers = {setting: chosen[setting] for setting in graphs.LOSSES[name]}
        settings = training.Settings(name, numbers, classes, dim, chosen["lr"], 0.5)
        *_, (value, points) = islice(training.train(found, settings), STEPS)
        apart = (torch.tensor(told["points"]).view_as(points) - points).abs().max()
        assert apart < 1e-3 * points.abs().max(), name
        assert told["value"] == pytest.approx(value, rel=1e-3), name
    before = chromium.find_element("id", "step").text
    chromium.find_element("id", "one").send_keys("\n")
    chromium.execute_async_script("setTimeout(arguments[0], 1000)")
    assert int(chromium.find_element("id", "step").text) == int(before) + 1
    assert fits(chromium, PHONE)
    assert complaints(chromium) == []


def test_the_same_numbers_in_python_and_javascript() -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node")
    module = (ROOT / "course" / "explainer" / "random.js").as_uri()
    script = f"import({module!r}).then(r => console.log(JSON.stringify([...r.draws(7, 3, 50)])))"
    told = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == step.draws(7, 3, 50).tolist()
