"""Who does what in a forward pass on Hopper: one warp loads, warpgroups compute, a counter hands out the tiles.

A program has

    one producer warp        asks TMA for Q once and for K and V block after block, into rings of a few slots
    two to four consumers    warpgroups of 64 query rows each, which share every K and V that arrives

and stays until all tiles are done. The tile scheduler is a counter in HBM: a producer that draws a ticket there gets a
tile, and posts it on a board in shared memory, where its consumers read it. What a consumer does with a tile, `attend`,
differs: hopper_forward.py has that of 16-bit numbers, fp8_kernel.py that of FP8.

Every signal is one of a pair, `full` and `free`, for one buffer. Who waits for whom:

    Q_full, K.full, V.full   mbarriers: TMA arrives with the last byte           a consumer waits
    Q_free                   mbarrier: a consumer has read its Q to the end      the producer waits
    K.free, V.free           named barriers: all consumers have read the slot    the producer waits
    TURN + consumer          named barriers: the one before has issued Q K^T     the consumer waits
    queue.full, queue.free   mbarriers: a tile is posted, all have read it       a consumer waits, the producer waits

Keys are walked from the last block to the first, so that the blocks that need a mask, on the diagonal or at a short
end, come first.
"""

from flashlab.kernels.gluon_adapter import aggregate, fence, fork_warps, gl, jit, mbarrier, tma, wgmma
from flashlab.kernels.hopper_words import ROWS, arrive, fetch, mbarriers, sync
from flashlab.operator.hopper_words import Position, Ring
from flashlab.operator.spans import Span, not_before, only_visible, read_table, within

K_FREE = gl.constexpr(6)                               # named barriers 6, 7, 8: one a slot; Triton uses the first few
V_FREE = gl.constexpr(9)                               # 9, 10, 11
TURN = gl.constexpr(12)                                # 12, 13, ...: one a consumer


@aggregate
class Tile:
    """Block i of the query rows of one head's sequence, and where that lies: without packed sequences, the whole.

    number: head << 32 | i, where i counts the blocks of all packed sequences; -1 where no tile is left
    """

    fields = "number i start_q N_q start_k N_k"

    @jit
    def head(self):
        return gl.cast(self.number >> 32, gl.int32)


@aggregate
class Sizes:
    """What the call asks for, the same for every program."""

    fields = (
        "N_q N_k H_q tiles "           # rows of all packed sequences together
        "group together "              # query heads that share a key head, heads whose tiles run side by side
        "left right table"             # the window, and the packed sequences' blocks, or None
    )
    constants = "packed causal consumers keys"         # keys: of a block

    @jit
    def place(self, ticket):
        """The number of the tile that comes at this ticket: `together` heads at a time, the last blocks of all of them
        first, as causal ones see most keys."""
        rows: gl.constexpr = self.consumers * ROWS
        T_r = self.tiles // self.H_q if self.packed else (self.N_q + rows - 1) // rows
        group = ticket // (self.together * T_r)
        rest = ticket - group * self.together * T_r
        row = rest // self.together
        head = group * self.together + rest - row * self.together
        return gl.where(ticket < self.tiles, gl.cast(head, gl.int64) << 32 | (T_r - 1 - row), -1)

    @jit
    def tile(self, number):
        """The tile of this number."""
        i = gl.cast(gl.maximum(number, 0) & 0xFFFFFFFF, gl.int32)
        if self.packed:
            i, start_q, N_q, start_k, N_k, sequence = read_table(self.table, i)
            return Tile(number, i, start_q, N_q, start_k, N_k)
        else:
            return Tile(number, i, 0, self.N_q, 0, self.N_k)

    @jit
    def span(self, tile, first_row, rows: gl.constexpr):
        """Some rows of a tile, and the limits of what they see."""
        return Span(first_row, tile.N_q, tile.N_k, self.left, self.right, rows, self.causal, self.packed)


