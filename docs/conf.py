"""The documentation site: Sphinx reads this file. `make docs` builds the site into build/docs."""

import logging
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from metricdp import __version__  # noqa: E402 - the path comes first

# The theme's colours of code (accessible-pygments) make all loggers print.
logging.getLogger("metricdp").setLevel(logging.WARNING)

project = "metricdp"
author = "the metricdp authors"
version = release = __version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_gallery.gen_gallery",
    # Our own, in docs/_site.
    "_site.mathml",  # formulas without scripts
    "_site.links",  # links of Markdown files that lead out of docs
    "_site.docstrings",  # lists of names and meanings in docstrings
    "_site.generated",  # the pages that are made from the library itself
]
exclude_patterns = ["_site", "examples/*.ipynb", "**/.ipynb_checkpoints"]
suppress_warnings = [
    "config.cache",  # the gallery's settings hold functions
]

# Pages are Markdown.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests run the notebooks; the site shows what they hold

# Docstrings are numpydoc. A word in backticks is a link if it names something public, otherwise code.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what arguments are
autosummary_generate = False
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"metricdp {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f6f54", "color-brand-content": "#1f6f54"},
    "dark_css_variables": {"color-brand-primary": "#6fcfa7", "color-brand-content": "#6fcfa7"},
}


def _folder_for_pictures(_settings, _script):
    """Give examples a folder that is thrown away: the gallery takes their pictures from matplotlib."""
    return [_PICTURES.name]


_PICTURES = tempfile.TemporaryDirectory()
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"spark_",
    "reset_argv": _folder_for_pictures,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
}


def _leave_out_missing_parts(app, name, source):
    """Show the results in the menu once they have a page."""
    if name == "index" and "results/index" not in app.env.found_docs:
        source[0] = source[0].replace("\nresults/index\n", "\n")


def setup(app):
    """Connect what is written above; Sphinx calls it."""
    app.connect("source-read", _leave_out_missing_parts)
