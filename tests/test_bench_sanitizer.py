"""compute-sanitizer without a GPU: what it prints, the rows that `bench sanitizer` makes of it, and its controls compiled."""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from flashlab import ladder
from flashlab_course.bench import sanitizer

CLEAN = """========= COMPUTE-SANITIZER
calls 20
========= ERROR SUMMARY: 0 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Read access at fa2_hopper_kernel+0x1d0 in fa2_hopper.py:337
=========     and Write access at fa2_hopper_kernel+0xb8a0 in fa2_hopper.py:337 [14 hazards]
=========     and Write access at fa2_hopper_kernel+0x10430 in fa2_hopper.py:366 [1 hazards]
=========
========= Error: Race reported between Read access at fa2_hopper_kernel+0x250 in fa2_hopper.py:337
=========     and Write access at fa2_hopper_kernel+0x1b570 in fa2_hopper.py:337 [11 hazards]
=========
calls 20
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
OUTSIDE = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at f+0x10 in f.py:3
calls 1
========= ERROR SUMMARY: 1 error
"""


def test_what_the_tool_prints_is_read():
    assert sanitizer.parse(CLEAN) == {"calls": 20, "errors": 0, "places": {}}
    assert sanitizer.parse(RACES) == {"calls": 20, "errors": 2, "places": {
        "Read fa2_hopper.py:337, Write fa2_hopper.py:337": 25, "Read fa2_hopper.py:337, Write fa2_hopper.py:366": 1}}
    assert sanitizer.parse(OUTSIDE)["places"] == {"Invalid __global__ write of size 4 bytes": 1}


@pytest.mark.parametrize("text", ["========= Error: no device", CLEAN.replace("calls 20\n", ""), "calls 20\n"])
def test_no_report_is_no_clean_report(text):
    """The process under the tool has to come to its end, and the tool to its summary."""
    with pytest.raises(RuntimeError):
        sanitizer.parse(text)


def test_a_run(tmp_path, monkeypatch, capsys):
    seen = []

    def tool(command, **options):
        seen.append((command[2], command[-1]))
        if "backward" in command[-1]:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return SimpleNamespace(stdout=RACES if "racecheck" in command else CLEAN, stderr="")

    monkeypatch.setattr(sanitizer, "examine", lambda case, timeout, real=sanitizer.examine: real(case, timeout, run=tool))
    args = SimpleNamespace(implementations=list(sanitizer.KERNELS), tools=list(sanitizer.TOOLS), no_controls=True, jobs=2,
                           budget_seconds=50.0)
    results = sanitizer.run_asked(args, tmp_path / "found.json", "command")
    assert json.loads((tmp_path / "found.json").read_text())["rows"] == results["rows"]
    assert [row.get("errors") for row in results["rows"]] == [0, 2, None, None]
    assert all("TimeoutExpired" in row["skipped"] for row in results["rows"][2:])
    assert "fa2_hopper_forward      racecheck   2 errors" in capsys.readouterr().out and len(seen) == 4


@pytest.mark.parametrize("name", sanitizer.KERNELS)
def test_each_shape_is_one_that_the_kernel_takes(name, monkeypatch):
    """All but its reason that this is no Hopper."""
    home = ladder.rung(name).home
    monkeypatch.setattr(home, "why_not_hopper", lambda *call: None)
    monkeypatch.setattr(sanitizer, "outputs", lambda *call: made.append(call))
    monkeypatch.setattr(sanitizer, "gradients", lambda *call: made.append(call))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch, "randn", lambda *shape, real=torch.randn, **options: real(*shape, dtype=torch.bfloat16))
    made = []
    sanitizer.calls(name)
    assert len(made) >= len(sanitizer.SHAPES)
    assert {True} <= {call[-2]["causal"] for call in made} and any("window" in call[-2] for call in made)
    assert any("cu_seqlens_q" in call[-2] for call in made)


def test_the_controls_compile():
    pytest.importorskip("triton")
    from flashlab_course.bench import controls
    from flashlab_course.compiler import ahead_of_time

    out = torch.empty(2, dtype=torch.int32, device="meta")
    jobs = [(controls.dispatch_kernel, {"out": out, "num_warps": 4}, 90)]
    handing_over = controls.mbarrier_kernel, controls.named_barrier_kernel
    jobs += [(kernel, {"out": out, "n": 10, "num_warps": 4}, 90) for kernel in handing_over]
    dispatch, by_mbarrier, by_name = (result.ptx for result in ahead_of_time.compile_all(jobs))
    assert "mbarrier.try_wait" not in dispatch and "mbarrier.try_wait" in by_mbarrier
    assert "bar.arrive" in by_name and "mbarrier.try_wait" not in by_name
