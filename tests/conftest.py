"""What the checker's tests share: a root of their own, so that none reads or writes a learner's exercises/ or .progress.json."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def fresh_root():
    """fresh_root(folder) puts there solutions/ and docs/mistakes.md as they are, and exercises/ as a learner first finds it."""
    from flashlab.check import form

    def make(folder):
        shutil.copytree(ROOT / "solutions", folder / "solutions", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "docs").mkdir()
        shutil.copy(ROOT / "docs/mistakes.md", folder / "docs")
        (folder / "exercises").mkdir()
        for name in form.names():
            (folder / "exercises" / f"{name}.py").write_text(form.exercise(name).parsed.stub(), encoding="utf-8")
        return folder
    return make


@pytest.fixture
def sandbox(fresh_root, tmp_path, monkeypatch):
    """A fresh root that the checker takes for its own."""
    monkeypatch.setenv("FLASHLAB_ROOT", str(fresh_root(tmp_path)))
    return tmp_path
