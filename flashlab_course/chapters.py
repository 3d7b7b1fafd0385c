"""CHAPTERS: all notebooks in order, for the map in 00, the README's columns and `doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    number: str                   # two digits; with a letter, an appendix to that chapter
    name: str                     # notebooks/<number>_<name>.ipynb
    builds: str                   # what the learner builds or sees
    needs_triton: bool = False    # without it (macOS, Windows) the chapter says where to go instead
    gpu_adds: str = ""            # what an NVIDIA GPU changes; "" if nothing
    core_minutes: int = 0         # of its core sittings, exercises included; 0 if all of it goes further

    @property
    def path(self):
        return f"notebooks/{self.number}_{self.name}.ipynb"


CHAPTERS = [
    Chapter("00", "start_here", "FlashAttention at work, a first tile of scores, your machine, the map and the words",
            core_minutes=40),
    Chapter("01", "naive_attention", "attention as three lines of PyTorch, and every byte they move", core_minutes=60),
    Chapter("02", "gpu_and_memory",
            "HBM, SRAM, the roofline; threads, warps and grids; masked lanes, barriers and sectors; what an SM holds",
            core_minutes=15, gpu_adds="live measurements instead of recorded ones, and CUDA C++ kernels that run"),
    Chapter("03", "online_softmax", "softmax in one pass, watched score by score; merging two half-finished ones",
            core_minutes=65),
    Chapter("04", "block_matmul", "attention tile by tile: why softmax per tile is wrong, and the fix",
            core_minutes=55),
    Chapter("05", "flash_attention_1", "FlashAttention's Algorithm 1: tiles chosen to fit the SRAM, mask, dropout",
            core_minutes=55),
    Chapter("06", "flash_attention_2", "FlashAttention-2: the loops trade places, one division, whole tiles skipped",
            core_minutes=75),
    Chapter("07", "counting_hbm_traffic", "HBM bytes measured against the formulas, and against a GPU's counters"),
    Chapter("08", "backward",
            "the gradients: softmax's Jacobian, D, recomputation; FA1 and FA2 backwards; autograd.Function"),
    Chapter("09", "triton_basics",
            "strides, blocks and masks in Triton, with a picture of every load; coalescing, row softmax, matmul",
            needs_triton=True, core_minutes=85,
            gpu_adds="live measurements instead of recorded ones, and compiled kernels"),
    Chapter("09b", "what_the_compiler_made", "appendix to 09: threads, registers, TF32, descriptors, atomics",
            needs_triton=True,
            gpu_adds="live measurements instead of recorded ones"),
    Chapter("10", "triton_forward", "the forward pass as a Triton kernel", needs_triton=True, core_minutes=90,
            gpu_adds="compiled kernels instead of interpreted ones"),
    Chapter("11", "triton_backward",
            "the backward pass as three Triton kernels; dropout whose mask nobody stores; training",
            needs_triton=True, gpu_adds="compiled kernels instead of interpreted ones"),
    Chapter("12", "making_it_fast",
            "the kernel ladder: base 2, split loops, searched tiles, pipelines, TMA; kernels that add up dQ",
            needs_triton=True, gpu_adds="tiles that a search found there"),
    Chapter("12b", "the_hopper_kernel",
            "the Hopper kernel in six rungs: a ring, a producer, two consumers, overlap, turns, a counter; "
            "their signals on a simulator", needs_triton=True, gpu_adds="the rungs timed there, with `bench hopper`"),
    Chapter("13", "decoding",
            "one token at a time: keys split among programs, a cache in pages, windows, 8-bit numbers",
            needs_triton=True, gpu_adds="compiled kernels, and a CUDA graph"),
    Chapter("14", "many_gpus",
            "ring attention: a sequence split among processes, zig-zag if causal; what is sent, and what that costs",
            gpu_adds="rings of GPUs, timed"),
    Chapter("15", "capstone",
            "a small GPT on your own kernels: losses, memory, FLOPs, a KV cache; "
            "flash_attention inside Hugging Face's models",
            gpu_adds="training on your Triton kernels, and longer texts"),
    Chapter("16", "benchmarks", "run time, TFLOP/s, memory and HBM bytes against PyTorch's own kernels",
            gpu_adds="live plots instead of recorded ones"),
]


def after(number):
    """A link to the chapter after that number, with what it builds."""
    found = CHAPTERS[next(n for n, one in enumerate(CHAPTERS, 1) if one.number == number)]
    return f"[chapter {found.number}]({found.number}_{found.name}.ipynb), {found.builds}"
