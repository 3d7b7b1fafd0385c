"""doctor tells each kind of machine the truth, and exits non-zero only for what is broken."""

import types

import numpy
import pytest
import torch

from flashlab import triton_mode
from flashlab_course import doctor
from flashlab_course.chapters import CHAPTERS


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be another machine: machine(system="Darwin", triton=None, interpret="1", gpu=False, numpy="2.4.6")."""

    def pretend(system="Linux", triton="3.7.1", interpret="1", gpu=False, numpy_version="2.4.6"):
        module = triton and types.SimpleNamespace(__version__=triton)
        monkeypatch.setattr(doctor.platform, "system", lambda: system)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(numpy, "__version__", numpy_version)
        for place in (doctor, triton_mode):
            monkeypatch.setattr(place, "import_triton", lambda: module)
            monkeypatch.setattr(place, "interpreted", lambda: interpret not in ("", "0"))
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        if interpret:
            monkeypatch.setenv("TRITON_INTERPRET", interpret)

    return pretend


@pytest.mark.parametrize("system, level, fix", [
    ("Darwin", "note", "Colab"),               # no wheel exists: nothing on that machine is broken
    ("Windows", "note", "WSL2"),
    ("Linux", "broken", 'pip install "triton>=3.6"'),
])
def test_triton_missing(machine, system, level, fix):
    machine(system=system, triton=None)
    finding, chapters = doctor.check_triton(), doctor.check_chapters()
    assert finding.level == level and fix in finding.fix
    blocked = " ".join(c.number for c in CHAPTERS if c.needs_triton)
    assert chapters.text.endswith(f"; {blocked} need Triton") and chapters.level == "note"


@pytest.mark.parametrize("triton, numpy_version, interpret, level", [
    ("3.6.0", "2.4.6", "1", "broken"),         # the interpreter fails on range(0, n, B)
    ("3.6.0", "2.3.5", "1", "ok"),
    ("3.6.0", "2.4.6", "", "ok"),              # compiled kernels do not mind
    ("3.7.1", "2.4.6", "1", "ok"),
])
def test_triton_36_with_numpy_24(machine, triton, numpy_version, interpret, level):
    machine(triton=triton, numpy_version=numpy_version, interpret=interpret, gpu=not interpret)
    finding = doctor.check_triton()
    assert finding.level == level and (finding.fix == "install numpy<2.4") == (level == "broken")


@pytest.mark.parametrize("interpret, gpu, level, words", [
    ("1", False, "ok", "interpreted on the CPU"),
    ("", True, "ok", "compiling for the GPU"),
    ("1", True, "note", "although there is a GPU"),
    ("0", False, "broken", "no GPU, and TRITON_INTERPRET=0"),
])
def test_where_kernels_run(machine, interpret, gpu, level, words):
    machine(interpret=interpret, gpu=gpu)
    finding = doctor.check_triton()
    assert finding.level == level and words in finding.text


def test_an_old_version_is_broken_and_comes_with_its_command():
    for topic, version in (("torch", "2.10.1"), ("triton", "3.5.0"), ("numpy", "1.26.4")):
        finding = doctor.check_version(topic, version)
        assert finding.level == "broken" and f'pip install "{topic}>={doctor.MINIMUM[topic]}"' in finding.fix


@pytest.mark.parametrize("driver, cuda, level, fix", [
    ("", None, "note", "nothing to fix"),
    ("580.1", None, "broken", "--force-reinstall torch"),           # a CPU build beside a GPU
    ("580.1", "13.0", "broken", "update the NVIDIA driver"),
])
def test_no_gpu_seen(machine, monkeypatch, driver, cuda, level, fix):
    machine()
    monkeypatch.setattr(doctor, "driver_version", lambda: driver)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    finding = doctor.check_gpu()
    assert finding.level == level and fix in finding.fix


def test_a_gpu_is_described():
    gpu = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=85_000_000_000,
        L2_cache_size=52428800, shared_memory_per_multiprocessor=233472, shared_memory_per_block_optin=232448)
    finding = doctor.describe_gpu(gpu, "580.1")
    assert finding.level == "ok"
    words = ("9.0", "132 SMs", "79.2 GiB", "L2 50.0 MiB", "228 KiB per SM", "227 KiB per block", "driver 580.1")
    assert all(word in finding.text for word in words)
    gpu.major, gpu.minor = 7, 5                                     # a T4
    assert doctor.describe_gpu(gpu, "580.1").level == "note"


def test_a_device_that_cannot_compute_is_a_finding_not_a_crash(monkeypatch):
    def full(device):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(doctor, "copy_bandwidth", full)
    (finding,) = doctor.check_speed("cpu")
    assert finding.level == "broken" and "out of memory" in finding.text


def test_the_report_of_this_machine_and_its_exit_code(capsys, monkeypatch):
    findings = doctor.report()
    assert {f.topic for f in findings} == {"python", "torch", "triton", "numpy", "gpu", "copy", "matmul", "backend",
                                           "kernel", "chapters"}
    speeds = [f.text.split()[0] for f in findings if "measured here" in f.text]
    assert len(speeds) >= 2 and all(float(speed) > 1e-4 for speed in speeds)
    for level, code in (("ok", 0), ("note", 0), ("broken", 1)):
        monkeypatch.setattr(doctor, "report", lambda level=level: [doctor.Finding("gpu", "text", level, "do this")])
        assert doctor.main([]) == code
        assert "do this" in capsys.readouterr().out
