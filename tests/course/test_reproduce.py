"""Running notebooks: what is kept, skipped, refused, ended and compared."""

import io
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from multiprocessing.context import BaseContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import psutil
import pytest
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

import dmlkit
from course import execution, ledger, outputs, reproduce
from dmlkit import claims

PARAMETERS = """profile: str = "smoke"
seeds: int = 1
device: str = "cpu"
rates: list = [0.5]  # learning rates
"""

# What figures.save leaves, without the seconds that it takes to import it.
FIGURE = """
import json, os, pathlib, sys

figures = pathlib.Path(os.environ["DMLKIT_FIGURES"])
numbers = {{
    "recall": 0.8, "rates": rates, "cwd": os.getcwd(), "prefix": sys.prefix,
    "backend": os.environ.get("MPLBACKEND"),
}}
record = {{
    "alt": "A line.", "caption": "", "numbers": numbers,
    "provenance": {{"notebook": "{0}", "profile": "ci", "device": "cpu"}},
}}
(figures / "{0}.png").write_bytes(b"a picture")
(figures / "{0}.json").write_text(json.dumps(record))
"""

# What papermill does with a notebook that it runs to its end, without the seconds of a kernel.
EXECUTED = """import json, sys
order = json.loads(sys.argv[1])
with open(order["input_path"]) as file:
    notebook = json.load(file)
for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
        cell["metadata"]["papermill"] = {"start_time": "now", "exception": False}
with open(order["output_path"], "w") as file:
    json.dump(notebook, file)
"""


def made(name: str) -> str:
    """The same with a notebook that makes a figure."""
    return f"{EXECUTED}\nrates = []{FIGURE.format(name)}"


def write(project: Path, name: str, *sources: str, **profiles: Any) -> Path:
    """A notebook with a title, parameters and code cells."""
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, sources),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "dmlkit": {"profiles": {"ci": profiles, "full": {}}}}
    path = project / "notebooks" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def run(project: Path, *notebooks: str, terminal: bool = False, **arguments: Any) -> tuple:
    """Reproduce, and what it printed; a notebook that hangs is ended, and says in which cell."""
    page = io.StringIO()
    console = Console(file=page, width=200, force_terminal=terminal)
    limited = {"timeout_minutes": 3, **arguments}
    done = reproduce.reproduce(notebooks, project=project, console=console, **limited)
    return done, page.getvalue()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_notebook_runs_once_is_published_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A user's own kernel of the same name, and a headless backend, must not get in the way.
    kernel = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": ["false"], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    write(tmp_path, "00_toy", FIGURE.format("00_toy"), rates=[1e-05, 0.25])
    build, published = tmp_path / "build" / "ci", tmp_path / "figures"

    done, page = run(tmp_path, profile="ci")
    assert done, page
    assert "done       00_toy" in page
    assert files(build) == ["00_toy.ipynb", "00_toy.stamp.json", "figures"]
    assert files(build / "figures") == files(published) == ["00_toy.json", "00_toy.png"]
    record = json.loads((published / "00_toy.json").read_text())
    numbers = record["numbers"]
    assert numbers["rates"] == [1e-05, 0.25]
    assert Path(numbers["cwd"]).samefile(tmp_path / "notebooks")
    assert numbers["prefix"] == sys.prefix
    assert "inline" in numbers["backend"]

    with monkeypatch.context() as patch:  # from here on, nothing may run
        patch.setattr(execution.subprocess, "Popen", None)
        (published / "00_toy.png").unlink()
        assert run(tmp_path, profile="ci") == (True, "unchanged  00_toy\n")
        assert files(published) == ["00_toy.json", "00_toy.png"]  # published again
        done, page = run(tmp_path, profile="ci", check=True)
        assert done, page
        assert page.startswith("unchanged  00_toy\nno hash yet: 1 figures")
        assert page.endswith("\nno drift\n")

        record["numbers"]["recall"] = 0.83
        committed = json.dumps(record)
        (published / "00_toy.json").write_text(committed)
        done, page = run(tmp_path, profile="ci", check=True)
        assert not done
        assert "00_toy: recall: committed 0.83, now 0.8" in page
        assert (published / "00_toy.json").read_text() == committed

        (published / "00_toy.png").rename(published / "stray.png")
        (published / "other.json").write_text(committed.replace('"00_toy"', '"99_gone"'))
        done, page = run(tmp_path, profile="ci", check=True)
        assert not done
        assert "00_toy: the committed 00_toy.png is missing" in page
        assert "stray: committed stray.png has no stray.json beside it" in page
        assert "other: its notebook '99_gone' is not there" in page

        (build / "figures" / "00_toy.png").write_bytes(b"another picture")
        with pytest.raises(TypeError, match="not callable"):
            run(tmp_path, profile="ci")


