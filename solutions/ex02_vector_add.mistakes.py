from flashlab_course.check.cases import Mistake, case_of, normal

INDEX, BLOCKS, SUM = "blockIdx.x * blockDim.x + threadIdx.x", "-(-N // block)", "C[i] = A[i] + B[i]"

outputs = [("C", "element"), ("threads",)]
truth = lambda A, B, block: (A.double() + B.double(), block * -(-len(A) // block))
features = {"a short last block": lambda N, block: N % block, "more than one block": lambda N, block: N > block,
            "N a multiple of the block": lambda N, block: N % block == 0}
case = case_of(lambda N, block, *, seed: {"A": normal(N, seed=seed), "B": normal(N, seed=seed + 1), "block": block})
cases = [case("one full block", 4, 4, seed=200),
         case("two full blocks", 8, 4, seed=202),
         case("a short last block", 7, 4, seed=204),
         case("fewer elements than threads", 8, 64, seed=206),
         case("two warps in a block", 150, 64, seed=208),
         case("one element", 1, 4, seed=210),
         case("a block of 6", 15, 6, seed=214)]
mistakes = [
    Mistake("grid_floor", "the number of blocks was rounded down, so the short last block was never launched",
            "the division in blocks_needed", (BLOCKS, "max(1, N // block)"), also=[[(BLOCKS, "N // block")]]),
    Mistake("rounded", "the number of blocks was rounded to the nearest whole number",
            "a last block that is less than half full", (BLOCKS, "max(1, round(N / block))")),
    Mistake("one_block_too_many", "a block was launched in which no thread has an element",
            "blocks_needed where block divides N", (BLOCKS, "N // block + 1")),
    Mistake("no_guard", "a thread past the end reached outside the vectors: no guard, or one that lets i = N through",
            "what the thread of number N does", (f"if i < N:\n        {SUM}", SUM), also=[[("i < N", "i <= N")]]),
    Mistake("guard_of_the_thread", "the guard compared the thread's number within its block with N",
            "which number the guard looks at", ("if i < N:", "if threadIdx.x < N:")),
    Mistake("no_block_offset", "every block worked on the first block's elements: blockIdx.x was not used",
            "where the elements of block 1 begin", (INDEX, "threadIdx.x")),
    Mistake("block_and_thread_swapped", "threadIdx.x was multiplied by blockDim.x, and blockIdx.x was not",
            "which of the two numbers counts whole blocks", (INDEX, "threadIdx.x * blockDim.x + blockIdx.x")),
    Mistake("step_of_32", "every block was taken to have 32 threads", "the number of threads in a block",
            ("blockIdx.x * blockDim.x", "blockIdx.x * 32")),
    Mistake("added_to_C", "the sum was added to what C held before, which is not 0", "how C[i] is assigned", (SUM,
             "C[i] = C[i] + A[i] + B[i]")),
]
hints = ["Each thread needs its number in the whole grid: how many threads are in the blocks before its own?",
         "A thread whose number is N or more has no element and must not load or store.",
         "-(-N // block) rounds up: -7 // 4 is -2, so -(-7 // 4) is 2."]
