"""The pages of `make site`: what a prediction becomes, and two pages built by Sphinx where that is installed."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from flashlab_course.chapters import CHAPTERS
from tests.house import ROOT

sys.path.insert(0, str(ROOT / "site"))
import pages  # noqa: E402    it is in site/, which is no package

LARGEST = 1_500_000
PACKAGES = ["sphinx", "myst_nb", "sphinx_book_theme", "sphinx-mathjax-offline"]
needs_sphinx = pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason="Sphinx comes with `make site`")


@pytest.mark.parametrize("code, fields", [
    ("my_share = None     # between 0 and 1", [("Your prediction", "between 0 and 1")]),
    ("my_a_b, my_c = None, {'x': None, 2: None}", [("a b", ""), ("x", ""), ("2", "")]),
    ("my_two = [None, None]     # said once", [("number 1", "said once"), ("number 2", "")]),
    ("mine = None\nmy_fixes = {'a': 1}\n%matplotlib", []),
])
def test_a_prediction_asks_for_each_of_its_numbers(code, fields):
    assert [(label, note) for _, label, note, _ in pages.predictions(code)] == fields


def test_an_answer_stands_behind_the_gate_and_the_question_before_it(tmp_path):
    """And a picture is a file with its alternative text."""
    chapter = next(one for one in CHAPTERS if one.number == "06")
    notebook = nbformat.read(ROOT / chapter.path, as_version=4)
    cells = pages.Page(tmp_path, lambda target: target).add(notebook).cells
    asked = given = 0
    for cell in cells:
        asked += "<form" in cell.source
        given += "class=\"gate\"" in cell.source
        if cell.cell_type == "code" and any(one.get("data") for one in cell.outputs) and asked:
            assert given or "check(" in cell.source, cell.source
    assert asked == sum(bool(list(pages.predictions(cell.source))) for cell in notebook.cells) >= given > 0
    pictures = [one.data["text/html"] for cell in cells for one in cell.get("outputs", ())
                if "<img class=" in one.get("data", {}).get("text/html", "")]
    assert pictures and all(re.search(r' alt="[^"]+"', one) for one in pictures)
    assert not any("image/png" in one.get("data", ()) for cell in cells for one in cell.get("outputs", ()))


class Links(HTMLParser):
    """What a page loads, where it leads to, and the places in it."""

    def __init__(self, path):
        super().__init__()
        self.path, self.loads, self.leads, self.places = path, [], [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found.get("id"), found.get("name")}
        if tag == "a":
            self.leads.append(found.get("href") or "")
        elif "src" in found or tag == "link":
            self.loads.append(found.get("src") or found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """{path: Links} of the front page, a chapter and what comes with it."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, ROOT / "site/build.py", "00", "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Links(path) for path in (out / "html").rglob("*.html") if "_static" not in path.parts}


@needs_sphinx
def test_pages_load_nothing_from_elsewhere_their_links_lead_somewhere_and_they_are_small(site):
    assert {"index.html", "play.html", "00_start_here.html", "ex00_score_tile.html"} <= {path.name for path in site}
    for path, page in site.items():
        assert [one for one in page.loads if urlsplit(one).netloc] == [], path.name
        size = path.stat().st_size
        for one in filter(lambda one: not urlsplit(one).scheme, page.loads + page.leads):
            target = (path.parent / unquote(urlsplit(one).path)).resolve() if urlsplit(one).path else path
            assert target.exists(), f"{path.name} leads to {one}"
            if target in site:
                places = site[target].places
                fragment = unquote(urlsplit(one).fragment)
                assert fragment in places or fragment.startswith("player-"), f"{path.name} leads to {one}"
            size += target.stat().st_size if target.suffix == ".webp" else 0
        assert size <= LARGEST, f"{path.name}: {size:,} bytes with its pictures"
    for own in (ROOT / "site" / "static").iterdir():
        assert "http" not in own.read_text(encoding="utf-8")
