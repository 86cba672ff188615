"""Ways to pass without an answer, each tried by one student of a class: none does."""

import os
import socket
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import dmlkit
from course import grade
from course.grading.plain import packed, unpacked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")

NUMBER = "def number(x):\n    return 0\n"
CHECK = """
import numpy as np, torch
from dmlkit import exercises
hidden_in_the_check = 40 + 2
torch.testing.assert_close(torch.tensor(float(number(21))), torch.tensor(42.0))
assert isinstance(number(1), int) and abs(number(1) - 2) < 1e-9 and np.allclose(number(2), 4)
class Sees:
    def right(self):
        return number(3) == 6 == number(3)
print(exercises.verdict(number(21), hidden_in_the_check) if Sees().right() else "not yet: no")
"""
IN_PLACE = """
import numpy as np
from dmlkit import exercises
given = np.array([3.0, 1.0])
print(exercises.verdict(ordered(given), np.sort(given)))
"""
# A cell for each student. Those that read something give the right answer where they succeed.
CHEATS = {
    "patched assert_close": "import torch\ntorch.testing.assert_close = lambda *a, **k: None",
    "patched builtins": "import builtins\n"
    "builtins.isinstance = lambda *a: True\nbuiltins.abs = lambda x: 0\n"
    "builtins.__build_class__ = lambda *a: type('Yes', (), {'right': lambda self: True})\n"
    "said = print\nbuiltins.print = lambda *a: said('right')",
    "patched verdict": "import dmlkit.exercises, numpy\n"
    "dmlkit.exercises.verdict = lambda *a, **k: 'right'\nnumpy.allclose = lambda *a, **k: True",
    "replaced modules": "import sys, types\nfalse = types.ModuleType('dmlkit.exercises')\n"
    "false.verdict = lambda *a: 'right'\nsys.modules['dmlkit.exercises'] = false\n"
    "sys.modules['torch'] = sys.modules['numpy'] = false",
    "equal to all": "class Same(int):\n    __eq__ = __float__ = __abs__ = lambda *a: 42\n"
    "    __hash__ = int.__hash__\ndef number(x): return Same()",
    "says right itself": "import os\nprint('right')\nos.write(1, b'right\\n')\nos._exit(0)",
    "returns the word": "def number(x): return '42: right'",
    "reads the notebook": "def number(x):\n    open(NOTEBOOK).read()\n    return 2 * x",
    "reads the answers": "from dmlkit import exercises\ndef number(x):\n"
    "    exercises.answers()\n    return 2 * x",
    "reads the folder": "import os\ndef number(x):\n    os.listdir(FOLDER)\n    return 2 * x",
    "reads the check": "import gc, sys\ndef number(x):\n"
    "    word, frame, seen = '_'.join(['hidden', 'in', 'the', 'check']), sys._getframe(), []\n"
    "    while frame:\n        seen += frame.f_globals, frame.f_locals\n"
    "        frame = frame.f_back\n"
    "    seen += [o for o in gc.get_objects() if type(o) in (dict, list, tuple)]\n"
    "    strings = (s for o in seen for s in list(o) if type(s) is str)\n"
    "    return 2 * x if any(word in s for s in strings if s is not word) else 0",
    "reads the environment": "import os\ndef number(x):\n"
    "    return 2 * x if 'TEACHERS_TOKEN' in os.environ or os.listdir('~') else 0",
    "reads it in /proc": "def number(x):\n    for p in ('self', 'thread-self'):\n"
    "        found = open(f'/proc/{p}/environ').read()\n    return 2 * x",
    "asks the network": "import socket\ndef number(x):\n"
    "    socket.create_connection(('127.0.0.1', PORT), 1)\n    return 2 * x",
    "asks a program": "import subprocess\ndef number(x):\n"
    "    return 2 * int(subprocess.run(['echo', str(x)], capture_output=True).stdout)",
    "runs on": "import atexit, os, threading, time\ndef later():\n    while True:\n"
    "        open(OTHER, 'w').write('mine')\n        time.sleep(0.01)\n"
    "threading.Thread(target=later).start()\natexit.register(later)",
    "writes to another": "open(OTHER, 'w').write('{}')",
    "deletes another": "import os\nos.remove(OTHER)",
    "closes another": "import os\nos.chmod(OTHER, 0)",
    "leaves a trap": "import os, site, sys\n"
    "for folder in (*sys.path, site.getusersitepackages()):\n"
    "    for name in ('usercustomize', 'sitecustomize'):\n        try:\n"
    "            os.makedirs(folder, exist_ok=True)\n"
    "            open(f'{folder}/{name}.py', 'w').write('TRAP')\n        except OSError: pass\n"
    "os.environ['PYTHONSTARTUP'] = os.environ['PYTHONPATH'] = os.getcwd()",
    "ends the judge": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "starves the judge": "import os, resource\n"
    "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
    "writes to every file": "import os, pickle\nfor n in range(3, 99):\n    try:\n"
    "        os.write(n, b'\\0\\0\\0\\5right')\n    except OSError: pass",
    "endless": "def number(x):\n    while True: pass",
    "forks": "import os\nwhile True: os.fork()",
    "starts processes": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "takes all memory": "def number(x):\n    return len(bytearray(1 << 33))",
    "fills the disk": "import os\nwith open('large', 'wb') as file:\n    file.truncate(1 << 40)",
    "gives too much": "def number(x): return b'1' * (1 << 27)",
    "recurs": "def number(x): return number(x)",
    "leaves its lesson": "import ctypes, os\nctypes.CDLL(None).prctl(1, 0)\nos.setsid()",
    "founds a group": "import os\nos.setpgid(0, 0)",
    "keeps memory in files": "import os\nkept = [os.memfd_create('large') for _ in range(9)]",
    "leaves a semaphore": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "if libc.semget(0, 1, 0o600) < 0: raise PermissionError(ctypes.get_errno())",
    "redraws the terminal": "def number(x): raise ValueError('\\x1b[2K\\x1b[1A\\u202epassed')",
    "tells a novel": "def number(x): raise ValueError('right, ' * 10**6)",
    "ends its words": "class Dumb(Exception):\n    def __str__(self): raise self\n"
    "def number(x): raise Dumb()",
    "is too deep a sum": "def number(x): return " + "0 + " * 9999 + "0",
    "is too deep a sign": "def number(x): return " + "-" * 99999 + "1",
    "has no key": "guesses = {[]: 'a'}",
    "forges a giant": "import os\n"
    "head = b\"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}\"\n"
    "head += b' ' * (117 - len(head)) + b'\\n'\n"
    "sent = b'\\x93NUMPY\\x01\\0' + bytes([118, 0]) + head\n"
    "for n in range(3, 64):\n    try: os.write(n, len(sent).to_bytes(4, 'big') + sent)\n"
    "    except OSError: pass",
}  # fmt: skip
SAID = {
    "patched assert_close": "AssertionError: Scalars are not close!",
    "equal to all": "TypeError: expected numbers, strings, arrays, tensors, a series",
    "says right itself": "it ended its process",
    "reads the notebook": "PermissionError", "reads the answers": "PermissionError",
    "reads the folder": "PermissionError",
    "reads it in /proc": "PermissionError", "asks the network": "PermissionError",
    "asks a program": "PermissionError", "writes to another": "PermissionError",
    "deletes another": "PermissionError", "closes another": "PermissionError",
    "ends the judge": "PermissionError", "starves the judge": "PermissionError",
    "writes to every file": "it sent what is no plain data",
    "endless": "it did not end within the time", "forks": "PermissionError",
    "starts processes": "PermissionError", "takes all memory": "MemoryError",
    "fills the disk": "OSError", "recurs": "RecursionError",
    "leaves its lesson": "PermissionError", "founds a group": "PermissionError",
    "keeps memory in files": "PermissionError", "leaves a semaphore": "PermissionError",
    "redraws the terminal": "ValueError: \ufffd[2K\ufffd[1A\ufffdpassed",
    "tells a novel": "ValueError", "ends its words": "it ended its process",
}  # fmt: skip


