"""The two commands and the package as a newcomer meets them: versions, Makefile, imports, command line."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from flashlab import __main__ as cli
from flashlab_course import doctor
from flashlab_course.chapters import CHAPTERS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line.split("#")[0]) for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.split("#")[0].strip()]


def python(code, **env):
    """Run code in a fresh Python that has not imported anything yet."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"CUDA_VISIBLE_DEVICES": ""} | env
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT)


# ---- versions ----------------------------------------------------------------------------------------------------


def test_each_pin_is_exact_and_within_the_range_of_pyproject():
    ranges = {r.name: r for r in map(Requirement, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])}
    assert {pin.name for pin in PINS} == set(ranges)        # nothing is missing, nothing installed in vain
    for pin in PINS:
        (spec,) = pin.specifier
        assert spec.operator == "=="
        assert ranges[pin.name].specifier.contains(spec.version), pin
        assert str(pin.marker or "").replace('"', "'") == str(ranges[pin.name].marker or "").replace('"', "'")


def test_doctor_asks_for_the_minimum_that_pyproject_asks_for():
    lowest = {r.name: str(r.specifier).removeprefix(">=") for r in map(Requirement, PROJECT["dependencies"])}
    lowest["python"] = PROJECT["requires-python"].removeprefix(">=")
    assert {name: lowest[name] for name in doctor.MINIMUM} == doctor.MINIMUM


# ---- Makefile ----------------------------------------------------------------------------------------------------

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


@pytest.fixture
def clone(tmp_path):
    """What make looks at, and nothing installed."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(clone, *args):
    return subprocess.run(["make", *args], capture_output=True, text=True, cwd=clone)


@needs_make
def test_the_second_run_installs_nothing(clone):
    assert "pip install" in make(clone, "-n", "test").stdout
    (clone / ".venv").mkdir()
    (clone / ".venv/.installed").touch()
    assert make(clone, "-q", ".venv/.installed").returncode == 0
    for target in ("test", "lab"):
        assert "pip install" not in make(clone, "-n", target).stdout


@needs_make
@pytest.mark.parametrize("changed", ["requirements.txt", "pyproject.toml"])
def test_a_changed_requirement_installs_again(clone, changed):
    (clone / ".venv").mkdir()
    (clone / ".venv/.installed").touch()
    later = (clone / ".venv/.installed").stat().st_mtime + 10
    os.utime(clone / changed, (later, later))
    assert make(clone, "-q", ".venv/.installed").returncode == 1


@needs_make
@pytest.mark.parametrize("script, message", [
    ('case "$*" in -V) echo Python 3.9.6;; *version_info*) exit 1;; esac', "is Python 3.9.6. Name a newer one"),
    ('case "$*" in *ensurepip*) exit 1;; esac', "has no venv module"),
    (None, "there is no"),
])
def test_an_unusable_python_is_named_before_anything_is_made(clone, script, message):
    fake = clone / "python"
    if script:
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
    answer = make(clone, "lab", f"PYTHON={fake}")
    assert answer.returncode != 0 and message in answer.stdout and str(fake) in answer.stdout
    assert not (clone / ".venv").exists()


@needs_make
def test_lab_passes_its_arguments_on_and_help_lists_every_target(clone):
    lab = make(clone, "-n", "lab", "LAB_ARGS=--no-browser --port 8899").stdout
    assert re.search(r"jupyter lab .*/lab/tree/my/00_start_here.ipynb.* --no-browser --port 8899$", lab, re.M)
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    listed = re.findall(r"^  make ([\w-]+) +\S", make(clone).stdout, re.M)
    assert sorted(listed) == sorted(targets)


# ---- a wheel -----------------------------------------------------------------------------------------------------


COMMANDS = """
import sys
from flashlab import __main__ as flashlab
from flashlab_course import workspace
for main, words in (flashlab.main, ["doctor"]), (flashlab.main, ["check"]), (workspace.main, []):
    try:
        code = main(words)
    except SystemExit as stop:
        print(stop)
        code = 1
    print("ended with", code, flush=True)
