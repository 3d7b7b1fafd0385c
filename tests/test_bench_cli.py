"""`python -m flashlab bench`: its subjects, their options, and where the numbers go."""

from functools import partial
from pathlib import Path

import pytest
import torch

import flashlab  # noqa: F401
from flashlab_course.bench import backward, cli, counters, ncu, passes, results
from flashlab_course.bench.basics import sections
from flashlab_course.bench.problems import Problem, implementations
from flashlab_course.bench.rows import CounterRow, as_json

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@no_gpu
@pytest.mark.parametrize("argv", [[], *([name] for name in cli.SUBJECTS), ["--quick"]])
def test_without_a_gpu_it_says_what_to_do_and_writes_nothing(argv, tmp_path, capsys):
    out = tmp_path / "deeper/x.json"
    assert cli.main([*argv, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "no NVIDIA GPU" in said and "results/" in said and "flashlab doctor" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv, words", [
    (["--N", "0"], "argument --N: expected an integer >= 1, got '0'"),
    (["--d", "64.5"], "argument --d: expected an integer >= 1, got '64.5'"),
    (["--budget-seconds", "nan"], "argument --budget-seconds: expected a number of seconds > 0, got 'nan'"),
    (["--implementations", "fa9"], "argument --implementations: invalid choice: 'fa9' (choose from"),
    (["--causal", "maybe"], "argument --causal: invalid choice: 'maybe'"),
    (["--dtype", "float8"], "argument --dtype: invalid choice: 'float8'"),
    (["--out", "/tmp"], "argument --out: expected the path of a .json file, got '/tmp'"),
    (["sideways"], f"argument what: invalid choice: 'sideways' (choose from {', '.join(map(repr, cli.SUBJECTS))})"),
])
def test_bad_arguments_are_named_with_what_was_expected(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A machine that seems to have an H100 and ncu. Nothing is measured: what would be is noted in the dict."""
    asked = {}

    def fake_run(which, problems, chosen, **kwargs):
        asked.update(kwargs, problems=problems, names=[getattr(c, "name", c) for c in chosen])
        results.save({}, kwargs["out"])
        counted = which == "counters"
        row = CounterRow("naive_forward", *problems[0]) if counted else passes.empty_row(which, "naive_forward", problems[0])
        row.skipped = "fake"
        return {"what": which if counted else which.name, "rows": [as_json(row)]}

    def fake_sections(names, here, **kwargs):
        asked.update(kwargs, names=list(names))
        results.save({}, kwargs["out"])
        return {"what": "basics", "sections": {name: {"rows": [{"skipped": "fake"}]} for name in names}}

    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "why_no_gpu", lambda: "")
    monkeypatch.setattr(ncu.shutil, "which", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(passes, "run", fake_run)
    monkeypatch.setattr(counters, "run", partial(fake_run, "counters"))
    monkeypatch.setattr(sections, "run_sections", fake_sections)
    return asked


def test_the_full_forward_set_is_written_under_the_gpus_name(gpu, tmp_path, capsys):
    assert cli.main([]) == 1                            # its only row was skipped
    assert (tmp_path / "results/forward_h100.json").exists()
    assert len(gpu["problems"]) == 24 and gpu["names"] == list(implementations()) and gpu["rounds"] == 5
    assert gpu["command"] == "python -m flashlab bench"
    assert "skipped: naive_forward, bfloat16 d 64 N 512: fake" in capsys.readouterr().out


def test_the_full_counters_set_is_written_under_the_gpus_name(gpu, tmp_path):
    assert cli.main(["counters"]) == 1
    assert (tmp_path / "results/counters_h100.json").exists()
    assert gpu["names"][:2] == ["naive_forward", "fa2_triton_forward"]
    assert gpu["problems"] == [Problem(N, 64, False, "bfloat16", 1, 16) for N in (1024, 2048, 4096, 8192, 16384)]


def test_the_full_backward_and_basics_sets_are_written_by_the_same_rule(gpu, tmp_path):
    assert cli.main(["backward", "--budget-seconds", "9"]) == 1
    assert (tmp_path / "results/backward_h100.json").exists()
    assert len(gpu["problems"]) == 24 and gpu["names"] == list(backward.implementations())
    assert cli.main(["basics"]) == 1
    assert (tmp_path / "results/basics_h100.json").exists() and gpu["names"] == list(sections.SECTIONS)


def test_help_names_every_subject_and_each_has_its_own(capsys):
    for argv in (["--help"], *([name, "--help"] for name in cli.SUBJECTS)):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        said = capsys.readouterr().out
        assert stop.value.code == 0 and "usage: python -m flashlab bench" in said
        words = cli.SUBJECTS if argv == ["--help"] else ("--budget-seconds", "results/<what>_<gpu>.json")
        assert all(word in said for word in words), said


@pytest.mark.parametrize("argv", [
    ["--quick"], ["--N", "512"], ["--d", "64"], ["--implementations", "sdpa_flash"], ["--causal", "yes"], ["--dtype", "float16"],
    ["backward", "--quick"], ["counters", "--causal", "both"], ["basics", "--sections", "softmax"]])
def test_a_part_is_written_nowhere_unless_out_says_so(gpu, tmp_path, argv, capsys):
    cli.main(argv)
    assert list(tmp_path.iterdir()) == [] and "nothing written" in capsys.readouterr().out
    out = str(tmp_path / "mine.json")
    cli.main([*argv, "--out", out])
    assert Path(out).exists() and gpu["command"].split()[4:] == [*argv, "--out", out]


def test_counters_need_ncu(gpu, monkeypatch, capsys):
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    assert cli.main(["counters"]) == 2
    assert "ncu (Nsight Compute" in capsys.readouterr().err
