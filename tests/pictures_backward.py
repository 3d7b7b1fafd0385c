"""Small data for the pictures of chapters 08, 10 and 11: tests/test_figures.py draws each and looks at the page."""

import torch

from flashlab.memory import Memory
from flashlab.rungs.fa2 import fa2_forward
from flashlab.rungs.fa2_backward import fa2_backward_two_pass
from flashlab.rungs.naive import naive_forward
from flashlab.rungs.naive_backward import naive_backward
from flashlab_course import figures

STEPS = [10.0**-n for n in range(1, 9)]
ERRORS = [{"dtype": dtype, "causal": causal, "max": 9 * rms, "rms": rms}
          for dtype, rms in (("float16", 5e-5), ("bfloat16", 4e-4), ("float32", 5e-8)) for causal in (False, True)]
COMPILED = [{"name": "64 × 128, 8 warps", "registers": 253, "spills": 0, "shared": 100 * 2**10, "limit": 227 * 2**10},
            {"name": "32 × 128, 4 warps", "registers": 255, "spills": 1244, "shared": 80 * 2**10, "limit": 227 * 2**10}]
LOSSES = {"SDPA": [3 * 0.98**n for n in range(60)], "ours": [3 * 0.98**n + 1e-6 * n for n in range(60)],
          "Triton": [3.0, 2.94], "D left out": [3 * 0.98**n + 0.02 * n for n in range(60)]}


def tensors(N_q=64, N_k=96, d=16):
    g = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=g) for n in (N_q, N_k, N_k, N_q)]


def log_of(f, *tensors, **options):
    with Memory() as mem:
        f(*tensors, **options)
    return mem.log


def two_pass_log(causal=False):
    Q, K, V, dO = tensors()
    O, L = fa2_forward(Q, K, V, causal=causal)
    return log_of(fa2_backward_two_pass, Q, K, V, O, dO, L, causal=causal, B_r=16, B_c=32)


def both_naive(N=64, d=8):
    Q, K, V, dO = tensors(N, N, d)
    memories = {}
    for f, given in ((naive_forward, (Q, K, V)), (naive_backward, (Q, K, V, dO))):
        with Memory() as memories[f.__name__]:
            f(*given)
    return memories


def pictures():
    """name -> a function that draws it."""
    Q, K, V, _ = tensors()
    kept = torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) > 0.2
    weights = torch.softmax(torch.cat([Q @ K[:40].T, torch.zeros(64, 8)], 1), -1)
    return {
        "softmax_jacobian": lambda: figures.softmax_jacobian([0.3, -1.0, 2.0, 1.5]),
        "backward_dataflow": lambda: figures.backward_dataflow(4096, 64),
        "matrix_crossings": lambda: figures.matrix_crossings(both_naive(), 64),
        "two_passes": lambda: figures.two_passes(two_pass_log(), 64, 96),
        "backward_peak_against_N": lambda: figures.backward_peak_against_N(
            [{"name": name, "N": N, "peak": peak(N)} for N in (128, 256, 512) for name, peak in
             (("keep P", lambda N: 12 * N * N), ("recompute", lambda N: 900 * N))]),
        "sums_by_order": lambda: figures.sums_by_order([1.0, 1.0, 1.0 + 1e-6, 1.0 - 1e-6], 1.0, 8),
        "finite_differences": lambda: figures.finite_differences(
            {"float32": [(h, h * h + 1e-8 / h) for h in STEPS], "float64": [(h, h * h + 1e-16 / h) for h in STEPS]}),
        "algorithm_beside_code": lambda: figures.algorithm_beside_code("fa2_backward"),
        "program_grid": lambda: figures.program_grid(2, 3, 100, 32),
        "tile_over_memory": lambda: figures.tile_over_memory(100, 16, 32, 3),
        "scores_and_limit": lambda: figures.scores_and_limit(torch.linspace(0, 80000, 200)),
        "phantom_weights": lambda: figures.phantom_weights(weights, 40),
        "causal_tiles": lambda: figures.causal_tiles(log_of(fa2_forward, Q, K, V, causal=True, B_r=16, B_c=16), 64, 96),
        "tile_grids": lambda: figures.tile_grids(
            {words: [(log_of(fa2_forward, *tensors(96, 96)[:3], B_r=16, B_c=16, **mask), 0)]
             for words, mask in (("no mask", {}), ("causal", {"causal": True}))}, 96),
        "errors_by_dtype": lambda: figures.errors_by_dtype(ERRORS, "Measured here."),
        "rounding_budget": lambda: figures.rounding_budget({"P": 3e-4, "O": 4e-4, "both": 5e-4}, "Measured here."),
        "compiled_kernels": lambda: figures.compiled_kernels(COMPILED),
        "padded_weight": lambda: figures.padded_weight([0, -50, -100], [1.0, 5e21, float("inf")]),
        "tile_on_its_side": lambda: figures.tile_on_its_side(64, 128),
        "masks_compared": lambda: figures.masks_compared(kept, kept.T, ("one", "the other")),
        "loss_curves": lambda: figures.loss_curves(LOSSES, "SDPA", "Measured here."),
    }
