"""JupyterLab in a real browser: every chapter runs, a prediction is answered, an exercise fails and passes."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from flashlab_course.chapters import CHAPTERS
from tests.browser.test_pages import BROWSER, pytestmark, sync_playwright  # noqa: F401    pytest reads the marks here
from tests.house import ROOT

RUN_ALL = "jupyterapp.commands.execute('notebook:run-all-cells')"
IDLE = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
NOTEBOOK = "jupyterapp.shell.currentWidget.content"
CELLS = NOTEBOOK + """.widgets.map(cell => cell.model.sharedModel).filter(cell => cell.cell_type === 'code')
    .map(cell => ({source: cell.getSource(), outputs: cell.getOutputs()}))"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone as `make lab` opens it."""
    folder = tmp_path_factory.mktemp("lab") / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "flashlab_course.workspace"], cwd=folder, env=environment, check=True)
    return folder, environment


@pytest.fixture(scope="module")
def lab(clone):
    """(the clone, open(path) -> a page of JupyterLab with that file)"""
    folder, environment = clone
    options = ["--no-browser", "--port=0", "--IdentityProvider.token=", "--expose-app-in-browser"]
    command = [sys.executable, "-m", "jupyter", "lab", *options, *["--allow-root"] * (os.geteuid() == 0)]
    log = folder.parent / "log"                    # a pipe that nobody reads would fill up
    server = subprocess.Popen(command, cwd=folder, env=environment, stderr=log.open("w"))
    while not (address := re.search(r"http://localhost:\d+/", log.read_text())):
        assert server.poll() is None, log.read_text()
        time.sleep(0.2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"] * (os.geteuid() == 0))
        page = browser.new_page(viewport={"width": 1280, "height": 900})

        def open_page(path):
            page.goto(f"{address[0]}lab/tree/my/{path}?reset")
            page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.isReady")
            return page

        yield folder, open_page
        browser.close()
    server.terminate()


def ran(page):
    """The code cells after Run All, once each of them has ended."""
    page.wait_for_function(IDLE)
    page.evaluate(RUN_ALL)                         # the promise of the command is kept when the last cell has ended
    return page.evaluate(CELLS)


def shown(page, start):
    """All that the cell that starts like that shows, run anew."""
    at = page.evaluate(CELLS.split(".filter")[0] + f".findIndex(cell => cell.getSource().startsWith({start!r}))")
    page.evaluate(f"{NOTEBOOK}.activeCellIndex = {at}")
    page.evaluate("jupyterapp.commands.execute('notebook:run-cell')")
    return json.dumps(page.evaluate(f"{NOTEBOOK}.widgets[{at}].model.sharedModel.getOutputs()"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_every_cell_of_a_chapter_runs(lab, chapter):
    page = lab[1](os.path.basename(chapter.path))
    cells = ran(page)
    assert [cell["source"] for cell in cells for one in cell["outputs"] if one["output_type"] == "error"] == []
    assert sum(bool(cell["outputs"]) for cell in cells) > len(cells) / 2
    page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")


def test_a_typed_prediction_is_compared(lab):
    page = lab[1]("00_start_here.ipynb")
    ran(page)
    shown(page, "my_tokens")
    page.locator(".jp-Cell.jp-mod-active .cm-content span", has_text="None").first.dblclick()
    page.keyboard.type("12")
    shown(page, "my_tokens")
    assert "you said 12" in shown(page, "largest = ")


def test_an_exercise_fails_then_passes_and_its_curve_appears(lab):
    """The answer is written into the file in JupyterLab's editor, as the chapter asks."""
    folder, open_page = lab
    name, page = "ex06_fa2_inner_loop", open_page("06_flash_attention_2.ipynb")
    ran(page)
    plot = "Ns = "
    before = shown(page, plot)
    assert "passed" not in shown(page, f'check("{name}")')
    solution = (folder / f"solutions/{name}.py").read_text(encoding="utf-8")
    for text, verdict in [(solution.replace("/ l", "* l"), "not yet"), (solution, "passed")]:
        page = open_page(f"exercises/{name}.py")
        page.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(text)
        page.keyboard.press("Control+S")
        page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
        page = open_page("06_flash_attention_2.ipynb")         # its kernel has been kept
        page.wait_for_function(IDLE)
        assert verdict in shown(page, f'check("{name}")')
    assert shown(page, plot) != before
