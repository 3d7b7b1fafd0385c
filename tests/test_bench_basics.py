"""Every section of the chapters' measurements runs on a CPU, on next to nothing; what fails says so and harms no other."""

import json
import subprocess

import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

pytest.importorskip("triton")

from flashlab.triton_mode import interpreted  # noqa: E402
from flashlab_course.bench import cli, ncu, timing  # noqa: E402
from flashlab_course.bench.basics import counters, sections  # noqa: E402
from flashlab_course.bench.basics.here import Here, rows_of, timed  # noqa: E402
from flashlab_course.bench.basics.sections import SECTIONS, run_sections  # noqa: E402
from flashlab_course.gpu import cuda, simt  # noqa: E402

pytestmark = pytest.mark.skipif(not interpreted(), reason="for machines without a GPU: with one, the measurements themselves run")
SHRINK = {"coalescing": 512, "key_loading": 128, "matmul": 128, "matmul_tiles": 128, "matmul_order": 128, "precision": 128}


def here(section=None):
    return Here("cpu", lambda function: [function() is None, 2.0, 3.0], SHRINK.get(section, 2**14))


@pytest.fixture(autouse=True)
def interpreted_cuda(monkeypatch):
    """CUDA kernels with a twin run in the SIMT interpreter, the others do nothing."""
    def kernel(name):
        twin = getattr(simt, name, None)
        return lambda grid, block: simt.launch(twin, grid, block, shared=1024) if twin else (lambda *arguments: None)

    monkeypatch.setattr(cuda, "kernel", kernel)


@pytest.mark.parametrize("name", [name for name in SECTIONS if name not in ("counters", "programs")])
def test_each_section_measures_all_its_rows(name, tmp_path):
    results = run_sections([name], here(name), out=tmp_path / "basics.json")
    section = json.loads((tmp_path / "basics.json").read_text())["sections"][name]
    assert section == json.loads(json.dumps(results["sections"][name])) and section["question"] and not section["skipped"]
    assert section["rows"] and not [row for row in section["rows"] if "skipped" in row]


def test_a_wrong_or_failing_function_is_not_timed_and_its_row_says_why():
    one = torch.ones(3)
    rows = rows_of([({"case": "right"}, lambda: timed(here(), lambda: one, one, moved=12)),
                    ({"case": "wrong"}, lambda: timed(here(), lambda: one + 1, one)),
                    ({"case": "nan"}, lambda: timed(here(), lambda: one * torch.nan, one, 1.0)),
                    ({"case": "error"}, lambda: timed(here(), lambda: one @ torch.ones(4)))])
    assert rows[0]["ms"] == 2.0 and rows[0]["error"] == 0 and "skipped" not in rows[0]
    assert rows[1]["skipped"].startswith("AssertionError: wrong: off by 1") and "ms" not in rows[1]
    assert "nan" in rows[2]["skipped"] and "RuntimeError" in rows[3]["skipped"]


def test_a_failing_section_leaves_the_others(monkeypatch):
    def broken(here):
        """Why?"""
        raise RuntimeError("no such unit")

    monkeypatch.setitem(SECTIONS, "broken", broken)
    found = run_sections(["broken", "simulator"], here())["sections"]
    assert found["broken"]["skipped"] == "RuntimeError: no such unit" and found["simulator"]["rows"]
    late = run_sections(["simulator"], here(), expired=lambda: True)["sections"]["simulator"]
    assert late["skipped"] == timing.OUT_OF_TIME and late["rows"] == []


def test_rows_measured_here_do_only_with_those_that_are_needed(monkeypatch):
    """A tile that does not fit this GPU leaves no row; the recorded ones then stand in, all of them."""
    monkeypatch.setattr(sections, "why_no_gpu", lambda: "")
    monkeypatch.setattr(sections.torch.cuda, "get_device_name", lambda: "a small GPU")
    monkeypatch.setitem(sections.MEASURED_HERE, "atomics", [{"how": "block", "ms": 1.0}, {"how": "element", "skipped": "no room"}])
    rows, words = sections.numbers("atomics", needs=[{"how": "block"}])
    assert rows == [{"how": "block", "ms": 1.0}] and words == "Measured here, on a small GPU."
    rows, words = sections.numbers("atomics", needs=[{"how": "block"}, {"how": "element"}])
    assert len(rows) > 2 and words.startswith("Recorded on")


LOG = """==PROF== Connected
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","matrix_add(float *)","dram__bytes_read.sum","byte","536,870,912"
"0","7","matrix_add(float *)","smsp__thread_inst_executed_per_inst_executed.ratio","","31.5"
"0","7","matrix_add(float *)","l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum","","(!) n/a"
"1","7","two_paths(float *)","dram__bytes_read.sum","byte","12"
"""


def test_counters_are_read_in_order_of_launch_and_what_ncu_does_not_know_is_left_out():
    kernels = ncu.parse(LOG, counters.METRICS, partial=True)
    assert kernels == [{"name": "matrix_add(float *)", "dram_read": 536870912, "lanes_per_instruction": 31.5},
                       {"name": "two_paths(float *)", "dram_read": 12}]
    with pytest.raises(ValueError, match="got '12' in unit 'sector'"):
        ncu.parse(LOG.replace('"byte","12"', '"sector","12"'), counters.METRICS, partial=True)
    with pytest.raises(ValueError, match="no table"):
        ncu.parse("==ERROR== no permission", counters.METRICS, partial=True)


def test_counters_go_with_the_launches_or_are_refused():
    labels = [labels for labels, _ in counters.launches(here("coalescing"))]
    rows = counters.counters(here("coalescing"), count=lambda metrics: [{"name": str(n)} for n in range(len(labels))])
    assert [row["kernel"] for row in rows] == [label["kernel"] for label in labels]
    with pytest.raises(ValueError, match="ncu saw 1 kernels"):
        counters.counters(here("coalescing"), count=lambda metrics: [{"name": "one"}])


def test_every_launch_under_ncu_is_one_that_runs():
    for labels, launch in counters.launches(here("coalescing")):
        launch()
        assert labels["kernel"]


def test_what_ncu_runs_can_be_imported():
    """Fails if a moved function is found missing only under ncu, on a GPU."""
    def run(command, **options):
        exec(command[-1].split(";")[0])
        return subprocess.CompletedProcess(command, 1, "", "imported")

    with pytest.raises(RuntimeError, match="imported"):
        counters.count(counters.METRICS, run=run)


def test_a_failing_ncu_is_tried_without_the_optional_counters_and_then_reported():
    asked = []

    def count(metrics):
        asked.append(len(metrics))
        raise RuntimeError("ncu: unknown metric")

    with pytest.raises(RuntimeError, match="unknown metric"):
        counters.counters(here("coalescing"), count=count)
    assert asked == [len(counters.METRICS), len(counters.METRICS) - len(counters.OPTIONAL)]
    with pytest.raises(RuntimeError, match="no permission"):
        counters.count(["x"], run=lambda *a, **k: subprocess.CompletedProcess(a, 1, "", "no permission"))


def test_without_a_gpu_the_command_says_where_results_are(capsys):
    assert cli.main(["basics"]) == 2
    assert "sees no NVIDIA GPU" in capsys.readouterr().err
