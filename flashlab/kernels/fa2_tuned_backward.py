"""FA2's backward pass with tiles that were searched for: the kernels of fa2_split_backward.py, each with sizes of its own.

    python -m flashlab bench tune --implementations fa2_tuned_backward --d 64 --N 4096

times those that fit, one kernel after the other, and keeps the winners. Where nothing has been searched the sizes picked by hand
stand.
"""

import triton

from flashlab.kernels.fa2_backward import best_tiles, preprocess, tiles_by_hand
from flashlab.kernels.fa2_split_backward import split_dkdv_kernel, split_dq_kernel
from flashlab.kernels.launch import backward, check_backward_call, shared_arguments
from flashlab.kernels.tuning import choose

KERNELS = {"keys": split_dkdv_kernel, "queries": split_dq_kernel}     # by what their programs keep on chip


def fa2_tuned_backward(
    Q, K, V, O, dO, L, *, dL=None, causal=False, scale=None, dropout_p=0.0, seed=None, deterministic=False, B_r=None, B_c=None
):
    """The gradients of attention for every batch and head, in three launches.

    Shapes:  Q (B, H_q, N_q, d), K (B, H_kv, N_k, d), V (B, H_kv, N_k, d_v), O and dO (B, H_q, N_q, d_v), L (B, H_q, N_q)
             -> dQ, dK, dV, each like its tensor, contiguous; dK and dV are sums over the query heads that share the keys
             dL, like L, where L has a gradient of its own; float16, bfloat16, float32, and float64 when interpreted
    Dropout: dropout_p and seed, a 0-dim int64 tensor, are those of the forward
    Deterministic: same inputs, same bits, whatever is asked for: no two programs write the same element
    Tiles:   B_r x B_c for both large kernels, powers of two >= 16; by default each has its own, what `tuning.choose` finds
    Error:   at most 3x that of naive_backward in the same dtype, both against float64
    Raises:  TypeError or ValueError before anything is launched
    Source:  Dao 2023, arXiv:2307.08691, Algorithm 2, its loop taken apart
    New:     against fa2_split_backward: tile sizes, warps and stages by a search on this GPU
    """
    options = check_backward_call(Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, causal=causal, scale=scale, dropout_p=dropout_p,
                                  seed=seed, deterministic=deterministic)
    return backward(launch, Q, K, V, O, dO, L, dL, B_r=B_r, B_c=B_c, **options)


def launch(Q, K, V, O, dO, L, dL, dQ, dK, dV, *, B_r=None, B_c=None, tiles=None, **options):
    """The three launches in order, each (kernel, grid, arguments); nothing is checked, nothing runs. tiles: by KERNELS' names."""
    (B, H_q, N_q, _), (_, H_kv, N_k, _) = Q.shape, V.shape
    first, rows = preprocess(O, dO, L, dL, options["scale"])
    by_hand = tiles_by_hand(best_tiles, Q, V, options, B_r, B_c)
    for_dkdv, for_dq = (choose(kernel, Q, K, V, options, B_r, B_c, (tiles or {}).get(name), hand)
                        for (name, kernel), hand in zip(KERNELS.items(), by_hand, strict=True))
    shared = shared_arguments(Q, K, V, options, dO=dO) | rows
    return (first,
            (split_dkdv_kernel, (B * H_kv * triton.cdiv(N_k, for_dkdv["B_c"]),), shared | {"dK": dK, "dV": dV} | for_dkdv),
            (split_dq_kernel, (B * H_q * triton.cdiv(N_q, for_dq["B_r"]),), shared | {"dQ": dQ} | for_dq))