def test_the_folder_of_what_runs_leave_may_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    monkeypatch.setattr(execution, "PAPERMILL", made("00_toy"))
    monkeypatch.chdir(tmp_path)
    done, page = run(tmp_path, profile="ci", build=Path("elsewhere"))
    assert done, page
    assert files(tmp_path / "elsewhere" / "ci") == ["00_toy.ipynb", "00_toy.stamp.json", "figures"]


def test_failures_are_shown_others_go_on_and_earlier_figures_stay(tmp_path: Path) -> None:
    write(tmp_path, "00_error", FIGURE.format("00_error"), "ratio = 1 / 0", "print('after')")
    write(tmp_path, "01_dead", "import os; os._exit(1)", "print('after')")
    write(tmp_path, "02_exit", "raise SystemExit", "print('after')")
    write(tmp_path, "03_good", FIGURE.format("03_good"))
    figures = tmp_path / "build" / "smoke" / "figures"
    figures.mkdir(parents=True)
    (figures / "00_error.png").write_bytes(b"an earlier picture")

    done, page = run(tmp_path, workers=4, terminal=True)
    assert not done
    for name in ("00_error", "01_dead", "02_exit"):
        assert f"failed     {name}" in page
        assert not (figures.parent / f"{name}.ipynb").exists()
        assert (figures.parent / f"{name}.failed.ipynb").exists()
    assert "cell 4 of 5 of 00_error.ipynb:\nratio = 1 / 0" in page
    assert "ZeroDivisionError: division by zero" in page
    assert "cell 3 of 4 of 01_dead.ipynb:\nimport os" in page
    assert "DeadKernelError" in page
    assert "cell 3 of 4 of 02_exit.ipynb:\nraise SystemExit" in page
    assert "done       03_good" in page
    assert files(figures) == ["00_error.png", "03_good.json", "03_good.png"]
    assert (figures / "00_error.png").read_bytes() == b"an earlier picture"
    assert not list(figures.parent.glob("staging*"))
    assert not (tmp_path / "figures").exists()  # only ci publishes


def test_a_full_disk_is_named_and_no_half_of_a_notebook_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy", FIGURE.format("00_toy"))
    cut_off = """import json, sys
order = json.loads(sys.argv[1])
with open(order["input_path"]) as file, open(order["output_path"], "w") as copy:
    copy.write(file.read(200))
sys.exit(1)  # and no room for the reason in the log
"""
    monkeypatch.setattr(execution, "PAPERMILL", cut_off)
    page = run(tmp_path)[1]
    assert "make room" not in page
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    done, page = run(tmp_path)
    assert not done
    assert re.search(r"make room on the disk at /.*, which has 0\.0 MB left", page)
    assert files(tmp_path / "build" / "smoke") == []


