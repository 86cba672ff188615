"""Nothing from disk or network is unpickled: every call that could is listed here with its reason.

Found in the syntax tree of every file of the package, whatever a module is imported as.
"""

import ast
from pathlib import Path

import pytest

import dmlkit

PACKAGE = Path(dmlkit.__file__).parent
MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle", "yaml", "joblib"}
CALLS = {
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"),
    *("torch.hub.load_state_dict_from_url", "numpy.load", "numpy.fromfile", "pandas.read_pickle"),
    *("joblib.load", "faiss.read_index", "faiss.deserialize_index", "scipy.io.loadmat"),
    *("eval", "exec", "__import__"),
}
ALLOWED = {  # (file, call) -> how often, and why it may
    ("data/annotations.py", "scipy.io.loadmat"): (1, "no pickle; in a process of its own"),
    ("data/glyphs.py", "numpy.load"): (1, "arrays only: NumPy refuses pickles by default"),
    ("data/pictures.py", "import joblib"): (1, "cpu_count only"),
    ("execution.py", "import joblib"): (1, "cpu_count only"),
    ("studies/follow.py", "import joblib"): (1, "cpu_count only"),
    ("index.py", "faiss.deserialize_index"): (1, "no pickle; faiss checks what it reads"),
    ("index.py", "numpy.load"): (1, "arrays only: NumPy refuses pickles by default"),
    ("losses/imported.py", "exec"): (1, "a loss of the user's own, from the file that they name"),
    ("models.py", "numpy.load"): (1, "arrays only, of a file of the repository"),
    ("pretrained.py", "torch.hub.load_state_dict_from_url"): (1, "weights_only, after its hash"),
    ("reproduce.py", "import joblib"): (1, "cpu_count only"),
    ("study.py", "import joblib"): (1, "cpu_count only"),
    ("training/loop.py", "torch.load"): (
        1,
        "what this process itself has just written for its group, into a temporary folder of its "
        "own",
    ),
    ("training/runs.py", "numpy.load"): (1, "arrays only: NumPy refuses pickles by default"),
    ("training/runs.py", "torch.load"): (1, "weights_only"),
    ("training/trainer.py", "torch.load"): (1, "weights_only, after its hash"),
    ("workers.py", "import joblib"): (1, "cpu_count only"),
}
UNSAFE_ARGUMENTS = {("training/loop.py", "weights_only=False")}  # see above


def names(tree):
    """What each name of a module stands for: {"np": "numpy", "load": "torch.load"}."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def dotted(node, known):
    """``np.load`` as numpy.load, or nothing."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, known)
        return before and f"{before}.{node.attr}"
    return ""


def uses(source):
    """The dangerous imports, references and arguments of a module, one by one."""
    tree = ast.parse(source)
    known, found = names(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            given = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            found += [f"import {m}" for m in given if m and m.split(".")[0] in MODULES]
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found += [name for name in whole if name in CALLS]
        elif isinstance(node, ast.Attribute | ast.Name) and dotted(node, known) in CALLS:
            found.append(dotted(node, known))
        elif isinstance(node, ast.keyword) and node.arg in ("weights_only", "allow_pickle"):
            value = getattr(node.value, "value", None)
            if value is not (node.arg == "weights_only"):
                found.append(f"{node.arg}={value}")
    return found


def test_every_call_that_could_unpickle_is_listed_with_its_reason():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for use in uses(path.read_text(encoding="utf-8")):
            key = path.relative_to(PACKAGE).as_posix(), use
            found[key] = found.get(key, 0) + 1
    unsafe = {key for key in found if "=" in key[1]}
    assert unsafe == UNSAFE_ARGUMENTS
    assert {key: count for key, count in found.items() if key not in unsafe} == {
        key: count for key, (count, _) in ALLOWED.items()
    }


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import pickle", ["import pickle"]),
        ("from pickle import loads as l", ["import pickle"]),
        ("import torch as t\nt.load(p)", ["torch.load"]),
        ("from torch import load", ["torch.load"]),
        ("import numpy as np\nnp.load(p, allow_pickle=True)", ["numpy.load", "allow_pickle=True"]),
        (
            "import torch\nf = torch.load\nf(p, weights_only=no)",
            ["torch.load", "weights_only=None"],
        ),
        ("def f():\n    import pandas as pd\n    pd.read_pickle(p)", ["pandas.read_pickle"]),
        ("exec(code)", ["exec"]),
        ("import re\nre.compile(p)\nmodel.eval()\njson.load(f)", []),
    ],
)
def test_what_is_dangerous_is_seen_however_it_is_written(source, expected):
    assert sorted(uses(source)) == sorted(expected)
