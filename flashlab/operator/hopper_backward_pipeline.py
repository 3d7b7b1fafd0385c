"""The warps of a backward pass on Hopper; hopper_backward.py says who waits for whom.

Turns: the order in which programs add to a tile of dQ decides the sum's last bits. For the same bits each time, a tile
has a number in HBM, how many blocks of keys have added to it, and a program's adder waits until that is the number of
those that come before it. To keep waits rare, neighbouring blocks of keys begin at neighbouring rounds of tiles: each
comes to a round when its neighbour has just left it. Programs start in the order of their numbers, and none waits for
one that starts more than TOGETHER later: on a GPU with that many SMs all get through.
"""

from flashlab.kernels.gluon_adapter import add_by_tma, aggregate, fence, fork, gl, jit, mbarrier, tma, wgmma, wgmma_wait
from flashlab.kernels.hopper_words import LOG2_E, ROWS, arrive, fetch, mbarriers, sync
from flashlab.operator.hopper_words import Position, opaque_zero, wait_for_sums
from flashlab.operator.spans import read_table, where_rows, without_hidden

SLOT_FREE = gl.constexpr(6)            # named barriers 6, 7, ...: one a slot; Triton uses the first few itself
DS_READY = gl.constexpr(10)            # 10, 11, 12: one a consumer
K_READ = gl.constexpr(13)
DQ_READY = gl.constexpr(14)
DQ_FREE = gl.constexpr(15)
TOGETHER = gl.constexpr(64)            # blocks of keys that may wait for one another: fewer than a GPU has SMs


@aggregate
class Shared:
    """What all warps of a program share."""

    fields = (
        "Q K V dO L D dQ dK dV scale " # TMA descriptors
        "N_q N_k blocks "              # rows of all packed sequences together; blocks of keys
        "H_kv together "               # heads of K, once for each part of their group; heads that run side by side
        "left right table "            # the window, and the packed sequences' blocks of keys, or None
        "tiles_of_a_head "             # of 64 query rows, in whole rounds
        "turns "                       # how many blocks have added to each tile, or None: adders take no turns
        "Q_s dO_s L_s D_s "            # buffers: the ring
        "K_s V_s dS_s dQ_s "           # of each consumer; dS_s: of all consumers for each owner; one tile of dQ
        "K_full V_full Q_full dO_full"                 # mbarriers; dO_full: of dO, L and D
    )
    constants = (
        "group parts "                 # query heads that a program walks, programs that share out a group
        "consumers keys stages "       # keys: of a block, and rows of a round, 64 a consumer; stages: slots of the ring
        "causal ragged"                # ragged: whether tiles may have rows past the end
    )


