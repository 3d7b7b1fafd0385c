"""Whose turn is it to add to a tile of dQ? For fa2_hopper_backward, where the same bits are asked for each time.

In which order programs add to a tile decides its last bits. So a tile has a number in HBM, how many blocks of keys have added to
it, and a program's adder waits until that is the number of those before it. So that it seldom waits, neighbouring blocks of keys
begin at neighbouring rounds of tiles: each comes to a round when its neighbour has just left it. Programs start in the order of
their numbers, and nobody waits for one that starts more than TOGETHER later: on a GPU with as many SMs all get through.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

TOGETHER = gl.constexpr(64)                            # blocks of keys that may wait for one another: fewer than a GPU has SMs


@gluon.jit
def last_groups_first(j, blocks):
    """The block of a head that comes j-th where the last TOGETHER blocks come first: they have their turns first if causal."""
    last = (blocks - 1) // TOGETHER * TOGETHER         # where the last group begins, which may be a short one
    n = j - (blocks - last)                            # how many blocks came after it
    return gl.where(n < 0, last + j, last - (n // TOGETHER + 1) * TOGETHER + n % TOGETHER)


@gluon.jit
def round_at(k, j, first, end, causal: gl.constexpr, ordered: gl.constexpr):
    """Which round comes k-th. In order, and where no mask makes them begin apart, neighbours begin at neighbouring rounds."""
    n = first + k
    if ordered and not causal:
        n = (k + j % gl.minimum(TOGETHER, end)) % end
    return n


@gluon.jit
def turn(j, n, N_q, N_k, end, causal: gl.constexpr, B: gl.constexpr):
    """How many blocks of keys have their turn at round n before block j: those that come there first. B: keys of a block, and rows.

    If causal, of all blocks that see the round the last one, which begins there, then the one before it, and so on. Else blocks
    go in groups that run at the same time, one group after the other; within a group, by `round_at`, the block nearest below n
    comes first, then the one below that, and so on, and around.
    """
    blocks = (N_k + B - 1) // B
    if causal:
        before = gl.minimum(blocks - 1, ((n + 1) * B + N_k - N_q - 1) // B) - j
    else:
        size = gl.minimum(TOGETHER, end)
        group = j // size * size
        mine, members = j - group, gl.minimum(size, blocks - group)
        nearest = gl.minimum(n, members - 1)
        before = group + gl.where(mine <= n, nearest - mine, nearest + members - mine)
    return before


@gluon.jit
def wait_for(number, value, seen):
    """Until the number in HBM has this value; `seen` is what it had when last looked at."""
    while seen != value:
        seen = gl.atomic_add(number, 0, sem="relaxed")
