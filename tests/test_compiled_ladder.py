"""The kernels above the first as GPUs would run them: tensor cores, copies, registers, shared memory, from ahead of time."""

import re

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")

from flashlab.kernels import fa2_exp2, fa2_persistent, fa2_pipelined, fa2_split, fa2_tma
from flashlab.kernels.tuning import Tiles  # noqa: E402
from flashlab.operator import hopper_forward as fa2_hopper  # noqa: E402

PRODUCT = {80: "mma.sync", 86: "mma.sync", 89: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}   # its name in PTX
BY_THREADS, BY_TMA = "cp.async.cg", "cp.async.bulk.tensor"
HOPPER = fa2_hopper.fa2_hopper_kernel


CU = torch.empty(5, dtype=torch.int32, device="meta")
WINDOW, PACKED = {"left": 2048, "right": 0}, {"cu_seqlens_q": CU, "cu_seqlens_k": CU, "batch": 4}


def job(kernel, module, arch, d, causal, N_q=4096, N_k=4096, **few):
    Q, K = (torch.empty(1, 16, N, d, dtype=torch.bfloat16, device="meta") for N in (N_q, N_k))
    L = torch.empty(1, 16, N_q, device="meta")
    arguments = module.launch(Q, K, K, Q, L, causal=causal, scale=d**-0.5, **few)[1]
    arguments.pop("before", None)                      # the launches whose results the kernel reads
    return kernel, arguments, arch


# one for each kernel and each GPU: compiling takes seconds. Then bytes spilled, at most.
CASES = {
    "exp2 80": (job(fa2_exp2.fa2_exp2_kernel, fa2_exp2, 80, 64, True), BY_THREADS, 0),
    "split 86": (job(fa2_split.fa2_split_kernel, fa2_split, 86, 128, True), BY_THREADS, 0),
    "pipelined 89": (job(fa2_pipelined.KERNEL, fa2_pipelined, 89, 64, True), BY_THREADS, 0),
    "pipelined 90": (job(fa2_pipelined.KERNEL, fa2_pipelined, 90, 128, True), BY_THREADS, 0),
    "tma 90": (job(fa2_tma.KERNEL, fa2_tma, 90, 128, True), BY_TMA, 0),
    "tma 90, the tiles before": (job(fa2_tma.KERNEL, fa2_tma, 90, 128, True, tiles=Tiles(128, 64, 8, 3)), BY_TMA, 0),
    "tma 100": (job(fa2_tma.KERNEL, fa2_tma, 100, 64, True), BY_TMA, 0),
    "persistent 90": (job(fa2_persistent.KERNEL, fa2_persistent, 90, 64, True), BY_TMA, 0),
    "hopper d 64": (job(HOPPER, fa2_hopper, 90, 64, True), BY_TMA, 0),
    "hopper d 128": (job(HOPPER, fa2_hopper, 90, 128, True), BY_TMA, 64),         # a few scalars, outside the loops: see below
    "hopper d 64, window": (job(HOPPER, fa2_hopper, 90, 64, False, **WINDOW), BY_TMA, 96),
    "hopper d 128, window": (job(HOPPER, fa2_hopper, 90, 128, False, **WINDOW), BY_TMA, 96),
    "hopper d 64, packed": (job(HOPPER, fa2_hopper, 90, 64, False, 16384, 16384, **PACKED), BY_TMA, 0),
    "hopper d 128, packed": (job(HOPPER, fa2_hopper, 90, 128, True, 16384, 16384, **PACKED), BY_TMA, 0),
}


@pytest.fixture(scope="module")
def compiled():
    """All in one process: starting one takes longer than compiling a kernel."""
    return dict(zip(CASES, compile_all(job for job, _, _ in CASES.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if a change loses the tensor cores or the copies in the background, spills registers, or outgrows shared memory."""
    (_, arguments, arch), copies, spills = CASES[name]
    result = compiled[name]
    assert PRODUCT[arch] in result.ptx and copies in result.ptx
    assert result.spills <= spills and not result.warnings
    assert result.shared_bytes <= SHARED_LIMIT[arch]


def test_every_kernel_is_compiled_somewhere():
    """fa2_triton_forward in test_compiled.py; fa2_tuned_forward has fa2_split_forward's kernel."""
    there = {job[0].fn.__name__.replace("_kernel", "_forward") for job, _, _ in CASES.values()}
    assert {kernel.name for kernel in ladder.KERNELS} - there == {"fa2_triton_forward", "fa2_tuned_forward"}


def test_one_pipeline_is_one_loop_and_tma_needs_no_masks(compiled):
    """Fails if one loop has become two again, or if tiles are copied by TMA and masked all the same."""
    selections = lambda ptx: ptx.count("selp") + ptx.count("setp")
    exponentials = {name: compiled[name].ptx.count("ex2.approx") for name in ("exp2 80", "pipelined 89")}
    assert exponentials["pipelined 89"] < 1.5 * exponentials["exp2 80"]     # two loops would have twice as many
    by_tma, by_threads = (selections(compiled[name].ptx) for name in ("tma 90, the tiles before", "pipelined 90"))
    assert by_tma < by_threads                         # no masks around loads


def test_the_consumers_of_the_hopper_kernel_spill_nothing_in_their_loops(compiled):
    """Fails if a spilled register is read or written between the products of a loop, where it costs every block of keys."""
    for name in (name for name in CASES if name.startswith("hopper")):
        code = [line for line in compiled[name].sass.splitlines() if re.search(r"/\*[0-9a-f]{4,5}\*/", line)]
        places = {int(re.search(r"/\*([0-9a-f]{4,5})\*/", line)[1], 16): n for n, line in enumerate(code)}
        jumps = [(places.get(int(to[1], 16), n), n) for n, line in enumerate(code) if (to := re.search(r"BRA 0x([0-9a-f]+)", line))]
        loops = ["\n".join(code[start:end + 1]) for start, end in jumps if start < end]
        steps = [loop for loop in loops if "HGMMA" in loop and len(re.findall("MUFU.EX2", loop)) < 70]     # one block of keys
        assert len(steps) >= 2                         # each consumer has its own
        assert not any("LDL" in step or "STL" in step for step in steps)


def test_registers_move_from_the_producer_to_the_consumers(compiled):
    assert all("setmaxnreg" in compiled[name].ptx for name in ("hopper d 64", "hopper d 128"))
