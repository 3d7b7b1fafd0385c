"""Closed forms for what the rungs move and compute, to hold against what memory.py measured.

Sizes are in elements; results are bytes and floating-point operations. `element_size` is that of Q, K, V (2, 4 or 8);
running sums and L take 4 bytes, or 8 where the inputs do.
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


def attention_flops(B, H, N_q, N_k, d, d_v=None, *, causal=False):
    """FLOPs that the field quotes TFLOP/s by: 2·N_q·N_k·(d + d_v) for each head, halved if causal."""
    flops = 2 * B * H * N_q * N_k * (d + (d if d_v is None else d_v))
    return flops // 2 if causal else flops


def naive_forward(N_q, N_k, d, d_v=None, *, causal=False, element_size=4, return_lse=False):
    """QKᵀ, scale, (mask,) softmax, PV; and if asked for, logsumexp, and L's cast from 16 bits."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    mask, wider = _mask(N_q, N_k, d_v, s, causal), stat != s
    read = s * ((N_q + N_k) * d + (3 + return_lse) * N_q * N_k + N_k * d_v + return_lse * wider * N_q) + mask.read
    written = s * (3 * N_q * N_k + N_q * d_v) + return_lse * (s + wider * stat) * N_q + mask.written
    return Cost(read, written, 2 * N_q * N_k * (d + d_v))


def online_softmax_forward(N_q, N_k, d, d_v=None, *, causal=False, element_size=4):
    """One query a program, one key a step."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    _, pairs = _keys_visited(N_q, N_k, 1, 1, causal)
    # the weighted sum of V is an elementwise product there: only q·k is a matrix product
    return Cost(s * (N_q * d + pairs * (d + d_v)), s * N_q * d_v + stat * N_q, 2 * pairs * d)


def fa1_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """K, V once; Q, O, l, m once for each of the T_c key blocks. No tile is skipped: B_r and causal change nothing."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    T_c, wider = ceil_div(N_k, B_c), stat != s             # the running O is wider than the output
    read = s * N_k * (d + d_v) + T_c * N_q * (s * d + stat * (d_v + 2)) + wider * stat * N_q * d_v
    written = stat * ((T_c + 1) * N_q * (d_v + 2) + N_q) + wider * s * N_q * d_v    # + N_q: L
    return Cost(read, written, 2 * N_q * N_k * (d + d_v))


def fa2_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """Q and O once; K and V once for each of the T_r query blocks, up to the last key block that it sees."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    visited, pairs = _keys_visited(N_q, N_k, B_r, B_c, causal)
    return Cost(s * (N_q * d + visited * (d + d_v)), s * N_q * d_v + stat * N_q, 2 * pairs * (d + d_v))


def split_kv_forward(N_q, N_k, d, d_v=None, *, B_r, B_c, splits=4, causal=False, element_size=4):
    """As fa2_forward, but Q comes once for each chunk of keys, and O and L of each chunk are written and read again."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    chunks = min(splits, ceil_div(N_k, B_c))
    walk = fa2_forward(N_q, N_k, d, d_v, B_r=B_r, B_c=B_c, causal=causal, element_size=s)
    parts = stat * chunks * N_q * (d_v + 1)
    return Cost(walk.read + (chunks - 1) * s * N_q * d + parts, walk.written + parts, walk.matmul_flops)


def block_matmul(M, K, N, *, B_m, B_n, element_size=4):
    """Each of A's tiles is read once for every column of output tiles, each of B's once for every row."""
    read = element_size * (ceil_div(N, B_n) * M * K + ceil_div(M, B_m) * K * N)
    return Cost(read, element_size * M * N, 2 * M * N * K)


def naive_backward(N_q, N_k, d, d_v=None, *, causal=False, element_size=4):
    """QKᵀ, scale, (mask,) softmax; then dOVᵀ, PᵀdO, P∘dP, its row sums, dP − D, P∘(dP − D), dSK and dSᵀQ with scale."""
    d_v, s, _ = _sizes(d, d_v, element_size)
    pairs, mask = N_q * N_k, _mask(N_q, N_k, N_k, s, causal)
    read = s * (3 * (N_q + N_k) * d + (2 * N_q + N_k) * d_v + 11 * pairs + N_q) + mask.read
    written = s * (2 * (N_q + N_k) * d + N_k * d_v + 7 * pairs + N_q) + mask.written
    return Cost(read, written, 2 * pairs * (3 * d + 2 * d_v))


