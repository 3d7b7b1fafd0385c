"""Build and check the notebooks. The source of truth is notebooks/src/NN_name.py (jupytext py:percent);
an appendix has a letter behind its number, 09b.

Prose takes its figures from the records: {{expression}} in a markdown cell becomes the value that the expression has
after the cells above it, {{ratio:.2f}} with a format.

    python notebooks/build.py              convert every source, run it from the top, write notebooks/NN_name.ipynb
    python notebooks/build.py 03 06        only these
    python notebooks/build.py --check      write nothing: run every source from the top and hold the built notebooks
                                           against the sources
    python notebooks/build.py --record results/notebooks_<device>.json
                                           write nothing but this file: that the built notebooks ran here, and how long

Every run has fresh stubs in a folder of its own. A learner works in my/, and nothing here touches that.
"""

import argparse
import base64
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

sys.modules["rfc3987_syntax"] = None       # jsonschema imports it, for 5 s, to check addresses: no notebook has any

import nbformat  # noqa: E402
from jupyter_client.manager import AsyncKernelManager  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError  # noqa: E402
from PIL import Image  # noqa: E402

HERE = Path(__file__).resolve().parent
MAX_CODE_LINES = 20
MAX_CELL_SECONDS = 900
# What an output must not show: the paths of the machine it was built on, and errors nobody caught.
MACHINE_PATH = re.compile(
    r"(?<![\w.:/])/(?:root|home|Users|tmp|private|content)/\S+|(?:site|dist)-packages/\S*|[A-Z]:\\Users\\\S+"
)
VALUE = re.compile(r"{{(.+?)}}", re.DOTALL)               # {{expression}} in prose


class NotebookError(Exception):
    """What is wrong with a notebook, in words for the author."""


def find(folder, numbers=()):
    """The sources to work on: all, or those whose number is given. Each number must name a source."""
    sources = sorted((folder / "src").glob("[0-9][0-9]*_*.py"))
    known = [number_of(source) for source in sources]
    for number in numbers:
        if number not in known:
            raise SystemExit(f"build.py: argument NN: no notebook {number!r}; expected one of {' '.join(known)}")
    return [source for source in sources if not numbers or number_of(source) in numbers]


def number_of(source):
    """"09" of 09_triton_basics.py, "09b" of 09b_what_the_compiler_made.py."""
    return source.name.partition("_")[0]


def convert(source):
    """The notebook of a source file, not yet run: stable cell ids, and no metadata that changes from build to build."""
    import jupytext  # here, so that --record runs where it is not installed

    notebook = jupytext.read(source)
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        raise NotebookError("the header must name the kernelspec python3: JupyterLab asks for a kernel otherwise")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
                         "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5        # 4.5 brought cell ids
    seen = {}
    for cell in notebook.cells:
        digest = hashlib.sha1(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[digest] = seen.get(digest, 0) + 1               # by content: a new cell leaves the ids of the others alone
        cell.metadata.pop("lines_to_next_cell", None)        # jupytext's note on blank lines in the source
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    return notebook


def check_style(notebook):
    for cell in notebook.cells:
        lines = cell.source.count("\n") + 1
        if cell.cell_type == "code" and lines > MAX_CODE_LINES:
            raise NotebookError(f"a code cell has {lines} lines, at most {MAX_CODE_LINES} are allowed:\n"
                                f"{indent(cell.source)}")


@contextlib.contextmanager
def warm_kernels():
    """Within, a kernel is forked from a process that has imported what all notebooks import, which takes seconds.

    That is not flashlab: whether a notebook imports it before Triton is for its own kernel to see.
    """
    server = multiprocessing.get_context("forkserver")
    preloaded = "__main__", "torch", "matplotlib.pyplot", "ipykernel.kernelapp", "ipykernel.debugger"
    server.set_forkserver_preload(list(preloaded))

    def launch(command, cwd, env, **_):
        """Stands for the Popen of the command `python -m ipykernel_launcher ...`."""
        process = server.Process(target=be_a_kernel, args=(command[3:], cwd, env))
        process.start()
        while os.getpgid(process.pid) == os.getpgid(0):    # until it has a group of its own: who ends it ends its group
            time.sleep(0.01)
        process.poll, process.wait = lambda: process.exitcode, process.join
        process.stdin = process.stdout = process.stderr = None
        return process

    settings = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    with mock.patch("jupyter_client.provisioning.local_provisioner.launch_kernel", launch), \
            mock.patch.dict(os.environ, settings):
        yield


def be_a_kernel(arguments, folder, environment):
    from ipykernel.kernelapp import launch_new_instance

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.setsid()
    launch_new_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])    # it ends with its parent


def asking(cell):
    """Code that prints the values of each {{expression}} in a cell; "" if it has none."""
    found = VALUE.findall(cell.source) if cell.cell_type == "markdown" else []
    strings = ", ".join(f"f'''{{{one}}}'''" for one in found)
    return f"import json; print(json.dumps([{strings}]))" if found else ""


