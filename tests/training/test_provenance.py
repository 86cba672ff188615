"""A Run's name knows all code that it executes, as it was imported."""

import importlib.util
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
from dmlkit import losses, neighbors, training
from dmlkit.losses import contract
from tests.data.trees import classes
from tests.training.tiny import TINY, before_each_step, run

ONE_STEP = replace(TINY, steps=1, monitor=())
# What these give is in the name itself: images and labels, or only a path.
LOADERS = {f"dmlkit.data.{name}" for name in ("benchmarks", "download", "folder", "images")}


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
    assert list(training.baselines(experiment)) == ["raw pixels", "pretrained network"]


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
    assert not {"dmlkit.losses.groups", "dmlkit.losses.memory", "dmlkit.study"} & set(named)


def test_training_and_loading_leave_the_name_as_it_was(store):
    """What a process has computed and imported before has no say."""
    import dmlkit.study  # noqa: F401

    experiment = replace(ONE_STEP, loss="structured_clustering", augment=True)
    first = run(experiment, store)
    assert run(replace(experiment, loss="hyperbolic", metric="poincare"), store)
    assert run(experiment, store).path == first.path


def names(store, *changes):
    return [run(replace(ONE_STEP, **change), store).path.name for change in changes]


def test_a_rule_edited_and_imported_in_a_live_process_renames_its_runs(
    store, tmp_path, monkeypatch
):
    source = Path(training.build.__file__).read_text()
    path = tmp_path / "edited.py"
    path.write_text(source.replace("return min(1.0, ", "return min(0.9, "))
    spec = importlib.util.spec_from_file_location(training.build.__name__, path)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    (before,) = names(store, {})
    rule = training.build.lr_factor
    monkeypatch.setattr(rule, "__code__", copy.lr_factor.__code__)
    (after,) = names(store, {})
    assert before != after
    monkeypatch.undo()
    assert names(store, {}) == [before]


def test_a_loss_that_is_changed_in_a_notebook_renames_the_runs_that_use_it(store, monkeypatch):
    changes = {"loss": "contrastive"}, {"loss": "xbm", "loss_args": {"loss": "contrastive"}}, {}
    before = names(store, *changes)

    def mine(self, pairs):
        return (pairs.x @ pairs.y.T).mean()

    monkeypatch.setattr(losses.ContrastiveLoss, "of", mine)
    after = names(store, *changes)
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert changed[:2] == [True, True]


def test_what_is_only_watched_keeps_its_name(store, monkeypatch):
    before = names(store, {})
    before_each_step(monkeypatch, print)
    assert names(store, {}) == before


def test_numerics_are_in_the_name(store, monkeypatch):
    facts = run(ONE_STEP, store).provenance
    assert facts["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert facts["torch"] == torch.__version__
    assert torch.backends.cpu.get_cpu_capability().lower() in facts["numerics"]
    other = "AVX2" if os.environ.get("ONEDNN_MAX_CPU_ISA") == "SSE41" else "SSE41"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", other)
    assert not run(ONE_STEP, store).loaded


RULE = "    return min(1.0, "
EDITS = {
    "as it is": {},
    "a comment, a docstring, an annotation, lines": {
        RULE: "    # why\n    limit: float\n\n" + RULE,
        "Constant, then a linear fall": "At first constant, then a fall",
        "lr_factor(step: int,": "lr_factor(step: float,",
    },
    "another rule": {RULE: "    return min(0.9, "},
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


def test_what_other_packages_define_does_not_count(store, monkeypatch):
    """``tqdm.auto`` has another bar in a notebook than in its workers: both have the same Run."""

    class OtherBar(training.loop.tqdm):
        __module__ = "tqdm.notebook"

    assert not run(ONE_STEP, store).loaded
    monkeypatch.setattr(training.loop, "tqdm", OtherBar)
    assert run(ONE_STEP, store).loaded


def test_the_settings_of_an_object_that_a_module_keeps_count(store, monkeypatch):
    """The Poincaré metric's curvature is that of a loss that ``neighbors`` keeps."""
    assert not run(ONE_STEP, store).loaded
    monkeypatch.setattr(neighbors, "_BALL", losses.HyperbolicLoss(c=0.5))
    assert not run(ONE_STEP, store).loaded


def test_what_torch_compile_leaves_in_a_module_does_not_count(store, monkeypatch):
    assert not run(ONE_STEP, store).loaded
    monkeypatch.setitem(vars(contract), "__import_dmlkit_dot_losses_dot_groups", losses.groups)
    assert run(ONE_STEP, store).loaded


LOSS = """
from torch import nn
from near_the_loss import strength

POWER = 2


def power(x):
    return x**POWER


class Shrink(nn.Module):
    def forward(self, embeddings, labels):
        return strength() * power(embeddings).mean()
"""


def test_a_loss_named_by_its_file_renames_its_runs_when_its_code_changes(
    store, tmp_path, monkeypatch
):
    """Its helpers in the file count, and what it imports from beside that; other Runs stay."""
    monkeypatch.chdir(tmp_path)
    beside, file = tmp_path / "near_the_loss.py", tmp_path / "mylosses.py"
    beside.write_text("def strength():\n    return 1.0\n")
    own = {"loss": "mylosses.py:Shrink"}
    wrapped = {"loss": "matryoshka", "loss_args": own}
    found = []
    for old, new in (("", ""), ("\n\n\n", "\n\n# why\n"), ("POWER = 2", "POWER = 4")):
        file.write_text(LOSS.replace(old, new))
        found.append(names(store, own, wrapped, {}))
    near = sys.modules["near_the_loss"]
    monkeypatch.setattr(near, "strength", lambda: 2.0)
    vars(sys.modules[losses.entry(own["loss"]).make.__module__])["strength"] = near.strength
    found.append(names(store, own, wrapped, {}))
    assert found[0] == found[1], "a comment"
    for before, after in ((found[1], found[2]), (found[2], found[3])):
        assert [a != b for a, b in zip(before, after, strict=True)] == [True, True, False]
    assert run(replace(ONE_STEP, **own), store).loaded