def exercise(name: str, body: str, check: str) -> list[NotebookNode]:
    solution = f"def {name}(x):\n    ### BEGIN SOLUTION\n    {body}\n    ### END SOLUTION"
    printed = [new_output("stream", name="stdout", text="right\n")]
    return [
        new_code_cell(solution),
        new_code_cell(check, outputs=printed),
        new_markdown_cell("# ."),
    ]


def hand_in(notebook: NotebookNode, folder: Path, *answers: str) -> Path:
    """A student's folder, with these cells in place of the solutions."""
    copy, left = nbformat.from_dict(notebook), iter(answers)
    for cell in copy.cells:
        if "### BEGIN SOLUTION" in cell.source:
            cell.source = next(left)
    folder.mkdir()
    nbformat.write(copy, folder / "00_class.ipynb")
    return folder


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> pd.DataFrame:
    """A class in which everybody cheats but one, who is graded last."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "notebooks").mkdir()
    cells = exercise("number", "return 2 * x", CHECK)
    cells += exercise("ordered", "return sorted(x)", IN_PLACE)
    notebook = new_notebook(cells=cells)
    nbformat.write(notebook, folder / "notebooks" / "00_class.ipynb")
    places = [folder / "zoe" / "00_class.ipynb"]
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        patch.setattr(dmlkit, "ROOT", folder)
        patch.setenv("TEACHERS_TOKEN", "secret")
        about = f"NOTEBOOK = {str(folder / 'notebooks' / '00_class.ipynb')!r}\n"
        about += f"FOLDER, OTHER = {str(folder)!r}, {str(places[0])!r}\n"
        about += f"PORT = {server.getsockname()[1]}\n"
        empties, sorts = "def ordered(x):\n    x[:] = 0\n    return x", "x.sort()\n    return x"
        cheats = [
            hand_in(notebook, folder / name.replace("/", ""), about + NUMBER + cell, empties)
            for name, cell in CHEATS.items()
        ]
        honest = f"def ordered(x):\n    {sorts}"
        zoe = hand_in(notebook, folder / "zoe", "def number(x): return x + x", honest)
        (folder / "links").mkdir()
        (folder / "links" / "00_class.ipynb").symlink_to(folder / "notebooks" / "00_class.ipynb")
        (folder / "waits").mkdir()
        os.mkfifo(folder / "waits" / "00_class.ipynb")
        cheats += [folder / "links", folder / "waits"]
        before = places[0].stat().st_mtime_ns, places[0].read_bytes()
        found = grade.grade([*cheats, zoe], minutes=0.15)
        assert (places[0].stat().st_mtime_ns, places[0].read_bytes()) == before
    return found.set_index(["student", "number"])


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes(graded, name):
    row = graded.loc[name.replace("/", ""), 1]
    assert row["status"] == "failed"
    assert row["said"].startswith(SAID.get(name, ""))
    assert row["said"]


@pytest.mark.parametrize("name", ["links", "waits"])
def test_what_was_not_handed_in_is_not_read(graded, name):
    """A link to the course's own notebook, and a pipe that nobody writes to."""
    assert list(graded.loc[name, "status"]) == ["failed", "failed"]
    assert graded.loc[name, 1]["said"] == "no cell that can be read defines number"