@aggregate
class Block:
    """A program's block of keys, the j-th of its sequence and head, and the rounds of query tiles that see it.

    A round has as many rows as the block has keys. Those from whole_from to whole_to need no mask.
    """

    fields = (
        "head j start_k N_k start_q N_q "
        "first_tile "                  # where the sequence's query tiles begin among those of a head
        "first whole_from whole_to end tiles"          # tiles: of a head, in these rounds
    )

    @jit
    def tile_at(self, n, shared):
        """The n-th tile that the program walks: its head in the group, its number in the sequence, and among all."""
        tiles = gl.maximum(self.tiles, 1)              # a block that no row sees has no 0th tile
        h, k = n // tiles, n % tiles
        i = self.round_at(k // shared.consumers, shared) * shared.consumers + k % shared.consumers
        return h, i, (self.head * shared.group + h) * shared.tiles_of_a_head + self.first_tile + i

    @jit
    def round_at(self, k, shared):
        """The k-th round. Without a mask a block sees all rounds; in order, neighbours begin at neighbouring ones."""
        n = self.first + k
        if shared.turns is not None and not shared.causal:
            n = (k + self.j % gl.minimum(TOGETHER, self.end)) % self.end
        return n

    @jit
    def turn(self, n, shared):
        """How many blocks of keys have their turn at round n before this one.

        Causal: first the last of all blocks that see the round, as it begins there, then the one before it, and so on.
        Else blocks go in groups that run at the same time, one after the other; within a group, by `round_at`, first
        the block nearest below n, then the one below that, and so on, and around.
        """
        if shared.causal:
            last = ((n + 1) * shared.keys + shared.N_k - shared.N_q - 1) // shared.keys
            before = gl.minimum(shared.blocks - 1, last) - self.j
        else:
            size = gl.minimum(TOGETHER, self.end)
            group = self.j // size * size
            mine, members = self.j - group, gl.minimum(size, shared.blocks - group)
            nearest = gl.minimum(n, members - 1)
            before = group + gl.where(mine <= n, nearest - mine, nearest + members - mine)
        return before


@jit
def block_of(shared):
    """This program's block: `together` heads at a time, the first blocks of all of them first, which most rows see."""
    program, B = gl.program_id(0), shared.keys
    head = program // (shared.together * shared.blocks) * shared.together + program % shared.together
    j = program % (shared.together * shared.blocks) // shared.together
    if shared.turns is not None and shared.causal:       # the last TOGETHER blocks first: they have their turns first
        last = (shared.blocks - 1) // TOGETHER * TOGETHER               # where the last group begins, maybe a short one
        n = j - (shared.blocks - last)                  # how many blocks came after it
        j = gl.where(n < 0, last + j, last - (n // TOGETHER + 1) * TOGETHER + n % TOGETHER)
    if shared.table is None:
        start_k, N_k, start_q, N_q, first_tile = 0, shared.N_k, 0, shared.N_q, 0
    else:
        j, start_k, N_k, start_q, N_q, sequence = read_table(shared.table, j)
        first_tile = (start_q // B + sequence) * shared.consumers       # in whole rounds
    first, whole_from, end = 0, 0, (N_q + B - 1) // B
    offset = N_q - N_k                                 # key k stands at row k + offset
    if shared.left is not None or shared.causal:         # no mask: a round's first row sees the block's last key
        reach = 0 if shared.left is None else shared.right
        first = gl.maximum(0, j * B + offset - reach) // B
        if shared.left is not None:
            last_row = gl.minimum(N_k, (j + 1) * B) + offset + shared.left
            end = gl.maximum(first, (gl.minimum(N_q, last_row) + B - 1) // B)
        whole_from = gl.minimum(end, (gl.maximum(0, (j + 1) * B - 1 + offset - reach) + B - 1) // B)
    if not shared.causal:                               # no mask: all keys exist
        whole_from = gl.where((j + 1) * B <= N_k, whole_from, end)
    whole_to = end
    if shared.left is not None:
        whole_to = gl.maximum(whole_from, gl.minimum(end, gl.maximum(0, j * B + offset + shared.left + 1) // B))
    tiles = (end - first) * shared.consumers
    return Block(head, j, start_k, N_k, start_q, N_q, first_tile, first, whole_from, whole_to, end, tiles)


@jit
def fetch_keys(source, full, target, block, shared):
    """Have the block's K or V copied."""
    b, h = block.head // shared.H_kv, block.head % shared.H_kv // shared.parts
    mbarrier.expect(full, shared.consumers * source.block_type.nbytes)  # TMA counts the zeros past the ends, too
    for c in gl.static_range(shared.consumers):
        where = where_rows(b, h, (block.j * shared.consumers + c) * ROWS, block.start_k, block.N_k, shared.table)
        tma.load(source, where, full, target.index(c))


@jit
def producer(shared):
    """Have K and V copied once, then Q, dO, L and D of every tile, as fast as slots become free."""
    block = block_of(shared)
    b, h_kv = block.head // shared.H_kv, block.head % shared.H_kv
    fetch_keys(shared.K, shared.K_full, shared.K_s, block, shared)
    at = Position(0, 0)
    for n in range(0, shared.group * block.tiles):
        h, i, tile = block.tile_at(n, shared)
        slot = at.slot
        if n >= shared.stages:
            sync(slot + SLOT_FREE, shared.consumers * 128 + 32)
        where = where_rows(b, h_kv * shared.group + h, i * ROWS, block.start_q, block.N_q, shared.table)
        fetch(shared.Q, where, shared.Q_full.index(slot), shared.Q_s.index(slot))
        if n == 0:                                     # S comes first, and does not need it
            fetch_keys(shared.V, shared.V_full, shared.V_s, block, shared)
        full = shared.dO_full.index(slot)
        mbarrier.expect(full, shared.dO.block_type.nbytes + 2 * ROWS * 4)
        tma.load(shared.dO, where, full, shared.dO_s.index(slot))
        tma.load(shared.L, [tile, 0], full, shared.L_s.index(slot))
        tma.load(shared.D, [tile, 0], full, shared.D_s.index(slot))
        at = at.following(shared.stages)


@jit
def adder(shared):
    """Have each tile of dQ added up in HBM as soon as it is there; in order, as soon as it is this program's turn."""
    block, dQ_s = block_of(shared), shared.dQ_s
    tiles, seen = shared.group * block.tiles, -1
    if tiles > 0:
        arrive(DQ_FREE, 160)
    h, i, tile = block.tile_at(0, shared)
    for n in range(0, tiles):
        if shared.turns is not None:
            wait_for(shared.turns + tile, block.turn(i // shared.consumers, shared), seen)
        sync(DQ_READY, 160)
        add_by_tma(shared.dQ, [tile * dQ_s.shape[0], 0], dQ_s)
        tma.store_wait(0)
        if n + 1 < tiles:
            arrive(DQ_FREE, 160)
        done = tile
        h, i, tile = block.tile_at(gl.minimum(n + 1, tiles - 1), shared)
        if shared.turns is not None:                    # look at the next number while these sums travel
            seen = gl.atomic_add(shared.turns + tile, 0, sem="relaxed")
            wait_for_sums(n)
            gl.atomic_add(shared.turns + done, 1, sem="release")


@jit
def wait_for(number, value, seen):
    """Wait until the number in HBM has this value; `seen` is what it had when last looked at."""
    while seen != value:
        seen = gl.atomic_add(number, 0, sem="relaxed")


@jit
def step(dK, dV, at, n, first_row, block, shared, owner: gl.constexpr, me: gl.constexpr, masked: gl.constexpr):
    """The query tile at a place in the ring: dV += P^T dO and dK += dS^T Q for these 64 keys; for the owner dQ += dS K
    for all keys of the block. n: the loop's counter"""
    slot = at.slot
    consumers: gl.constexpr = shared.consumers
    d: gl.constexpr = dK.shape[1]
    S_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, dK.type.layout, 2)
    columns: gl.constexpr = gl.SliceLayout(0, S_layout)
    zero = opaque_zero(n)
    Q_i, dO_i = shared.Q_s.index(slot).reshape([ROWS, d]), shared.dO_s.index(slot).reshape([ROWS, d])
    K_j, V_j = shared.K_s.index(me + zero).reshape([ROWS, d]), shared.V_s.index(me + zero).reshape([ROWS, d])
    no_scores = gl.zeros([ROWS, ROWS], gl.float32, S_layout)

    mbarrier.wait(shared.Q_full.index(slot), at.phase)
    S = wgmma(K_j, Q_i.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    mbarrier.wait(shared.dO_full.index(slot), at.phase)
    dP = wgmma(V_j, dO_i.permute((1, 0)), no_scores, use_acc=False, is_async=True)
    L_i = shared.L_s.index(slot).reshape([ROWS]).load(columns)
    S = wgmma_wait(1, deps=[S])                        # S is there, dP's product still runs
    if shared.ragged:
        S = gl.where(L_i[None, :] == float("inf"), 0.0, S)
    P = gl.exp2(S * (shared.scale * LOG2_E) - L_i[None, :])
    if masked:
        P = without_hidden(P, (block.j * consumers + me) * ROWS, first_row, block, shared)
    dV = wgmma(gl.convert_layout(P.to(shared.Q_s.dtype), operand), dO_i, dV, is_async=True)
    D_i = shared.D_s.index(slot).reshape([ROWS]).load(columns)
    dP = wgmma_wait(1, deps=[dP])
    dS = (P * (dP * shared.scale - D_i[None, :])).to(shared.Q_s.dtype)
    dK = wgmma(gl.convert_layout(dS, operand), Q_i, dK, is_async=True)
    shared.dS_s.index(owner * consumers + me + zero).store(dS)                     # a set of buffers for each owner
    fence()

    if me == owner:
        dV = wgmma_wait(1, deps=[dV])                  # gives back the registers of P before dQ takes its own
        sync(DS_READY + owner, consumers * 128)
        dQ, dK = dQ_of_tile(dK, zero, shared, owner)
        arrive(slot + SLOT_FREE, consumers * 128 + 32)
        sync(DQ_FREE, 160)
        put_dQ(dQ, shared.dQ_s)
        arrive(DQ_READY, 160)
    else:
        arrive(DS_READY + owner, consumers * 128)
        dK, dV = wgmma_wait(0, deps=[dK, dV])
        arrive(slot + SLOT_FREE, consumers * 128 + 32)
    return dK, dV, at.following(shared.stages)


@jit
def dQ_of_tile(dK, zero, shared, owner: gl.constexpr):
    """dQ = dS K of a tile, for all keys of the block; and dK, whose product is done by then, too."""
    consumers: gl.constexpr = shared.consumers
    d: gl.constexpr = shared.Q_s.shape[-1]
    dQ = gl.zeros([ROWS, d], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16]))
    for c in gl.static_range(consumers):
        dS_c, K_c = shared.dS_s.index(owner * consumers + c + zero), shared.K_s.index(c + zero).reshape([ROWS, d])
        dQ = wgmma(dS_c.permute((1, 0)), K_c, dQ, use_acc=c > 0, is_async=True)
    return wgmma_wait(0, deps=[dQ, dK])


@jit
def put_dQ(dQ, dQ_s):
    """A tile of dQ in shared memory as threads hold it: 16 bytes of each of 128 threads, then the next 16.

    Thread 4a + b of warp w holds, in rows 16w + a and 16w + a + 8, columns 8n + 2b and 8n + 2b + 1.
    """
    #                 w  8  a  ----------- n -----------  b  1
    by_bits = dQ.reshape([4, 2, 8, dQ.shape[1] // 16, 2, 4, 2])
    in_order = by_bits.permute((1, 3, 0, 2, 5, 4, 6))  # what a thread holds in fours, threads, the four
    dQ_s.store(in_order.reshape(dQ_s.shape))
    fence()


@jit
def some_rounds(dK, dV, at, start, stop, block, shared, me: gl.constexpr, masked: gl.constexpr):
    """Rounds `start` to `stop` of those that see the block: a tile for each owner."""
    for k in range(start, stop):
        n = block.round_at(k, shared)
        for owner in gl.static_range(shared.consumers):
            first_row = (n * shared.consumers + owner) * ROWS
            dK, dV, at = step(dK, dV, at, k, first_row, block, shared, owner, me, masked)
    return dK, dV, at


@jit
def consumer(shared, me: gl.constexpr):
    """Walk the query tiles of all heads that share these 64 keys, then write their dK and dV."""
    K_s, V_s = shared.K_s, shared.V_s
    d: gl.constexpr = shared.Q_s.shape[-1]
    block = block_of(shared)
    first, whole_from, whole_to = block.first, block.whole_from, block.whole_to
    zeros = gl.zeros([ROWS, d], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, d, 16]))
    dK, dV, at = zeros, zeros, Position(0, 0)
    mbarrier.wait(shared.K_full, 0)
    if shared.left is not None or shared.table is not None:    # no query may see these keys: then V is not copied
        mbarrier.wait(shared.V_full, 0, pred=first < block.end)
    else:
        mbarrier.wait(shared.V_full, 0)
    for _ in range(0, shared.group):
        if shared.causal or shared.ragged:               # a loop with masks; elsewhere none is compiled
            dK, dV, at = some_rounds(dK, dV, at, 0, whole_from - first, block, shared, me, True)
        start = gl.maximum(0, whole_from - first)
        dK, dV, at = some_rounds(dK, dV, at, start, whole_to - first, block, shared, me, False)
        if shared.left is not None:
            dK, dV, at = some_rounds(dK, dV, at, whole_to - first, block.end - first, block, shared, me, True)

    sync(K_READ, shared.consumers * 128)
    V_s.index(me).reshape([ROWS, d]).store(dV.to(V_s.dtype))
    K_s.index(me).reshape([ROWS, d]).store(dK.to(K_s.dtype))
    fence()
    b, h, row = block.head // shared.H_kv, block.head % shared.H_kv, (block.j * shared.consumers + me) * ROWS
    where = where_rows(b, h, row, block.start_k, block.N_k, shared.table)
    tma.store(shared.dV, where, V_s.index(me))
    tma.store(shared.dK, where, K_s.index(me))
    tma.store_wait(0)


@jit(do_not_specialize=["N_q", "N_k", "H_kv", "together", "left", "right", "tiles_of_a_head"])
def hopper_backward_kernel(Q, K, V, dO, L, D, dQ, dK, dV, scale, N_q, N_k, H_kv, together, left, right, table,
                           tiles_of_a_head, turns, group: gl.constexpr, parts: gl.constexpr, consumers: gl.constexpr,
                           stages: gl.constexpr, causal: gl.constexpr, ragged: gl.constexpr, num_warps: gl.constexpr):
    """Lay out shared memory and the signals in it, then send every warp to its own work."""
    Q_s = gl.allocate_shared_memory(Q.dtype, [stages] + Q.block_shape, Q.layout)
    dO_s = gl.allocate_shared_memory(Q.dtype, [stages] + dO.block_shape, dO.layout)
    K_s = gl.allocate_shared_memory(Q.dtype, [consumers] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(Q.dtype, [consumers] + V.block_shape, V.layout)
    L_s = gl.allocate_shared_memory(gl.float32, [stages] + L.block_shape, L.layout)
    D_s = gl.allocate_shared_memory(gl.float32, [stages] + D.block_shape, D.layout)
    dS_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, ROWS], Q.dtype)
    dS_s = gl.allocate_shared_memory(Q.dtype, [consumers * consumers, ROWS, ROWS], dS_layout)
    dQ_s = gl.allocate_shared_memory(gl.float32, dQ.block_shape, dQ.layout)
    K_full, V_full = mbarriers(1, 1).index(0), mbarriers(1, 1).index(0)
    keys: gl.constexpr = consumers * ROWS
    blocks = (N_k + keys - 1) // keys if table is None else gl.load(table)
    shared = Shared(Q, K, V, dO, L, D, dQ, dK, dV, scale, N_q, N_k, blocks, H_kv, together, left, right, table,
                    tiles_of_a_head, turns, Q_s, dO_s, L_s, D_s, K_s, V_s, dS_s, dQ_s, K_full, V_full,
                    mbarriers(stages, 1), mbarriers(stages, 1), group, parts, consumers, keys, stages, causal, ragged)
    if table is None or gl.program_id(0) < H_kv * blocks:      # the host launches as many programs as there may be
        fork((shared,), consumer, consumers, (producer, adder))
