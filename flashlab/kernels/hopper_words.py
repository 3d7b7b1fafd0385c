"""What the Hopper kernels share: signals between warps, copies by TMA, the softmax of a block.

A warpgroup is 128 threads whose matrix products run on the tensor cores while the threads go on. Two kinds of barriers
keep warpgroups apart. An mbarrier lies in shared memory and counts bytes as well as arrivals: TMA arrives there when a
tile has landed. A named barrier is one of a program's sixteen, and cheap: a thread with something to announce arrives
and walks on; a thread that needs the news syncs, which waits until enough threads have come.
"""

import operator

import torch

from flashlab.kernels.gluon_adapter import TensorDescriptor, gl, jit, mbarrier, thread_barrier, tma
from flashlab.kernels.launch import heads_together, positive_scale, why_no_tma, why_not_hopper

LOG2_E = gl.constexpr(1.4426950408889634)              # exp(x) = exp2(x · log2(e))
ROWS = gl.constexpr(64)                                # rows of a consumer: what one wgmma of a warpgroup takes
TILE = 128                                             # queries of a program's tile


# ---- signals


@jit
def mbarriers(number: gl.constexpr, count: gl.constexpr):
    """New mbarriers, 8 bytes each, one below the other. Each waits for `count` arrivals a phase."""
    new = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(number):
        mbarrier.init(new.index(n), count=count)
    return new


@jit
def release(free):
    """Say that all threads of this consumer have read a slot: they meet, and one of them arrives."""
    thread_barrier()
    mbarrier.arrive(free, count=1)


@jit
def sync(barrier, threads: gl.constexpr):
    """Wait at a named barrier until this many threads have come: those that wait there and those that have arrived."""
    gl.inline_asm_elementwise("bar.sync $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)       # the mov: it must return a number


@jit
def arrive(barrier, threads: gl.constexpr):
    """Count towards a named barrier without waiting."""
    gl.inline_asm_elementwise("bar.arrive $1, $2; mov.u32 $0, $1;", "=r,r,r", [barrier, threads],
                              dtype=gl.int32, is_pure=False, pack=1)


# ---- copies


@jit
def fetch(source, where, full, target):
    """Have TMA copy one tile, and arrive at the mbarrier `full` with its last byte."""
    mbarrier.expect(full, source.block_type.nbytes)    # TMA counts the zeros past a tensor's end, too
    tma.load(source, where, full, target)


@jit
def place(tile, N, together, rows: gl.constexpr, keys: gl.constexpr, causal: gl.constexpr):
    """A tile's head, its first query row, and how many blocks of keys it sees.

    Heads go in groups of `together`, whose K and V fit into the L2 cache at the same time. In a group the last rows of
    all heads come first: under a causal mask they see most keys, and a long tile should not come last.
    """
    blocks = N // rows
    row = tile % (together * blocks) // together
    head = tile // (together * blocks) * together + tile % together
    first_row = (blocks - 1 - row) * rows
    return head, first_row, gl.cdiv(first_row + rows, keys) if causal else N // keys


# ---- the softmax of a block


@jit
def softmax(S, m, l, scale_log2):
    """A step of the online softmax in base 2: P, the new m and l, and the factor alpha for the O so far."""
    m_new = gl.maximum(m, gl.max(S, 1) * scale_log2)
    P = gl.exp2(S * scale_log2 - m_new[:, None])
    alpha = gl.exp2(m - m_new)
    return P, m_new, l * alpha + gl.sum(P, 1), alpha


@jit
def hide_future(S, first_row, first_key):
    """S of a block, with -inf where the key comes after the query."""
    keys = first_key + gl.arange(0, S.shape[1], gl.SliceLayout(0, S.type.layout))
    rows = first_row + gl.arange(0, S.shape[0], gl.SliceLayout(1, S.type.layout))
    return gl.where(keys[None, :] <= rows[:, None], S, -float("inf"))


@jit
def scaled_rows(x, alpha):
    """x with each row multiplied by its alpha. The layout changes from rows of S to rows of x: the same threads."""
    return x * gl.convert_layout(alpha, gl.SliceLayout(1, x.type.layout))[:, None]


# ---- on the host


def described(T, shape, strides, tile, layout=None):
    """TMA's descriptor of T, whose tiles have as many dimensions as its shape."""
    tile = [1] * (len(shape) - 2) + list(tile)
    names = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float8_e4m3fn: gl.float8e4nv}
    layout = layout or gl.NVMMASharedLayout.get_default_for(tile, names[T.dtype])
    return TensorDescriptor(T, list(shape), list(strides), tile, layout=layout)


def why_not(Q, K, V, **options):
    """Why the Hopper rungs of the ladder do not take a call, in words; None where they do."""
    if reason := why_not_hopper(Q, V):
        return reason
    if (d := Q.shape[-1]) != V.shape[-1] or d not in (64, 128):
        return f"it takes d = d_v = 64 or 128, not d = {d}, d_v = {V.shape[-1]}"
    if Q.shape[2] != K.shape[2] or Q.shape[2] % TILE:
        return f"it takes N_q = N_k, a multiple of {TILE}, not N_q = {Q.shape[2]}, N_k = {K.shape[2]}"
    if not (Q.is_contiguous() and K.is_contiguous() and V.is_contiguous()):
        return "it takes contiguous Q, K and V, whose heads lie one below the other"
    return why_no_tma(Q, K, V)


def launch_tiles(Q, K, V, O, L, *, causal, scale, rows, keys, num_warps=4, **options):
    """The grid and the arguments of a rung that has a program for each tile of 128 queries.

    rows: of Q and O that TMA copies at a time; keys: of K and V. TMA sees a matrix with all heads' rows one below the
    other. num_warps: of the launch itself, which become consumer 0. group: query heads that share a head of K and V
    """
    Q, scale = positive_scale(Q, scale)
    (B, H, N, d), group = Q.shape, Q.shape[1] // K.shape[1]
    arguments = {name: described(T, [T.numel() // d, d], [d, 1], (operator.index(size), d))
                 for name, T, size in (("Q", Q, rows), ("K", K, keys), ("V", V, keys), ("O", O, rows))}
    together = heads_together(Q, K, V) if causal else 1
    return (B * H * N // TILE,), arguments | {
        "L": L, "scale": scale, "N": N, "group": group, "together": together, "causal": causal, "num_warps": num_warps}
