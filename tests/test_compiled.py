"""The kernel as a GPU would run it, from a machine that need not have one: tensor cores, registers, shared memory."""

import pytest
import torch

from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, CompileError, compile_all, compile_for, try_all
from flashlab_course.compiler.layouts import layouts

fa2 = pytest.importorskip("flashlab.kernels.fa2", reason="triton is not installed (it exists for Linux only)")

bf16, fp32 = torch.bfloat16, torch.float32
TENSOR_CORES = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}    # the instruction's name in PTX
CASES = [(arch, bf16, d, True) for arch in TENSOR_CORES for d in (64, 128)]   # causal needs the more registers
CASES += [(90, bf16, 64, False), (90, bf16, 128, False), (90, bf16, 256, True), (90, fp32, 128, True)]


def launch_arguments(dtype, d, causal, **changes):
    """What fa2_triton_forward would launch for 16 heads of 4096 tokens."""
    X, L = torch.empty(1, 16, 4096, d, dtype=dtype, device="meta"), torch.empty(1, 16, 4096, device="meta")
    options = {"causal": causal, "scale": d**-0.5} | {key: changes.pop(key) for key in ("dropout_p", "seed") if key in changes}
    return fa2.launch(X, X, X, X, L, **options)[1] | changes


SPILLING = (fa2.fa2_forward_kernel, launch_arguments(bf16, 128, True, num_warps=4), 90)     # twice the registers a thread


@pytest.fixture(scope="module")
def compiled():
    """All in one process: starting one takes longer than compiling a kernel."""
    jobs = [(fa2.fa2_forward_kernel, launch_arguments(*case), arch) for arch, *case in CASES]
    return dict(zip([*CASES, "spilling"], compile_all([*jobs, SPILLING]), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_compiler_made_of_it(compiled, case):
    """Fails if a change to the kernel or its tiles loses the tensor cores or the pipelined loads, or spills registers."""
    arch, dtype, _, _ = case
    result = compiled[case]
    assert (TENSOR_CORES[arch] in result.ptx) == (dtype != fp32)      # float32 is multiplied exactly, not as TF32
    assert "cp.async" in result.ptx                                   # the next K_j and V_j arrive while this tile is computed
    assert result.spills == 0
    assert result.shared_bytes <= SHARED_LIMIT[arch]
    assert not result.warnings
    assert 32 <= result.registers <= 255


def test_spills_are_seen(compiled):
    """The instrument works: the same tiles on half the threads need more registers than a thread has."""
    assert compiled["spilling"].spills > 0 and compiled["spilling"].registers == 255


def test_machine_code(compiled):
    result = compiled[90, bf16, 128, False]
    assert "HGMMA" in result.sass and result.arch == 90


def test_bad_input_is_named():
    arguments = launch_arguments(bf16, 64, False)
    with pytest.raises(ValueError, match="arch must be one of 80, 86, 89, 90, 100, got 70"):
        compile_for(fa2.fa2_forward_kernel, arguments, 70)
    del arguments["N_k"], arguments["scale"]
    with pytest.raises(ValueError, match="every parameter of fa2_forward_kernel, missing: scale, N_k"):
        compile_for(fa2.fa2_forward_kernel, arguments, 90)


def test_a_kernel_travels_with_the_kernels_and_constants_that_it_uses():
    """A cell's kernel has no module to import, so that its text is compiled. This one calls `kept`, for its dropout."""
    seed = torch.empty((), dtype=torch.int64, device="meta")
    result = compile_for(fa2.fa2_forward_kernel, launch_arguments(bf16, 64, False, dropout_p=0.5, seed=seed), 90)
    assert "wgmma" in result.ptx and "mul.hi.u32" in result.ptx and result.spills == 0     # a wide product: Philox, in `kept`


def test_who_holds_what_follows_the_strides():
    """Chapter 09's appendix draws it: lanes go along the dimension whose stride is 1, and lanes that differ cost shared memory."""
    from flashlab_course.gpu.matrix_add import matrix_add_kernel

    X = torch.empty(64, 64, device="meta")
    rows, turned = {"stride_Xm": 64, "stride_Xn": 1}, {"stride_Ym": 1, "stride_Yn": 64}
    common = {"X": X, "Y": X, "Out": X, "stride_Om": 64, "stride_On": 1, "M": 64, "N": 64, "B_m": 32, "B_n": 64} | rows
    straight, mixed = compile_all([(matrix_add_kernel, common | y, 90) for y in ({"stride_Ym": 64, "stride_Yn": 1}, turned)])
    assert [(tile.kind, tile.order) for tile in layouts(straight.ttgir)] == [("load", (1, 0)), ("load", (1, 0)), ("store", (1, 0))]
    assert [tile.order for tile in layouts(mixed.ttgir)] == [(1, 0), (0, 1), (1, 0)]
    assert mixed.shared_bytes > straight.shared_bytes == 0 and layouts(mixed.ttgir)[1].shape == (32, 64)


def test_a_kernel_that_does_not_compile_says_where(monkeypatch):
    arguments = launch_arguments(bf16, 64, False) | {"B_d": 48}                # no power of two
    with pytest.raises(CompileError, match="fa2_forward_kernel does not compile: CompilationError") as error:
        compile_for(fa2.fa2_forward_kernel, arguments, 90)
    assert "tl.arange(0, B_d)" in error.value.line and "power of 2" in error.value.reason
    good, bad = try_all([(fa2.fa2_forward_kernel, launch_arguments(bf16, 64, False), 90), (fa2.fa2_forward_kernel, arguments, 90)])
    assert good.registers and isinstance(bad, CompileError)                    # one refusal does not cost the others


def test_a_window_and_packed_sequences_fit_too():
    """Fails if they push the operator's own kernel out of its registers."""
    from flashlab.operator import windows

    cu = torch.empty(9, dtype=torch.int32, device="meta")
    packed, window = {"cu_seqlens_q": cu, "cu_seqlens_k": cu, "batch": 8}, {"left": 512, "right": 0}
    X, L = torch.empty(1, 16, 4096, 128, dtype=bf16, device="meta"), torch.empty(1, 16, 4096, device="meta")
    cases = [windows.launch(X, X, X, X, L, causal=causal, scale=0.1, **more)[1] for causal, more in
             ((True, packed), (False, packed), (False, window), (False, packed | window))]
    for result in compile_all([(windows.KERNEL, case, 90) for case in cases]):
        assert result.spills == 0 and "wgmma" in result.ptx and "cp.async" in result.ptx
