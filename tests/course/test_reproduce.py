"""Running notebooks: what is kept, skipped, refused, ended and compared."""

import io
import json
import os
import re
import signal
import time
from collections.abc import Iterable
from multiprocessing.context import BaseContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import psutil
import pytest
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

import dmlkit
from course import execution, outputs, reproduce, smoke

PARAMETERS = """profile: str = "smoke"
seeds: int = 1
rates: list = [0.5]  # learning rates
"""

# What figures.save leaves, without the seconds that it takes to import it; and shows it.
FIGURE = """
import json, os, pathlib
from IPython.display import display

figures = pathlib.Path(os.environ["DMLKIT_FIGURES"])
record = {{
    "alt": "A line.", "caption": "", "numbers": {{"recall": 0.8, "rates": rates}},
    "provenance": {{"notebook": "{0}", "profile": "ci", "device": "cpu"}},
}}
(figures / "{0}.png").write_bytes(b"a picture")
(figures / "{0}.json").write_text(json.dumps(record))
print("recall 0.8")
print("it took 3 s")
about = {{"image/png": {{"figure": "{0}"}}}}
display({{"image/png": b"a picture", "text/plain": "toy"}}, metadata=about, raw=True)
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


def write(project: Path, name: str, *sources: str) -> Path:
    """A notebook with a title, parameters and code cells."""
    cells = [
        new_markdown_cell(f"# Title\n\nIt has 0.9 <!-- {name}: recall -->."),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, sources),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel}
    path = project / "notebooks" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def run(project: Path, *notebooks: str, **arguments: Any) -> tuple[bool, str]:
    """Reproduce, and what it printed; a notebook that hangs is ended, and says in which cell."""
    page = io.StringIO()
    console = Console(file=page, width=200)
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
    path = write(tmp_path, "00_toy", FIGURE.format("00_toy"))
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].metadata["tags"] = [outputs.CHECKED]
    nbformat.write(notebook, path)
    before, published = path.read_bytes(), tmp_path / "figures"
    assert run(tmp_path, profile="ci", parameters={"rates": [1e-05, 0.25]})[0]
    made = tmp_path / "build" / "ci" / "00_toy" / "figures" / "00_toy.json"
    assert json.loads(made.read_text())["numbers"]["rates"] == [1e-05, 0.25]
    assert path.read_bytes() == before  # only ci as it is writes anything
    assert not published.exists()

    done, page = run(tmp_path, profile="ci", build=tmp_path / "elsewhere")
    assert done, page
    assert "done       00_toy" in page
    assert "'It has 0.9': 0.9: 00_toy has 0.8 at recall" in page
    assert files(tmp_path / "elsewhere" / "ci") == ["00_toy"]
    assert files(published) == ["00_toy.json", "00_toy.png"]
    record = json.loads((published / "00_toy.json").read_text())
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    _, shown = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert [output.get("text") for output in shown.outputs] == ["recall 0.8\n", None, None]
    assert outputs.pictures(notebook) == {"00_toy": b"a picture"}

    def again(check: bool) -> tuple[bool, str]:
        return run(tmp_path, profile="ci", build=tmp_path / "elsewhere", check=check)

    monkeypatch.setattr(execution.subprocess, "Popen", None)  # from here on, nothing may run
    (published / "00_toy.png").unlink()
    assert again(check=False)[1].startswith("unchanged  00_toy\n")
    assert files(published) == ["00_toy.json", "00_toy.png"]  # published again
    path.write_text(path.read_text().replace("0.9 <", "0.8 <"))
    done, page = again(check=True)
    assert done, page
    assert page.endswith("\nno drift\n")
    assert smoke.has_run(path, tmp_path / "elsewhere" / "ci")
    assert not smoke.has_run(path, tmp_path / "build" / "ci")

    path.write_text(path.read_text().replace('"recall 0.8\\n"', '"recall 0.7\\n"'))
    assert not smoke.has_run(path, tmp_path / "elsewhere" / "ci")
    record["numbers"]["recall"] = 0.93
    (published / "00_toy.json").write_text(json.dumps(record))
    (published / "00_toy.png").write_bytes(b"another picture")
    done, page = again(check=True)
    assert not done
    assert "00_toy: recall: committed 0.93, now 0.8\n" in page
    assert "00_toy.png is not the picture that its notebook keeps\n" in page
    assert "00_toy: 'It has 0.8': 0.8: 00_toy has 0.93 at recall\n" in page
    assert re.search(r"00_toy: 'display.*': committed 'recall 0.7.*, now 'recall 0.8", page)
    assert page.endswith("4 differences from figures/\n")


def test_a_figure_that_was_not_made_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "00_toy", FIGURE.format("00_toy"))
    assert run(tmp_path, profile="ci")[0]
    path, record = tmp_path / "notebooks" / "00_toy.ipynb", tmp_path / "figures" / "00_toy.json"
    mark = '"provenance": {{"made": False, '
    write(tmp_path, "00_toy", FIGURE.replace('"provenance": {{', mark).format("00_toy"))
    before = record.read_bytes()
    assert run(tmp_path, profile="ci")[0]
    assert record.read_bytes() == before
    assert outputs.pictures(nbformat.read(path, as_version=4)) == {"00_toy": b"a picture"}
    path.write_text(path.read_text().replace("0.9 <", "0.8 <"))
    done, page = run(tmp_path, profile="ci", check=True)
    assert done, page
    assert "not made, as their pictures are not here: 1 of 1 figures (00_toy)" in page


def test_failures_are_shown_others_go_on_and_earlier_figures_stay(tmp_path: Path) -> None:
    write(tmp_path, "00_error", FIGURE.format("00_error"), "ratio = 1 / 0", "print('after')")
    write(tmp_path, "01_dead", "import os; os._exit(1)", "print('after')")
    write(tmp_path, "02_exit", "raise SystemExit", "print('after')")
    write(tmp_path, "03_good", FIGURE.format("03_good"))
    build = tmp_path / "build" / "smoke"
    (build / "00_error" / "figures").mkdir(parents=True)

    done, page = run(tmp_path, workers=4)
    assert not done
    failed = ["00_error.failed", "01_dead.failed", "02_exit.failed"]
    assert files(build) == ["00_error", *failed, "03_good"]
    assert files(build / "00_error" / "figures") == []
    assert "of 00_error.ipynb:\nratio = 1 / 0" in page
    assert "ZeroDivisionError: division by zero" in page
    assert "of 01_dead.ipynb:\nimport os" in page
    assert "DeadKernelError" in page
    assert "of 02_exit.ipynb:\nraise SystemExit" in page
    assert "done       03_good" in page
    assert not (tmp_path / "figures").exists()  # only ci publishes


def test_the_time_limit_ends_the_kernel_and_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_slow", ORPHAN)
    pids = tmp_path / "pids"
    # The clock jumps once the cell runs, however long the kernel took to start.
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: 1e12 if pids.exists() else 0.0)
    monkeypatch.setattr(execution, "time", clock)
    done, page = run(tmp_path, timeout_minutes=5)
    assert not done
    assert "of 00_slow.ipynb:" in page
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


def test_kernels_of_a_course_are_forked_and_end_with_their_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_fine", "import sys", "assert {'torch', 'pandas'} <= {*sys.modules}", "%pwd")
    write(tmp_path, "01_dead", "import os", "os._exit(3)")
    write(tmp_path, "02_slow", ORPHAN)
    pids, smoke = tmp_path / "pids", tmp_path / "build" / "smoke"
    awaited = [pids, smoke / "00_fine", smoke / "01_dead.failed"]
    clock = SimpleNamespace(
        sleep=time.sleep,
        monotonic=lambda: 1e12 if all(path.exists() for path in awaited) else 0.0,
    )
    monkeypatch.setattr(execution, "time", clock)
    done, page = run(tmp_path, timeout_minutes=5, workers=3)
    assert not done
    assert "done       00_fine" in page
    assert "Kernel died" in page
    assert "the time limit was reached" in page
    ran = nbformat.read(smoke / "00_fine" / "executed.ipynb", as_version=4)
    assert ran.cells[-1].outputs[0].data["text/plain"] == repr(str(tmp_path / "notebooks"))
    assert_all_end([int(pid) for pid in pids.read_text().split()])


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


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"notebooks": ["07"]}, "no notebook is called '07'; there are: 00_toy, 01_x"),
        ({"profile": "quick"}, "profile must be one of smoke, ci, full, but is 'quick'"),
        ({"check": True}, "check compares with figures/, made by 'ci'"),
        ({"parameters": {"sede": 3}}, "00_toy.ipynb has no parameter 'sede'; it has: "),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    tmp_path: Path, arguments: dict, message: str
) -> None:
    write(tmp_path, "00_toy")
    write(tmp_path, "01_x")
    with pytest.raises(ValueError, match=message):
        reproduce.reproduce(**arguments, project=tmp_path)
    assert not (tmp_path / "build").exists()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "00_toy")
    build = tmp_path / "build" / "smoke"
    build.mkdir(parents=True)
    with FileLock(build / ".lock"), pytest.raises(RuntimeError, match="another process"):
        run(tmp_path)


@pytest.mark.parametrize(
    "names, expected",
    [
        ([], ["00_toy", "01_x", "14_y"]),  # the course in order, without the template
        (["14", "00_toy"], ["14_y", "00_toy"]),
        (["notebooks/01_x.ipynb", "01"], ["01_x"]),
        (["template"], ["template"]),
    ],
)
def test_notebooks_are_found_by_name_and_number(
    tmp_path: Path, names: list[str], expected: list[str]
) -> None:
    for name in ("14_y", "00_toy", "template", "01_x"):
        write(tmp_path, name)
    found = reproduce.find_notebooks(tmp_path / "notebooks", names)
    assert [path.stem for path in found] == expected


def test_inputs_are_all_that_figures_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "00_toy", "x = 1")
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)

    def inputs(profile: str = "smoke", **parameters: Any) -> str:
        return reproduce.plan(path, profile, parameters, tmp_path).inputs

    first = inputs()
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].execution_count = 5
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text="1")]
    notebook.cells[0].source = "# Another title"
    nbformat.write(notebook, path)
    assert inputs() == first  # neither an output nor prose is an input

    seen = {first, inputs("ci"), inputs(seeds=2)}
    notebook.cells[2].source = "x = 2"
    nbformat.write(notebook, path)
    seen.add(inputs())
    read = ["data/claims.csv", "data/evidence/a.csv", "data/studies/a.toml", "pyproject.toml"]
    for name in ("dmlkit/sweeps.py", "dmlkit/losses/pairs.py", "studies/judge.py", *read):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        seen.add(inputs())
    monkeypatch.setattr(reproduce.numerics, "describe", lambda: "abacus")
    seen.add(inputs())
    monkeypatch.setattr(reproduce, "versions", lambda: {"torch": "0"})
    seen.add(inputs())
    monkeypatch.setenv("DMLKIT_DATA", "elsewhere")
    seen.add(inputs())
    assert len(seen) == 14


def test_what_a_notebook_no_longer_makes_goes_and_what_is_anothers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "00_toy")
    figures = tmp_path / "figures"
    figures.mkdir()
    for name, notebook in (("kept", "00_toy"), ("dropped", "00_toy"), ("other", "01_x")):
        record = {"numbers": {}, "provenance": {"notebook": notebook}}
        (figures / f"{name}.json").write_text(json.dumps(record))
        for ending in ("png", "gif"):
            (figures / f"{name}.{ending}").write_bytes(b"old")
    script = f"""{EXECUTED}