def ask_for_values(notebook):
    """Put a cell before each cell of prose with an {{expression}}, which prints the values."""
    cells = []
    for cell in notebook.cells:
        if code := asking(cell):
            cells.append(nbformat.v4.new_code_cell(code, metadata={"values": True}))
        cells.append(cell)
    notebook.cells = cells


def fill_in_values(notebook):
    """The values in place of each {{expression}}, and without the cells that printed them."""
    values, count = iter(()), 0
    for cell in notebook.cells:
        if cell.metadata.get("values"):
            values = iter(json.loads(cell.outputs[0].text))
        elif cell.cell_type == "markdown":
            cell.source = VALUE.sub(lambda _, values=values: next(values), cell.source)
    notebook.cells = [cell for cell in notebook.cells if not cell.metadata.get("values")]
    for cell in notebook.cells:
        if cell.get("execution_count"):
            count += 1
            for counted in (cell, *(one for one in cell.outputs if "execution_count" in one)):
                counted.execution_count = count


def run(notebook, folder):
    """Run every cell from the top, in `folder`, with this very Python. The outputs and values stay in `notebook`."""
    ask_for_values(notebook)
    kernel = AsyncKernelManager(kernel_name="python3")
    kernel.kernel_spec.argv[0] = sys.executable              # whatever kernel a "python3" in the home directory may be
    client = NotebookClient(notebook, km=kernel, timeout=MAX_CELL_SECONDS, record_timing=False,
                            resources={"metadata": {"path": str(folder)}},
                            extra_arguments=["--IPKernelApp.log_level=40"])     # errors only
    client.owns_km = True                                    # else the kernel lives on until this process ends
    quiet = os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}    # else a warning about the debugger in the output
    try:
        with untouched_exercises() as root:
            client.execute(env=quiet | {"FLASHLAB_ROOT": str(root)})
    except CellExecutionError as error:
        raise NotebookError(f"a cell raised {error.ename}: {error.evalue}\n{indent(plain(str(error)))}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(plain(str(error))) from None
    fill_in_values(notebook)
    notebook.metadata["language_info"] = {"name": "python"}  # the kernel's answer carries its exact version
    for output in (one for cell in notebook.cells for one in cell.get("outputs", ())):
        if "image/png" in output.get("data", ()):
            output.metadata.setdefault("image/png", {})["alt"] = output.data["text/plain"]
            output.data["image/png"] = with_a_palette(output.data["image/png"])
    check_outputs(notebook)


def with_a_palette(png):
    """The same picture in 128 colors, a third of the size. Both are text in base64, as a notebook holds them."""
    found = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(found, "PNG", optimize=True)
    return base64.b64encode(found.getvalue()).decode()


@contextlib.contextmanager
def untouched_exercises():
    """A folder for the checker in place of the repository: the solutions, a stub of each, and nobody's progress."""
    from flashlab_course.workspace import fresh_root  # here: it imports PyTorch

    with tempfile.TemporaryDirectory(prefix="flashlab_") as folder:
        fresh_root(Path(folder))
        yield Path(folder)


def check_outputs(notebook):
    """Every code cell ran, and shows neither an error nor this machine's paths."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if cell.source.strip() and cell.execution_count is None:
            raise NotebookError(f"a code cell was never run:\n{indent(cell.source)}")
        for output in cell.outputs:
            text = output_text(output)
            if output.output_type == "error" or "Traceback (most recent call last)" in text:
                raise NotebookError(f"a cell shows a traceback:\n{indent(cell.source)}\n{indent(plain(text))}")
            if path := MACHINE_PATH.search(text.replace(str(HERE.parent), "/home/flashlab")):
                raise NotebookError(f"a cell shows a path of the machine it ran on, {path[0]!r}:\n"
                                    f"{indent(cell.source)}")
    if not any(cell.get("outputs") for cell in notebook.cells):
        raise NotebookError("no cell has an output")


def output_text(output):
    """All text that an output shows: streams, plain results, HTML, errors."""
    parts = [output.get("text", ""), "\n".join(output.get("traceback", []))]
    parts += [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]
    return "\n".join(parts)


def built(source_notebook, path):
    """The built notebook at `path`. Raises: NotebookError if it does not hold the cells of its source"""
    if not path.exists():
        raise NotebookError(f"{path.name} is not built: make notebooks")
    try:
        return check_agreement(source_notebook, path.name, path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotebookError(f"{path.name} is no notebook: {error}") from None


def check_agreement(source_notebook, name, text):
    """The notebook in `text`, which holds the cells of its source."""
    built = nbformat.reads(text, as_version=4)
    expected = [(cell.cell_type, cell.source) for cell in source_notebook.cells]
    found = [(cell.cell_type, cell.source) for cell in built.cells]
    for n, (mine, theirs) in enumerate(zip(expected, found, strict=False)):
        if mine[0] != theirs[0] or not agree(mine[1], theirs[1]):
            raise NotebookError(f"cell {n} differs from the source; edit the source, then make notebooks\n"
                          f"  source:\n{indent(mine[1])}\n  built:\n{indent(theirs[1])}")
    if len(expected) != len(found):
        raise NotebookError(f"{len(expected)} cells in the source, {len(found)} built; make notebooks")
    if built.metadata.get("kernelspec", {}).get("name") != "python3":
        raise NotebookError(f"{name} names no kernelspec python3; make notebooks")
    return built


def agree(source, text):
    """Is a cell's text that of its source, with any values in place of each {{expression}}?"""
    return re.fullmatch(".+?".join(map(re.escape, VALUE.split(source)[::2])), text, re.DOTALL) is not None


def drop_requests(notebook):
    """Take out what `compare` says where no prediction was typed: it is for those who can run the cell."""
    from flashlab_course.lesson.predictions import ASK  # here: it imports PyTorch

    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = re.sub(f".*: {re.escape(ASK)}\n", "", output.text)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("text") != ""]


