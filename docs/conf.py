"""The docs site: `make docs` builds it from the Markdown of the repository and from docstrings.

The source folder is the root of the repository, so a link in Markdown is the same link on the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "treadle"
copyright = "the treadle authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "public_api"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "bench/*.md", "tests/*.md"]
exclude_patterns = [".*", "build", "**/.*", "**/__pycache__"]

html_theme = "furo"
html_title = "treadle"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

# Strict: each of these is an error, because the build runs with --fail-on-warning.
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*")]  # a type in a signature may have no page
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

default_role = "code"  # docstrings write `name` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"

REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>treadle</title><meta http-equiv="refresh" content="0; url={0}">\n'
)


def _redirect(app: Sphinx, error: Exception | None) -> None:
    """Let the root of the site lead to its first page."""
    if error is None:
        (Path(app.outdir) / "index.html").write_text(REDIRECT.format(f"{root_doc}.html"), "utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", _redirect)
