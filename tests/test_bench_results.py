"""results/*.json: what is written, what is read back, and where a number comes from."""

import json
import subprocess

import pytest
import torch

import flashlab  # noqa: F401
from flashlab_course.bench import results


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    out = tmp_path / "x.json"
    results.save({"rows": []}, out)
    with pytest.raises(ValueError):
        results.save({"rows": [float("nan")]}, out)         # not JSON
    assert json.loads(out.read_text()) == {"rows": []}


def test_provenance_says_where_a_number_comes_from():
    record = results.provenance("make bench")
    assert set(record) >= {"device", "capability", "torch", "triton", "cuda", "driver", "python", "date", "commit", "command"}
    assert record["torch"] == torch.__version__ and record["command"] == "make bench" and record["date"].endswith("+00:00")
    json.dumps(record)


def test_commit_is_heads_with_a_flag_for_changed_code(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *identity, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    monkeypatch.setenv("FLASHLAB_COMMIT", "from elsewhere")
    assert results.commit(tmp_path) == "from elsewhere"     # a copy that has no history, or a foreign one
    monkeypatch.delenv("FLASHLAB_COMMIT")
    (tmp_path / "flashlab").mkdir()
    (tmp_path / "flashlab/a.py").write_text("1")
    git("init")
    git("add", ".")
    assert results.commit(tmp_path) == "unknown"            # nothing committed yet
    git("commit", "-m", "a")
    assert results.commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "results.json").write_text("{}")
    assert not results.commit(tmp_path).endswith("-dirty")  # a result is not code
    (tmp_path / "flashlab/new.py").write_text("1")
    assert results.commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
    assert results.commit(tmp_path / "flashlab") == "unknown"


def test_results_are_found_from_the_package_or_the_notebooks_folder(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    results.save({"what": "forward", "rows": [1]}, tmp_path / "results/forward_x.json")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    assert results.load_results("forward_x")["rows"] == [1]
    monkeypatch.setattr(results, "ROOT", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert results.load_results("forward_x")["rows"] == [1]


@pytest.mark.parametrize("name, what", [("forward_b200", "forward"), ("counters_b200", "counters")])
def test_a_missing_result_is_named_with_how_to_make_it(tmp_path, monkeypatch, name, what):
    results.save({}, tmp_path / "results/forward_x.json")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        results.load_results(name)
    assert f"(forward_x), got '{name}'" in str(error.value)
    assert f"python -m flashlab bench {what} --out results/{name}.json" in str(error.value)


@pytest.mark.parametrize("name, slug", [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-40GB", "a100"), ("Tesla T4", "t4"),
                                        ("NVIDIA GeForce RTX 4090", "4090"), ("Graphics", "graphics")])
def test_a_gpus_short_name(name, slug):
    assert results.gpu_slug(name) == slug


def test_the_interpreter_is_not_timed_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(results, "interpreted", lambda: True)
    assert "unset it" in results.why_no_gpu()
    monkeypatch.setattr(results, "interpreted", lambda: False)
    if results.import_triton():
        assert results.why_no_gpu() == ""


def test_a_gpu_without_triton_is_not_timed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(results, "interpreted", lambda: False)
    monkeypatch.setattr(results, "import_triton", lambda: None)
    assert "Triton is not installed" in results.why_no_gpu()
