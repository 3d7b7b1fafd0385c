"""What the checker's tests share: a root of their own, so that none reads or writes a learner's exercises/ or .progress.json."""

import pytest


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """A fresh root that the checker takes for its own."""
    from flashlab.check import stubs

    stubs.fresh_root(tmp_path)
    monkeypatch.setenv("FLASHLAB_ROOT", str(tmp_path))
    return tmp_path
