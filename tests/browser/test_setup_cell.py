"""The one cell of docs/install.md for Colab, Kaggle and a rented GPU, in a Python that has what those have."""

import re
import subprocess
import venv

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.house import ROOT


def test_a_chapter_runs_behind_the_cell(tmp_path):
    [cell] = re.findall(r"```\n(!git clone .*?)```", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.DOTALL)
    torch = re.search(r"^torch==[\d.]+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)[0]
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=True)
    subprocess.run([bare / "bin/pip", "install", "-q", "ipykernel", torch], check=True)
    notebook = nbformat.read(ROOT / "notebooks/00_start_here.ipynb", as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(cell.replace("<this repository's URL>", ROOT.as_uri())))
    kernel = AsyncKernelManager(kernel_name="python3")
    kernel.kernel_spec.argv[0] = str(bare / "bin/python")
    client = NotebookClient(notebook, km=kernel, timeout=900, resources={"metadata": {"path": str(tmp_path)}})
    client.owns_km = True
    client.execute()                               # raises what a cell raises
    assert (tmp_path / "flashlab/notebooks").is_dir() and any(one.get("outputs") for one in notebook.cells[1:])
