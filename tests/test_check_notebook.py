"""The checker in a real notebook kernel: functions and Triton kernels from cells, panels, an endless loop, Run All."""

import re
import sys

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from flashlab_course import workspace
from flashlab_course.check import form

pytest.importorskip("triton")


def body_of(name):
    """A solution as a learner would type it into a cell."""
    return re.sub(r'^""".*?"""\n', "", form.exercise(name).parsed.text, count=1, flags=re.DOTALL)


WRONG_MERGE = body_of("ex03_merge").replace("alpha * l_a + beta * l_b", "l_a + l_b")
WRONG_KERNEL = body_of("ex10_triton_forward").replace("O_i = alpha[:, None] * O_i + tl.dot", "O_i = O_i + tl.dot")
NARROW_KERNEL = (body_of("ex10_triton_forward").replace("i.to(tl.int64) * B_r", "i * B_r")
                 .replace("tl.arange(0, B_c).to(tl.int64)", "tl.arange(0, B_c)"))

CELLS = [
    "from flashlab_course.check import check",
    'check("ex03_merge")',
    body_of("ex03_merge") + '\ncheck("ex03_merge", merge)',
    WRONG_MERGE + '\ncheck("ex03_merge", merge)',
    'def merge(state_a, state_b):\n    while True:\n        pass\n\ncheck("ex03_merge", merge)',
    'def merge(state_a, state_b):\n    O_a, m_a, l_a = state_a\n    return O_a @ m_a\n\ncheck("ex03_merge", merge)',
    body_of("ex10_triton_forward"),
    'check("ex10_triton_forward", fa2_kernel)',
    WRONG_KERNEL,
    'check("ex10_triton_forward", fa2_kernel)',
    NARROW_KERNEL,
    'check("ex10_triton_forward", fa2_kernel)',
    "1 + 1",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    workspace.fresh_root(folder)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    kernel = AsyncKernelManager(kernel_name="python3")
    kernel.kernel_spec.argv[0] = sys.executable
    client = NotebookClient(notebook, km=kernel, timeout=120, extra_arguments=["--IPKernelApp.log_level=40"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHLAB_ROOT", str(folder))
        client.execute()                                     # raises if a cell does: Run All has to reach the end
    return [cell.outputs for cell in notebook.cells]


def panel(outputs, n):
    [output] = outputs[n]
    assert output.output_type == "execute_result", "the panel is the cell's result"
    assert "flashlab-check" in output.data["text/html"], "no panel"
    return output.data["text/plain"]


def test_run_all_reaches_the_end(outputs):
    assert outputs[-1][0].data["text/plain"] == "2"


def test_the_stub_is_a_panel_not_an_error(outputs):
    assert "ex03_merge: not implemented yet" in panel(outputs, 1)


def test_a_function_from_a_cell_passes_and_shows_the_solution(outputs):
    assert "ex03_merge: passed" in panel(outputs, 2)
    assert "One way to write it" in outputs[2][0].data["text/html"]


def test_its_mistake_is_named(outputs):
    assert "l_a and l_b were added without being rescaled" in panel(outputs, 3)


def test_an_endless_loop_is_stopped(outputs):
    text = panel(outputs, 4)
    assert "stopped after 3 seconds" in text and "your cell, line" in text


def test_an_exception_is_shown_with_the_cells_line(outputs):
    text = panel(outputs, 5)
    assert "your cell, line 3, in merge: return O_a @ m_a" in text and "Traceback" not in text and "/tmp" not in text


def test_a_triton_kernel_from_a_cell(outputs):
    assert "ex10_triton_forward: passed" in panel(outputs, 7)
    assert "O_i was not multiplied by alpha when the maximum grew" in panel(outputs, 9)
    assert "too few beyond 2³¹ elements" in panel(outputs, 11)
