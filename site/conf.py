"""Sphinx's settings. `build.py` writes the pages that it reads, and calls it."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
# MathJax 3 in one file, glyphs as SVG: it asks for nothing else. No import statement can name its package.
MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax" / "tex-svg-full.js"

project, author, language = "flashlab", "the authors of flashlab", "en"
copyright = "the authors of flashlab, MIT license"                                  # noqa: A001   Sphinx's name for it
extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_code_prompt_show, nb_code_prompt_hide = "Show the output", "Hide the output"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
# Notebooks skip from # to ###, Triton's lines are no plain Python, and an output may hold a MIME type of its own.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "mystnb.unknown_mime_type", "toc.not_included"]

html_theme = "sphinx_book_theme"
html_title = "flashlab"
html_theme_options = {
    "use_download_button": False, "use_fullscreen_button": False, "show_toc_level": 2, "home_page_in_toc": True,
    "navbar_persistent": [], "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "play": []},
    "pygments_light_style": "a11y-high-contrast-light", "pygments_dark_style": "a11y-high-contrast-dark",
    "extra_footer": "<p>Built from the course's notebooks. Nothing on these pages is run or sent anywhere.</p>",
}
if address := os.environ.get("FLASHLAB_REPOSITORY"):        # .github/workflows/site.yml knows it
    html_theme_options |= {"repository_url": address, "use_repository_button": True}
html_context = {"default_mode": "auto"}
html_copy_source = html_show_sphinx = False
exclude_patterns = ["extra"]
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
mathjax_path = "mathjax.js"
mathjax3_config = {"options": {"enableMenu": False}, "svg": {"fontCache": "global"}}


def put_files(app):
    app.config.html_extra_path = [str(Path(app.srcdir) / "extra")]        # the pictures: figures/
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    shutil.copy(MATHJAX, static / "mathjax.js")


def setup(app):
    app.connect("builder-inited", put_files)
