"""my/: a learner works there, the course is updated, and nothing of theirs is lost."""

import json
import subprocess

import nbformat
import pytest

from flashlab_course import workspace
from flashlab_course.check import checker, form, progress, source, stubs

NAMES = ("ex00_score_tile", "ex01_attention", "ex03_merge", "ex03_safe_softmax")
NEW = "def ", "# new\ndef "      # a change beside the regions
CHAPTERS = ("01_naive_attention", "03_online_softmax")


def git(folder, *words):
    found = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True,
                           capture_output=True, encoding="utf-8")
    return found.stdout.strip()


def change(path, *swaps):
    text = path.read_text(encoding="utf-8")
    for old, new in swaps:
        assert old in text, (path, old)
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def origin(tmp_path):
    """The repository, as small as it can be."""
    folder, here = tmp_path / "origin", source.root()
    for name in NAMES:
        for path in (f"solutions/{name}.py", f"solutions/{name}{form.KNOWN}"):
            source.put(folder / path, (here / path).read_text(encoding="utf-8"))
        source.put(folder / f"exercises/{name}.py", stubs.stub(name))
    for name in CHAPTERS:
        for path in (f"notebooks/{name}.ipynb", f"notebooks/src/{name}.py"):
            source.put(folder / path, (here / path).read_text(encoding="utf-8"))
    source.put(folder / ".gitignore", "/my/\n__pycache__/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "the course")
    return folder


@pytest.fixture
def clone(origin, tmp_path, monkeypatch):
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), str(folder))
    monkeypatch.setenv("FLASHLAB_ROOT", str(folder))
    for kept in (form.names, form.exercise):           # of another root
        getattr(kept, "cache_clear", int)()
    yield folder
    form.exercise.cache_clear()


def pulled(folder):
    """What is said of an update."""
    since = git(folder, "rev-parse", "HEAD")
    said = workspace.move()
    git(folder, "pull", "-q", "--ff-only")
    form.exercise.cache_clear()
    said += [*workspace.follow(since), *workspace.renew()]
    assert git(folder, "status", "--porcelain") == "" and workspace.renew() == []
    return "\n".join(said)


def solve(name, *swaps):
    source.put(source.exercise_path(name), source.solution_text(name))
    change(source.exercise_path(name), *swaps)


def cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook.cells


def test_what_is_missing_is_written_without_outputs(clone):
    assert workspace.renew() == [] and git(clone, "status", "--porcelain") == ""
    assert stubs.present("ex03_merge") == stubs.stub("ex03_merge")
    written, tracked = cells(clone / "my/03_online_softmax.ipynb"), cells(clone / "notebooks/03_online_softmax.ipynb")
    assert any(cell.get("outputs") for cell in tracked) and not any(cell.get("outputs") for cell in written)
    assert [cell.cell_type for cell in written] == [cell.cell_type for cell in tracked]
    text = (clone / "my/03_online_softmax.ipynb").read_text(encoding="utf-8")
    assert "](exercises/ex03_merge.py)" in text and "](../exercises/" not in text


