"""The kernels above the first as GPUs would run them: tensor cores, copies, registers, shared memory."""

import re

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all

triton = pytest.importorskip("triton", reason="triton is not installed (it exists for Linux only)")

from flashlab.kernels import fa2_exp2, fa2_persistent, fa2_pipelined, fa2_split, fa2_tma  # noqa: E402
from flashlab.kernels.tuning import Tiles  # noqa: E402
from flashlab.operator import hopper_forward  # noqa: E402

pytestmark = pytest.mark.xdist_group("compiled_ladder")     # one worker compiles, once

# The bounds on spills hold for the ptxas of these. Those of 3.8 and, far more, 3.9 spill in the Hopper kernel's loops.
MEASURED = triton.__version__.startswith(("3.6", "3.7"))
PRODUCT = {80: "mma.sync", 86: "mma.sync", 89: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}   # its PTX name
BY_THREADS, BY_TMA = "cp.async.cg", "cp.async.bulk.tensor"
CU = torch.empty(5, dtype=torch.int32, device="meta")
WINDOW, PACKED = {"left": 2048, "right": 0}, {"cu_seqlens_q": CU, "cu_seqlens_k": CU, "batch": 4}


def job(module, arch, d, causal=True, N=4096, **options):
    Q = torch.empty(1, 16, N, d, dtype=torch.bfloat16, device="meta")
    L = torch.empty(1, 16, N, device="meta")
    arguments = module.launch(Q, Q, Q, Q, L, causal=causal, scale=d**-0.5, **options)[1]
    arguments.pop("before", None)                      # the launches whose results the kernel reads
    return module.KERNEL, arguments, arch


# one for each kernel and each GPU: compiling takes seconds. Then bytes spilled, at most.
CASES = {
    "exp2 80": (job(fa2_exp2, 80, 64), BY_THREADS, 0),
    "split 86": (job(fa2_split, 86, 128), BY_THREADS, 0),
    "pipelined 89": (job(fa2_pipelined, 89, 64), BY_THREADS, 0),
    "pipelined 90": (job(fa2_pipelined, 90, 128), BY_THREADS, 0),
    "tma 90": (job(fa2_tma, 90, 128), BY_TMA, 0),
    "tma 90, the tiles before": (job(fa2_tma, 90, 128, tiles=Tiles(128, 64, 8, 3)), BY_TMA, 0),
    "tma 100": (job(fa2_tma, 100, 64), BY_TMA, 0),
    "persistent 90": (job(fa2_persistent, 90, 64), BY_TMA, 0),
    "hopper d 64": (job(hopper_forward, 90, 64), BY_TMA, 0),
    "hopper d 128": (job(hopper_forward, 90, 128), BY_TMA, 64),        # a few scalars, outside the loops: see below
    "hopper d 64, window": (job(hopper_forward, 90, 64, False, **WINDOW), BY_TMA, 96),
    "hopper d 128, window": (job(hopper_forward, 90, 128, False, **WINDOW), BY_TMA, 96),
    "hopper d 64, packed": (job(hopper_forward, 90, 64, False, 16384, **PACKED), BY_TMA, 0),
    "hopper d 128, packed": (job(hopper_forward, 90, 128, True, 16384, **PACKED), BY_TMA, 0),
}


@pytest.fixture(scope="module")
def compiled():
    """All in one process: starting one takes longer than compiling a kernel."""
    return dict(zip(CASES, compile_all([job for job, _, _ in CASES.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if the tensor cores or the background copies are lost, registers spill, or shared memory is too small."""
    (_, _, arch), copies, spills = CASES[name]
    result = compiled[name]
    assert PRODUCT[arch] in result.ptx and copies in result.ptx
    assert (result.spills <= spills or not MEASURED) and not result.warnings
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


def product_loops(sass):
    """The code of each loop that computes products."""
    code = [line for line in sass.splitlines() if re.search(r"/\*[0-9a-f]{4,5}\*/", line)]
    places = {int(re.search(r"/\*([0-9a-f]{4,5})\*/", line)[1], 16): n for n, line in enumerate(code)}
    loops = []
    for end, line in enumerate(code):
        jump = re.search(r"BRA 0x([0-9a-f]+)", line)
        start = places.get(int(jump[1], 16), end) if jump else end
        if start < end:
            loops.append("\n".join(code[start:end + 1]))
    return [loop for loop in loops if "HGMMA" in loop]


@pytest.mark.skipif(not MEASURED, reason="another ptxas")
@pytest.mark.parametrize("name", [name for name in CASES if "hopper" in name])
def test_the_consumers_of_the_hopper_kernel_spill_nothing_in_their_loops(compiled, name):
    """Fails if a loop reads or writes a spilled register between its products, which costs every block of keys."""
    steps = [loop for loop in product_loops(compiled[name].sass) if loop.count("MUFU.EX2") < 70]   # one block of keys
    assert len(steps) >= 2                             # each consumer has its own
    assert not any("LDL" in step or "STL" in step for step in steps)
    assert "setmaxnreg" in compiled[name].ptx          # registers move from the producer to the consumers
