"""Nothing from disk or network is unpickled: what could is looked for in the syntax tree."""

import ast

import pytest

from dmlkit import ROOT

MODULES = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle"}
CALLS = {"read_pickle", "eval", "exec", "__import__", "load_state_dict_from_url", "fromfile"}
ALLOWED = {
    ("losses/imported.py", "exec"),  # a loss of the user's own, from the file that they name
    ("training/loop.py", "weights_only=False"),  # what this process itself has just written
}


def uses(source):
    """The dangerous imports, calls and arguments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            given = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            yield from (f"import {m}" for m in given if m and m.split(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            safe = given.get("weights_only") is True
            if (
                name in CALLS and not safe and not (name == "eval" and not node.args)
            ):  # model.eval()
                yield name
            if given.get("weights_only", True) is not True:
                yield "weights_only=False"
            if given.get("allow_pickle", False) is not False:
                yield "allow_pickle=True"


def test_nothing_is_unpickled():
    folder = ROOT / "dmlkit"
    found = {
        (path.relative_to(folder).as_posix(), use)
        for path in folder.rglob("*.py")
        for use in uses(path.read_text(encoding="utf-8"))
    }
    assert found <= ALLOWED


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import pickle", "import pickle"),
        ("from pickle import loads as l", "import pickle"),
        ("np.load(p, allow_pickle=True)", "allow_pickle=True"),
        ("torch.load(p, weights_only=no)", "weights_only=False"),
        ("def f():\n    pd.read_pickle(p)", "read_pickle"),
        ("exec(code)", "exec"),
        ("load_state_dict_from_url(url)", "load_state_dict_from_url"),
    ],
)
def test_what_is_dangerous_is_seen(source, expected):
    assert list(uses(source)) == [expected]
    assert not list(uses("model.eval()\njson.load(f)\ntorch.load(p, weights_only=True)"))
