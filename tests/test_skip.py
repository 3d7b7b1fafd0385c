"""Where something is missing a notebook says so once, skips its cells, and still runs to the end."""

import subprocess
import sys
from pathlib import Path

import pytest

from flashlab_course.chapters import CHAPTERS
from flashlab_course.skip import skip_the_rest

ROOT = Path(__file__).resolve().parent.parent

# Runs a source's cells one after the other, as Run All does, and stops at the first that fails.
RUN_ALL = """
import sys, jupytext, flashlab
{before}
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in jupytext.read(sys.argv[1]).cells:
    if cell.cell_type == "code":
        shell.run_cell(cell.source).raise_error()
print("reached the end")
"""


def run_all(source, before):
    command = [sys.executable, "-c", RUN_ALL.format(before=before), source]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "notebooks", timeout=120)


@pytest.mark.parametrize("chapter", [one for one in CHAPTERS if one.needs_triton], ids=lambda chapter: chapter.name)
def test_without_triton_the_chapter_says_so_and_reaches_the_end(chapter):
    """Fails on macOS and Windows otherwise: the first cell that imports triton would end Run All with a traceback."""
    done = run_all(f"src/{chapter.number}_{chapter.name}.py", "sys.modules['triton'] = None")
    assert done.stdout.endswith("reached the end\n"), done.stdout[-2000:] + done.stderr
    assert "Triton" in done.stdout


def test_without_results_the_benchmarks_say_how_to_make_them():
    before = "from flashlab_course import bench"
    before += "\ndef missing(name='', *_): raise FileNotFoundError(f'{bench.ROOT}/results has no {name}')"
    before += "\nbench.load_results = bench.live_or_recorded = missing"
    done = run_all("src/16_benchmarks.py", before)
    assert done.stdout.endswith("reached the end\n"), done.stdout[-2000:] + done.stderr
    assert "There are no results to plot" in done.stdout and str(ROOT) not in done.stdout


def test_outside_a_notebook_it_only_prints(capsys):
    skip_the_rest("It rains.")
    assert capsys.readouterr().out.startswith("It rains. ")
