"""The forward kernels as GPUs would run them, from a machine that need not have one: tensor cores, copies, registers,
shared memory."""

import re

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, compile_for, try_all
from flashlab_course.compiler.layouts import layouts

triton = pytest.importorskip("triton", reason="triton is not installed (it exists for Linux only)")

from flashlab.kernels import fa2, fa2_exp2, fa2_pipelined, fa2_split, fa2_tma  # noqa: E402
from flashlab.kernels.tuning import Tiles  # noqa: E402
from flashlab.operator import hopper_forward, windows  # noqa: E402
from flashlab_course.gpu import matmul, row_softmax  # noqa: E402
from flashlab_course.gpu.matrix_add import matrix_add_kernel  # noqa: E402

# The bounds on spills hold for the ptxas of these. Those of 3.8 and, far more, 3.9 spill in the Hopper kernels' loops.
MEASURED = triton.__version__.startswith(("3.6", "3.7"))
PRODUCT = {80: "mma.sync", 86: "mma.sync", 89: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}   # its PTX name
BY_THREADS, BY_TMA = "cp.async.c", "cp.async.bulk.tensor"
CU = torch.empty(5, dtype=torch.int32, device="meta")
WINDOW, PACKED = {"left": 2048, "right": 0}, {"cu_seqlens_q": CU, "cu_seqlens_k": CU, "batch": 4}
SEED = torch.empty((), dtype=torch.int64, device="meta")


def job(module, arch, d, causal=True, N=4096, dtype=torch.bfloat16, **options):
    """What the kernel's function would launch for 16 heads of N tokens."""
    Q = torch.empty(1, 16, N, d, dtype=dtype, device="meta")
    L = torch.empty(1, 16, N, device="meta")
    arguments = module.launch(Q, Q, Q, Q, L, causal=causal, scale=d**-0.5, **options)[1]
    arguments.pop("before", None)                      # the launches whose results the kernel reads
    return module.KERNEL, arguments, arch


# few for each kernel and each GPU: compiling takes seconds. Then bytes spilled, at most.
CASES = {
    "fa2 80 d 128": (job(fa2, 80, 128), BY_THREADS, 0),
    "fa2 90 d 64": (job(fa2, 90, 64), BY_THREADS, 0),
    "fa2 90 d 64, no mask": (job(fa2, 90, 64, False), BY_THREADS, 0),
    "fa2 90 d 128": (job(fa2, 90, 128), BY_THREADS, 0),
    "fa2 90 d 128, no mask": (job(fa2, 90, 128, False), BY_THREADS, 0),
    "fa2 90 d 256": (job(fa2, 90, 256), BY_THREADS, 0),
    "fa2 90 d 128, float32": (job(fa2, 90, 128, dtype=torch.float32), BY_THREADS, 0),
    "fa2 90 d 64, dropout": (job(fa2, 90, 64, False, dropout_p=0.5, seed=SEED), BY_THREADS, 0),
    "fa2 100 d 128": (job(fa2, 100, 128), BY_THREADS, 0),
    "packed, causal": (job(windows, 90, 128, **PACKED), BY_THREADS, 0),
    "window": (job(windows, 90, 128, False, **WINDOW), BY_THREADS, 0),
    "packed, window": (job(windows, 90, 128, False, **PACKED, **WINDOW), BY_THREADS, 0),
    "exp2 80": (job(fa2_exp2, 80, 64), BY_THREADS, 0),
    "split 86": (job(fa2_split, 86, 128), BY_THREADS, 0),
    "pipelined 89": (job(fa2_pipelined, 89, 64), BY_THREADS, 0),
    "pipelined 90": (job(fa2_pipelined, 90, 128), BY_THREADS, 0),
    "tma 90": (job(fa2_tma, 90, 128), BY_TMA, 0),
    "tma 90, the tiles before": (job(fa2_tma, 90, 128, tiles=Tiles(128, 64, 8, 3)), BY_TMA, 0),
    "tma 100": (job(fa2_tma, 100, 64), BY_TMA, 0),
    "hopper d 64": (job(hopper_forward, 90, 64), BY_TMA, 0),
    "hopper d 128": (job(hopper_forward, 90, 128), BY_TMA, 64),        # a few scalars, outside the loops: see below
    "hopper d 256": (job(hopper_forward, 90, 256), BY_TMA, 96),
    "hopper d 64, window": (job(hopper_forward, 90, 64, False, **WINDOW), BY_TMA, 96),
    "hopper d 128, window": (job(hopper_forward, 90, 128, False, **WINDOW), BY_TMA, 96),
    "hopper d 64, packed": (job(hopper_forward, 90, 64, False, 16384, **PACKED), BY_TMA, 0),
    "hopper d 128, packed": (job(hopper_forward, 90, 128, True, 16384, **PACKED), BY_TMA, 0),
}


# ---- chapter 09's kernels, and the instructions that it shows


def matmul_job(arch, descriptors, **tiles):
    A = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    arguments = {"A": A, "B": A, "C": A, "M": 4096, "N": 4096, "K": 4096, "group": 8, "precision": "ieee"} | tiles
    if descriptors:
        strides = {f"stride_{name}": 4096 for name in ("Am", "Bk", "Cm")}
        return matmul.matmul_descriptor_kernel, arguments | strides, arch
    strides = {"stride_Am": 4096, "stride_Ak": 1, "stride_Bk": 4096, "stride_Bn": 1, "stride_Cm": 4096, "stride_Cn": 1}
    return matmul.matmul_kernel, arguments | strides, arch


