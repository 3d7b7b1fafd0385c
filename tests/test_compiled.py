"""The kernel as a GPU would run it, from a machine that need not have one: tensor cores, registers, shared memory."""

import pytest
import torch

from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, compile_for, try_all
from flashlab_course.compiler.layouts import layouts

fa2 = pytest.importorskip("flashlab.kernels.fa2", reason="triton is not installed (it exists for Linux only)")

from flashlab.operator import windows  # noqa: E402
from flashlab_course.gpu.matrix_add import matrix_add_kernel  # noqa: E402

pytestmark = pytest.mark.xdist_group("compiled")            # one worker compiles, once

bf16, fp32 = torch.bfloat16, torch.float32
TENSOR_CORES = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}    # the instruction's name in PTX
CASES = [(arch, bf16, d, True) for arch in TENSOR_CORES for d in (64, 128)]   # causal needs the more registers
CASES += [(90, bf16, 64, False), (90, bf16, 128, False), (90, bf16, 256, True), (90, fp32, 128, True)]
CU = torch.empty(9, dtype=torch.int32, device="meta")
PACKED, WINDOW = {"cu_seqlens_q": CU, "cu_seqlens_k": CU, "batch": 8}, {"left": 512, "right": 0}
WITH_OPTIONS = {"packed, causal": (True, PACKED), "packed": (False, PACKED), "window": (False, WINDOW),
                "packed, window": (False, PACKED | WINDOW)}


def launched(module, dtype, d, causal, **options):
    """What fa2_triton_forward would launch for 16 heads of 4096 tokens."""
    X, L = torch.empty(1, 16, 4096, d, dtype=dtype, device="meta"), torch.empty(1, 16, 4096, device="meta")
    return module.KERNEL, module.launch(X, X, X, X, L, causal=causal, scale=d**-0.5, **options)[1]


def sum_job(stride_Ym, stride_Yn):
    X = torch.empty(64, 64, device="meta")
    strides = {"stride_Xm": 64, "stride_Xn": 1, "stride_Ym": stride_Ym, "stride_Yn": stride_Yn,
               "stride_Om": 64, "stride_On": 1}
    return matrix_add_kernel, {"X": X, "Y": X, "Out": X, "M": 64, "N": 64, "B_m": 32, "B_n": 64} | strides, 90


@pytest.fixture(scope="module")
def compiled():
    """All in one process: starting one takes longer than compiling a kernel."""
    kernel, arguments = launched(fa2, bf16, 128, True)
    small = launched(fa2, bf16, 64, True)[1]
    seed = torch.empty((), dtype=torch.int64, device="meta")
    jobs = {(arch, *case): (*launched(fa2, *case), arch) for arch, *case in CASES}
    jobs |= {name: (*launched(windows, bf16, 128, causal, **options), 90)
             for name, (causal, options) in WITH_OPTIONS.items()}
    jobs |= {"spilling": (kernel, arguments | {"num_warps": 4}, 90),                     # twice the registers a thread
             "dropout": (*launched(fa2, bf16, 64, False, dropout_p=0.5, seed=seed), 90),
             "refused": (kernel, small | {"B_d": 48}, 90),                               # no power of two
             "sum": sum_job(64, 1), "sum with Yᵀ": sum_job(1, 64)}
    return dict(zip(jobs, try_all(jobs.values()), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_compiler_made_of_it(compiled, case):
    """Fails if a change to the kernel or its tiles loses the tensor cores or the pipelined loads, or spills."""
    arch, dtype, _, _ = case
    result = compiled[case]
    assert (TENSOR_CORES[arch] in result.ptx) == (dtype != fp32)      # float32 is multiplied exactly, not as TF32
    assert "cp.async" in result.ptx                                   # the next K_j and V_j arrive during the product
    assert result.spills == 0
    assert result.shared_bytes <= SHARED_LIMIT[arch]
    assert not result.warnings
    assert 32 <= result.registers <= 255


def test_the_report_of_a_kernel(compiled):
    """The same tiles on half the threads need more registers than a thread has."""
    assert compiled["spilling"].spills > 0 and compiled["spilling"].registers == 255
    result = compiled[90, bf16, 128, False]
    assert "HGMMA" in result.sass and result.arch == 90


def test_bad_input_is_named():
    kernel, arguments = launched(fa2, bf16, 64, False)
    with pytest.raises(ValueError, match="arch must be one of 80, 86, 89, 90, 100, got 70"):
        compile_for(kernel, arguments, 70)
    del arguments["N_k"], arguments["scale"]
    with pytest.raises(ValueError, match="every parameter of fa2_forward_kernel, missing: scale, N_k"):
        compile_for(kernel, arguments, 90)


def test_a_kernel_travels_with_the_kernels_and_constants_that_it_uses(compiled):
    """A cell's kernel has no module to import, so its text is compiled. This one calls `kept`, for its dropout."""
    result = compiled["dropout"]
    assert "wgmma" in result.ptx and result.spills == 0
    assert "mul.hi.u32" in result.ptx                                 # a wide product: Philox, in `kept`


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
    kernel, arguments = launched(fa2, bf16, 64, False)
    with pytest.raises(CompileError):
        compile_for(kernel, arguments | {"B_d": 48}, 90)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_a_window_and_packed_sequences_fit_too(compiled, name):
    """Fails if they push the operator's own kernel out of its registers."""
    result = compiled[name]
    assert result.spills == 0 and "wgmma" in result.ptx and "cp.async" in result.ptx
