"""my/: the learner's own copies of the notebooks and the stubs. Git ignores that folder, so that an update never meets
a learner's work.

    python -m flashlab_course.workspace                 write what is missing there, renew what has changed
    python -m flashlab_course.workspace --move          before an update: move answers out of files that git knows
    python -m flashlab_course.workspace --since REV     after an update from REV: follow renamed files, say what is new
"""

import argparse
import ast
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flashlab_course.check import form, progress, source, stubs

LEARNERS = ("exercises/*.py", "notebooks/*.ipynb")


def renew():
    """Write what is missing in my/ and renew what has changed. Returns what there is to say, one line a file."""
    notebooks = sorted((source.root() / "notebooks").glob("[0-9]*.ipynb"))
    said = [*map(_renew_exercise, form.names()), *map(_renew_notebook, notebooks)]
    return [line for line in said if line]


def fresh_root(folder):
    """Fill an empty folder that the checker can take for the repository (FLASHLAB_ROOT): solutions, the chapters'
    texts, a stub of each exercise, and nobody's progress."""
    for part in ("solutions", "notebooks/src"):
        shutil.copytree(source.root() / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in form.names():
        source.put(folder / source.shown_path(name), stubs.stub(name))


# ---- exercises

def _renew_exercise(name):
    path, new, mine = source.exercise_path(name), stubs.stub(name), stubs.present(name)
    old = stubs.written_path(name).read_text(encoding="utf-8") if stubs.written_path(name).exists() else None
    if mine is None or mine in (old, new):
        if mine != new or old != new:
            stubs.write(name)
        return f"{path.name}: the new stub" if mine is not None and mine != new else ""
    if old == new:
        return ""
    merged, clean = _merged(mine, old, new)
    kept = "" if clean else f"; as it was: {source.set_aside(path, 'mine').name}"
    stubs.write(name, merged)
    if merged is None:
        return f"{path.name}: the new stub, for it has changed where you wrote{kept}"
    return f"{path.name}: your lines in the new stub{kept}"


def _merged(mine, old, new):
    """(the new stub with what was written into the old one, was there no conflict?); (None, False) if it is no Python.
    Where both have changed, the learner's lines stand."""
    if old is None:
        return None, False
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("mine", "old", "new")]
        for file, text in zip(files, (mine, old, new), strict=True):
            file.write_text(text, encoding="utf-8")
        clean, text = _git("merge-file", "-p", *files)
        if not clean:
            _, text = _git("merge-file", "-p", "--ours", *files)
    with contextlib.suppress(SyntaxError):
        ast.parse(text)
        return text or None, clean                     # no text: there is no git
    return None, False


# ---- notebooks: a cell's id is made of its text, so a cell that was written into no longer has its own

def _renew_notebook(path):
    place = source.root() / source.MY / path.name
    new = working_copy(json.loads(path.read_text(encoding="utf-8")), path.parent.name)
    if not place.exists():
        source.put(place, _text(new))
        return ""
    try:
        mine = json.loads(place.read_text(encoding="utf-8"))
        merged, yours = _with_cells_of(mine, new)
    except (OSError, ValueError, KeyError, TypeError):
        kept = source.set_aside(place, "broken")
        source.put(place, _text(new))
        return f"{path.name}: written anew, the old one could not be read and is kept as {kept.name}"
    if [cell["id"] for cell in mine["cells"]] == [cell["id"] for cell in merged["cells"]]:
        return ""
    source.put(place, _text(merged))
    return f"{path.name}: renewed" + (f", with {yours} cell{'s' * (yours > 1)} of yours" if yours else "")


def working_copy(notebook, folder="notebooks"):
    """The notebook without outputs, for my/: its links to the exercises lead to the learner's own."""
    seen = {}
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace("](../exercises/", "](exercises/")
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        digest = _digest(cell)
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    return notebook


def _with_cells_of(mine, new):
    """(the new notebook with every cell that the learner has written or changed and the outputs of the others, their
    number). A cell that has changed on both sides stands before the new one."""
    known, added, last, yours = {cell["id"]: cell for cell in new["cells"]}, {}, "", 0
    for cell in mine["cells"]:
        cell["source"] = "".join(cell["source"])
        changed = cell["id"].partition("-")[0] != _digest(cell)
        yours += changed
        if cell["id"] in known:
            last = cell["id"]
            known[last].update(cell)
        elif changed:
            added.setdefault(last, []).append(cell)
    cells = [*added.get("", ()), *(one for cell in new["cells"] for one in (cell, *added.get(cell["id"], ())))]
    return new | {"cells": cells}, yours


def _digest(cell):
    return hashlib.sha1(f"{cell['cell_type']}\n{cell['source']}".encode()).hexdigest()[:10]


def _text(notebook):
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


# ---- an update

def move():
    """Move what was written into notebooks/ and exercises/ themselves to my/, so that git can update them."""
    said = []
    for path in map(Path, _git("diff", "--name-only", "HEAD", "--", *LEARNERS)[1].splitlines()):
        here, my = source.root() / path, source.root() / source.MY
        there = my / path.name if path.suffix == ".ipynb" else my / path
        if not here.exists():
            continue
        if there.exists():
            source.set_aside(there, "mine")
        source.put(there, here.read_text(encoding="utf-8"))
        if path.suffix == ".py":
            source.put(stubs.written_path(path.stem), _git("show", f"HEAD:{path}")[1])
        _git("checkout", "-q", "HEAD", "--", path)
        said.append(f"{path}: what you wrote there is now in {there.relative_to(source.root())}")
    return said


def follow(since):
    """Rename in my/ what was renamed since a commit, with its progress. Returns what is new, one line each."""
    said = []
    renamed = _git("diff", "-M30%", "--diff-filter=R", "--name-status", since, "--", *LEARNERS)[1]
    for line in renamed.splitlines():
        old, new = (Path(path) for path in line.split("\t")[1:])
        for folder in (".stubs", "exercises", ""):
            place = source.root() / source.MY / folder
            with contextlib.suppress(OSError):
                (place / old.name).rename(place / new.name)
        progress.change(progress.FILE, lambda kept, old=old, new=new:
                        {new.stem if name == old.stem else name: how for name, how in kept.items()})
        said.append(f"{old.name} is called {new.name} now")
    count, date = _git("rev-list", "--count", f"{since}..HEAD")[1], _git("show", "-s", "--format=%as", since)[1]
    added = _git("diff", "-M30%", "--diff-filter=A", "--name-only", since, "--", *LEARNERS)[1].split()
    commits = f"{count.strip()} commit{'s' * (count.strip() != '1')} since {date.strip()}"
    return [commits, *said, *(f"{Path(path).name} is new" for path in added)]


def _git(*words):
    """(did it succeed?, its output); (False, "") if there is no git"""
    try:
        found = subprocess.run(["git", *map(str, words)], cwd=source.root(), capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return False, ""
    return found.returncode == 0, found.stdout


def main(argv=None):
    parser = argparse.ArgumentParser("python -m flashlab_course.workspace", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--move", action="store_true")
    parser.add_argument("--since", metavar="REV")
    args = parser.parse_args(argv)
    try:
        said = move() if args.move else [*(follow(args.since) if args.since else ()), *renew()]
    except source.SourceError as error:                # run from a wheel, which has no exercises
        sys.exit(str(error))
    print("\n".join(said), end="\n" * bool(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
