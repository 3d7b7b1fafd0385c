"""FA2's forward pass with tiles that were searched for: the kernel of fa2_split.py, and nobody's guess at its sizes.

How large tiles should be is a bargain that no formula settles: large ones read less and take registers and shared memory from
the other programs of an SM. So a search times those that fit, on the GPU at hand, and its winner is kept per head dimension:

    python -m flashlab bench tune --implementations fa2_tuned_forward --d 128 --N 4096

prints the table. Where nothing has been searched the sizes picked by hand stand.
"""

from flashlab.kernels.fa2_split import fa2_split_kernel
from flashlab.kernels.launch import check_call, forward, one_program_a_block, positive_scale, shared_arguments
from flashlab.kernels.tuning import choose

KERNEL = fa2_split_kernel


def fa2_tuned_forward(Q, K, V, *, causal=False, scale=None, dropout_p=0.0, seed=None, B_r=None, B_c=None):
    """Exact attention for every batch and head in one launch.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v)
             -> O (B, H_q, N_q, d_v) in Q's dtype, L (B, H_q, N_q) float32, natural-log logsumexp
             any strides; d, d_v <= 256; H_q a multiple of H_kv; float16, bfloat16, float32
    Tiles:   B_r x B_c, powers of two >= 16, by default what `tuning.choose` finds
    Dropout: seed, a 0-dim int64 tensor beside Q, and the place of a weight decide whether it is kept: no mask is stored
    Error:   at most 2x that of naive in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 1
    New:     against fa2_split_forward: tile sizes, warps and stages by a search on this GPU
    """
    options = check_call(Q, K, V, B_r=B_r, B_c=B_c, causal=causal, scale=scale, dropout_p=dropout_p, seed=seed)
    return forward(KERNEL, launch, Q, K, V, B_r=B_r, B_c=B_c, **options)


def launch(Q, K, V, O, L, *, B_r=None, B_c=None, tiles=None, **options):
    """The grid and the arguments of one launch, tile sizes and warps included; nothing is checked and nothing runs."""
    Q, options["scale"] = positive_scale(Q, options["scale"])
    tiles = choose(KERNEL, Q, K, V, options, B_r, B_c, tiles)
    return one_program_a_block(Q, tiles["B_r"]), shared_arguments(Q, K, V, options) | {"O": O, "L": L} | tiles
