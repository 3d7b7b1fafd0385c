"""Closed forms for what the rungs move and compute, to hold against what memory.py measured.

Sizes are in elements as in the papers; results are in bytes and floating-point operations. `element_size` is that of
Q, K, V (2 for 16-bit, 4, 8); running sums and L take 4 bytes, or 8 where the inputs do.
"""

from typing import NamedTuple


class Cost(NamedTuple):
    """HBM bytes read and written, and FLOPs in matrix products."""

    read: int
    written: int
    matmul_flops: int

    @property
    def traffic(self):
        return self.read + self.written


def ceil_div(a, b):
    return -(-a // b)


def naive_forward(N_q, N_k, d, d_v=None, *, causal=False, window=None, element_size=4):
    """Seven eager kernels at most: QKᵀ, scale, (mask,) softmax, PV, logsumexp, and L's cast from 16 bits. A window masks twice."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    read = s * ((N_q + N_k) * d + 4 * N_q * N_k + N_k * d_v)
    written = s * (3 * N_q * N_k + N_q * (d_v + 1))
    masks, without_key = _naive_masks(N_q, N_k, causal, window)
    read += masks * N_q * N_k * (2 + s)                    # triu and masked_fill read the mask, 1 byte; masked_fill reads S
    written += masks * N_q * N_k * (2 + s) + s * without_key * d_v      # the ones, triu, the masked S; rows that see no key
    if stat != s:
        read, written = read + N_q * s, written + N_q * stat
    return Cost(read, written, 2 * N_q * N_k * (d + d_v))


def logsumexp(N_q, N_k, *, element_size=4):
    """The part of naive_forward that is there for L alone, which plain attention does not return: S read once more, and L."""
    s, stat = element_size, max(element_size, 4)
    cast = (s, stat) if stat != s else (0, 0)
    return Cost(s * N_q * N_k + N_q * cast[0], s * N_q + N_q * cast[1], 0)


def online_softmax_forward(N_q, N_k, d, d_v=None, *, causal=False, element_size=4):
    """One query a program, one key a step."""
    d_v = d if d_v is None else d_v
    pairs = sum(min(N_k, max(0, i + N_k - N_q)) for i in range(1, N_q + 1)) if causal else N_q * N_k
    read = element_size * (N_q * d + pairs * (d + d_v))
    # the weighted sum of V is an elementwise product there: only q·k is a matrix product
    return Cost(read, element_size * N_q * d_v + max(element_size, 4) * N_q, 2 * pairs * d)


def fa1_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """K, V once; Q, O, l and m once for each of the T_c key blocks. B_r and causal change nothing: no tile is skipped."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    T_c = ceil_div(N_k, B_c)
    read = s * N_k * (d + d_v) + T_c * N_q * (s * d + stat * (d_v + 2))
    written = stat * ((T_c + 1) * N_q * (d_v + 2) + N_q)   # the 1 is the initialisation, the last term L
    if stat != s:                                          # the running O is wider than the output: one cast at the end
        read, written = read + stat * N_q * d_v, written + s * N_q * d_v
    return Cost(read, written, 2 * N_q * N_k * (d + d_v))


def fa2_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, window=None, element_size=4):
    """Q and O once; K and V once for each of the T_r query blocks, from the first to the last key block that it sees."""
    d_v = d if d_v is None else d_v
    left, right = _limits(causal, window, N_q, N_k)
    visited = pairs = 0                                    # key rows loaded; query-key pairs computed
    for start in range(0, N_q, B_r):
        stop = min(start + B_r, N_q)
        keys = _blocks_between(start + N_k - N_q - left, stop + N_k - N_q + right, B_c, N_k)
        visited += keys
        pairs += keys * (stop - start)
    read = element_size * (N_q * d + visited * (d + d_v))
    written = element_size * N_q * d_v + max(element_size, 4) * N_q
    return Cost(read, written, 2 * pairs * (d + d_v))