"""


def test_a_wheel_holds_both_packages_whole_and_its_commands_work_or_say_what_they_need(tmp_path):
    """Built without a network. Fails if a file is left out, or a command ends in a traceback away from a clone."""
    pytest.importorskip("setuptools", "77")
    for package in ("flashlab", "flashlab_course"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("flashlab*/**/*") if path.is_file()}
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "."]
    subprocess.run(build, cwd=tmp_path, check=True)
    with zipfile.ZipFile(*tmp_path.glob("*.whl")) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files
        wheel.extractall(tmp_path / "installed")
    (tmp_path / "elsewhere").mkdir()
    env = {name: value for name, value in os.environ.items() if name != "FLASHLAB_ROOT"}
    run = subprocess.run([sys.executable, "-c", COMMANDS], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         cwd=tmp_path / "elsewhere", env=env | {"PYTHONPATH": str(tmp_path / "installed")})
    refused = r"no folder solutions/ .*: work in a clone of the repository.*\n"
    assert re.search(rf"chapters(.|\n)*\nended with 0\n{refused}ended with 1\n{refused}ended with 1$", run.stdout), run


# ---- imports -----------------------------------------------------------------------------------------------------


WITHOUT_TRITON = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError("No module named 'triton'")
sys.meta_path.insert(0, Hide())
"""


def test_without_triton_all_but_its_kernels_works_and_doctor_says_what_to_do():
    """As on macOS and Windows: auto works, "triton" says what to do, and `import flashlab` stays cheap."""
    answer = python(WITHOUT_TRITON + """
import flashlab, torch
assert "flashlab.operator.attention" not in sys.modules
from flashlab.operator.attention import flash_attention, pick_backend
assert flashlab.flash_attention is flash_attention and not hasattr(flashlab, "flash_atention")
assert pick_backend("cuda") == ("torch", "triton is not installed")
X = torch.randn(1, 1, 8, 16)
torch.testing.assert_close(flash_attention(X, X, X), torch.nn.functional.scaled_dot_product_attention(X, X, X))
from flashlab_course import doctor
print(doctor.as_text(doctor.report()))
flash_attention(X, X, X, backend="triton")
""")
    assert "RuntimeError: backend='triton' needs triton, which is not installed" in answer.stderr, answer.stderr
    assert "not installed: its chapters cannot run" in answer.stdout or "it has no wheels for" in answer.stdout
    blocked = " ".join(c.number for c in CHAPTERS if c.needs_triton)
    assert f"{blocked} need Triton" in " ".join(answer.stdout.split())


def test_where_triton_came_first_all_but_its_kernels_work():
    """transformers, torch.compile and torch's own counters import it too, and without a GPU it then asks for one."""
    pytest.importorskip("triton")
    answer = python("""
import triton, flashlab, torch
from flashlab_course import doctor
from flashlab_course.check import check
from flashlab.ladder import RUNGS
from flashlab.memory import Memory
from flashlab.oracle import judge
Q = torch.randn(1, 2, 40, 16)
O, L = flashlab.flash_attention(Q, Q, Q, causal=True, return_lse=True)
assert judge(O, L, Q, Q, Q, causal=True).ok
for rung in RUNGS:
    if not rung.heads:
        with Memory():
            assert judge(*rung.function(Q[0, 0], Q[0, 0], Q[0, 0]), Q[0, 0], Q[0, 0], Q[0, 0]).ok
from flashlab_course.gpu.vector_add import vector_add
attention = flashlab.flash_attention
for kernel in (lambda: attention(Q, Q, Q, backend="triton"), lambda: attention(Q, Q, Q, dropout_p=0.5),
               lambda: vector_add(Q.flatten(), Q.flatten())):
    try:
        kernel()
    except RuntimeError as error:
        print(error)
print(doctor.check_triton().fix)
print(check("ex09_vector_add").message)
""")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("import flashlab first") == 5
    assert answer.stdout.count("Triton was imported before flashlab") == 4


def test_a_forbidden_interpreter_says_what_to_do():
    pytest.importorskip("triton")
    answer = python("from flashlab import triton_mode; from flashlab_course import doctor; "
                    "print(triton_mode.why_no_kernels());"
                    "print(doctor.check_triton())", TRITON_INTERPRET="0")
    assert answer.stdout.count("TRITON_INTERPRET=0 as Triton was imported forbade its interpreter") == 2, answer.stderr


