"""Cases and mistakes of ex02_vector_add."""

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N, block, *, seed):
    features = {"more than one block": N > block, "a short last block": N % block != 0, "more than one warp in a block": block > 32,
                "N a multiple of the block": N % block == 0}
    inputs = lambda: {"A": normal(N, seed=seed), "B": normal(N, seed=seed + 1), "block": block}
    return Case(name, inputs, frozenset(f for f, true in features.items() if true), {"N": N, "block": block})


EXERCISE = Exercise(
    function="vector_add",
    outputs=(Output("C", ("element",)), Output("threads")),
    truth=lambda A, B, block: (A.double() + B.double(), block * -(-len(A) // block)),
    cases=[
        case("one full block", 4, 4, seed=200),
        case("two full blocks", 8, 4, seed=202),
        case("a short last block", 7, 4, seed=204),
        case("fewer elements than threads", 8, 64, seed=206),
        case("two warps in a block", 150, 64, seed=208),
        case("one element", 1, 4, seed=210),
        case("a last block less than half full", 9, 4, seed=212),
        case("a block of 6", 15, 6, seed=214),
    ],
    mistakes=[
        Mistake("grid_floor", "the number of blocks was rounded down, so the last, short block was never launched",
                "blocks_needed: ceil(N / block) is -(-N // block)", ("-(-N // block)", "max(1, N // block)"), also=[[("-(-N // block)", "N // block")]]),
        Mistake("one_block", "a single block was launched, however many elements there are", "blocks_needed: N elements, `block` in each block",
                ("-(-N // block)", "1")),
        Mistake("no_guard", "threads past the end reached outside the vectors: no guard kept them from it, or one that comes too late or lets too many through",
                "what a thread does whose number is N or more", ("if i < N:\n        C[i] = A[i] + B[i]", "C[i] = A[i] + B[i]")),
        Mistake("one_block_too_many", "a block was launched in which no thread has an element", "blocks_needed: where block divides N, N / block are enough",
                ("-(-N // block)", "N // block + 1")),
        Mistake("guard_too_tight", "the thread of the last element did nothing", "the number of the last element: N − 1, which is < N",
                ("if i < N:", "if i < N - 1:")),
        Mistake("no_block_offset", "only the first block's elements were added: the other blocks began at element 0 again (no blockIdx.x), or past the end",
                "where block b begins: at element b · blockDim.x", ("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")),
        Mistake("block_and_thread_swapped", "threadIdx.x was multiplied where blockIdx.x belongs", "a block takes blockDim.x neighbouring elements",
                ("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x * blockDim.x + blockIdx.x")),
        Mistake("step_of_32", "blocks were taken to have 32 threads always", "blockDim.x: the threads in a block", ("blockIdx.x * blockDim.x", "blockIdx.x * 32")),
        Mistake("A_twice", "A was added to itself", "the sum: A[i] + B[i]", ("A[i] + B[i]", "A[i] + A[i]")),
        Mistake("rounded", "the number of blocks was rounded to the nearest whole number, so that a last block less than half full was never launched",
                "blocks_needed: rounded up, ceil(N / block)", ("-(-N // block)", "max(1, round(N / block))")),
        Mistake("blocks_of_elements", "a block was launched for each element", "blocks_needed: a block takes `block` elements", ("-(-N // block)", "N")),
        Mistake("first_element_of_the_block", "every thread of a block worked on the block's first element: threadIdx.x was not used",
                "i: my number within the block is added", ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * blockDim.x")),
        Mistake("guard_of_the_thread", "the thread's number within its block was held against N", "the guard: i, the number of the element",
                ("if i < N:", "if threadIdx.x < N:")),
        Mistake("rounded_half", "the number of blocks was round(N / block + 0.5), which is one too many where N / block is an odd number",
                "blocks_needed: Python's round takes a half to the even number; ceil(N / block) is -(-N // block)", ("-(-N // block)", "round(N / block + 0.5)")),
        Mistake("added_to_C", "what lay in C was added to: C held NaN, or whatever was there before", "C[i]: set to the sum, whatever lies there",
                ("C[i] = A[i] + B[i]", "C[i] = C[i] + A[i] + B[i]")),
    ],
    hints=[
        "The blocks before mine take blockIdx.x * blockDim.x elements. Add my number within the block.",
        "A thread with i >= N has no element: do the work inside `if i < N:`.",
        "-(-N // block) rounds up: -7 // 4 is -2, so -(-7 // 4) is 2.",
    ],
)
