"""What the parameters of a notebook say is what its trainings get."""

import ast
from collections.abc import Iterator

import nbformat
import pytest

import dmlkit

#: These have names of their own for what they set.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp,
           ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


def _set(node: ast.AST) -> Iterator[str]:
    """The names that a cell sets, loops among them."""
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _set(child)


@pytest.mark.parametrize(
    "path", sorted((dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb")), ids=lambda path: path.stem
)
def test_only_the_first_cell_that_a_profile_changes_sets_a_parameter_again(path) -> None:
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    at = next(k for k, c in enumerate(cells) if "parameters" in c.metadata.get("tags", []))
    parameters = set(_set(ast.parse(cells[at].source)))
    again = [parameters & set(_set(ast.parse(cell.source))) for cell in cells[at + 1 :]]
    assert sum(bool(names) for names in again) <= 1, again
