"""What Sphinx is taught for this site: formulas as MathML, and docstrings as they are meant."""

import logging
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

# TeX sets a small space between the name of a function and its argument, the converter none.
_FUNCTION = re.compile(
    r"(\\(?:sin|cos|tan|sinh|cosh|tanh|log|ln))(?![a-z])\s*(?=\w|\\(?!left|[bB]ig|[^a-zA-Z]))"
)


def mathml(tex: str, display: str = "inline") -> str:
    """A formula as MathML, which browsers draw by themselves.

    >>> "<msup>" in mathml("x^2")
    True
    """
    tex = re.sub(r"\\arg(?![a-z])", r"\\mathrm{arg}\\,", tex)  # names that the converter lacks
    found: str = convert(_FUNCTION.sub(r"\1\\,", tex), display=display)
    found = re.sub("<mo>(?=&#x02016;|&#x02223;)", '<mo stretchy="false">', found)  # as in TeX
    return found.replace(r">\{<", ">{<").replace(r">\}<", ">}<")  # large braces


def _visit_inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def plain_bars(lines: list[str]) -> list[str]:
    """A docstring whose bars are bars: in |P| and in tables they mean no substitution.

    >>> plain_bars(["1/|P|, ``a | b``", "| a | b |", "|---|---|", ">>> 1 | 2"])
    ['1/\\\\|P\\\\|, ``a | b``', '| a \\\\| b', '>>> 1 | 2']
    """
    found, in_example = [], False
    for line in lines:
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example:
            found.append(line)
        elif not line.startswith("|---"):
            row = line.startswith("| ")
            text = line[2:].rstrip("| ") if row else line
            parts = re.split(r"(``.+?``)", text)
            text = "".join(p if p.startswith("``") else p.replace("|", r"\|") for p in parts)
            found.append("| " * row + text)
    return found


def _docstring(
    _app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]
) -> None:
    lines[:] = plain_bars(lines)


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    logging.getLogger("faiss").setLevel(logging.WARNING)
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("autodoc-process-docstring", _docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