def test_the_time_limit_ends_the_kernel_and_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("../beside").write_text(f"{os.getpid()} {child.pid}")
os.replace("../beside", "../pids")
time.sleep(600)
"""
    write(tmp_path, "00_slow", source)
    pids = tmp_path / "pids"
    # The clock jumps once the cell runs, however long the kernel took to start.
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: 1e12 if pids.exists() else 0.0)
    monkeypatch.setattr(execution, "time", clock)
    done, page = run(tmp_path, timeout_minutes=5)
    assert not done
    assert "cell 3 of 3 of 00_slow.ipynb:" in page
    assert "the time limit was reached" in page
    assert_all_end([int(pid) for pid in pids.read_text().split()])


def assert_all_end(pids: Iterable[int], seconds: float = 60) -> None:
    """Processes are gone, or soon: a signal takes a moment to arrive."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, f"processes {left} are left after {seconds} s"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interrupt_ends_the_run_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(execution, "PAPERMILL", script)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(execution, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert_all_end([int(pid.read_text())])
    assert files(tmp_path / "build" / "smoke") == []


@pytest.mark.parametrize("begun, attempts", [(False, 2), (True, 1)])
def test_only_a_kernel_that_did_not_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool, attempts: int
) -> None:
    write(tmp_path, "00_toy")
    papermill = {"start_time": "now" if begun else None, "exception": None}
    cell = new_code_cell("1", metadata={"papermill": papermill})
    copy = nbformat.writes(new_notebook(cells=[cell]))
    script = f"""import json, sys
open({str(tmp_path / "attempts")!r}, "a").write("x")
open(json.loads(sys.argv[1])["output_path"], "w").write({copy!r})
sys.exit("Kernel died before replying to kernel_info")"""
    monkeypatch.setattr(execution, "PAPERMILL", script)
    done, page = run(tmp_path)
    assert not done
    assert "Kernel died before replying" in page
    assert len((tmp_path / "attempts").read_text()) == attempts


def test_what_a_widget_captures_sends_nothing_to_the_kernel(tmp_path: Path) -> None:
    # Such a message can hide the reply that papermill waits for, and it then waits for ever.
    captured = """import ipywidgets
output = ipywidgets.Output()
with output:
    print("captured")"""
    write(tmp_path, "00_toy", captured, "assert output.outputs == (), output.outputs")
    done, page = run(tmp_path)
    assert done, page


def figure(notebook: str) -> str:
    return json.dumps({"provenance": {"notebook": notebook}})


def test_figures_under_the_name_of_another_notebook_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    script = f"""import os
open(os.environ["DMLKIT_FIGURES"] + "/toy.json", "w").write({figure("01_x")!r})"""
    monkeypatch.setattr(execution, "PAPERMILL", f"{EXECUTED}\n{script}")
    done, page = run(tmp_path)
    assert not done
    assert "figures.begin_notebook names another notebook: 01_x" in page
    assert not (tmp_path / "build" / "smoke" / "figures").exists()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"notebooks": ["07"]}, ValueError, "no notebook is called '07'; there are: 00_toy, 01_x"),
        ({"profile": "quick"}, ValueError, "unknown profile 'quick': expected one of smoke, ci"),
        ({"check": True}, ValueError, "check compares with figures/, made by 'ci'"),
        ({"workers": 0}, ValueError, "workers is 0"),
        ({"timeout_minutes": 0}, ValueError, "timeout_minutes is 0"),
        ({"parameters": {"sede": 3}}, ValueError, "00_toy.ipynb has no parameter 'sede'; it has: "),
        ({"parameters": {"rates": (1, 2)}}, TypeError, "'rates' is .1, 2., a tuple"),
        ({"parameters": {"rates": [np.float64(1)]}}, TypeError, "'rates' is .* a list"),
        ({"parameters": {"seeds": np.int64(3)}}, TypeError, "a int64: expected a JSON literal"),
        ({"parameters": {"device": Path("cpu")}}, TypeError, "a PosixPath"),
        ({"parameters": {"seeds": float("nan")}}, TypeError, "'seeds' is nan, a float"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    tmp_path: Path, arguments: dict, error: type[Exception], message: str
) -> None:
    write(tmp_path, "00_toy")
    write(tmp_path, "01_x")
    with pytest.raises(error, match=message):
        reproduce.reproduce(**arguments, project=tmp_path)
    assert not (tmp_path / "build").exists()


