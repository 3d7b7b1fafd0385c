"""What the tests share. `pytest` runs each of them; `make test` adds --sample, which leaves out some of the
repetitions.

The sandbox is a root of their own, so that none reads or writes a learner's exercises/ or .progress.json.
"""

import random
import shutil
import signal
import sys

import pytest

sys.modules["rfc3987_syntax"] = None       # jsonschema imports it, for 5 s, to check addresses: no notebook has any

# A shell that starts pytest in the background has Ctrl-C ignored, also by the commands that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests with many like cases: of these, --sample keeps one in so many, the same ones each time, or those that are named.
SAMPLED = {
    "test_check_fuzz.py": {"test_every_spoilt_solution_gets_its_verdict": 10},
    "test_going_back.py": {"test_every_cell_runs_twice_and_every_section_again": 19},
    "test_compiled.py": {
        "test_what_the_compiler_made_of_it": (
            "fa2 90 d 128, no mask", "fa2 90 d 128, float32", "fa2 90 d 64, dropout", "packed, window", "exp2 80",
            "split 86", "pipelined 89", "pipelined 90", "tma 90, the tiles before", "tma 100", "hopper d 128",
            "hopper d 64, packed", "matmul, descriptors 90", "softmax 5000", "softmax 781"),
        "test_the_consumers_of_the_hopper_kernel_spill_nothing_in_their_loops": (
            "hopper d 128", "hopper d 64, packed")},
    "test_compiled_backward.py": {
        "test_what_the_compiler_made_of_it": (
            "triton d 128, 1", "triton float32, 2", "triton 4090 d 256, 2", "split dQ 89", "atomic 90", "tma d 64",
            "tma d 64, lean", "tma 100", "hopper d 64", "hopper d 128, packed"),
        "test_the_consumers_of_the_hopper_kernel_keep_their_tiles_in_registers": ("hopper d 64-0",)},
    "test_decoding.py": {
        "test_what_the_compiler_made_of_it": ("86 window", "90 float32", "90 pages of 16", "merge", "append"),
        "test_a_cache_that_grows_token_by_token": ("None-torch.float32-torch", "16-torch.bfloat16-triton")},
    "test_fp8.py": {
        "test_every_launch_fits": ("Q, d 64", "V, d 128", "attention, d 64", "attention, d 128", "crossing, d 256"),
        "test_the_tensor_cores_multiply_e4m3": ("attention, d 64", "attention, d 128", "crossing, d 256")},
    "test_hopper.py": {"test_packed_sequences": 4},
    "test_hopper_backward.py": {"test_packed_sequences": 6, "test_nobody_waits_for_ever": 3,
                                "test_in_order_every_tile_has_each_turn_once": 2},
    "test_hopper_rungs.py": {"test_a_rung_is_right": 2},
    "test_warps.py": {"test_the_last_rung_computes_every_tile_once_and_in_turn": 2},
    "test_figures.py": {"test_says_what_it_draws_and_nothing_falls_off_the_page": 3},
    "test_rungs.py": {"test_within_the_error_bound": 3, "test_default_tiles_fit_and_use_the_sram": 2},
    "test_backward.py": {"test_within_the_error_bound": 3, "test_the_default_tiles_fit_and_fill_the_sram": 4},
    "test_skip.py": {"test_without_triton_the_chapter_says_so_and_reaches_the_end": 8},
    "test_varlen.py": {"test_window": 3, "test_every_sequence_is_attended_to_by_itself": 2, "test_in_16_bits": 2},
    "test_triton_forward.py": {"test_within_the_error_bound": 4, "test_every_kernel_is_right": 2},
    "test_triton_backward.py": {"test_within_the_error_bound": 4, "test_every_kernel_is_right": 3, "test_strides": 4,
                                "test_offsets_beyond_2_to_the_31": 3,
                                "test_dropout_within_the_error_bound": 8},
}


def pytest_addoption(parser):
    parser.addoption("--sample", action="store_true", help="of tests with many like cases, run some (make test)")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("sample"):
        return
    cases = {}
    for item in items:
        name = item.path.name, getattr(item, "originalname", None)
        if name[1] in SAMPLED.get(name[0], ()):
            cases.setdefault(name, []).append(item)
    left_out = set()
    for (file, name), many in cases.items():
        if isinstance(rule := SAMPLED[file][name], tuple):
            left_out.update(item for item in many if item.callspec.id not in rule)
        else:
            random.Random(0).shuffle(many)
            left_out.update(many[-(-len(many) // rule):])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def same_numbers():
    """Random tensors are the same whichever tests ran before in this process: a failure can be had again."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def sampled(request):
    """sampled(cases, n): where --sample is given, one in n of a list of like cases, the same ones each time; else
    all."""
    def choose(cases, n):
        return cases[min(n // 2, len(cases) - 1)::n] if request.config.getoption("sample") else cases
    return choose


@pytest.fixture(scope="module")
def asked_for(request):
    """asked_for(jobs): of jobs by name those that a test wants, as --sample leaves some out."""
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    return lambda jobs: {name: job for name, job in jobs.items() if name in wanted}


@pytest.fixture
def no_line(monkeypatch):
    """A report looks for the line that goes wrong for up to 3 s. Tests of what else it says do not wait for that."""
    monkeypatch.setattr("flashlab_course.check.line.first_wrong", lambda *_: None)


@pytest.fixture(scope="session")
def fresh_root(tmp_path_factory):
    from flashlab_course import workspace

    folder = tmp_path_factory.mktemp("fresh")
    workspace.fresh_root(folder)
    return folder


@pytest.fixture
def sandbox(fresh_root, tmp_path, monkeypatch):
    """A fresh root that the checker takes for its own."""
    for part in ("solutions", "my"):
        shutil.copytree(fresh_root / part, tmp_path / part)
    (tmp_path / "notebooks").symlink_to(fresh_root / "notebooks")
    monkeypatch.setenv("FLASHLAB_ROOT", str(tmp_path))
    return tmp_path