def softmax_job(N):
    X, (B_m, B_n, warps) = torch.empty(64, 8192, dtype=torch.float16, device="meta"), row_softmax.tiling(N)
    sizes = {"M": 64, "stride_X": N, "stride_Y": N, "N": N, "B_m": B_m, "B_n": B_n, "num_warps": warps}
    return row_softmax.row_softmax_kernel, {"X": X, "Y": X} | sizes, 90


TILES = {"B_m": 128, "B_n": 256, "B_k": 64, "num_warps": 8, "num_stages": 4}     # best_tiles on a Hopper
CASES |= {
    "matmul 80": (matmul_job(80, False, **matmul.best_tiles(torch.float16, "cpu")), BY_THREADS, 0),
    "matmul 90": (matmul_job(90, False, **TILES), BY_THREADS, 0),
    "matmul, descriptors 90": (matmul_job(90, True, **TILES), BY_TMA, 0),
    "matmul, descriptors 100": (matmul_job(100, True, **TILES), BY_TMA, 0),
    "softmax 5000": (softmax_job(5000), "ld.global.v4.b32", 0),
    "softmax 781": (softmax_job(781), "ld.global.b16", 0),
}


ALWAYS = ("fa2 90 d 128, no mask", "fa2 90 d 64, dropout", "exp2 80", "pipelined 89", "pipelined 90",
          "tma 90, the tiles before")


def sum_job(stride_Ym, stride_Yn):
    X = torch.empty(64, 64, device="meta")
    strides = {"stride_Xm": 64, "stride_Xn": 1, "stride_Ym": stride_Ym, "stride_Yn": stride_Yn,
               "stride_Om": 64, "stride_On": 1}
    return matrix_add_kernel, {"X": X, "Y": X, "Out": X, "M": 64, "N": 64, "B_m": 32, "B_n": 64} | strides, 90


def changed(name, **changes):
    kernel, arguments, arch = CASES[name][0]
    return kernel, arguments | changes, arch


@pytest.fixture(scope="module")
def compiled(asked_for):
    """All in one process: starting one takes longer than compiling a kernel."""
    jobs = {name: job for name, (job, *_) in CASES.items()}
    more = {"spilling": changed("fa2 90 d 128", num_warps=4), "refused": changed("fa2 90 d 64", B_d=48),
            "too few warps": changed("matmul, descriptors 90", num_warps=4),
            "sum": sum_job(64, 1), "sum with Yᵀ": sum_job(1, 64)} | {name: jobs[name] for name in ALWAYS}
    jobs = asked_for(jobs) | more
    return dict(zip(jobs, try_all(jobs.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if the tensor cores or the background copies are lost, registers spill, or shared memory is too small."""
    (_, _, arch), copies, spills = CASES[name]
    result = compiled[name]
    no_product = "float32" in name or "softmax" in name                 # float32 is multiplied exactly, not as TF32
    assert (PRODUCT[arch] in result.ptx) != no_product
    assert copies in result.ptx
    assert (result.spills <= spills or not MEASURED) and not result.warnings
    assert result.shared_bytes <= SHARED_LIMIT[arch]


def test_every_kernel_is_compiled_somewhere():
    there = [kernel for (kernel, _, _), *_ in CASES.values()]
    assert all(kernel.home.KERNEL in there for kernel in ladder.KERNELS)


def test_the_report_of_a_kernel(compiled):
    """The same tiles on half the threads need more registers than a thread has. Dropout's kernel brings its Philox."""
    assert compiled["spilling"].spills > 0 and compiled["spilling"].registers == 255
    lacking = compiled["too few warps"]
    assert lacking.spills > 0 and any("serialized" in line for line in lacking.warnings), "the assembler says so"
    result = compiled["fa2 90 d 128, no mask"]
    assert "HGMMA" in result.sass and result.arch == 90
    assert "mul.hi.u32" in compiled["fa2 90 d 64, dropout"].ptx, "a wide product, of a function that the kernel calls"


def test_bad_input_is_named():
    kernel, arguments, _ = CASES["fa2 90 d 64"][0]
    with pytest.raises(ValueError, match="arch must be one of 80, 86, 89, 90, 100, got 70"):
        compile_for(kernel, arguments, 70)
    with pytest.raises(ValueError, match="every parameter of fa2_forward_kernel, missing: scale, N_k"):
        compile_for(kernel, {name: one for name, one in arguments.items() if name not in ("N_k", "scale")}, 90)


def test_who_holds_what_follows_the_strides(compiled):
    """Chapter 09's appendix draws it: lanes follow the dimension of stride 1, and differing ones cost shared memory."""
    straight, mixed = compiled["sum"], compiled["sum with Yᵀ"]
    found = [(tile.kind, tile.order) for tile in layouts(straight.ttgir)]
    assert found == [("load", (1, 0)), ("load", (1, 0)), ("store", (1, 0))]
    assert [tile.order for tile in layouts(mixed.ttgir)] == [(1, 0), (0, 1), (1, 0)]
    assert mixed.shared_bytes > straight.shared_bytes == 0 and layouts(mixed.ttgir)[1].shape == (32, 64)


def test_a_kernel_that_does_not_compile_says_where(compiled):
    """And its refusal does not cost the others."""
    error = compiled["refused"]
    assert isinstance(error, CompileError) and "fa2_forward_kernel does not compile: CompilationError" in str(error)
    assert "tl.arange(0, B_d)" in error.line and "power of 2" in error.reason
    with pytest.raises(CompileError):
        compile_for(*changed("fa2 90 d 64", B_d=48))


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
