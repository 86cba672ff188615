"""Mutation testing: of small faults put into a module, one at a time, how many its tests find.

    python -m benchmarks mutations
    python -m benchmarks.mutations losses.mining --sample 50

A mutant is the module with one place of its functions changed: a comparison, an operator, a
constant, a condition turned round, a statement left out; no text, annotation, default or constant
of the module. It is killed if a test or doctest of its room fails, or if they take ten times their
processor time. Which mutants are drawn depends on the seed alone; what was found is kept in
``build/mutations.jsonl``, one line for each mutant, and is not tried again: after new tests, delete
it.

The tests are collected once. Each mutant is tried in a process forked from there, in which the code
of that one function is exchanged: nothing is written into the checkout, nothing imported anew.
"""

import argparse
import ast
import copy
import functools
import gc
import json
import os
import random
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from scipy import stats

from dmlkit import ROOT

_LOSSES = sorted(path.stem for path in (ROOT / "dmlkit/losses").glob("[!_]*.py"))
#: Modules, and the tests that are to find their faults, besides their doctests.
TESTS = {name: f"tests/test_{name}.py" for name in ("geometry", "claims", "retrieval")} | {
    "neighbors": "tests/test_retrieval.py",
    **{f"losses.{name}": f"tests/losses/test_{name}.py" for name in _LOSSES},
    "losses.contract": "tests/losses/test_contract.py",
    "losses.imported": "tests/losses/test_table.py",
}
#: Survivors that compute the same, or as well: module, part of the line, change (or "", any of that
#: line), and why.
EXPLAINED = (
    ("geometry", "length == 0, 1", "1  ->  2", "what divides a row of zeros"),
    ("geometry", "largest == 0, 1", "1  ->  2", "what divides a row of zeros"),
    ("geometry", "masked_fill(zero, 1)", "1  ->  2", "a constant that is then masked"),
    ("geometry", "masked_fill(zero, 1)", "1  ->  0", "its gradient is masked too"),
    ("geometry", ".argmin(", "0  ->  -1", "the only dimension"),
    ("geometry", ".argmin(", "True  ->  False", "index_select takes a single index too"),
    ("geometry", "noise = 2 *", "2  ->  3", "a bound of rounding, with room to spare"),
    ("geometry", "noise = 2 *", "2  ->  1", "a bound of rounding, with room to spare"),
    ("geometry", "noise = 2 *", "4  ->  5", "a bound of rounding, with room to spare"),
    ("geometry", "noise = 2 *", "4  ->  3", "a bound of rounding, with room to spare"),
    (
        "claims", "low is None or high is None",
        "low is None or high is None  ->  low is None and high is None", "both or none are None",
    ),
    ("claims", "zip(tests, own, strict=True)", "True  ->  False", "they have one length"),
    (
        "claims", 'abs(row["effect"]) < row["margin"]',
        "abs(row['effect']) < row['margin']  ->  abs(row['effect']) <= row['margin']",
        "at the margin both tests have p = 0.5",
    ),
    ("claims", "side = 1 if", "effect >= 0  ->  effect > 0", "of 0 both sides are one"),
    ("claims", "margin + s * x", "margin + s * x  ->  margin - s * x", "s is both 1 and -1"),
    (
        "claims", "abs(moved.mean()) <= bound",
        "abs(moved.mean()) <= bound  ->  abs(moved.mean()) < bound", "no number is that bound",
    ),
    ("geometry", "gradients[0]", "0  ->  -1", "there is one"),
    ("retrieval", "k=1, up_to_r=True", "1  ->  2", "R is at least 1, and what is beyond R is cut"),
    ("retrieval", "k=1, up_to_r=True", "1  ->  0", "R is at least 1"),
    ("retrieval", "min_points_per_centroid=1", "1  ->  0", "no cluster has fewer"),
    ("losses.centers", "3 * progress", "3  ->  2", "a slower schedule, to the same optimum"),
    ("losses.centers", "torch.autograd.grad(", "0  ->  -1", "there is one"),
    ("losses.groups", "max(B // E // 2, 1)", "1  ->  2", "room that stays empty"),
    ("losses.groups", "sum().clamp_min(1)", "1  ->  2", "a query alone has one class: loss 0"),
    ("losses.groups", "torch.where(split, H_y * H_g, 1)", "1  ->  2", "masked afterwards"),
    ("losses.groups", "torch.where(split, H_y * H_g, 1)", "1  ->  0", "masked afterwards"),
    ("losses.matryoshka", "strict=True", "True  ->  False", "they have one length"),
    ("losses.pairs", "self.alpha - D, 0).relu()", "0  ->  -1", "relu makes it 0"),
    ("losses.potential", "max(1, BLOCK //", "1  ->  2", "rows of a block: the sum is the same"),
    (
        "losses.potential", "ctx.mark_non_differentiable",
        "ctx.mark_non_differentiable(output[1])  ->  pass", "no caller sees the second output",
    ),
    ("losses.proxies", "D2 = 2 - 2 *", "2  ->  3", "softmax takes a constant off"),
    ("losses.proxies", "D2 = 2 - 2 *", "2  ->  1", "softmax takes a constant off"),
    (
        "losses.proxies", "cos_y >= -cos_m",
        "cos_y >= -cos_m  ->  cos_y > -cos_m", "no number is that bound",
    ),
    (
        "losses.quality", "cos_y >= -m.cos()",
        "cos_y >= -m.cos()  ->  cos_y > -m.cos()", "no number is that bound",
    ),
    ("losses.ranking", "torch.arange(self.bins + 1", "1  ->  2", "an edge beyond every point"),
    ("losses.ranking", "(u > -1) & (u < 0)", "u < 0  ->  u <= 0", "at a kink both are slopes"),
    ("losses.synthesis", "positive.any(dim=1)", "1  ->  0", "the masks are symmetric"),
    ("retrieval", "kmeans.index.search(points, 1)", "1  ->  2", "the first is taken"),
    ("retrieval", "clusters[:, 0]", "0  ->  -1", "there is one"),
    ("neighbors", "size = min(4096, BLOCK_ENTRIES", "", "the size of a block"),
    ("neighbors", "size = _block_entries(x)", "", "the size of a block"),
    ("neighbors", ".split(max(1, size))", "", "the size of a block"),
    ("neighbors", "return BLOCK_ENTRIES *", "", "the size of a block"),
    ("neighbors", "size = max(1, BLOCK_ENTRIES", "", "the size of a block"),
    ("neighbors", "entries = _block_entries(x)", "", "the size of a block"),
    ("neighbors", "size = max(1, entries", "", "the size of a block"),
    ("neighbors", "torch.full_like(rows, -1)", "1  ->  2", "no row has that place either"),
    ("neighbors", "min(k + 1, index.ntotal)", "1  ->  2", "one candidate more"),
    ("neighbors", "k + 1 + _SPARE", "", "of the candidates to spare two fewer, or one more"),
    ("neighbors", "noise = 4 *", "4  ->  5", "a bound of rounding, with room to spare"),
    ("neighbors", "noise = 4 *", "4  ->  3", "a bound of rounding, with room to spare"),
    ("neighbors", "noise = 4 *", "1  ->  0", "a wider bound where rows outnumber dimensions"),
    (
        "neighbors", "if count < len(y)",
        "count < len(y)  ->  count <= len(y)", "done over with the same result",
    ),
    ("neighbors", "noise = 2 * math.sqrt", "", "a bound of rounding, with room to spare"),
    ("neighbors", "bound = squared[:, -1]", "", "a bound of rounding, with room to spare"),
    ("neighbors", "doubtful = (bound >=", "", "more rows done over, or none has just that bound"),
    ("neighbors", "y.float(), 1.0, kind", "1.0  ->  2.0", "bits have no unit"),
    ("neighbors", ".clamp_min(1e-15)", "1e-15  ->  2e-15", "a floor at the rim of the ball"),
    ("neighbors", "unit = math.ldexp(1.0", "1.0  ->  2.0", "a power of two as well"),
    ("neighbors", "center.abs() > 3 * unit", "", "shifted or not, it loses no bit"),
)  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn],
    ast.NotIn: [ast.In], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one place of a module."""

    module: str
    place: int  # among those of ``_code``
    change: int  # among those of ``_changes``
    name: str
    line: str

    def code(self) -> CodeType:
        """The whole module with this change."""
        tree, path = _read(self.module)
        node = list(_code(tree))[self.place]
        _replace(tree, node, _changes(node)[self.change])
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def explanation(self) -> str:
        """Why it computes the same, where that is known; else ''."""
        own = self.name.partition(": ")[2]
        for module, part, change, why in EXPLAINED:
            if module == self.module and part in self.line and change in ("", own):
                return why
        return ""


@functools.cache
def _source(module: str) -> tuple[str, Path]:
    """As it is now, whatever is edited while mutants are tried."""
    path = ROOT / "dmlkit" / f"{module.replace('.', '/')}.py"
    return path.read_text(encoding="utf-8"), path


def _read(module: str) -> tuple[ast.Module, Path]:
    text, path = _source(module)
    return ast.parse(text), path


def mutants(module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    found = []
    for place, node in enumerate(_code(_read(module)[0])):
        for change, other in enumerate(_changes(node)):
            before, after = (" ".join(ast.unparse(n).split())[:160] for n in (node, other))
            where = f"{module}:{node.lineno}:{node.col_offset}"  # type: ignore[attr-defined]
            name = f"{where}: {before}  ->  {after}"
            line = _source(module)[0].splitlines()[node.lineno - 1]  # type: ignore[attr-defined]
            found.append(Mutant(module, place, change, name, line))
    return found


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """What functions compute: no annotations, defaults, docstrings or texts of messages."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                if not isinstance(statement, ast.FunctionDef):
                    yield from _parts(statement)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            skipped = isinstance(child, ast.JoinedStr | ast.FunctionDef) or field == "annotation"
            if isinstance(child, ast.AST) and not skipped:
                yield from _parts(child)