def test_with_a_gpu_too_old_for_triton_its_kernels_are_interpreted():
    """Colab's T4, pretended. Fails if a chapter's kernels are compiled for it, or the reason is not said."""
    pytest.importorskip("triton")
    answer = python("""
import torch
torch.cuda.is_available, torch.cuda.get_device_capability = (lambda: True), (lambda device=None: (7, 5))
torch.version.cuda = "12.8"
from flashlab import triton_mode
from flashlab.operator.attention import pick_backend
from flashlab_course import doctor
from flashlab_course.gpu.vector_add import vector_add
assert triton_mode.kernel_device() == "cpu" and vector_add(torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]
print(pick_backend("cuda"), doctor.check_triton().text, doctor.check_chapters().text)
""")
    assert "this GPU has compute capability 7.5, and Triton needs 8.0" in answer.stdout, answer.stderr
    assert "interpreted on the CPU 00 01" in answer.stdout and "run, and show more with a GPU" in answer.stdout


def test_importing_flashlab_costs_little_beyond_torch_and_triton():
    pytest.importorskip("triton")
    code = ("import time, torch, triton; start = time.perf_counter(); import flashlab; "
            "print(time.perf_counter() - start)")
    once = lambda: float(python(code, TRITON_INTERPRET="1").stdout)
    assert any(once() <= 0.3 for _ in range(3))            # not each time: this machine may be busy


# ---- command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv, words", [
    (["doctr"], ["command", "'doctr'", "doctor"]),
    ([], ["command"]),
    (["doctor", "--jsn"], ["--jsn", "flashlab doctor"]),
    (["ladder", "3"], ["3", "flashlab ladder"]),
])
def test_bad_arguments_are_named(argv, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error


def test_help_lists_the_commands_there_are(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    listed = re.findall(r"^  (\w+) +\w", capsys.readouterr().out.split("help):")[1], re.M)
    assert {"doctor", "bench", "ladder"} <= set(listed) <= set(cli.COMMANDS)


def test_ladder_prints_every_rung(capsys):
    from flashlab.ladder import RUNGS

    cli.main(["ladder"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RUNGS) + 1
    for rung, line in zip(RUNGS, lines[1:], strict=True):
        assert rung.title in line


# ---- the course's map ----------------------------------------------------------------------------------------------


def test_chapters_are_the_notebooks_there_are():
    sources = sorted(path.stem for path in (ROOT / "notebooks/src").glob("*.py"))
    assert sources == [f"{c.number}_{c.name}" for c in CHAPTERS]


def test_readme_lists_every_chapter_in_its_column():
    """With its title, a part of what it builds, and, outside the core, the chapters that its first lines ask for."""
    readme = (ROOT / "README.md").read_text()
    for one in CHAPTERS:
        source = (ROOT / f"notebooks/src/{one.number}_{one.name}.py").read_text()
        number, title = re.search(r"^# # (\w+) · (.*)", source, re.M).groups()
        needs = ", ".join(re.findall(r"\b\d\db?\b", re.search(r"\*\*You need\*\* (.*?)[;·]", source)[1]))
        before, after = (r"^\| ", r" \| ") if one.core_minutes else (r" \| ", rf" \[{needs}\] \|$")
        link = re.escape(f"[{number} {title}]({one.path}): ")
        found = re.search(f"{before}{link}([^|[]+){after}", readme, re.M)
        assert found and found[1] in one.builds, one
    assert len(re.findall(r"\(notebooks/\w+\.ipynb\)", readme)) == len(CHAPTERS)
    assert f"Core, about {sum(one.core_minutes for one in CHAPTERS) / 60:.1f} hours" in readme


def test_the_first_pages_lead_to_files_that_there_are():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^):]+)\)", page.read_text()):
            assert (page.parent / link).exists(), (page, link)
    blocked = ", ".join(one.number for one in CHAPTERS if one.needs_triton and one.number != "13")
    assert f"but {blocked} and the last part of 13 work" in (ROOT / "docs/install.md").read_text()