def test_notebooks_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no notebooks in"):
        reproduce.reproduce(project=tmp_path)
    path = write(tmp_path, "00_toy")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.dmlkit.profiles.pop("ci")
    nbformat.write(notebook, path)
    with pytest.raises(ValueError, match=r"00_toy\.ipynb has no profile 'ci'"):
        reproduce.reproduce(profile="ci", project=tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"00_toy\.ipynb is not a notebook"):
        reproduce.reproduce(project=tmp_path)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "00_toy")
    build = tmp_path / "build" / "smoke"
    build.mkdir(parents=True)
    with FileLock(build / ".lock"), pytest.raises(RuntimeError, match="another process"):
        run(tmp_path)


@pytest.mark.parametrize(
    "names, expected",
    [
        ([], ["00_toy", "01_x", "10_y"]),  # the course in order, without the template
        (["10", "00_toy"], ["10_y", "00_toy"]),
        (["notebooks/01_x.ipynb", "01"], ["01_x"]),
        (["template"], ["template"]),
    ],
)
def test_notebooks_are_found_by_name_and_number(
    tmp_path: Path, names: list[str], expected: list[str]
) -> None:
    for name in ("10_y", "00_toy", "template", "01_x"):
        write(tmp_path, name)
    found = reproduce.find_notebooks(tmp_path / "notebooks", names)
    assert [path.stem for path in found] == expected


def test_inputs_are_all_that_figures_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "00_toy", "x = 1")
    package = tmp_path / "dmlkit"
    package.mkdir()
    module = package / "__init__.py"
    module.write_text("")
    monkeypatch.setattr(dmlkit, "__file__", str(module))

    def inputs(profile: str = "smoke", **parameters: Any) -> str:
        return reproduce.plan(path, profile, parameters, tmp_path, tmp_path).fingerprint()

    first = inputs()
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].execution_count = 5
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="1")]
    nbformat.write(notebook, path)
    assert inputs() == first  # an output is no input

    notebook.cells[2].metadata["dmlkit"] = {"code": "abc"}
    notebook.cells[0].source = "# Another title"
    nbformat.write(notebook, path)
    assert inputs() == first  # nor is prose

    seen = {first, inputs("ci"), inputs(seeds=2)}
    notebook.cells[2].source = "x = 2"
    nbformat.write(notebook, path)
    seen.add(inputs())
    module.write_text("y = 1")
    seen.add(inputs())
    parts = ("reported", "tuning", "evidence", "studies", "pretrained")
    for folder in ("data", *(f"data/{part}" for part in parts), "recipes"):
        table = tmp_path / folder / "cub.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(f"loss,recall of {folder}")
        seen.add(inputs())
    monkeypatch.setattr(reproduce.numerics, "describe", lambda: "abacus")
    seen.add(inputs())
    monkeypatch.setattr(reproduce, "versions", lambda: {"torch": "0"})
    seen.add(inputs())
    monkeypatch.setenv("DMLKIT_DATA", "elsewhere")
    seen.add(inputs())
    assert len(seen) == 15


def test_what_is_edited_while_a_notebook_runs_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlkit, "__file__", str(tmp_path / "dmlkit" / "__init__.py"))
    table = tmp_path / "data" / "claims.csv"
    table.parent.mkdir()
    for name in ("00_editor", "01_later"):
        write(tmp_path, name)
    edit = f"""if "00_editor" in sys.argv[1]:
    open({str(table)!r}, "a").write("edited")"""
    monkeypatch.setattr(execution, "PAPERMILL", f"{EXECUTED}\n{edit}")
    assert run(tmp_path, workers=1)[0]
    assert run(tmp_path, "01")[1] == "unchanged  01_later\n"  # it began after the edit
    assert "done       00_editor" in run(tmp_path, "00")[1]


