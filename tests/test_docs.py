"""Every Python block of docs/*.md and of notebooks' text is executed, in order, in one namespace
for each file."""

import json
import os
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import nn

from dmlkit import data, losses, models, training
from dmlkit.search import Index
from tests import documented
from tests.data import trees

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ALONE = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",  # 0: any that is free
}  # fmt: skip
# README's and CONTRIBUTING's are executed by tests of their own.
OTHERS = {
    name: text for name, text in documented.pages()
    if re.search(r"^ *```python", text, re.M) and not name.startswith(("docs/", "README.md"))
}  # fmt: skip
every_page = pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)


class TinyTransformer(nn.Module):
    """In place of transformers' AutoModel: pixel values -> tokens, of which the first is CLS."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)

    @classmethod
    def from_pretrained(cls, name):
        torch.manual_seed(0)
        return cls()

    def forward(self, *, pixel_values):
        tokens = self.patches(pixel_values).flatten(2).mT  # (B, N, 8)
        return types.SimpleNamespace(
            last_hidden_state=torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1)
        )


class TinyProcessor:
    """In place of transformers' AutoImageProcessor: RGB pictures of bytes -> pixel values."""

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def __call__(self, *, images, return_tensors):
        assert return_tensors == "pt"
        assert {(image.shape[0], image.dtype) for image in images} == {(3, torch.uint8)}
        return {"pixel_values": torch.stack(images) / 127.5 - 1}


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Nothing is downloaded, nothing written but here, and a process is a group of one."""
    hugging_face = types.ModuleType("transformers")
    hugging_face.AutoModel, hugging_face.AutoImageProcessor = TinyTransformer, TinyProcessor
    monkeypatch.setitem(sys.modules, "transformers", hugging_face)
    import timm  # takes seconds, and the processes of the last test want none of it

    create = timm.create_model

    def create_tiny(
        name, pretrained=False, img_size=None, **args
    ):  # timm's own smallest, with random weights
        assert timm.is_model(name)
        return create("test_resnet.r160_in1k", pretrained=False, **args)

    monkeypatch.setattr(timm, "create_model", create_tiny)
    monkeypatch.chdir(tmp_path)
    trees.classes(tmp_path / "photos")
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


def execute(page: Path, text: str | None = None, **names: object) -> dict:
    """The namespace that the page's blocks leave, an error's traceback with the page's lines."""
    namespace: dict = {"__name__": "page", **names}
    text = text or page.read_text()
    for found in BLOCK.finditer(text):
        if found[1] == "python":
            above = "\n" * text.count("\n", 0, found.start(2))
            with mpl.rc_context():  # a page may set the look of figures
                exec(compile(above + found[2], page, "exec"), namespace)
    return namespace


def test_there_are_pages():
    assert ROOT / "docs" / "other_tools.md" in DOCS


# Python 3.12 warns of any fork beside other threads, of which faiss and torch have some.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@every_page
def test_python_blocks(page, offline):
    namespace = execute(page)
    if page.stem == "other_tools":
        check_other_tools(namespace)


@pytest.mark.parametrize("name", OTHERS)
def test_python_blocks_of_other_pages(name, offline, monkeypatch, tmp_path):
    """With what the page says that they are given."""
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    photographs = data.load("folder", "train", tmp_path / "photos", crop=32, resize=32)
    execute(ROOT / name, OTHERS[name], training=training, photographs=photographs)