def split_kv_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, splits=4, causal=False, window=None, element_size=4):
    """As fa2_forward, but that Q comes once for each chunk of keys; and O and L of each chunk, written and read again."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    chunks = min(splits, ceil_div(N_k, B_c))
    walk = fa2_forward(N_q, N_k, d, d_v, B_r=B_r, B_c=B_c, causal=causal, window=window, element_size=s)
    parts = stat * chunks * N_q * (d_v + 1)
    return Cost(walk.read + (chunks - 1) * s * N_q * d + parts, walk.written + parts, walk.matmul_flops)


def block_matmul(M, K, N, *, B_m, B_n, element_size=4):
    """Each of A's tiles is read once for every column of output tiles, each of B's once for every row."""
    read = element_size * (ceil_div(N, B_n) * M * K + ceil_div(M, B_m) * K * N)
    return Cost(read, element_size * M * N, 2 * M * N * K)


def attention_flops(B, H, N_q, N_k, d, d_v=None, *, causal=False):
    """FLOPs that the field quotes TFLOP/s by: 2·N_q·N_k·(d + d_v) for each head, halved if causal."""
    flops = 2 * B * H * N_q * N_k * (d + (d if d_v is None else d_v))
    return flops // 2 if causal else flops


def naive_backward(N_q, N_k, d, d_v=None, *, causal=False, window=None, dropout=False, element_size=4):
    """QKᵀ, scale, (mask,) softmax again; then dOVᵀ, PᵀdO, P∘dP, its row sums, dP − D, P∘(dP − D), dSK, dSᵀQ and their scale."""
    d_v = d if d_v is None else d_v
    s, pairs = element_size, N_q * N_k
    read = s * (3 * (N_q + N_k) * d + (2 * N_q + N_k) * d_v + 11 * pairs + N_q)
    written = s * (2 * (N_q + N_k) * d + N_k * d_v + 7 * pairs + N_q)
    masks, without_key = _naive_masks(N_q, N_k, causal, window)
    read += masks * pairs * (2 + s)                        # triu and masked_fill read the mask, 1 byte; masked_fill reads S
    written += masks * pairs * (2 + s) + s * without_key * N_k          # the ones, triu, the masked S; rows that see no key
    if dropout:
        read, written = read + 2 * pairs * (1 + 2 * s), written + 4 * pairs * s     # P and dP, each times the mask, over 1 − p
    return Cost(read, written, 2 * pairs * (3 * d + 2 * d_v))


def fa1_backward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """K, V, dK, dV once; Q, O, dO, l, m, and dQ there and back, once for each of the T_c key blocks. No tile is skipped."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    T_c = ceil_div(N_k, B_c)
    read = s * N_k * (d + d_v) + T_c * N_q * (s * (d + 2 * d_v) + stat * (d + 2))
    written = s * N_k * (d + d_v) + (T_c + 1) * stat * N_q * d          # the 1 is the initialisation
    if stat != s:                                          # the running dQ is wider than the result: one cast at the end
        read, written = read + stat * N_q * d, written + s * N_q * d
    return Cost(read, written, 2 * N_q * N_k * (3 * d + 2 * d_v))


def fa2_backward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, window=None, element_size=4):
    """As fa1_backward without O, which only the first kernel reads, and without the tiles in which no query sees a key."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    visited, pairs = _query_rows_visited(N_q, N_k, B_r, B_c, causal, window)
    read = s * (2 * N_q * d_v + N_k * (d + d_v)) + visited * (s * (d + d_v) + stat * (d + 2))
    written = stat * N_q * (1 + d) + s * N_k * (d + d_v) + visited * stat * d       # D, dQ's zeros, dK and dV, dQ
    if stat != s:
        read, written = read + stat * N_q * d, written + s * N_q * d
    return Cost(read, written, 2 * pairs * (3 * d + 2 * d_v))


def fa2_backward_two_pass(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, window=None, element_size=4):
    """dQ leaves the key blocks' kernel for one of its own, where Q, dO, L, D come once and K, V once for each query block."""
    d_v = d if d_v is None else d_v
    s, stat = element_size, max(element_size, 4)
    visited, pairs = _query_rows_visited(N_q, N_k, B_r, B_c, causal, window)
    forward = fa2_forward(N_q, N_k, d, d_v, B_r=B_r, B_c=B_c, causal=causal, window=window, element_size=s)    # dQ's walk is its
    pairs_dQ = forward.matmul_flops // (2 * (d + d_v))
    read = s * (2 * N_q * d_v + N_k * (d + d_v)) + visited * (s * (d + d_v) + 2 * stat)
    read += forward.read + s * N_q * d_v + 2 * stat * N_q
    written = stat * N_q + s * (N_k * (d + d_v) + N_q * d)
    return Cost(read, written, 2 * pairs * (2 * d + 2 * d_v) + 2 * pairs_dQ * (2 * d + d_v))


def _query_rows_visited(N_q, N_k, B_r, B_c, causal, window):
    """Over all key blocks: query rows loaded, of the blocks that see a key of it; and query-key pairs computed."""
    left, right = _limits(causal, window, N_q, N_k)
    visited = pairs = 0
    for start in range(0, N_k, B_c):
        stop = min(start + B_c, N_k)
        rows = _blocks_between(start + N_q - N_k - right, stop + N_q - N_k + left, B_r, N_q)
        visited += rows
        pairs += rows * (stop - start)
    return visited, pairs


def _limits(causal, window, N_q, N_k):
    """(left, right) as numbers: how many keys before and after its own place a query sees, too many to matter for no limit."""
    left, right = (N_k + N_q if limit == -1 else limit for limit in window or (-1, -1))
    return left, 0 if causal else right


def _blocks_between(first, end, B, N):
    """How many of N rows lie in the blocks of B rows that hold one of first, ..., end - 1."""
    first, end = max(0, first), min(N, end)
    return max(0, min(N, B * ceil_div(end, B)) - first // B * B) if end > first else 0


def _naive_masks(N_q, N_k, causal, window):
    """How often naive attention masks S, and how many of its first rows see no key."""
    left, right = _limits(causal, window, N_q, N_k)
    after = right == 0 or right < N_q - 1                  # a mask that hides nothing is not made
    return (left < N_k - 1) + after, max(0, N_q - N_k - right) if after else 0
