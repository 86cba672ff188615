"""Two processes train as one does on the joined batch: every loss, its proxies and its memory."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

import dmlkit
from dmlkit import losses, training
from dmlkit.training import devices
from tests.data.trees import classes
from tests.training import distributed_worker as worker


@pytest.fixture(scope="module")
def ranks(tmp_path_factory, spawn):
    """What either process found."""
    return spawn(2, worker.main, tmp_path_factory.mktemp("group"))


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("name", worker.CASES)
def test_a_loss_gathered_is_the_loss_of_the_joined_batch(ranks, name):
    joined, alone = ranks[0][name]["joined"], ranks[0][name]["alone"]
    assert min(float(value[1]) for value in alone["values"]) > 1e-6  # there is something to compare
    for what in ("values", "gradients", "states"):
        torch.testing.assert_close(joined[what], alone[what], rtol=1e-10, atol=1e-10)
    assert joined["values"][0].dtype == torch.float64


@pytest.mark.parametrize("name", worker.CASES)
def test_model_proxies_and_memories_stay_in_step_bit_for_bit(ranks, name):
    first, second = (found[name]["joined"] for found in ranks)
    assert_equal(first["states"], second["states"])
    assert not torch.equal(first["states"][0][0], first["states"][2][0])  # they moved


def test_a_loss_sees_the_whole_batch_in_its_order_and_the_same_random_numbers(ranks):
    alone = ranks[0]["sees"]["alone"]["plain"]
    for found in ranks:
        torch.testing.assert_close(found["sees"]["joined"]["plain"], alone, rtol=1e-12, atol=0)


def test_every_device_drops_out_by_itself_and_its_loss_samples_alike(ranks):
    first, second = (found["sees"]["joined"]["dropout"] for found in ranks)
    assert_equal(first, second)
    embeddings, _, random = first  # of one and the same picture, but for what was dropped
    assert not torch.isclose(embeddings[0::2], embeddings[1::2]).all(dim=1).any()
    assert_equal(random, ranks[0]["sees"]["alone"]["dropout"][2])


def test_rounding_that_differs_between_devices_does_not_part_their_proxies(ranks):
    assert_equal(ranks[0]["rounding"], ranks[1]["rounding"])


def test_an_interrupted_group_goes_on_to_the_very_same_result(ranks):
    for rank, found in enumerate(found["interruption"] for found in ranks):
        assert found["saved"]
        assert found["begun"] == [0, 1, 2, 3, 3, 4, 5]
        history, parameters = found["resumed"]
        np.testing.assert_array_equal(history, found["unbroken"][0])
        assert_equal(parameters, found["unbroken"][1])
        assert_equal(parameters, ranks[0]["interruption"]["unbroken"][1])
        assert len(history) == 6, rank


ONE = replace(worker.EXPERIMENT, precision="32-true", devices=1, monitor_every=2)


def fit(experiment, **args):
    model, loss = worker.model(), losses.ContrastiveLoss()
    history = training.fit(
        model, loss, worker.images(), experiment, device="cpu", progress=False, **args
    )
    return model, history


def test_fit_starts_processes_of_its_own_and_brings_home_what_they_learnt(spawn, monkeypatch):
    monkeypatch.setattr(devices, "spawn", spawn)
    monitor = {"train": worker.images()}
    one, expected = fit(ONE, monitor=monitor)
    two, history = fit(replace(ONE, devices=2), monitor=monitor)
    torch.testing.assert_close(two.state_dict(), one.state_dict(), rtol=1e-4, atol=1e-6)
    assert not torch.equal(two[2].weight, worker.model()[2].weight)
    assert list(history["train_recall_at_1"].notna()) == [False, True, True]
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)


class Spare(torch.nn.Module):
    """A network with a layer that nothing goes through, as a classifier that was left in."""

    def __init__(self):
        super().__init__()
        self.net, self.spare = worker.model(), torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("kind", ["a spare layer", "frozen"])
def test_a_model_of_which_a_part_has_no_gradient_learns_as_on_one_device(kind, spawn, monkeypatch):
    monkeypatch.setattr(devices, "spawn", spawn)
    found = []
    for count in (1, 2):
        torch.manual_seed(0)
        model = Spare() if kind == "a spare layer" else worker.model().requires_grad_(False)
        loss = losses.build("normalized_softmax", num_classes=6, dim=12)
        before = [model.state_dict(), loss.proxies.clone()]
        experiment = replace(ONE, devices=count, clip=0.5, optimizer_args={"weight_decay": 0.1})
        history = training.fit(
            model, loss, worker.images(), experiment, device="cpu", progress=False
        )
        found.append([model.state_dict(), loss.state_dict(), history["loss"].to_list()])
        assert not torch.equal(loss.proxies, before[1])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_what_a_process_raises_is_raised_here(spawn):
    """One process fails, while the other would wait for it."""
    code = "import os, time; time.sleep(60 * int(os.environ['RANK'])); raise OverflowError(7)"
    with pytest.raises(OverflowError, match="7") as caught:
        spawn(2, exec, code)
    assert "in _member" in str(caught.value.__cause__)  # the traceback of that process


def test_an_interrupt_ends_all_processes(tmp_path, spawn):
    """Even where only the one that waits for them hears of it."""
    code = f"import os, time; open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w'); time.sleep(60)"
    began = []

    def interrupt():
        deadline = time.monotonic() + 120
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        began.extend(int(path.name) for path in tmp_path.iterdir())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            threading.Thread(target=interrupt).start()
            spawn(2, exec, code)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(began) == 2, "the processes had not begun within two minutes"
    assert not any(psutil.pid_exists(process) for process in began)


def test_a_batch_that_cannot_be_shared_is_refused_before_any_process_is_started(monkeypatch):
    monkeypatch.delattr(devices, "spawn")
    with pytest.raises(ValueError, match=r"devices=3 cannot share a batch of 16 .*'per_class': 4"):
        fit(replace(ONE, devices=3))


def test_a_group_of_another_size_is_refused(monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"2 processes were started, .* devices=1: set devices=2"):
        training.open_fabric(ONE, "cpu")


def test_torchrun_gives_one_run_that_any_process_loads(tmp_path, commands):
    root = classes(tmp_path / "pictures", "ant bee cat dog eel fox")
    settings = {
        "devices": 2,
        "data_args": {"crop": 16, "resize": 18},
        "sampler_args": {"classes": 3, "per_class": 2},
        "model_args": {"widths": [4, 8]},
        "dim": 8,
        "monitor": ["test"],
    }
    sets = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    command = [
        "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        "-m", "dmlkit", "train", "--data=folder", f"--root={root}", "--steps=3",
        "--device=cpu", *sets,
    ]  # fmt: skip
    environment = os.environ | {"DMLKIT_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = commands.run(command, dmlkit.ROOT, environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained in") == 1  # one process speaks
    experiment = training.Experiment(data="folder", steps=3, **settings)
    (kept,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLKIT_DATA", str(root))
        run = training.run(experiment, device="cpu", store=tmp_path / "runs", progress=False)
    assert run.loaded
    assert run.path == kept
    assert f"{100 * run.scores['recall_at_1']:.1f}" in done.stdout
    assert run.history["test_recall_at_1"].notna().sum() == 1
