"""How the site is built; `make docs` does it.

The source folder is the root of the repository, so that the links between pages are
the same on the site, in an editor and in a browser of the repository.
"""

import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

from ennopt import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the order of the gallery

project = "ennopt"
author = "the ennopt developers"
copyright = f"%Y, {author}"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "benchmarks/*.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "RELEASING.md",
]
# Names of folders without a pattern behind them: they are not looked into for pages,
# while style sheets of extensions, which may lie in one of them, are still found.
exclude_patterns = [
    ".git",
    ".venv",
    "build",
    "out",
    "docs/desk",
    "docs/evening",
    "docs/_templates",
]
templates_path = [str(HERE / "_templates")]
highlight_language = "none"
default_role = "literal"
nitpicky = True

# Docstrings give no types because signatures do. A signature may name what has no page
# here: another package's types, and aliases of our own.
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
python_use_unqualified_type_names = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/gallery",
    "filename_pattern": r"\.py$",
    "plot_gallery": os.environ.get("ENNOPT_GALLERY", "1") == "1",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "within_subsection_order": "gallery_order.Told",
    "capture_repr": (),
}

html_theme = "pydata_sphinx_theme"
html_title = "ennopt"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["ennopt.css"]
html_sidebars = {"docs/tutorial": []}  # it stands alone: no menu beside it
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def formula(translator: Any, node: nodes.Node) -> None:
    """A formula as MathML, which browsers draw by themselves: no script, no network."""
    block = isinstance(node, nodes.math_block)
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def lead(app: Sphinx, error: Exception | None) -> None:
    """Lead from the top of the site to its first page, which lies in a folder."""
    if error is None and app.builder.name == "html":
        (app.outdir / "index.html").write_text(
            '<!doctype html><meta charset="utf-8"><title>ennopt</title>'
            '<meta http-equiv="refresh" content="0; url=docs/index.html">'
            '<a href="docs/index.html">ennopt</a>\n',
            encoding="utf-8",
        )


def setup(app: Sphinx) -> None:
    """What the site needs beyond its extensions."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("build-finished", lead)
