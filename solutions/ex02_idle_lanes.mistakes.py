import torch

from flashlab_course.check.cases import Mistake, case_of

BLOCKS, WITHOUT, IDLE = "blocks = -(-N // block)", "without = blocks * block - N", "32 * warps - N"

outputs = [("blocks",), ("without",), ("idle",)]
ints_only = True
off_limits = ("gpu",)
features = {"a block that is no multiple of 32": lambda block: block % 32, "N a multiple of the block":
            lambda N, block: N % block == 0, "a warp without any element":
            lambda N, block: -(-(N % block or block) // 32) < -(-block // 32)}
case = case_of(lambda N, block: {"N": N, "block": block})


def truth(N, block):
    """Asked of the interpreter."""
    from flashlab_course.gpu import simt

    A = torch.zeros(N)
    trace = simt.launch(simt.vector_add, -(-N // block), block)(A, A, A.clone(), N)
    return -(-N // block), trace.threads - trace.active_lanes(line=4), trace.idle_lanes(line=4)


cases = [case("the example", 8, 64),
         case("nobody idle", 64, 32),
         case("a short last warp", 70, 32),
         case("blocks of 8", 40, 8),
         case("blocks of 40", 100, 40),
         case("a warp with nothing to do", 257, 128)]
mistakes = [
    Mistake("grid_floor", "the number of blocks was rounded down", "a last block that is not full", (BLOCKS,
             "blocks = max(1, N // block)")),
    Mistake("one_block_too_many", "a block was counted in which no thread has an element",
            "the number of blocks where block divides N", (BLOCKS, "blocks = N // block + 1")),
    Mistake("without_of_full_blocks", "threads without an element were counted in a full last block",
            "the remainder where block divides N", (WITHOUT, "without = block - N % block")),
    Mistake("without_of_all_lanes", "`without` counted the lanes of all warps, not the threads of all blocks",
            "how many threads a block of 40 launches", (WITHOUT, "without = blocks * -(-block // 32) * 32 - N")),
    Mistake("whole_vector", "the vector was cut into warps as a whole, as if blocks shared warps",
            "whose threads a warp holds", ("full * -(-block // 32) + -(-rest // 32)", "-(-N // 32)")),
    Mistake("lanes_of_the_block", "a warp in a small block was given as many lanes as the block has threads",
            "the number of lanes in a warp", (IDLE, "min(32, block) * warps - N")),
    Mistake("threads_not_lanes", "lanes that never got a thread were not counted as idle",
            "the last warp of a block of 40 threads", (IDLE, "full * block + min(block, 32 * -(-rest // 32)) - N")),
    Mistake("all_warps", "idle lanes were counted in warps without any element too",
            "which warps of the last block have elements", ("-(-rest // 32)", "-(-block // 32) * (rest > 0)")),
    Mistake("last_block_only", "only the last block's idle lanes were counted", "idle lanes in a full block of 40",
            (IDLE, "32 * -(-(rest or block) // 32) - (rest or block)")),
    Mistake("last_block_empty", "a full last block was taken to have no elements and no idle lanes",
            "the remainder where block divides N", (IDLE, "(blocks - 1) * (-block % 32) + -rest % 32")),
]
hints = ["How many threads do the blocks launch together? N of them have an element.",
         "How many warps hold the elements of a full block? And those of the short one, with N % block elements?",
         "Each of these warps has 32 lanes. All of them together have N busy ones."]