def hide_answers(notebook):
    """Collapse every output until the learner runs its cell: JupyterLab opens it then. Other viewers show every output.

    In place of a collapsed output JupyterLab prints the first line of the cell's first output, often the answer: an
    output that holds nothing goes before it. A cell tagged "shown" is left open.
    """
    for cell in notebook.cells:
        if cell.get("outputs") and "shown" not in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"outputs_hidden": True}
            if cell.outputs[0].get("data") != {}:
                cell.outputs.insert(0, nbformat.v4.new_output("display_data"))


def build(source, folder):
    notebook = convert(source)
    check_style(notebook)
    run(notebook, folder)
    drop_requests(notebook)
    hide_answers(notebook)
    nbformat.write(notebook, folder / f"{source.stem}.ipynb")


def check(source, folder):
    notebook = convert(source)
    check_style(notebook)
    path = folder / f"{source.stem}.ipynb"
    check_outputs(built(notebook, path))
    run(notebook, folder)
    built(notebook, path)                                    # with the values of now: prose and record agree


def rerun(source, folder):
    """Run the notebook a learner opens, as it was built."""
    run(nbformat.read(folder / f"{source.stem}.ipynb", as_version=4), folder)


def check_orphans(folder):
    """Every notebook has a source."""
    for path in folder.glob("*.ipynb"):
        if not (folder / "src" / f"{path.stem}.py").exists():
            raise NotebookError(f"{path.name} has no source in {folder.name}/src")


def indent(text):
    return "\n".join(f"    {line}" for line in text.split("\n"))


def plain(text):
    """Without the colour codes of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def run_all(step, sources, folder, at_once=1):
    """step(source, folder) for each; prints its seconds. Returns {name: seconds} and the names that failed."""
    seconds, failed = {}, []

    def run_one(source):
        start = time.perf_counter()
        try:
            step(source, folder)
        except NotebookError as problem:
            failed.append(source.stem)
            print(f"{source.stem}: FAILED: {problem}", flush=True)
        seconds[source.stem] = round(time.perf_counter() - start, 1)
        print(f"{source.stem}: {seconds[source.stem]:.1f} s", flush=True)

    with ThreadPoolExecutor(at_once) as pool:            # each notebook runs in a process of its own, this one waits
        list(pool.map(run_one, sources))
    return seconds, failed


def record(path, seconds, failed):
    from flashlab_course.bench.results import provenance

    result = {"what": "each built notebook run from the top", "seconds": seconds, "failed": failed}
    result["provenance"] = provenance(f"python notebooks/build.py --record {path}")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path}")


def main(argv=None, folder=HERE):
    parser = argparse.ArgumentParser(
        "build.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", metavar="NN",
                        help="as a notebook's name begins: 09, 09b; all if none is given")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="write nothing; fail if a notebook fails or is out of date")
    mode.add_argument("--record", type=Path, metavar="JSON", help="write how long each built notebook ran here")
    args = parser.parse_args(argv)
    step = check if args.check else rerun if args.record else build
    start = time.perf_counter()
    at_once = min(2, os.cpu_count()) if args.check else 1       # who builds or records wants times of an idle machine
    if at_once > 1:                                             # with more threads than cores, threads mostly wait
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    sources = find(folder, args.numbers)
    warm = args.check and len(sources) > 1 and sys.platform == "linux"
    with warm_kernels() if warm else contextlib.nullcontext():
        seconds, failed = run_all(step, sources, folder, at_once)
    if args.check:
        try:
            check_orphans(folder)
        except NotebookError as problem:
            failed.append(str(problem))
    if args.record:
        record(args.record, seconds, failed)
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all fine"
    print(f"{len(seconds)} notebooks in {time.perf_counter() - start:.0f} s; {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
