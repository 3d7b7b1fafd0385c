"""Cases and mistakes of ex02_idle_lanes."""

import torch

from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N, block):
    features = {"a block that is no multiple of 32": block % 32 != 0, "more than one block": N > block, "a short last block": N % block != 0,
                "N a multiple of the block": N % block == 0, "a warp without any element": block > 32 and -(-(N % block or block) // 32) < -(-block // 32)}
    inputs = {"N": N, "block": block}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in features.items() if true), inputs)


def truth(N, block):
    """Asked of the interpreter."""
    from flashlab_course.gpu import simt

    A = torch.zeros(N)
    trace = simt.launch(simt.vector_add, -(-N // block), block)(A, A, A.clone(), N)
    return -(-N // block), trace.threads - trace.active_lanes(line=4), trace.idle_lanes(line=4)


EXERCISE = Exercise(
    function="lanes",
    outputs=(Output("blocks"), Output("without"), Output("idle")),
    truth=truth,
    ints_only=True,
    off_limits=("gpu",),
    cases=[
        case("the example", 8, 64),
        case("nobody idle", 64, 32),
        case("a short last warp", 70, 32),
        case("blocks of 8", 40, 8),
        case("blocks of 40", 100, 40),
        case("a last block of two warps", 75, 40),
        case("a warp with nothing to do", 257, 128),
        case("blocks of 100", 1001, 100),
        case("one element", 1, 40),
        case("four whole blocks of 96", 384, 96),
    ],
    mistakes=[
        Mistake("grid_floor", "the number of blocks was rounded down", "blocks: ceil(N / block)", ("blocks = -(-N // block)", "blocks = max(1, N // block)")),
        Mistake("first_warp_only", "threads without an element were counted in the first warp alone, as if a block had 32 threads",
                "without: all threads that are launched, minus N", ("without = blocks * block - N", "without = blocks * min(block, 32) - N")),
        Mistake("whole_vector", "the vector was cut into warps as a whole, though each block has warps of its own",
                "blocks do not share warps: a block of 40 threads takes two of them", ("warps = full * -(-block // 32) + -(-rest // 32)", "warps = -(-N // 32)")),
        Mistake("warps_floor", "the warps of a block were rounded down", "a block of 40 threads takes two warps, a block of 8 takes one",
                ("full * -(-block // 32)", "full * max(1, block // 32)")),
        Mistake("one_warp_a_block", "every block was taken to have one warp, however many threads it has",
                "a block of 40 threads takes two warps, one of 128 takes four", ("full * -(-block // 32) + -(-rest // 32)", "full + (rest > 0)"),
                also=[[("full * -(-block // 32)", "full")]]),
        Mistake("lanes_of_the_block", "a warp of a small block was taken to have as many lanes as the block has threads",
                "a warp always has 32 lanes, and those without a thread are idle, too", ("32 * warps - N", "min(32, block) * warps - N")),
        Mistake("all_warps", "warps without any element were counted too", "the short block: only the warps that its elements reach",
                ("-(-rest // 32)", "-(-block // 32) * (rest > 0)")),
        Mistake("rest_forgotten", "the warps of the short last block were left out, though its elements were counted as busy lanes",
                "the short last block: it has ⌈rest / 32⌉ warps with an element, rest = N mod block", ("+ -(-rest // 32)", "")),
        Mistake("one_block_too_many", "a block was counted in which no thread has an element", "blocks: where block divides N, N / block are enough",
                ("blocks = -(-N // block)", "blocks = N // block + 1")),
        Mistake("without_of_full_blocks", "threads without an element were counted although the last block is full",
                "without: where block divides N there are none", ("without = blocks * block - N", "without = block - N % block")),
        Mistake("last_block_only", "only the last block's idle lanes were counted", "full blocks have idle lanes as well, where block is no multiple of 32",
                ("return blocks, without, 32 * warps - N", "return blocks, without, 32 * -(-(rest or block) // 32) - (rest or block)")),
        Mistake("last_block_empty", "a full last block was taken to have N mod block = 0 elements, and none of its lanes to be idle",
                "where block divides N the last block is a full one, with the idle lanes of a full one",
                ("32 * warps - N", "(blocks - 1) * (-block % 32) + -rest % 32")),
        Mistake("threads_not_lanes", "in a block's last warp only the lanes that have a thread were counted",
                "a warp always has 32 lanes, and those without a thread are idle, too", ("32 * warps - N", "full * block + min(block, 32 * -(-rest // 32)) - N")),
        Mistake("full_blocks_left_out", "idle lanes were counted in the last, short block alone, as if full blocks had none",
                "a full block of 40 threads has 24 idle lanes too", ("32 * warps - N", "-rest % 32")),
        Mistake("without_of_all_lanes", "the lanes of all warps were counted, not the threads of all blocks",
                "without: a block has `block` threads, whatever its warps could hold",
                ("without = blocks * block - N", "without = blocks * -(-block // 32) * 32 - N")),
    ],
    hints=[
        "blocks = -(-N // block), and blocks * block threads are launched for N elements.",
        "A full block has -(-block // 32) warps with elements; the short one, with N % block elements, has -(-(N % block) // 32).",
        "Each of these warps has 32 lanes. All of them together hold N busy ones.",
    ],
)