def test_a_notebook_that_breaks_while_another_runs_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_first")
    later = write(tmp_path, "01_later")
    write(tmp_path, "02_last")
    breaks = f"""if "00_first" in sys.argv[1]:
    open({str(later)!r}, "w").write("{{")"""
    monkeypatch.setattr(execution, "PAPERMILL", f"{EXECUTED}\n{breaks}")
    done, page = run(tmp_path, workers=1)
    assert not done
    assert "failed     01_later" in page
    assert "done       02_last" in page


def test_figures_that_a_notebook_no_longer_makes_go_and_those_of_others_stay(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "new", tmp_path / "old"
    for folder, name, notebook in (
        *((source, "kept", "00_toy"), (target, "kept", "00_toy")),
        *((target, "dropped", "00_toy"), (target, "other", "01_x")),
    ):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(figure(notebook))
        (folder / f"{name}.png").write_bytes(folder.name.encode())
    reproduce.publish("00_toy", source, target)
    assert files(target) == ["kept.json", "kept.png", "other.json", "other.png"]
    assert (target / "kept.png").read_bytes() == b"new"
    (source / "kept.json").write_text(json.dumps(json.loads(figure("00_toy")) | {"film": "hash"}))
    (source / "kept.gif").write_bytes(b"frames")
    reproduce.publish("00_toy", source, target)
    assert (target / "kept.gif").read_bytes() == b"frames"
    (source / "kept.json").write_text(figure("00_toy"))
    reproduce.publish("00_toy", source, target)  # it is a film no more
    assert files(target) == ["kept.json", "kept.png", "other.json", "other.png"]
    (target / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json is not the record of a figure"):
        reproduce.publish("00_toy", source, target)


def test_two_notebooks_run_at_a_time_the_last_of_the_course_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    monkeypatch.setattr(
        reproduce, "run_all",
        lambda jobs, workers, *_: turns.append(([job.name for job in jobs], workers)) or [],
    )  # fmt: skip
    monkeypatch.setattr(reproduce.joblib, "cpu_count", lambda: 8)
    names = ["00_one", "01_other", "02_another"]
    for name in names:
        write(tmp_path, name)
    run(tmp_path)
    run(tmp_path, workers=3)
    assert turns == [(names[::-1], 2), (names, 3)]


def test_kernels_share_the_cores_and_success_needs_an_executed_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    out = tmp_path / "threads"
    names = ["OMP_NUM_THREADS", "NUMBA_NUM_THREADS"]
    script = f"import os; open({str(out)!r}, 'w').writelines(os.environ[n] for n in {names})"
    monkeypatch.setattr(execution, "PAPERMILL", script)
    monkeypatch.setattr(execution.joblib, "cpu_count", lambda: 8)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    done, page = run(tmp_path, workers=3)
    assert out.read_text() == "22"
    assert not set(names) & os.environ.keys()
    assert not done  # the process succeeded, but it ran no notebook
    assert "papermill ended with exit status 0" in page


ORPHAN = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
pathlib.Path("../beside").write_text(f"{os.getppid()} {os.getpid()} {child.pid}")
os.replace("../beside", "../pids")
time.sleep(600)
"""


def reproduce_and_heed_hangups(project: Path) -> None:
    """Children of a test run that nohup started would ignore SIGHUP, and never end."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    reproduce.reproduce(project=project)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_reproduce_and_its_staging_folder_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: BaseContext, sent: signal.Signals
) -> None:
    write(tmp_path, "00_toy", ORPHAN)
    process = forks.Process(target=reproduce_and_heed_hangups, args=(tmp_path,))  # type: ignore[attr-defined]
    process.start()
    pids = tmp_path / "pids"
    try:
        deadline = time.monotonic() + 240
        while not pids.exists():
            assert process.is_alive(), "reproduce ended before its notebook began"
            assert time.monotonic() < deadline, "the notebook did not begin within four minutes"
            time.sleep(0.1)
        os.kill(process.pid, sent)
        process.join(60)
        assert process.exitcode == -sent
    finally:
        process.kill()  # the notebook then ends by itself
        process.join(60)
    assert_all_end([int(pid) for pid in pids.read_text().split()])
    (left,) = (tmp_path / "build" / "smoke").glob("staging*")
    (left / "00_toy" / "figures").mkdir(parents=True, exist_ok=True)
    (left / "00_toy" / "figures" / "orphan.png").write_bytes(b"late")
    monkeypatch.setattr(execution, "PAPERMILL", made("00_toy"))
    done, page = run(tmp_path)
    assert done, page
    assert files(tmp_path / "build" / "smoke") == ["00_toy.ipynb", "00_toy.stamp.json", "figures"]
    assert files(tmp_path / "build" / "smoke" / "figures") == ["00_toy.json", "00_toy.png"]


SHOWN = """
from IPython.display import display
print("recall 0.8")
print("it took 3 s")
png = (figures / "00_toy.png").read_bytes()
about = {"image/png": {"figure": "00_toy"}}
display({"image/png": png, "text/html": "<img>", "text/plain": "toy"}, metadata=about, raw=True)
"""


def test_the_ci_run_is_kept_in_the_notebook_with_its_figures_or_not_at_all(tmp_path: Path) -> None:
    prose = "It has 0.9 <!-- 00_toy: recall -->."
    path = write(tmp_path, "00_toy", FIGURE.format("00_toy"), SHOWN, seeds=2)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(new_markdown_cell(prose))
    nbformat.write(notebook, path)
    before = path.read_bytes()
    assert run(tmp_path, profile="smoke")[0]
    assert run(tmp_path, profile="ci", parameters={"seeds": 4})[0]
    assert path.read_bytes() == before  # only ci as it is writes anything

    done, page = run(tmp_path, profile="ci")
    assert done, page
    assert "00_toy: 'It has 0.9': 0.9: 00_toy has 0.8 at recall" in page
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    given, _, shown = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "profile ci: seeds = 2" in given.outputs[0].text
    assert shown.execution_count == 3
    assert [output.get("text") for output in shown.outputs] == ["recall 0.8\n", None, None]
    assert outputs.pictures(notebook) == {"00_toy": b"a picture"}
    assert not list(outputs.problems(notebook, "00_toy", tmp_path / "figures"))
    written = path.read_bytes()
    assert run(tmp_path, profile="ci")[1].startswith("unchanged  00_toy")  # no input has changed
    assert path.read_bytes() == written


def test_a_notebook_that_is_edited_while_it_runs_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "00_toy", "x = 1")
    edit = f"""
path = pathlib.Path({str(path)!r})
path.write_text(path.read_text().replace("x = 1", "x = 2"))"""
    monkeypatch.setattr(execution, "PAPERMILL", made("00_toy") + edit)
    done, page = run(tmp_path, profile="ci")
    assert not done
    assert "not published: 00_toy: it was edited while it ran" in page
    assert not (tmp_path / "figures").exists()


def test_a_table_of_claims_that_is_no_longer_that_of_the_figures_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    monkeypatch.setattr(execution, "PAPERMILL", made("00_toy"))
    (tmp_path / "README.md").write_text("<!-- claims -->\nan old table\n<!-- /claims -->\n")
    _, page = run(tmp_path, profile="ci")
    assert "to write it anew: dmlkit claims --write README.md" in page
    table = ledger.markdown(claims.verdicts(tmp_path / "figures"))
    (tmp_path / "README.md").write_text(f"<!-- claims -->\n{table}\n<!-- /claims -->\n")
    _, page = run(tmp_path, profile="ci")
    assert "anew" not in page