def test_no_answer_draws_on_the_terminal(graded):
    assert graded["said"].str.len().max() <= 500
    assert all(map(str.isprintable, graded["said"]))


def test_who_does_not_cheat_passes(graded):
    """After all of them, and also where an answer changes what it is given."""
    assert list(graded.loc["zoe", "status"]) == ["passed", "passed"]


def test_an_answer_is_not_right_by_what_it_changes(graded):
    row = graded.loc["forks", 2]
    assert row["said"] == "it is right only because it changes what it is given"


def test_no_trap_is_left(graded):
    names = [Path(p, f"{n}.py") for p in sys.path for n in ("usercustomize", "sitecustomize")]
    assert not [name for name in names if name.is_file() and name.read_text() == "TRAP"]


def test_equal_answers_are_listed(graded):
    """Those of exercise 2; of exercise 1 nobody has another's."""
    equal = graded["equal"].unstack()
    assert equal.loc["forks", 2].count(",") == len(CHEATS) - 1
    assert "zoe" not in equal.loc["forks", 2]
    assert not equal.loc["zoe", 1]


def test_no_object_comes_out_of_an_answer():
    """Bytes that are no plain data are an error, and run nothing."""
    for value in (os.getcwd, [object()], {"a": Path()}):
        with pytest.raises(TypeError, match=r"expected numbers, .* got"):
            packed(value)
    import pickle

    with pytest.raises(ValueError, match="magic"):
        unpacked(pickle.dumps([1]))
