"""The two warps beside the consumers in a backward pass on Hopper: one loads, one has dQ added up, in turns if asked.

Turns: the order in which programs add to a tile of dQ decides the sum's last bits. For the same bits each time, a tile
has a number in HBM, how many blocks of keys have added to it, and a program's adder waits until that is the number of
those that come before it. To keep waits rare, neighbouring blocks of keys begin at neighbouring rounds of tiles: each
comes to a round when its neighbour has just left it. Programs start in the order of their numbers, and none waits for
one that starts more than TOGETHER later: on a GPU with that many SMs all get through.
"""

from flashlab.kernels.gluon_adapter import add_by_tma, aggregate, gl, jit, mbarrier, tma
from flashlab.kernels.hopper_words import ROWS, arrive, fetch, sync
from flashlab.operator.hopper_words import Position, wait_for_sums
from flashlab.operator.spans import read_table, rounds, within

SLOT_FREE = gl.constexpr(6)            # named barriers 6, 7, ...: one a slot; Triton uses the first few itself
DQ_READY = gl.constexpr(14)
DQ_FREE = gl.constexpr(15)
TOGETHER = gl.constexpr(64)            # blocks of keys that may wait for one another: fewer than a GPU has SMs


@aggregate
class Sizes:
    """What the call asks for, the same for every program."""

    fields = (
        "N_q N_k blocks "              # rows of all packed sequences together; blocks of keys
        "H_kv together "               # heads of K, once for each part of their group; heads that run side by side
        "left right table "            # the window, and the packed sequences' blocks of keys, or None
        "tiles_of_a_head"              # of 64 query rows, in whole rounds
    )
    constants = (
        "group parts "                 # query heads that a program walks, programs that share out a group
        "consumers keys stages "       # keys: of a block, and rows of a round, 64 a consumer; stages: slots of the ring
        "causal ragged ordered"        # ragged: whether tiles may have rows past the end; ordered: adders take turns
    )


@aggregate
class Shared:
    """What all warps of a program share."""

    fields = (
        "Q K V dO L D dQ dK dV "       # TMA descriptors
        "turns scale sizes "           # turns: how many blocks have added to each tile
        "Q_s dO_s L_s D_s "            # buffers: the ring
        "K_s V_s dS_s dQ_s "           # of each consumer; dS_s: of all consumers for each owner; one tile of dQ
        "K_full V_full Q_full dO_full"                 # mbarriers; dO_full: of dO, L and D
    )


