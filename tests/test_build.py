"""notebooks/build.py, on a notebook of three cells: what it must find, it finds."""

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pytest

from flashlab_course.lesson.predictions import ASK

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("build", ROOT / "notebooks/build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

HEADER = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A title
"""
CELLS = """
# %%
import sys
sys.executable.rpartition("/")[2], sys.prefix == {prefix!r}

# %%
answer = 6 * 7
answer
""".replace("{prefix!r}", repr(sys.prefix))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "src").mkdir()
    write(tmp_path, HEADER + CELLS)
    return tmp_path


def write(folder, text):
    (folder / "src/00_tiny.py").write_text(text)


def built(folder):
    return nbformat.read(folder / "00_tiny.ipynb", as_version=4)


def test_build_check_and_rebuild_of_a_good_notebook(folder):
    assert build.main([], folder) == 0
    first = (folder / "00_tiny.ipynb").read_text()
    notebook = built(folder)
    assert notebook.metadata.kernelspec.name == "python3"           # without it JupyterLab opens a dialog
    assert "True" in notebook.cells[1].outputs[-1].data["text/plain"], "the kernel is not this Python"
    assert notebook.cells[2].outputs[-1].data["text/plain"] == "42"
    children = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "ipykernel_launcher" not in children, "a notebook's kernel ends with it"
    assert build.main(["--check"], folder) == 0
    assert build.main([], folder) == 0
    assert (folder / "00_tiny.ipynb").read_text() == first          # a rebuild changes nothing


def test_prose_holds_the_values_that_the_cells_above_give(folder, capsys):
    """Fails if a number in prose outlives the record that it came from."""
    record = folder / "record.json"
    record.write_text("1.46")
    load = f"import json, pathlib\nratio = json.loads(pathlib.Path({str(record)!r}).read_text())"
    text = (HEADER + CELLS + f"\n# %%\n{load}\n\n# %% [markdown]\n# {{{{'ahead' if ratio > 1 else 'behind'}}}}, "
            "{{ratio:.1f}} times, $e^{x}$\n\n# %%\nratio + 1\n")
    write(folder, text)
    assert build.main([], folder) == 0
    *_, above, prose, below = built(folder).cells
    assert prose.source == "ahead, 1.5 times, $e^{x}$"
    assert [cell.execution_count for cell in (above, below)] == [3, 4] == [3, below.outputs[-1].execution_count]
    assert build.main(["--check"], folder) == 0
    record.write_text("0.96")
    assert build.main(["--check"], folder) == 1
    assert "behind, 1.0 times" in capsys.readouterr().out
    write(folder, text.replace("ratio:.1f", "rato:.1f"))
    assert build.main([], folder) == 1 and "NameError" in capsys.readouterr().out


def test_a_collapsed_output_does_not_show_its_first_line(folder):        # JupyterLab would print it in its place
    write(folder, HEADER + CELLS + f"\n# %% tags=[\"shown\"]\nprint(answer)\nprint('six: {ASK}')\n")
    build.main([], folder)
    cells = built(folder).cells
    assert cells[2].metadata["jupyter"]["outputs_hidden"] and cells[2].outputs[0].get("data") == {}
    assert len(cells[2].outputs) == 2 and [one.text for one in cells[3].outputs] == ["42\n"], "shown without requests"
    build.hide_answers(notebook := built(folder))
    assert notebook == built(folder), "hiding twice hides more"


def test_ids_follow_content(folder):
    before = {cell.source: cell.id for cell in build.convert(folder / "src/00_tiny.py").cells}
    write(folder, HEADER + "\n# %%\nnew = 1\n" + CELLS + "\n# %%\nnew = 1\n")
    after = [(cell.source, cell.id) for cell in build.convert(folder / "src/00_tiny.py").cells]
    assert before.items() <= set(after)
    assert len({id for _, id in after}) == len(after)               # two equal cells still have two ids


def test_a_changed_source_is_found_without_touching_the_built_notebook(folder, capsys):
    build.main([], folder)
    before = (folder / "00_tiny.ipynb").read_text()
    write(folder, HEADER + CELLS.replace("6 * 7", "6 * 9"))
    assert build.main(["--check"], folder) == 1
    assert "cell 2 differs from the source" in capsys.readouterr().out
    write(folder, HEADER + CELLS + "\n# %%\n1\n")
    assert build.main(["--check"], folder) == 1
    assert "4 cells in the source, 3 built" in capsys.readouterr().out
    assert (folder / "00_tiny.ipynb").read_text() == before


def test_an_error_in_a_cell_is_shown_with_the_cell(folder, capsys, monkeypatch):
    build.main([], folder)
    write(folder, HEADER + CELLS + "\n# %%\nanswer / 0\n")
    assert build.main([], folder) == 1
    out = capsys.readouterr().out
    assert "ZeroDivisionError" in out and "answer / 0" in out and "FAILED: 00_tiny" in out
    assert len(built(folder).cells) == 3                            # the last good build stays
    write(folder, HEADER + "\n# %%\nimport os\nprint(1 / int(os.environ.get('DIVISOR', 1)))\n")
    assert build.main([], folder) == 0
    monkeypatch.setenv("DIVISOR", "0")
    assert build.main(["--check"], folder) == 1                     # only running it shows the difference
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize("cell, message", [
    ("import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    print(traceback.format_exc())", "traceback"),
    ("print('see /home/me/data')", "path of the machine"),
    ("'lib/python3.11/site-packages/torch/x.py'", "path of the machine"),
    ("'/tmp/ipykernel_1/2.py:3: UserWarning'", "path of the machine"),
    ("\n".join(f"x{n} = {n}" for n in range(21)), "21 lines"),
    ("import os\nos._exit(1)", "died"),
])
def test_what_a_notebook_must_not_show(folder, capsys, cell, message):
    write(folder, f"{HEADER}\n# %%\n{cell}\n")
    assert build.main([], folder) == 1
    assert message in capsys.readouterr().out.replace("Kernel died", "died")


def test_a_source_never_built_a_notebook_never_run_or_without_source_and_an_unknown_number(folder, capsys):
    assert build.main(["--check"], folder) == 1
    assert "00_tiny.ipynb is not built" in capsys.readouterr().out
    nbformat.write(build.convert(folder / "src/00_tiny.py"), folder / "00_tiny.ipynb")
    assert build.main(["--check"], folder) == 1 and "never run" in capsys.readouterr().out
    build.main([], folder)
    (folder / "07_lost.ipynb").write_text((folder / "00_tiny.ipynb").read_text())
    assert build.main(["--check"], folder) == 1
    assert "07_lost.ipynb has no source" in capsys.readouterr().out
    (folder / "07_lost.ipynb").unlink()
    (folder / "00_tiny.ipynb").write_text("{")
    assert build.main(["--check"], folder) == 1 and "is no notebook" in capsys.readouterr().out
    write(folder, CELLS)
    assert build.main([], folder) == 1 and "kernelspec" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no notebook '99'; expected one of 00"):
        build.main(["99"], folder)


def test_an_appendix_has_a_letter_and_a_place_of_its_own(folder):
    (folder / "src/00b_more.py").write_text(HEADER + CELLS)
    (folder / "src/01_next.py").write_text(HEADER + CELLS)
    assert [source.stem for source in build.find(folder)] == ["00_tiny", "00b_more", "01_next"]
    assert [source.stem for source in build.find(folder, ["00b"])] == ["00b_more"]
    assert [source.stem for source in build.find(folder, ["00"])] == ["00_tiny"]


def test_record_writes_seconds_and_provenance(folder, monkeypatch):
    build.main([], folder)
    before = (folder / "00_tiny.ipynb").read_text()
    bench = types.SimpleNamespace(provenance=lambda command: {"device": "a GPU", "command": command})
    monkeypatch.setitem(sys.modules, "flashlab_course.bench.results", bench)
    assert build.main(["--record", str(folder / "r.json")], folder) == 0
    result = json.loads((folder / "r.json").read_text())
    assert result["provenance"]["device"] == "a GPU" and result["failed"] == []
    assert result["provenance"]["command"].startswith("python notebooks/build.py --record")
    assert result["seconds"]["00_tiny"] > 0
    assert (folder / "00_tiny.ipynb").read_text() == before


@pytest.mark.parametrize("source", build.find(build.HERE), ids=lambda source: source.stem)
def test_built_notebooks_ran_and_show_no_error_and_no_machine_path(source):
    build.check_outputs(build.built(build.convert(source), build.HERE / f"{source.stem}.ipynb"))


def test_a_notebook_runs_beside_fresh_stubs_not_a_learners_answers(folder):
    cell = "from flashlab_course.check import check\ncheck('ex03_merge').mistake, check('ex01_attention').mistake"
    write(folder, f"{HEADER}\n# %%\n{cell}\n")
    assert build.main([], folder) == 0
    assert built(folder).cells[1].outputs[-1].data["text/plain"] == "('not_implemented', 'not_implemented')"
