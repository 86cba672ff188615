"""A Run's name knows all code that it executes, as it was imported."""

import inspect
import json
import os
import shutil
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import torchvision

import dmlkit
from dmlkit import training
from tests.data.trees import classes
from tests.training.tiny import TINY, run

ONE_STEP = replace(TINY, steps=1, monitor=())
# What these give is in the name itself, images and labels, or is only a path.
LOADERS = {f"dmlkit.data.{name}" for name in ("benchmarks", "download", "folder", "images", "own")}
LOADERS |= {"dmlkit", "dmlkit.data"}


def test_a_pretrained_run_is_known_by_the_weights_that_it_starts_from(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    placed = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    placed.parent.mkdir(parents=True)
    experiment = replace(
        TINY, model="resnet18", model_args={"pretrained": True}, steps=1, monitor=()
    )
    paths = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        torch.save(torchvision.models.resnet18().state_dict(), placed)
        found = run(experiment, tmp_path / "runs")
        assert len(found.provenance["weights"]) == 12
        paths.append((found.path, found.loaded))
    assert paths[0] == (paths[2][0], False)
    assert paths[1] != paths[0]
    assert [loaded for _, loaded in paths] == [False, False, True]
    assert list(training.baselines(experiment)) == ["raw pixels", "untouched features"]


def executed(function):
    """Modules of the package whose functions ran."""
    found = set()

    def tracer(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] == "dmlkit" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            found.add(name)  # no body of a module or a class, which only defines

    before = sys.gettrace()
    sys.settrace(tracer)
    threading.settrace(tracer)
    try:
        result = function()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return result, found


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"loss": "proxy_anchor", "sampler": "uniform", "sampler_args": {"size": 32}},
        {"loss": "xbm", "loss_args": {"loss": "multi_similarity", "start_step": 1}},
        {
            "loss": "spherical_expansion",
            "loss_args": {"points": 4},
            "constraint": {"weight": 0.1},
            "augment": True,
        },
        {"loss": "structured_clustering"},
        {"loss": "prototypical", "metric": {"name": "poincare", "c": 1.0}},
        {"loss": "hyperbolic", "metric": "poincare"},
        {"data": "folder"},
    ],
)
def test_every_module_that_a_training_executes_is_in_its_name(change, store, tmp_path, monkeypatch):
    if "data" in change:
        monkeypatch.setenv("DMLKIT_DATA", str(classes(tmp_path / "pictures", "ant bee cat dog")))
        change |= {
            "data_args": {"crop": 16, "resize": 18, "scale": [0.5, 1.0]},
            "sampler_args": {"classes": 2, "per_class": 2},
        }
    experiment = replace(TINY, **{"steps": 2, "monitor_every": 2, "monitor": ["test"], **change})
    done, modules = executed(lambda: run(experiment, store))
    named = set(done.provenance["modules"].split())
    assert {"dmlkit.losses.table", "dmlkit.training.trainer", "dmlkit.geometry"} <= modules
    assert modules - named - LOADERS == set()


def test_a_run_is_not_renamed_by_losses_that_it_does_not_use(store):
    named = run(ONE_STEP, store).provenance["modules"].split()
    assert "dmlkit.losses.mining" in named
    assert "dmlkit.losses.contract" in named
    assert not {"dmlkit.losses.groups", "dmlkit.losses.memory", "dmlkit.sweeps"} & set(named)


def test_training_and_loading_leave_the_name_as_it_was(store):
    """What a process has computed and imported before has no say."""
    import dmlkit.sweeps  # noqa: F401

    experiment = replace(ONE_STEP, loss="structured_clustering", augment=True)
    first = run(experiment, store)
    assert run(replace(experiment, loss="hyperbolic", metric="poincare"), store)
    assert run(experiment, store).path == first.path


def names(store, *changes):
    return [run(replace(ONE_STEP, **change), store).path.name for change in changes]