def _replace(tree: ast.AST, place: ast.AST, replacement: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is place:
                setattr(parent, field, replacement)
            elif isinstance(value, list) and any(child is place for child in value):
                setattr(parent, field, [replacement if c is place else c for c in value])


def _changes(node: ast.AST) -> list[ast.AST]:
    """What may stand in the place of an expression or a statement."""

    def changed(**fields: object) -> ast.AST:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Compare(ops=[op]):
            return [changed(ops=[kind()]) for kind in COMPARISONS[type(op)]]
        case ast.Compare(ops=ops):
            return [
                changed(ops=[*ops[:i], COMPARISONS[type(op)][0](), *ops[i + 1 :]])
                for i, op in enumerate(ops)
            ]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            dropped: list[ast.AST] = [ast.Pass()] if isinstance(node, ast.AugAssign) else []
            return [changed(op=OPERATORS[type(op)]()), *dropped]
        case ast.BoolOp(op=op):
            return [changed(op=ast.Or() if isinstance(op, ast.And) else ast.And())]
        case ast.UnaryOp(operand=operand, op=op) if not isinstance(op, ast.UAdd):
            return [operand]
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            return [changed(test=ast.UnaryOp(ast.Not(), test))]
        case ast.Constant(value=bool(value)):
            return [changed(value=not value)]
        case ast.Constant(value=int(value)):
            return [changed(value=value + 1), changed(value=value - 1)]
        case ast.Constant(value=float(value)):
            return [changed(value=2 * value if value else 1.0)]
        case ast.Expr(value=ast.Call()) | ast.Raise():
            if "super()" in ast.unparse(node):  # its name keeps the function's class in reach
                return [ast.Expr(ast.Name("super", ast.Load()))]
            return [ast.Pass()]
    return []


# Trying them ----------------------------------------------------------------------------------


class Trial:
    """A pytest plugin that runs the collected tests once for each mutant, each in a process."""

    def __init__(self, drawn: list[Mutant], out: Path) -> None:
        self.drawn, self.out, self.failed = drawn, out, ""
        self.killers: list[Any] = []  # tests that killed mutants before, the latest first
        self.functions: list[Any] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        self.functions = kept_functions()
        gc.freeze()  # what a child's collector touched, it would copy
        whole = self._in_a_process(session, None, 3600)
        if whole["outcome"] != "survived":
            raise pytest.UsageError(f"the tests fail without any change: {whole['by']}")
        with self.out.open("a", encoding="utf-8", buffering=1) as file:
            for mutant in self.drawn:
                row = {"mutant": mutant.name}
                row |= self._in_a_process(session, mutant, int(10 * whole["cpu"]) + 10)
                file.write(json.dumps(row) + "\n")
        return True

    def _in_a_process(self, session: Any, mutant: Mutant | None, seconds: int) -> dict[str, Any]:
        """Whether a mutant survives, the test that killed it, and seconds of processor time."""
        items = self.killers + [item for item in session.items if item not in self.killers]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            self._child(items, mutant, seconds, writer)
        os.close(writer)
        deadline = time.monotonic() + 60 * seconds
        while not (ended := os.wait4(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:  # it sleeps
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.01)
        with os.fdopen(reader) as told:
            by = told.read()
        for item in items:
            if item.nodeid == by:
                self.killers = [item, *(k for k in self.killers if k is not item)][:20]
        code = os.waitstatus_to_exitcode(ended[1])
        if code == 2:
            raise RuntimeError(f"{mutant and mutant.name}: {by}")
        spent = round(ended[2].ru_utime + ended[2].ru_stime, 2)
        if code == 0:
            return {"outcome": "survived", "by": "", "cpu": spent}
        return {"outcome": "killed", "by": by or "the time", "cpu": spent}

    def _child(self, items: list[Any], mutant: Mutant | None, seconds: int, writer: int) -> None:
        status = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            if mutant is not None:
                exchange(mutant, self.functions)
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            status = int(bool(self.failed))
            os.write(writer, self.failed.encode())
        except BaseException as error:
            status = 2
            os.write(writer, repr(error).encode())
        finally:
            os._exit(status)


def kept_functions() -> list[Any]:
    """All functions of dmlkit, and its caches, wherever they are kept."""
    kinds = FunctionType, functools._lru_cache_wrapper  # by type: isinstance wakes lazy modules
    gc.unfreeze()  # the functions that an earlier module's trial has frozen
    return [
        each
        for each in gc.get_objects()
        if type(each) in kinds and str(each.__module__).startswith("dmlkit.")
    ]


def exchange(mutant: Mutant, functions: list[Any]) -> None:
    """Give the functions of a module the code of a mutant.

    Raises:
        RuntimeError: none of them is changed by it.
    """
    new, changed = dict(_functions(mutant.code())), False
    for each in functions:
        if each.__module__ == f"dmlkit.{mutant.module}":
            if isinstance(each, FunctionType):
                place = each.__code__.co_qualname, each.__code__.co_firstlineno
                changed |= new.get(place, each.__code__) != each.__code__
                each.__code__ = new.get(place, each.__code__)
            else:
                each.cache_clear()
    if not changed:
        raise RuntimeError(f"no function was changed by {mutant.name}")


def _functions(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield (each.co_qualname, each.co_firstlineno), each
            yield from _functions(each)


OPTIONS = ("-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0")


def rows(
    rooms: Sequence[str] = ("geometry", "claims", "retrieval", "neighbors", "losses"),
    sample: int = 200,
    seed: int = 0,
    out: Path = ROOT / "build/mutations.jsonl",
) -> list[dict[str, Any]]:
    """One row for each room: its mutants, how many were killed, and the share's 95 % interval.

    Of a room with more than ``sample`` mutants so many are drawn. Survivors are printed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    settings.register_profile(  # nothing random, and no search for a smaller example
        "mutations", derandomize=True, database=None, deadline=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    os.environ["HYPOTHESIS_PROFILE"] = "mutations"
    made = []
    for room in rooms:
        modules = [name for name in TESTS if name == room or name.startswith(f"{room}.")]
        drawn = [mutant for module in modules for mutant in mutants(module)]
        if sample < len(drawn):
            kept = sorted(random.Random(seed).sample(range(len(drawn)), sample))
            drawn = [drawn[i] for i in kept]
        found = _read_rows(out)
        for module in modules:
            left = [m for m in drawn if m.module == module and m.name not in found]
            tests = [TESTS[module], f"dmlkit/{module.replace('.', '/')}.py"]
            if left and pytest.main([*OPTIONS, *tests], plugins=[Trial(left, out)]):
                raise RuntimeError(f"{module}: its tests could not be run")
        found = _read_rows(out)
        made.append(
            _summary(room, [m for m in drawn if found[m.name]["outcome"] == "survived"], len(drawn))
        )
    return made


def _summary(room: str, survivors: Sequence[Mutant], count: int) -> dict[str, Any]:
    explained = [mutant for mutant in survivors if mutant.explanation()]
    killed = count - len(survivors)
    low, high = stats.binomtest(killed, count).proportion_ci(method="wilson")
    for mutant in survivors:
        print(f"{mutant.name}    {mutant.explanation() or 'SURVIVED'}")
    return {
        "what": room, "mutants": count, "killed": killed, "percent": 100 * killed / count,
        "interval": f"{100 * low:.1f} to {100 * high:.1f}", "explained": len(explained),
    }  # fmt: skip


def _read_rows(out: Path) -> dict[str, dict[str, Any]]:
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def main() -> None:
    """Try the mutants of some rooms, so many of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="+", choices=[*TESTS, "losses"])
    parser.add_argument("--sample", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutations.jsonl")
    chosen = parser.parse_args()
    for row in rows(chosen.rooms, chosen.sample, chosen.seed, chosen.out):
        print(row)


if __name__ == "__main__":
    main()
