"""The SIMT interpreter against expected results. The CUDA C++ kernels it stands for are checked in tests/gpu."""

import shutil

import pytest
import torch

from flashlab_course.gpu import cuda, simt
from flashlab_course.gpu.simt import blockDim, blockIdx, launch, shared, syncthreads, threadIdx


def add(N, grid, block):
    A, B, C = torch.randn(N), torch.randn(N), torch.full((N,), torch.nan)
    trace = launch(simt.vector_add, grid, block)(A, B, C, N)
    return torch.equal(C, A + B), trace


@pytest.mark.parametrize("N, block", [(1, 1), (100, 48), (2048, 1024)])
def test_vector_add_reaches_every_element_once_but_a_floored_grid_drops_the_tail(N, block):
    right, trace = add(N, -(-N // block), block)
    assert right
    assert trace.active_lanes(line=4) == N                  # the line that adds: one lane an element
    assert trace.threads == block * -(-N // block)
    assert N % block == 0 or not add(N, N // block, block)[0]


def test_idle_lanes_belong_to_their_warp():
    right, trace = add(8, 1, 64)
    assert right
    assert trace.threads - trace.active_lanes(line=4) == 56
    assert trace.idle_lanes(line=4) == 24
    assert trace.warp()[-1].active == (True,) * 8 + (False,) * 24
    assert [step.line for step in trace.warp(warp=1)] == [2, 3]        # it has nothing to add
    right, trace = add(8, 1, 8)                             # a block of 8 threads is still a warp of 32 lanes
    assert right and {(sum(step.active), len(step.active)) for step in trace.steps} == {(8, 32)}


def test_neighbours_along_a_row_share_sectors_and_down_a_column_do_not():
    found = {}
    for kernel, grid in ((simt.matrix_add, (3, 5)), (simt.matrix_add_down_columns, (2, 9))):
        A, B, C = torch.randn(40, 70), torch.randn(40, 70), torch.full((40, 70), torch.nan)
        launch(kernel, grid, (32, 8))(A, B, C, 40, 70)
        assert torch.equal(C, A + B)
        A, B, C = (torch.zeros(64, 64) for _ in range(3))
        found[kernel.__name__] = launch(kernel, (2, 8), (32, 8))(A, B, C, 64, 64).sectors("load")
    instructions = 2 * 64 * 64 // 32
    assert found["matrix_add"] == (4 * instructions, instructions)         # 32 floats of 4 bytes are 4 sectors of 32
    assert found["matrix_add_down_columns"] == (32 * instructions, instructions)


def two_paths(period, N=64, rounds=3):
    X = torch.randn(N)
    sides = torch.arange(N) // period % 2 == 0
    truth = X.clone()
    for _ in range(rounds):
        truth = torch.where(sides, truth * 0.5 + 1, truth * 0.25 - 1)
    trace = launch(simt.two_paths, -(-N // 64), 64)(X, N, period, rounds)
    torch.testing.assert_close(X, truth)
    return trace


def test_a_warp_that_disagrees_takes_both_paths_and_one_that_agrees_takes_one():
    divergent, agreeing = two_paths(period=1), two_paths(period=32)
    loop = 2 * 3 + 1                                        # the range asked four times, the body run three times
    assert divergent.warp_steps == 2 * (5 + 2 * loop)       # two warps: three lines, the branch, both loops, the store
    assert agreeing.warp_steps == 2 * (5 + loop)
    assert two_paths(period=16).warp_steps == divergent.warp_steps     # half a warp each is no better
    assert all(divergent.warp()[-1].active)                 # the lanes join again after the branch


def uneven_loop(Out, N):
    i = threadIdx.x
    k = 0
    while k < i:
        k += 1
    if i >= N:
        return
    Out[i] = k


def test_a_loop_runs_until_its_last_lane_is_done_and_lanes_that_returned_stay_away():
    Out = torch.zeros(32)
    trace = launch(uneven_loop, 1, 32)(Out, 10)
    assert Out.tolist() == [*range(10), *[0] * 22]
    assert [sum(step.active) for step in trace.steps if step.line == 5] == list(range(31, 0, -1))
    assert sum(trace.steps[-1].active) == 10


def grid_of_three_axes(Out):
    place = (blockIdx.z * 3 + blockIdx.y) * 2 + blockIdx.x
    Out[place] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * blockDim.x


def first_of_row(A, Out, stride):
    Out[threadIdx.x] = A[threadIdx.x * stride]


def test_the_axes_of_a_grid_and_a_view_as_a_pointer_to_its_first_number():
    Out = torch.zeros(12, dtype=torch.int64)
    trace = launch(grid_of_three_axes, (2, 3, 2), 1)(Out)
    assert Out.tolist() == [1000 + x + 10 * y + 100 * z for z in range(2) for y in range(3) for x in range(2)]
    assert trace.warp(block=7)[0].block == (1, 0, 1) and trace.storing_threads == 12
    A, Out = torch.arange(12.0).view(3, 4), torch.zeros(3)
    launch(first_of_row, 1, 3)(A[:, 1:], Out, A.stride(0))
    assert Out.tolist() == [1, 5, 9]


def no_guard(A, B, C, N):
    i = blockIdx.x * blockDim.x + threadIdx.x
    C[i] = A[i] + B[i]


def test_an_access_outside_names_the_line_the_thread_and_the_tensor():
    A, B, C = (torch.zeros(70) for _ in range(3))
    where = r"no_guard, line 3 `C\[i\] = A\[i\] \+ B\[i\]`, block \(1, 0, 0\), thread \(6, 0, 0\): "
    with pytest.raises(IndexError, match=where + r"loads A\[70\], but A has 70 elements"):
        launch(no_guard, 2, 64)(A, B, C, 70)


def float_index(A):
    A[threadIdx.x / 2] = 1


def breaks(A):
    for _ in range(3):
        break


def endless(A):
    while True:
        A[0] = 1


@pytest.mark.parametrize("kernel, grid, block, error, words", [
    (float_index, 1, 1, TypeError, "must be an integer"),
    (breaks, 1, 1, SyntaxError, "line 3 `break`"),
    (endless, 1, 1, RuntimeError, "never ends"),
    (simt.vector_add, 1, 1, TypeError, "takes 4 arguments"),
    (float_index, 1, 2048, ValueError, "1024"),
    (float_index, 0, 1, ValueError, "grid must be"),
])
def test_what_a_gpu_or_the_interpreter_refuses_is_named(kernel, grid, block, error, words):
    with pytest.raises(error, match=words):
        launch(kernel, grid, block)(torch.zeros(4))


def test_thread_indices_outside_a_kernel_say_so():
    for use in (lambda: threadIdx.x, lambda: shared.__setitem__(0, 1), syncthreads):
        with pytest.raises(RuntimeError, match="only inside a kernel"):
            use()




# ---- shared memory

def test_the_threads_of_a_block_sum_their_numbers_in_shared_memory():
    for block in (1, 32, 256):
        X, sums = torch.randn(3 * block), torch.full((3,), torch.nan)
        trace = launch(simt.block_sum, 3, block, shared=block)(X, sums)
        torch.testing.assert_close(sums, X.view(3, block).sum(1))
        loads = sum(len(access.offsets) for step in trace.steps for access in step.accesses if access.kind == "load")
        assert loads == 3 * block                           # shared memory is not HBM: its reads are not in the log


def everybody_reads_the_last(X, Y):
    shared[threadIdx.x] = X[threadIdx.x]
    Y[threadIdx.x] = shared[blockDim.x - 1]


def everybody_waits_for_the_last(X, Y):
    shared[threadIdx.x] = X[threadIdx.x]
    syncthreads()
    Y[threadIdx.x] = shared[blockDim.x - 1]


def test_without_a_barrier_a_warp_reads_what_another_has_not_written_in_its_own_blocks_memory():
    X, Y = torch.randn(64), torch.zeros(64)
    launch(everybody_reads_the_last, 1, 64, shared=64)(X, Y)
    assert Y[:32].isnan().all() and (Y[32:] == X[63]).all()
    launch(everybody_waits_for_the_last, 1, 64, shared=64)(X, Y)
    assert (Y == X[63]).all()
    with pytest.raises(IndexError, match=r"loads shared\[63\], but shared has 32 elements"):
        launch(everybody_reads_the_last, 1, 64, shared=32)(X, Y)
    with pytest.raises(RuntimeError, match="shared also needs launch"):
        launch(everybody_reads_the_last, 1, 64)(X, Y)


def some_wait(X, threads):
    if threadIdx.x < threads:
        syncthreads()


def test_a_barrier_that_some_never_reach_is_refused():
    for threads, words in ((16, "16 of 32 lanes"), (32, "others that have ended")):
        with pytest.raises(RuntimeError, match=words):
            launch(some_wait, 1, 64)(torch.zeros(1), threads)


# ---- the CUDA C++ sources

def test_without_a_gpu_a_cuda_kernel_points_to_the_interpreter():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="flashlab_course.gpu.simt"):
        cuda.kernel("vector_add")
    with pytest.raises(KeyError, match="there are vector_add"):
        cuda.kernel("vector_sub")


@pytest.mark.skipif(not torch.cuda.is_available() or not shutil.which("nvcc"), reason="needs an NVIDIA GPU and nvcc")
def test_the_programs_build_run_and_check_themselves():
    for name, arguments in (("vector_add", (1001, 64)), ("matrix_add", (101, 67)), ("two_paths", (4096, 10))):
        lines = cuda.run_program(name, *arguments).splitlines()
        assert lines and all("ms" in line for line in lines)
        assert all(" 0 wrong" in line for line in lines if "wrong" in line)
