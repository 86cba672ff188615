"""Sphinx's settings of the site; `make site` (course.site) gives it its pages."""

from dmlkit import __version__

project, author, copyright = "dmlkit", "The dmlkit authors", "the dmlkit authors"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "course.site.sphinx",
]
exclude_patterns = ["_*"]
html_theme = "furo"
html_title = "dmlkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_math_renderer = "mathml"  # as the page is built: nothing is fetched, no script runs
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0000b8", "color-brand-content": "#0000b8"},
    "dark_css_variables": {"color-brand-primary": "#9db2ff", "color-brand-content": "#9db2ff"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

myst_enable_extensions = ["dollarmath", "attrs_inline", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks hold their outputs
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 80
suppress_warnings = ["ref.python"]  # two classes of one name: either is linked by its full one