def fa1_backward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """K, V, dK, dV once; Q, O, dO, l, m, and dQ there and back once for each of the T_c key blocks. None is skipped."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    T_c, wider = ceil_div(N_k, B_c), stat != s             # the running dQ is wider than the result, as O above
    read = s * N_k * (d + d_v) + T_c * N_q * (s * (d + 2 * d_v) + stat * (d + 2)) + wider * stat * N_q * d
    written = s * N_k * (d + d_v) + (T_c + 1) * stat * N_q * d + wider * s * N_q * d    # the 1 is the initialisation
    return Cost(read, written, 2 * N_q * N_k * (3 * d + 2 * d_v))


def fa2_backward(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """As fa1_backward, but only the first kernel reads O, and tiles in which no query sees a key are skipped."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    visited, pairs = _queries_visited(N_q, N_k, B_r, B_c, causal)
    wider = stat != s                                      # the running dQ, as in fa1_backward
    read = s * (2 * N_q * d_v + N_k * (d + d_v)) + visited * (s * (d + d_v) + stat * (d + 2)) + wider * stat * N_q * d
    written = stat * N_q * (1 + d) + s * N_k * (d + d_v) + visited * stat * d + wider * s * N_q * d
    return Cost(read, written, 2 * pairs * (3 * d + 2 * d_v))


def fa2_backward_two_pass(N_q, N_k, d, d_v=None, *, B_r, B_c, causal=False, element_size=4):
    """dQ has a kernel of its own, where Q, dO, L, D come once and K, V once for each query block, as in fa2_forward."""
    d_v, s, stat = _sizes(d, d_v, element_size)
    queries, pairs = _queries_visited(N_q, N_k, B_r, B_c, causal)
    keys, _ = _keys_visited(N_q, N_k, B_r, B_c, causal)
    read = s * (2 * N_q * d_v + N_k * (d + d_v)) + queries * (s * (d + d_v) + 2 * stat)
    read += s * (N_q * (d + d_v) + keys * (d + d_v)) + 2 * stat * N_q
    written = stat * N_q + s * (N_k * (d + d_v) + N_q * d)
    return Cost(read, written, 2 * pairs * (4 * d + 3 * d_v))


def _sizes(d, d_v, element_size):
    """d_v, the bytes of an element, and those of a running sum."""
    return d if d_v is None else d_v, element_size, max(element_size, 4)


def _mask(N_q, N_k, width, s, causal):
    """A naive causal mask: it makes ones, a mask and S anew, and writes zeros in the rows that see no key."""
    moved = causal * N_q * N_k * (1 + 1 + s)
    return Cost(moved, moved + causal * s * max(0, N_q - N_k) * width, 0)


def _keys_visited(N_q, N_k, B_r, B_c, causal):
    """Over all query blocks: key rows loaded, of the blocks that hold a visible key; and query-key pairs computed."""
    visited = pairs = 0
    for start in range(0, N_q, B_r):
        stop = min(start + B_r, N_q)
        keys = min(N_k, B_c * ceil_div(max(0, stop + N_k - N_q), B_c)) if causal else N_k
        visited += keys
        pairs += keys * (stop - start)
    return visited, pairs


def _queries_visited(N_q, N_k, B_r, B_c, causal):
    """Over all key blocks: query rows loaded, of the blocks that see a key of it; and query-key pairs computed."""
    visited = pairs = 0
    for start in range(0, N_k, B_c):
        first = max(0, start + N_q - N_k) // B_r * B_r if causal else 0     # of the first block that sees a key of it
        visited += N_q - first
        pairs += (N_q - first) * (min(start + B_c, N_k) - start)
    return visited, pairs