def test_an_update_keeps_answers_notebooks_and_progress(origin, clone):
    workspace.renew()
    solve("ex03_merge", ("m = torch.maximum(m_a, m_b)", "mine = m = torch.maximum(m_a, m_b)"))
    solve("ex01_attention")
    solve("ex03_safe_softmax", ("m = S.amax", "# a note of mine\n    m = S.amax"))
    for name in ("ex01_attention", "ex03_merge"):
        assert checker.check(name).passed
    mine = json.loads((clone / "my/03_online_softmax.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in mine["cells"] if cell["cell_type"] == "code"]
    code[1]["source"] += "\nmy_own = 1"
    code[2]["outputs"] = [nbformat.v4.new_output("stream", text="seen")]
    mine["cells"].insert(5, nbformat.v4.new_code_cell("added = 2"))
    (clone / "my/03_online_softmax.ipynb").write_text(json.dumps(mine), encoding="utf-8")

    git(origin, "mv", "exercises/ex01_attention.py", "exercises/ex01_formula.py")
    for end in (".py", form.KNOWN):
        git(origin, "mv", f"solutions/ex01_attention{end}", f"solutions/ex01_formula{end}")
    for folder in ("solutions", "exercises"):
        change(origin / folder / "ex01_formula.py", ("ex01_attention", "ex01_formula"))
    for name in ("ex00_score_tile", "ex03_merge"):
        change(origin / f"solutions/{name}.py", NEW)
    task = form.exercise("ex03_safe_softmax").parsed.regions[0]["task"]
    change(origin / "solutions/ex03_safe_softmax.py", (task, "the softmax, in other words"))
    chapter = json.loads((origin / "notebooks/03_online_softmax.ipynb").read_text(encoding="utf-8"))
    chapter["cells"][0]["source"] = ["A new beginning\n"]
    chapter["cells"].append(nbformat.v4.new_markdown_cell("A new end"))
    (origin / "notebooks/03_online_softmax.ipynb").write_text(json.dumps(chapter), encoding="utf-8")
    git(origin, "commit", "-qam", "better")

    said = pulled(clone)
    assert "1 commit since" in said and "ex01_attention.py is called ex01_formula.py now" in said
    assert "ex03_merge.py: your lines in the new stub\n" in said and "ex03_safe_softmax.mine.py" in said, said
    assert "# new" in stubs.present("ex03_merge") and "mine = m" in stubs.present("ex03_merge")
    assert "# a note of mine" in stubs.present("ex03_safe_softmax")
    assert "# new" in stubs.present("ex00_score_tile") and not stubs.own_text("ex00_score_tile")
    for name in ("ex01_formula", "ex03_merge", "ex03_safe_softmax"):
        assert checker.answer(form.exercise(name)).passed, stubs.present(name)
    assert progress.of("ex01_formula")["passed"] and progress.of("ex03_merge")["passed"]
    now = cells(clone / "my/03_online_softmax.ipynb")
    assert now[0].source == "A new beginning\n" and now[-1].source == "A new end"
    assert [sum(text in cell.source for cell in now) for text in ("my_own = 1", "added = 2")] == [1, 1]
    assert any(cell.get("outputs") and cell.outputs[0].text == "seen" for cell in now)
    cells(clone / "my/01_naive_attention.ipynb")


def test_answers_in_files_that_git_knows_move_to_my(origin, clone):
    """As someone has them who began before there was my/."""
    (clone / "exercises/ex03_merge.py").write_text(source.solution_text("ex03_merge"), encoding="utf-8")
    change(clone / "notebooks/03_online_softmax.ipynb", ("import torch", "import torch, math"))
    for folder in ("solutions", "exercises"):
        change(origin / f"{folder}/ex03_merge.py", NEW)
    git(origin, "commit", "-qam", "better")
    said = pulled(clone)
    assert "exercises/ex03_merge.py: what you wrote there is now in my/exercises/ex03_merge.py" in said
    assert checker.answer(form.exercise("ex03_merge")).passed and "# new" in stubs.present("ex03_merge")
    assert any("import torch, math" in cell.source for cell in cells(clone / "my/03_online_softmax.ipynb"))


def test_without_git_an_answer_is_kept_beside_the_new_stub(clone, monkeypatch, tmp_path):
    """A course that was downloaded, not cloned, on a machine that has no git."""
    workspace.renew()
    solve("ex03_merge")
    change(clone / "solutions/ex03_merge.py", NEW)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "as it was: ex03_merge.mine.py" in "".join(workspace.renew()) and workspace.renew() == []
    assert "torch.maximum" in (clone / "my/exercises/ex03_merge.mine.py").read_text(encoding="utf-8")
    assert stubs.present("ex03_merge") == stubs.stub("ex03_merge")


def test_a_full_disk_costs_no_answer(clone, monkeypatch):
    workspace.renew()
    solve("ex03_merge", ("m = torch.maximum(m_a, m_b)", "mine = m = torch.maximum(m_a, m_b)"))
    change(clone / "solutions/ex03_merge.py", NEW)
    room = [True]

    def put(path, text, real=source.put):
        if not room:
            raise OSError(28, "No space left on device")
        room.clear()
        real(path, text)

    monkeypatch.setattr(source, "put", put)
    with pytest.raises(OSError, match="No space"):
        workspace.renew()
    assert "mine = m" in stubs.present("ex03_merge")


def test_a_notebook_that_cannot_be_read_is_kept_beside_a_new_one(clone):
    workspace.renew()
    (clone / "my/03_online_softmax.ipynb").write_text("<<<<<<< HEAD", encoding="utf-8")
    assert "is kept as 03_online_softmax.broken.ipynb" in workspace.renew()[0]
    assert (clone / "my/03_online_softmax.broken.ipynb").read_text(encoding="utf-8") == "<<<<<<< HEAD"
    cells(clone / "my/03_online_softmax.ipynb")
