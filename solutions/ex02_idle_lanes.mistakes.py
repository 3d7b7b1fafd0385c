"""Cases and mistakes of ex02_idle_lanes."""

import torch

from flashlab.check.form import Case, Exercise, Mistake, Output, Variant


def case(name, N, block):
    features = {"a block that is no multiple of 32": block % 32 != 0, "more than one block": N > block, "a short last block": N % block != 0,
                "a warp without any element": block > 32 and -(-(N % block or block) // 32) < -(-block // 32)}
    inputs = {"N": N, "block": block}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in features.items() if true), inputs)


def truth(N, block):
    """Asked of the interpreter."""
    from flashlab.gpu import simt

    A = torch.zeros(N)
    trace = simt.launch(simt.vector_add, -(-N // block), block)(A, A, A.clone(), N)
    return -(-N // block), trace.threads - trace.active_lanes(line=4), trace.idle_lanes(line=4)


EXERCISE = Exercise(
    function="lanes",
    outputs=(Output("blocks"), Output("without"), Output("idle")),
    truth=truth,
    ints_only=True,
    cases=[
        case("the example", 8, 64),
        case("nobody idle", 64, 32),
        case("a short last warp", 70, 32),
        case("blocks of 8", 40, 8),
        case("blocks of 40", 100, 40),
        case("a warp with nothing to do", 257, 128),
        case("blocks of 100", 1001, 100),
    ],
    mistakes=[
        Mistake("grid_floor", "the number of blocks was rounded down", "blocks: ceil(N / block)", ("blocks = -(-N // block)", "blocks = max(1, N // block)")),
        Mistake("first_warp_only", "threads without an element were counted in the first warp alone, as if a block had 32 threads",
                "without: all threads that are launched, minus N", ("without = blocks * block - N", "without = blocks * min(block, 32) - N")),
        Mistake("whole_vector", "the vector was cut into warps as a whole, though each block has warps of its own",
                "blocks do not share warps: a block of 40 threads takes two of them",
                ("warps = full * -(-block // 32) + -(-rest // 32)", "warps = -(-N // 32)")),
        Mistake("warps_floor", "the warps of a block were rounded down", "a block of 40 threads takes two warps, a block of 8 takes one",
                ("full * -(-block // 32)", "full * max(1, block // 32)")),
        Mistake("all_warps", "warps without any element were counted too", "the short block: only the warps that its elements reach",
                ("-(-rest // 32)", "-(-block // 32) * (rest > 0)")),
        Mistake("rest_forgotten", "the short last block was left out", "divmod(N, block) has a rest", ("+ -(-rest // 32)", "")),
        Mistake("idle_is_without", "idle lanes were taken to be the threads without an element",
                "a lane without a thread is idle too, and a warp that leaves at the guard is not counted", ("32 * warps - N", "without")),
        Mistake("busy_lanes", "busy lanes were counted, not idle ones", "the last number: 32 lanes a warp, minus the busy ones", ("32 * warps - N", "N")),
    ],
    variants=[
        Variant("block by block", body="""
            import math
            blocks, idle = math.ceil(N / block), 0
            for b in range(blocks):
                elements = min(block, N - b * block)
                idle += (32 - elements % 32) % 32
            return blocks, blocks * block - N, idle
            """),
    ],
    hints=[
        "blocks = -(-N // block), and blocks * block threads are launched for N elements.",
        "A full block has -(-block // 32) warps with elements; the short one, with N % block elements, has -(-(N % block) // 32).",
        "Each of these warps has 32 lanes. All of them together hold N busy ones.",
    ],
)
