"""A learner goes back: any cell may run twice, and any section again from its heading, after whatever came later."""

import dis
import json
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "notebooks/src").glob("*.py"))


def sections(source):
    """[(heading, its code cells)]"""
    found = []
    for cell in jupytext.read(source).cells:
        if cell.cell_type == "code":
            found[-1][1].append(cell.source)
        else:
            found += [(heading, []) for heading in re.findall(r"^#+ .*", cell.source, re.MULTILINE)]
    return found


def reads_and_bindings(code, functions):
    """(names that compiled code takes from outside, as do functions it names, {name bound: what it imports or None})"""
    reads, bound, module, value = set(), {}, None, None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            reads |= ({step.argval} | functions.get(step.argval, set())) - bound.keys()
        elif hasattr(step.argval, "co_name"):
            inner = functions[step.argval.co_name] = reads_and_bindings(step.argval, functions)[0]
            reads |= inner - bound.keys()
        elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound[step.argval] = value
        module = step.argval if step.opname == "IMPORT_NAME" else module
        value = (module, step.argval) if step.opname.startswith("IMPORT") else None
    return reads, bound


def rebound(notebook):
    """What breaks the rule: a name that a cell reads from its own section is bound once in that section, one that it
    reads from another section once in the notebook. The same import again counts once; the check of an exercise
    binds the names that a learner writes."""
    functions, cells = {}, []
    for at, one in ((at, one) for at, (_, code) in enumerate(notebook) for one in code):
        reads, bound = reads_and_bindings(compile(one, "", "exec"), functions)
        for exercise in re.findall(r'^check\("(\w+)"', one, re.MULTILINE):
            stub = (ROOT / f"solutions/{exercise}.py").read_text(encoding="utf-8")
            bound |= dict.fromkeys(re.findall(r"^def (\w+)", stub, re.MULTILINE), exercise)
        cells.append((at, reads, bound))
    for here, (at, reads, _) in enumerate(cells):
        for name in sorted(reads):
            places = [(n, section, bound[name] or n) for n, (section, _, bound) in enumerate(cells) if name in bound]
            own = any(section == at for n, section, _ in places if n < here)
            if len({value for _, section, value in places if section == at or not own}) > 1:
                yield f"{name}, read in {notebook[at][0]!r}, bound in {[notebook[there][0] for _, there, _ in places]}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_name_that_another_cell_reads_is_not_bound_again(source):
    assert not list(rebound(sections(source)))


# Each cell twice in a row, then the sections from the last to the first. From the same random numbers a cell says in
# the end what it said at first, but for lines with what was timed or measured, or with rounding of float64.
GO_BACK = r"""
import json, re, sys, flashlab, torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
def run(cell, state):
    torch.set_rng_state(state)
    with capture_output() as shown:
        InteractiveShell.instance().run_cell(cell).raise_error()
    varies = r"/s|\bm?s\b|MFU|measured here|e-1\d" + "|^Out" * ("Measured here" in cell)     # such a picture's title
    return [line for line in shown.stdout.splitlines() if not re.search(varies, line)]
notebook = [[(cell, []) for cell in cells] for _, cells in json.load(sys.stdin)]
for cell, said in sum(notebook, []):
    state = torch.get_rng_state()
    said += state, run(cell, state)
    assert run(cell, state) == said[1], cell
for cell, (state, words) in sum(reversed(notebook), []):
    assert run(cell, state) == words, cell
"""


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_every_cell_runs_twice_and_every_section_again(source, sandbox):
    done = subprocess.run([sys.executable, "-c", GO_BACK], input=json.dumps(sections(source)), text=True,
                          capture_output=True, cwd=ROOT / "notebooks", timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