@aggregate
class Block:
    """A program's block of keys: the j-th of its sequence and head, and the `rounds` of query tiles that see it."""

    fields = (
        "head j start_k N_k start_q N_q "
        "first_tile "                  # where the sequence's query tiles begin among those of a head
        "first whole_from whole_to end"
    )

    @jit
    def tile(self, h, i, sizes):
        """The i-th tile of the sequence's rows of the group's h-th query head, among the tiles of all heads."""
        return (self.head * sizes.group + h) * sizes.tiles_of_a_head + self.first_tile + i

    @jit
    def round_at(self, k, sizes):
        """The k-th round. Without a mask a block sees all rounds; in order, neighbours begin at neighbouring ones."""
        n = self.first + k
        if sizes.ordered and not sizes.causal:
            n = (k + self.j % gl.minimum(TOGETHER, self.end)) % self.end
        return n

    @jit
    def turn(self, n, sizes):
        """How many blocks of keys have their turn at round n before this one.

        Causal: first the last of all blocks that see the round, as it begins there, then the one before it, and so on.
        Otherwise blocks go in groups that run at the same time, one group after the other; within a group, by
        `round_at`, the block nearest below n comes first, then the one below that, and so on, and around.
        """
        B: gl.constexpr = sizes.keys
        blocks = (sizes.N_k + B - 1) // B
        if sizes.causal:
            before = gl.minimum(blocks - 1, ((n + 1) * B + sizes.N_k - sizes.N_q - 1) // B) - self.j
        else:
            size = gl.minimum(TOGETHER, self.end)
            group = self.j // size * size
            mine, members = self.j - group, gl.minimum(size, blocks - group)
            nearest = gl.minimum(n, members - 1)
            before = group + gl.where(mine <= n, nearest - mine, nearest + members - mine)
        return before


@jit
def block_of(sizes):
    """This program's block: `together` heads at a time, the first blocks of all of them first, which most rows see."""
    program = gl.program_id(0)
    head = program // (sizes.together * sizes.blocks) * sizes.together + program % sizes.together
    j = program % (sizes.together * sizes.blocks) // sizes.together
    if sizes.ordered and sizes.causal:
        j = last_groups_first(j, sizes.blocks)
    if sizes.table is None:
        start_k, N_k, start_q, N_q, first_tile = 0, sizes.N_k, 0, sizes.N_q, 0
    else:
        j, start_k, N_k, start_q, N_q, sequence = read_table(sizes.table, j)
        first_tile = (start_q // sizes.keys + sequence) * sizes.consumers          # in whole rounds
    first, whole_from, whole_to, end = rounds(j, N_q, N_k, sizes.left, sizes.right, sizes.causal, sizes.keys)
    return Block(head, j, start_k, N_k, start_q, N_q, first_tile, first, whole_from, whole_to, end)


# ---- the producer


@jit
def fetch_keys(source, full, target, block, shared):
    """Have the block's K or V copied."""
    sizes = shared.sizes
    b, h = block.head // sizes.H_kv, block.head % sizes.H_kv
    mbarrier.expect(full, sizes.consumers * source.block_type.nbytes)  # TMA counts the zeros past the ends, too
    for c in gl.static_range(sizes.consumers):
        row = (block.j * sizes.consumers + c) * ROWS
        where = [b, h // sizes.parts, row, 0] if sizes.table is None else within(block.start_k, block.N_k, h, row)
        tma.load(source, where, full, target.index(c))


@jit
def producer(shared):
    """Have K and V copied once, then Q, dO, L and D of every tile, as fast as slots become free."""
    sizes = shared.sizes
    block = block_of(sizes)
    b, h_kv = block.head // sizes.H_kv, block.head % sizes.H_kv
    fetch_keys(shared.K, shared.K_full, shared.K_s, block, shared)
    at, tiles = Position(0, 0), (block.end - block.first) * sizes.consumers
    for n in range(0, sizes.group * tiles):
        h, k = n // tiles, n % tiles
        i = block.round_at(k // sizes.consumers, sizes) * sizes.consumers + k % sizes.consumers
        tile, slot = block.tile(h, i, sizes), at.slot
        if n >= sizes.stages:
            sync(slot + SLOT_FREE, sizes.consumers * 128 + 32)
        h_q, row = h_kv * sizes.group + h, i * ROWS
        where = [b, h_q, row, 0] if sizes.table is None else within(block.start_q, block.N_q, h_q, row)
        fetch(shared.Q, where, shared.Q_full.index(slot), shared.Q_s.index(slot))
        if n == 0:                                     # S comes first, and does not need it
            fetch_keys(shared.V, shared.V_full, shared.V_s, block, shared)
        full = shared.dO_full.index(slot)
        mbarrier.expect(full, shared.dO.block_type.nbytes + 2 * ROWS * 4)
        tma.load(shared.dO, where, full, shared.dO_s.index(slot))
        tma.load(shared.L, [tile, 0], full, shared.L_s.index(slot))
        tma.load(shared.D, [tile, 0], full, shared.D_s.index(slot))
        at = at.following(sizes.stages)


# ---- the adder


@jit
def adder(shared):
    """Have each tile of dQ added up in HBM as soon as it is there; in order, as soon as it is this program's turn."""
    sizes, dQ_s = shared.sizes, shared.dQ_s
    block = block_of(sizes)
    tiles, seen = (block.end - block.first) * sizes.consumers, -1
    if tiles > 0:
        arrive(DQ_FREE, 160)
    for m in range(0, sizes.group * tiles):
        n = block.round_at(m % tiles // sizes.consumers, sizes)
        tile = block.tile(m // tiles, n * sizes.consumers + m % sizes.consumers, sizes)
        if sizes.ordered:
            wait_for(shared.turns + tile, block.turn(n, sizes), seen)
        sync(DQ_READY, 160)
        add_by_tma(shared.dQ, [tile * dQ_s.shape[0], 0], dQ_s)
        tma.store_wait(0)
        if m + 1 < sizes.group * tiles:
            arrive(DQ_FREE, 160)
        if sizes.ordered:                              # look at the next number while these sums travel
            n = block.round_at((m + 1) % tiles // sizes.consumers, sizes)
            h = gl.minimum(sizes.group - 1, (m + 1) // tiles)
            coming = block.tile(h, n * sizes.consumers + (m + 1) % sizes.consumers, sizes)
            seen = gl.atomic_add(shared.turns + coming, 0, sem="relaxed")
            wait_for_sums(m)
            gl.atomic_add(shared.turns + tile, 1, sem="release")


# ---- whose turn it is


@jit
def last_groups_first(j, blocks):
    """The j-th block of a head to start. The last TOGETHER blocks start first: causal, they have their turns first."""
    last = (blocks - 1) // TOGETHER * TOGETHER         # where the last group begins, which may be a short one
    n = j - (blocks - last)                            # how many blocks came after it
    return gl.where(n < 0, last + j, last - (n // TOGETHER + 1) * TOGETHER + n % TOGETHER)


@jit
def wait_for(number, value, seen):
    """Wait until the number in HBM has this value; `seen` is what it had when last looked at."""
    while seen != value:
        seen = gl.atomic_add(number, 0, sem="relaxed")