def test_numerics_are_in_the_name(store, monkeypatch):
    facts = run(ONE_STEP, store).provenance
    assert facts["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert facts["torch"] == torch.__version__
    assert torch.backends.cpu.get_cpu_capability().lower() in facts["numerics"]
    other = "AVX2" if os.environ.get("ONEDNN_MAX_CPU_ISA") == "SSE41" else "SSE41"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", other)
    assert not run(ONE_STEP, store).loaded


RULE = "    left = min(1.0, "
EDITS = {
    "as it is": {},
    "a comment, a docstring, lines": {
        RULE: "    # why\n\n" + RULE,
        "A rise over the first": "First a rise, over the first",
        "def lr_factor(": "\n\ndef lr_factor(  # of all groups\n    ",
    },
    "another rule": {RULE: "    left = min(0.9, "},
}
# A process for each package, which all have what they import from other packages.
SCRIPT = """
import json, os, sys
from pathlib import Path
import faiss, lightning_fabric, pandas, scipy.stats, sklearn.metrics, torch._dynamo, torchvision
assert "dmlkit" not in sys.modules

def tell(package):
    sys.path.insert(0, str(package))
    from dmlkit import training
    file, store = Path(training.build.__file__), package / "runs"
    assert file.is_relative_to(package)
    experiment = training.Experiment(**json.loads(sys.argv[1]))
    def name():
        return training.run(experiment, store=store, device="cpu", progress=False).path.name
    first = name()
    file.write_text(file.read_text().replace("return min(", "return max("))  # and not imported
    assert name() == first, "renamed by an edit on disk"
    (package / "told").write_text(first)

for package in map(Path, sys.argv[2:]):
    child = os.fork()
    if not child:
        tell(package)
        os._exit(0)  # without taking down torch, which takes seconds
    assert os.waitpid(child, 0)[1] == 0
"""


def test_in_another_process_code_renames_and_comments_do_not(tmp_path, commands):
    for i, edits in enumerate(EDITS.values()):
        package = tmp_path / str(i) / "dmlkit"
        # Without what another process is about to rename to a .pyc.
        beside = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(Path(dmlkit.__file__).parent, package, ignore=beside)
        file = package / "training" / "build.py"
        text = file.read_text()
        for old, new in edits.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        file.write_text(text)
    folders = [tmp_path / str(i) for i in range(len(EDITS))]
    environment = os.environ | {"DMLKIT_CACHE": str(dmlkit.cache_folder())}
    command = ["-c", SCRIPT, json.dumps(asdict(ONE_STEP)), *map(str, folders)]
    done = commands.run(command, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    told = [(folder / "told").read_text() for folder in folders]
    assert told[0] == told[1] != told[2]


LOSS = """
from torch import nn
from near_the_loss import strength

POWER = 2


class Shrink(nn.Module):
    def forward(self, embeddings, labels):
        return strength() * embeddings.pow(POWER).mean()
"""
NEAR = "def strength():\n    return 1.0\n"


def test_a_loss_named_by_its_file_is_trained_anew_when_its_code_changes(
    store, tmp_path, monkeypatch
):
    """Its helpers in the file count; other Runs stay."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near_the_loss.py").write_text(NEAR)
    own = {"loss": "mylosses.py:Shrink"}
    wrapped = {"loss": "matryoshka", "loss_args": own}
    found = []
    for old, new in (("", ""), ("\n\n\n", '\n\n# why\n\n"""Why."""\n'), ("POWER = 2", "POWER = 4")):
        (tmp_path / "mylosses.py").write_text(LOSS.replace(old, new, 1))
        found.append(names(store, own, wrapped, {}))
    assert found[0] == found[1], "a comment"
    assert [a != b for a, b in zip(found[1], found[2], strict=True)] == [True, True, False]
    assert run(replace(ONE_STEP, **own), store).loaded


@pytest.mark.parametrize("loss", ["mylosses.py:Shrink", "mine.losses:Shrink"])
def test_what_a_loss_of_ones_own_imports_is_in_the_name(store, tmp_path, monkeypatch, loss):
    """From beside its file, or from its package, whatever that itself imports."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near_the_loss.py").write_text("from far_from_it import strength\n")
    (tmp_path / "far_from_it.py").write_text(NEAR)
    (tmp_path / "mylosses.py").write_text(LOSS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "near_the_loss.py").write_text(NEAR)
    (tmp_path / "mine" / "losses.py").write_text(LOSS.replace("from near", "from .near"))
    for name in ("near_the_loss", "far_from_it", "mine", "mine.losses", "mine.near_the_loss"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = run(replace(ONE_STEP, loss=loss), store).provenance["modules"].split()
    near = ["mine.losses", "mine.near_the_loss"]
    if loss.startswith("mylosses.py"):
        near = ["far_from_it", "loss_file_mylosses", "near_the_loss"]
    assert [name for name in modules if not name.startswith("dmlkit")][-3:] == near
