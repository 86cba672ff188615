"""Sphinx's settings of the site, formulas as MathML, and docstrings as they are meant."""

import gc
import inspect
import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

from dmlkit import ROOT, __version__

project, author, copyright = "dmlkit", "The dmlkit authors", "the dmlkit authors"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.apidoc"]
exclude_patterns = ["_*"]
html_theme = "furo"
html_title = "dmlkit"
# STIX Two Math is for browsers on machines that have no font for formulas.
_spec = find_spec("ziamath")  # which warns as it is imported
_ziamath = Path(_spec.origin).parent if _spec and _spec.origin else Path()
html_static_path = ["static", str(_ziamath / "fonts" / "STIXTwoMath-Regular.ttf")]
html_favicon = "static/mark.svg"
html_css_files = ["site.css", "tabs.css"]
html_js_files = [("site.js", {"type": "module"})]
if (ROOT / "build" / "explorables").exists():
    html_js_files += [("../explorables/site.js", {"type": "module"})]
templates_path = ["theme"]
html_sidebars = {
    "**": [
        f"sidebar/{part}.html" for part in ("scroll-start", "search", "navigation", "scroll-end")
    ]
}
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = "mathml"  # as the page is built: nothing is fetched, no script runs
# The colors are those of static/site.css, in which light-dark() tells the themes apart.
_COLORS = {
    "color-background-primary": "var(--paper)",
    "color-background-secondary": "var(--panel)",
    "color-background-hover": "var(--panel)",
    "color-background-border": "var(--line)",
    "color-foreground-primary": "var(--ink)",
    "color-foreground-secondary": "var(--soft)",
    "color-foreground-muted": "var(--soft)",
    "color-foreground-border": "var(--line)",
    "color-brand-primary": "var(--link)",
    "color-brand-content": "var(--link)",
    "color-brand-visited": "var(--link)",
    "color-sidebar-background": "var(--paper)",
    "color-sidebar-background-border": "var(--line)",
    "color-sidebar-search-background": "var(--paper)",
    "color-sidebar-link-text--top-level": "var(--ink)",
    "font-stack": "var(--text)",
    "font-stack--headings": "var(--heads)",
}
html_theme_options = {"light_css_variables": _COLORS, "dark_css_variables": _COLORS}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

myst_enable_extensions = ["dollarmath", "attrs_inline", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks hold their outputs
nb_merge_streams = True
nb_code_prompt_show = "Code of this picture"
nb_code_prompt_hide = "Hide the code"

apidoc_modules = [
    {
        "path": "../../dmlkit", "destination": "api", "separate_modules": True,
        "module_first": True, "automodule_options": {"members"},
    }
]  # fmt: skip
autodoc_default_options = {"ignore-module-all": True}  # a class is documented where it is written
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 80
suppress_warnings = ["ref.python"]  # two classes of one name: either is linked by its full one

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


def _docstring(
    _app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: list[str]
) -> None:
    """A docstring's bars are bars: |P| is no substitution."""
    text, mark, examples = "\n".join(lines).partition(">>> ")
    text = re.sub(r"(``.+?``)|\|", lambda found: found[1] or r"\|", text)
    lines[:] = (text + mark + examples).split("\n")


def _signature(
    _app: Any, what: str, _name: str, of: Any, _options: Any, found: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A loss is called with its settings, not with what its contract's __new__ is called with."""
    if what == "class" and (found or "").startswith("(*_:"):
        return str(inspect.signature(of)).removesuffix(" -> None"), None
    return found, returns


def _own_branch(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """The sidebar opens the part that its page is in: to open all on each page takes minutes."""
    if toctree := context.get("toctree"):
        context["toctree"] = lambda **how: toctree(**how | {"collapse": True})


def setup(app: Any) -> None:
    """Sphinx calls this."""
    gc.set_threshold(100_000)  # else most of the time that reads a page's tree looks for garbage
    for talkative in ("faiss", "fontTools"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("html-page-context", _own_branch, priority=400)  # before furo, which draws it