@aggregate
class Queue:
    """The tile scheduler: a counter in HBM that all programs draw tickets from, and this program's board of two places.

    While consumers read one place of the board, the producer writes the other.
    """

    fields = "counter board full free"

    @jit
    def post(self, tile, turn, sizes):
        """The producer: write down the next tile for the consumers."""
        one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
        mbarrier.wait(self.free.index(turn & 1), ((turn >> 1) & 1) ^ 1)
        here = (turn & 1) * 6
        self.board.index(here).store(gl.full([1], tile.number, gl.int64, one))
        if sizes.packed:
            rows = (tile.i, tile.start_q, tile.N_q, tile.start_k, tile.N_k)
            for k in gl.static_range(5):
                self.board.index(here + 1 + k).store(gl.full([1], gl.cast(rows[k], gl.int64), gl.int64, one))
        mbarrier.arrive(self.full.index(turn & 1), count=1)

    @jit
    def number(self, k):
        """One of the numbers on the board."""
        one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        return gl.max(self.board.index(k).load(one), 0)

    @jit
    def read(self, turn, sizes):
        """A consumer: the next tile."""
        mbarrier.wait(self.full.index(turn & 1), (turn >> 1) & 1)
        here = (turn & 1) * 6
        number = self.number(here)
        if sizes.packed:
            rows = ()
            for k in gl.static_range(5):
                rows = rows + (gl.cast(self.number(here + 1 + k), gl.int32),)
            tile = Tile(number, rows[0], rows[1], rows[2], rows[3], rows[4])
        else:
            tile = sizes.tile(number)
        mbarrier.arrive(self.free.index(turn & 1), count=1)
        return tile

    @jit
    def close(self):
        """The producer, at its end. The counter serves the next launch, too: the last program to finish resets it."""
        if gl.atomic_add(self.counter + 1, 1) == gl.num_programs(0) - 1:
            gl.store(self.counter, 0)
            gl.store(self.counter + 1, 0)


@aggregate
class Shared:
    """What all warps of a program share."""

    fields = (
        "Q O L Q_s O_s Q_full Q_free " # descriptors; L in HBM, or None in FP8; buffers and mbarriers of consumers
        "K V queue sizes scale "       # K and V: rings
        "fp8"                          # the scales of Q, K and V, or None
    )
    constants = (
        "stages "                      # slots of a ring
        "masked crossing "             # whether a tile's first block of keys may need a mask, and the one after it
        "unrolled"                     # whether the loop takes two blocks a round
    )