def check_other_tools(namespace: dict) -> None:
    """What the last recipes left, and what theirs makes of the same pairs."""
    histories = [namespace["history"], *namespace["histories"].values()]
    assert [len(history) for history in histories] == [4, 4, 4]
    assert all(np.isfinite(history["loss"]).all() for history in histories)
    assert namespace["known"].shape == (len(namespace["train"]), 8)  # the stub's class tokens
    assert namespace["after"][1] > 0.01
    assert namespace["scores"]["recall_at_1"] > 0.05  # one class in a hundred is 0.01
    assert Path("embeddings.npz").exists()
    assert namespace["held"][1] == namespace["each"]["recall_at_1"].iloc[:100].mean()
    assert namespace["predicted"].shape == (64,)
    assert namespace["rates"]["fmr"].tolist() == pytest.approx([0.01, 0.1], abs=0.05)
    assert len(Index.load(Path("gallery.index"))) == 448
    assert "start" not in namespace["longer"].provenance  # it is the longer Run
    assert len(namespace["longer"].history) == len(namespace["best"].history) == 20
    assert namespace["ours"].tolist() == pytest.approx(
        [namespace["theirs"][name] for name in namespace["include"]], abs=0.003
    )  # their neighbors are those of float32 products: of 400 queries one may have another

    from pytorch_metric_learning import losses as their_losses

    generator = torch.Generator().manual_seed(0)
    ours = namespace["ContrastiveLoss"](negative_margin=1.0)
    theirs = their_losses.ContrastiveLoss(neg_margin=1.0)
    memories = [their_losses.CrossBatchMemory(loss, 5, 30) for loss in (ours, theirs)]
    for _ in range(4):  # of 12 into 30 places: the third batch comes round to the first ones
        x = torch.randn(12, 5, generator=generator)
        labels = torch.randint(3, (12,), generator=generator)
        torch.testing.assert_close(*(memory(x, labels) for memory in memories))
    torch.testing.assert_close(ours(x, labels), losses.ContrastiveLoss(0.0, 1.0)(x, labels))


def train_alone_and_in_the_group(script: str, folder: Path) -> None:
    """What the script trains, without BatchNorm, which would see each share by itself; in float64,
    since Adam makes whole steps of gradients that are nothing but rounding."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    models.build = lambda name, dim, image: nn.Sequential(
        nn.Flatten(), nn.Linear(image.numel(), dim)
    )
    torch.set_default_dtype(torch.float64)
    group = {name: os.environ[name] for name in ALONE}
    for environment in (ALONE, group) if group["RANK"] == "0" else (group,):
        os.environ.update(environment)
        space: dict = {}
        exec(script, space)
        weights = list(space["model"].parameters())
        found = [space["value"].detach(), weights, [weight.grad for weight in weights]]
        torch.save(found, folder / f"{space['world_size']}_{space['rank']}.pt")


def test_two_processes_train_as_one_does(tmp_path, spawn):
    """The page's script for DistributedDataParallel, in the environment that torchrun gives."""
    text = (ROOT / "docs" / "other_tools.md").read_text()
    (script,) = [code for _, code in BLOCK.findall(text) if "init_process_group" in code]
    spawn(2, train_alone_and_in_the_group, script, tmp_path)
    alone, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1_0", "2_0", "2_1"))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, alone, rtol=1e-7, atol=1e-9)


@every_page
def test_every_block_is_of_a_kind_that_is_executed(page):
    """Here, or for the shell by tests/test_documented.py; but for the teacher's container."""
    found = {language for language, _ in BLOCK.findall(page.read_text())}
    assert found - ({"Dockerfile"} if page.stem == "teach" else set()) <= {"python", "bash"}


@every_page
def test_every_local_link_leads_somewhere(page):
    targets = re.findall(r"\]\(((?!https?:)[^)#]+)\)", page.read_text())
    assert not [target for target in targets if not (page.parent / target).exists()]


#: What several figures show of one test set: numbers that no training moves.
LINES = ("raw pixels", "color histogram", "untouched")


def _lines(numbers: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Every such number of a figure, in percent."""
    if isinstance(numbers, dict):
        for key, value in numbers.items():
            yield from _lines(value, key)
    elif name in LINES and isinstance(numbers, float):
        yield name, round(numbers if numbers > 1 else 100 * numbers, 1)


def test_what_stands_in_several_figures_is_one_number() -> None:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for path in sorted((ROOT / "figures").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        if test := record["provenance"]["datasets"].get("test"):
            for name, value in _lines(record["numbers"]):
                found.setdefault((name, test), {})[path.stem] = value
    assert found
    assert [each for each in found.values() if len(set(each.values())) > 1] == []
