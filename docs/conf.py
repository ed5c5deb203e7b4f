"""Settings of the documentation site; ``make docs`` builds it."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from importlib.metadata import version as version_of  # noqa: E402

from obygaze_features.common.figures import COLOURS  # noqa: E402

project = "obygaze"
project_copyright = "the obygaze developers"
release = version = version_of("obygaze")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "docs.docstrings",
    "docs.extension",
]
exclude_patterns = ["_build", "**/README.md"]

# Pages
myst_enable_extensions = ["deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
highlight_language = "none"
smartquotes_action = "qe"  # not dashes, which options begin with
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"

# The Python API
default_role = "py:obj"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# The same style as the report
style = (ROOT / "obygaze_features/page/style.css").read_text()


def read_themes(css: str) -> list[dict[str, str]]:
    """Return the properties of the light theme and of the dark theme."""
    rules = re.findall(r"^:root[^{]*\{(.*?)\}", css, re.MULTILINE | re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): ([^;]+);", rule)) for rule in rules]


light, dark = map(dict.__or__, read_themes(COLOURS), read_themes(style))
html_theme = "furo"
html_title = "obygaze"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_favicon = "_static/icon.svg"
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": light,
    "dark_css_variables": dark,
}
pygments_style = "default"
pygments_dark_style = "github-dark"