import os
from pathlib import Path
figures = Path(os.environ["DMLKIT_FIGURES"])
(figures / "kept.png").write_bytes(b"new")
(figures / "kept.json").write_text({(figures / "kept.json").read_text()!r})"""
    monkeypatch.setattr(execution, "PAPERMILL", script)
    done, page = run(tmp_path, profile="ci")
    assert "there is no figure 00_toy" in page
    assert files(figures) == ["kept.json", "kept.png", "other.gif", "other.json", "other.png"]
    assert (figures / "kept.png").read_bytes() == b"new"

    monkeypatch.setattr(execution, "PAPERMILL", script.replace("00_toy", "01_x"))
    done, page = run(tmp_path)
    assert not done
    assert "figures.begin_notebook names another notebook: 01_x" in page


def test_two_notebooks_run_at_a_time_the_long_ones_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []
    monkeypatch.setattr(
        reproduce, "run_all",
        lambda jobs, workers, _: turns.append(([job.name for job in jobs], workers)) or [],
    )  # fmt: skip
    monkeypatch.setattr(reproduce.joblib, "cpu_count", lambda: 8)
    names = ["00_one", "01_other", "02_another"]
    for name, minutes in zip(names, (0.5, 3, 1), strict=True):
        path = write(tmp_path, name)
        page = nbformat.read(path, as_version=4)
        said = f"*Read 9 minutes, do 9; the machine works {minutes}. Needs: 00.*"
        page.cells.insert(0, nbformat.v4.new_markdown_cell(said))
        nbformat.write(page, path)
    run(tmp_path)
    run(tmp_path, workers=3)
    assert turns == [(["01_other", "02_another", "00_one"], 2), (names, 3)]


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


def test_a_killed_reproduction_leaves_no_process_and_no_half_and_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: BaseContext
) -> None:
    path = write(tmp_path, "00_toy", FIGURE.format("00_toy"), ORPHAN)
    before = path.read_bytes()
    process = forks.Process(  # type: ignore[attr-defined]
        target=reproduce.reproduce, kwargs={"project": tmp_path, "profile": "ci"}
    )
    process.start()
    pids = tmp_path / "pids"
    try:
        deadline = time.monotonic() + 240
        while not pids.exists():
            assert process.is_alive(), "reproduce ended before its notebook began"
            assert time.monotonic() < deadline, "the notebook did not begin within four minutes"
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()  # the notebook then ends by itself
        process.join(60)
    assert_all_end([int(pid) for pid in pids.read_text().split()])
    assert path.read_bytes() == before
    assert not (tmp_path / "figures").exists()
    monkeypatch.setattr(execution, "PAPERMILL", EXECUTED)
    done, page = run(tmp_path, profile="ci")
    assert done, page
    assert files(tmp_path / "build" / "ci") == ["00_toy"]  # what the other left is gone


def test_a_notebook_that_is_edited_while_it_runs_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "00_toy", "x = 1")
    edit = f"""
from pathlib import Path
path = Path({str(path)!r})
path.write_text(path.read_text().replace("x = 1", "x = 2"))"""
    monkeypatch.setattr(execution, "PAPERMILL", EXECUTED + edit)
    done, page = run(tmp_path, profile="ci")
    assert not done
    assert "not published: 00_toy: it was edited while it ran" in page
    assert not (tmp_path / "figures").exists()
    done, page = run(tmp_path, profile="ci")  # what was edited counts as changed
    assert "done       00_toy" in page
