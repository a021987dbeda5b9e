"""Sphinx configuration: `make docs`. Everything is local: no download, no remote font or script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_extensions"), str(DOCS.parent)]
# Kernels inherit it: examples are read as text, and a bar of progress is none.
os.environ.update(NO_COLOR="1", TQDM_DISABLE="1")

from labkit import __version__  # noqa: E402

project = "labkit"
author = "The labkit authors"
project_copyright = "The labkit authors, Apache-2.0"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings", "generated", "kernels"]
exclude_patterns = ["_build", "_extensions"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
# These need a model with weights: they run in the tests, and are shown here as they are committed.
nb_execution_excludepatterns = [
    f"notebooks/{name}.ipynb"
    for name in ("00_start_here", "01_step_by_hand", "02_paired_ab", "04_frontier", "06_batching")
]
nb_execution_show_tb = True
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

# Two layers may have a class of one name; a type in a signature then links to neither.
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
smartquotes = False
highlight_language = "none"
autodoc_class_signature = "mixed"
python_display_short_literal_types = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 96
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"labkit {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["labkit.css"]
html_theme_options = {"navigation_with_keys": True}