@jit
def run(attend, Q, K, V, O, L, counter, scale, sizes, fp8, stages: gl.constexpr, masked: gl.constexpr,
        crossing: gl.constexpr, unrolled: gl.constexpr, registers: gl.constexpr):
    """Lay out shared memory and the signals in it, then send every warp to its own work."""
    consumers: gl.constexpr = sizes.consumers
    Q_s = gl.allocate_shared_memory(Q.dtype, [consumers] + Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [stages] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [stages] + V.block_shape, V.layout)
    O_s = gl.allocate_shared_memory(O.dtype, [consumers] + O.block_shape, O.layout)
    board = gl.allocate_shared_memory(gl.int64, [12, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    threads: gl.constexpr = consumers * 128 + 32
    K_ring = Ring(K, K_s, mbarriers(stages, 1), K_FREE, threads)
    V_ring = Ring(V, V_s, mbarriers(stages, 1), V_FREE, threads)
    queue = Queue(counter, board, mbarriers(2, 1), mbarriers(2, consumers))
    shared = Shared(Q, O, L, Q_s, O_s, mbarriers(consumers, 1), mbarriers(consumers, 1), K_ring, V_ring, queue, sizes,
                    scale, fp8, stages, masked, crossing, unrolled)
    fork_warps((shared, attend), consumer, consumers, registers, (producer,))


# ---- the producer


@jit
def fill_with_block(ring, slot, tile, b, h_kv, j, sizes, transposed: gl.constexpr):
    """Have block j of K or V copied into a slot as soon as that is free."""
    row = j * sizes.keys
    if sizes.packed:
        ring.fill(slot, within(tile.start_k, tile.N_k, h_kv, row))
    elif transposed:
        ring.fill(slot, [b, h_kv, 0, row])
    else:
        ring.fill(slot, [b, h_kv, row, 0])


@jit
def producer(shared, attend):
    """Have Q, K and V of tile after tile copied as buffers become free, and post the next tile for the consumers."""
    sizes, K, V = shared.sizes, shared.K, shared.V
    transposed: gl.constexpr = shared.fp8 is not None
    slot, turn = 0, 0
    tile = sizes.tile(sizes.place(gl.program_id(0)))
    while tile.number >= 0:
        ticket = gl.atomic_add(shared.queue.counter, 1)                # requested here, and read once the ring is full
        coming = tile                                  # until it is known
        b, h = tile.head() // sizes.H_q, tile.head() % sizes.H_q
        h_kv = h // sizes.group                        # grouped-query attention: neighbours share a key head, uncopied
        first_row = tile.i * sizes.consumers * ROWS
        first, end = sizes.span(tile, first_row, sizes.consumers * ROWS).blocks(sizes.keys)
        fill_with_block(K, slot, tile, b, h_kv, end - 1, sizes, False)  # there is room for it before there is for Q
        for c in gl.static_range(sizes.consumers):
            mbarrier.wait(shared.Q_free.index(c), (turn & 1) ^ 1)
            row = first_row + c * ROWS
            where = within(tile.start_q, tile.N_q, h, row) if sizes.packed else [b, h, row, 0]
            fetch(shared.Q, where, shared.Q_full.index(c), shared.Q_s.index(c))
        for n in range(0, end - first):
            fill_with_block(V, slot, tile, b, h_kv, end - 1 - n, sizes, transposed)
            slot = Position(slot, 0).following(shared.stages).slot
            if n + 1 < end - first:
                fill_with_block(K, slot, tile, b, h_kv, end - 2 - n, sizes, False)
            if n == gl.minimum(shared.stages, end - first) - 1:
                coming = sizes.tile(sizes.place(gl.num_programs(0) + ticket))  # the first tickets are the programs' own
                shared.queue.post(coming, turn, sizes)
        tile, turn = coming, turn + 1
    shared.queue.close()


# ---- the consumers


@aggregate
class Task:
    """A consumer's part of a tile: 64 query rows, and the blocks of keys that they see."""

    fields = (
        "head start_q span "           # start_q: where the sequence begins
        "first end all_first"          # the blocks that they see, and the first that any consumer of the program sees
    )


@jit
def consumer(shared, attend, me: gl.constexpr):
    """Take tile after tile, and attend(shared, task, at, me) to the 64 rows of it that are this consumer's."""
    sizes = shared.sizes
    taking_turns: gl.constexpr = sizes.left is None
    at, turn = Position(0, 0), 0
    for n in gl.static_range(shared.stages):           # all slots are free
        shared.K.release(n)
        shared.V.release(n)
    if me == sizes.consumers - 1:  # as if the last one had just issued: the first turn is consumer 0's
        arrive(TURN, 256)
    tile = sizes.tile(sizes.place(gl.program_id(0)))
    while tile.number >= 0:
        first_row = tile.i * sizes.consumers * ROWS
        all_first, all_end = sizes.span(tile, first_row, sizes.consumers * ROWS).blocks(sizes.keys)
        span = sizes.span(tile, first_row + me * ROWS, ROWS)
        first, end = span.blocks(sizes.keys)
        exists = span.first_row < tile.N_q
        if sizes.left is not None:
            first = gl.where(exists, first, all_first)
        end = gl.where(exists, end, first)
        mbarrier.wait(shared.Q_full.index(me), turn & 1)
        at = pass_over(all_end - end, at, shared, me, taking_turns)
        if end == first:
            mbarrier.arrive(shared.Q_free.index(me), count=1)
        else:
            at = attend(shared, Task(tile.head(), tile.start_q, span, first, end, all_first), at, me)
        tile = shared.queue.read(turn, sizes)
        turn += 1
    tma.store_wait(0)


@jit
def pass_over(count, at, shared, me: gl.constexpr, taking_turns: gl.constexpr):
    """Release blocks that no row of this consumer sees: the others wait for its turns, the producer for its slots."""
    for _ in range(0, count):
        if taking_turns:
            sync(TURN + me, 256)
            arrive(TURN + (me + 1) % shared.sizes.consumers, 256)
        shared.K.wait(at)  # the producer would count a release before that for the round before
        shared.K.release(at.slot)
        shared.V.wait(at)
        shared.V.release(at.slot)
        at = at.following(shared.stages)
    return at


@jit
def issue_scores(shared, slot, me: gl.constexpr):
    """Start S = Q K^T of the block in a slot. Where consumers take turns: wait for this one's turn, and pass it on."""
    d: gl.constexpr = shared.Q_s.shape[-1]
    keys: gl.constexpr = shared.sizes.keys
    depth: gl.constexpr = 16 if shared.fp8 is None else 32     # columns of Q that one instruction takes: 32 bytes
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, depth])
    Q = shared.Q_s.index(me).reshape([ROWS, d])
    K_j = shared.K.tiles.index(slot).reshape([keys, d])
    zeros = gl.zeros([ROWS, keys], gl.float32, layout)
    if shared.sizes.left is None:
        sync(TURN + me, 256)                           # two consumers' threads: the one before arrives, this one waits
    S = wgmma(Q, K_j.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if shared.sizes.left is None:
        arrive(TURN + (me + 1) % shared.sizes.consumers, 256)
    return S


@jit
def walk(step, state, shared, task, me: gl.constexpr):
    """The steps of a task, from its last block of keys to its first. `state` holds the last block, the state returned
    the first.

    step(state, shared, task, n, mask, me) -> state; n: how many blocks are still to come; mask: what hides some of the
    next, or None
    """
    n = task.end - 1 - task.first
    at_left, at_right = 0, gl.minimum(n, 1)            # how many blocks need a mask, at the window's edges
    if task.span.left is not None or task.span.packed:
        whole, whole_end = task.span.whole_blocks(shared.sizes.keys)
        at_right = gl.maximum(0, gl.minimum(n, task.end - 1 - whole_end))
        at_left = gl.maximum(0, gl.minimum(n - at_right, whole - task.first))
    if shared.crossing:                                # 64 rows whose last keys lie in two blocks
        for j in range(0, at_right):
            state = step(state, shared, task, n - j, only_visible, me)
        n = n - at_right
    whole = n - at_left
    if shared.unrolled:  # two blocks a round: P of one is P_next of the other, and no register moves
        for _ in range(0, whole & 1):
            state = step(state, shared, task, n, None, me)
        n = n - (whole & 1)
        for j in range(0, whole & -2, 2):
            state = step(state, shared, task, n - j, None, me)
            state = step(state, shared, task, n - j - 1, None, me)
    else:
        for j in range(0, whole):
            state = step(state, shared, task, n - j, None, me)
    if task.span.left is not None:
        for j in range(0, at_left):
            state = step(state, shared, task, at_left - j, not_before, me)
    return state


@jit
def write_O(shared, task, O, me: gl.constexpr):
    """Have TMA write 64 rows of O while the next tile is computed."""
    O_s, head, row = shared.O_s.index(me), task.head, task.span.first_row
    tma.store_wait(0)                                  # the tile before has left O_s
    O_s.reshape([ROWS, O.shape[1]]).store(O.to(O_s.dtype))
    fence()
    where = within(task.start_q, task.span.N_q, head, row) if shared.sizes.packed else [head, row, 0]
    tma.store(shared.O, where, O_s)
