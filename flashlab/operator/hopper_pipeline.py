"""The warps of a forward pass on Hopper and the tiles they take; hopper_forward.py says who waits for whom.

What a consumer does with a tile, `attend`, stands there for 16-bit numbers, and in fp8_kernel.py for FP8.
"""

from flashlab.kernels.gluon_adapter import aggregate, fence, fork, gl, jit, mbarrier, tma, wgmma
from flashlab.kernels.hopper_words import LOG2_E, ROWS, arrive, fetch, mbarriers, sync
from flashlab.operator.hopper_words import Position, Ring
from flashlab.operator.spans import blocks_seen, not_before, only_visible, read_table, where_rows

K_FREE = gl.constexpr(6)                               # named barriers 6, 7, 8: one a slot; Triton uses the first few
V_FREE = gl.constexpr(9)                               # 9, 10, 11
TURN = gl.constexpr(12)                                # 12, 13, ...: one a consumer


@aggregate
class Sizes:
    """What the call asks for, the same for every program."""

    fields = (
        "N_q N_k H_q tiles "           # rows of all packed sequences together
        "group together "              # query heads that share a key head, heads whose tiles run side by side
        "left right table"             # the window, and the packed sequences' blocks, or None
    )
    constants = (
        "causal consumers keys stages "                # keys: of a block; stages: slots of a ring
        "masked crossing "             # whether a tile's first block of keys may need a mask, and the one after it
        "unrolled"                     # whether the loop takes two blocks a round
    )

    @jit
    def place(self, ticket):
        """The number of the tile that comes at this ticket: `together` heads at a time, the last blocks of all of them
        first, as causal ones see most keys."""
        rows: gl.constexpr = self.consumers * ROWS
        T_r = (self.N_q + rows - 1) // rows if self.table is None else self.tiles // self.H_q
        group = ticket // (self.together * T_r)
        rest = ticket - group * self.together * T_r
        row = rest // self.together
        head = group * self.together + rest - row * self.together
        return gl.where(ticket < self.tiles, gl.cast(head, gl.int64) << 32 | (T_r - 1 - row), -1)

    @jit
    def tile(self, number):
        """The tile of this number."""
        i = gl.cast(gl.maximum(number, 0) & 0xFFFFFFFF, gl.int32)
        if self.table is None:
            return Tile(number, i, 0, self.N_q, 0, self.N_k)
        else:
            i, start_q, N_q, start_k, N_k, sequence = read_table(self.table, i)
            return Tile(number, i, start_q, N_q, start_k, N_k)


@aggregate
class Tile:
    """Block i of the query rows of one head's sequence, and where that lies: without packed sequences, the whole."""

    fields = (
        "number "                      # head << 32 | i, where i counts the blocks of all sequences; -1: no tile is left
        "i start_q N_q start_k N_k"
    )


@aggregate
class Task:
    """A consumer's part of a tile: 64 query rows, and the blocks of keys that they see."""

    fields = (
        "tile head first_row "
        "first end all_first "         # the blocks that they see, and the first that any consumer of the program sees
        "scale_log2"                   # what makes scores of base 2 of S; in FP8 times the scale of a block of K
    )


@aggregate
class Shared:
    """What all warps of a program share: the tile scheduler, too, a counter in HBM that all programs draw tickets from,
    and a board of two places. While consumers read one of them, the producer writes the other.
    """

    fields = (
        "Q O L Q_s O_s Q_full Q_free " # descriptors; L in HBM, or None in FP8; buffers and mbarriers of consumers
        "K V counter board posted taken sizes scale "  # K and V: rings; posted, taken: the board's mbarriers
        "fp8"                          # the scales in HBM of 64 rows of Q, of blocks of K, of V in log2; or None
    )

    @jit
    def post(self, tile, turn):
        """The producer: write down the next tile for the consumers."""
        one: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
        mbarrier.wait(self.taken.index(turn & 1), ((turn >> 1) & 1) ^ 1)
        numbers = (tile.number, tile.i, tile.start_q, tile.N_q, tile.start_k, tile.N_k)
        for k in gl.static_range(1 if self.sizes.table is None else 6):
            number = gl.full([1], gl.cast(numbers[k], gl.int64), gl.int64, one)
            self.board.index((turn & 1) * 6 + k).store(number)
        mbarrier.arrive(self.posted.index(turn & 1), count=1)

    @jit
    def read(self, turn):
        """A consumer: the next tile."""
        one: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        mbarrier.wait(self.posted.index(turn & 1), (turn >> 1) & 1)
        numbers = ()
        for k in gl.static_range(1 if self.sizes.table is None else 6):
            number = gl.max(self.board.index((turn & 1) * 6 + k).load(one), 0)
            numbers = numbers + (number if k == 0 else gl.cast(number, gl.int32),)
        tile = self.sizes.tile(numbers[0]) if self.sizes.table is None else Tile(*numbers)
        mbarrier.arrive(self.taken.index(turn & 1), count=1)
        return tile


@jit
def run(attend, Q, K, V, O, L, counter, scale, sizes, fp8):
    """Lay out shared memory and the signals in it, then send every warp to its own work."""
    Q_s = gl.allocate_shared_memory(Q.dtype, [sizes.consumers] + Q.block_shape, Q.layout)
    K_s = gl.allocate_shared_memory(K.dtype, [sizes.stages] + K.block_shape, K.layout)
    V_s = gl.allocate_shared_memory(V.dtype, [sizes.stages] + V.block_shape, V.layout)
    if Q.dtype == O.dtype and Q.block_shape[-1] == 256:
        O_s = Q_s                                      # there is no room for both
    else:
        O_s = gl.allocate_shared_memory(O.dtype, [sizes.consumers] + O.block_shape, O.layout)
    board = gl.allocate_shared_memory(gl.int64, [12, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    threads: gl.constexpr = sizes.consumers * 128 + 32
    K_ring = Ring(K, K_s, mbarriers(sizes.stages, 1), K_FREE, threads, False)
    V_ring = Ring(V, V_s, mbarriers(sizes.stages, 1), V_FREE, threads, fp8 is not None)
    posted, taken = mbarriers(2, 1), mbarriers(2, sizes.consumers)
    Q_full, Q_free = mbarriers(sizes.consumers, 1), mbarriers(sizes.consumers, 1)
    shared = Shared(Q, O, L, Q_s, O_s, Q_full, Q_free, K_ring, V_ring, counter, board, posted, taken, sizes, scale, fp8)
    fork((shared, attend), consumer, sizes.consumers, (producer,))


@jit
def producer(shared, attend):
    """Have Q, K and V of tile after tile copied as buffers become free, and post the next tile for the consumers."""
    sizes, at, turn = shared.sizes, Position(0, 0), 0
    tile = sizes.tile(sizes.place(gl.program_id(0)))
    while tile.number >= 0:
        ticket = gl.atomic_add(shared.counter, 1)                # requested here, and read once the ring is full
        coming = tile                                  # until it is known
        head = gl.cast(tile.number >> 32, gl.int32)
        b, h = head // sizes.H_q, head % sizes.H_q
        h_kv = h // sizes.group                        # grouped-query attention: neighbours share a key head, uncopied
        first_row = tile.i * sizes.consumers * ROWS
        first, end = blocks_seen(tile, first_row, sizes.consumers * ROWS, sizes)
        shared.K.fill(at.slot, b, h_kv, end - 1, tile, sizes)          # there is room for it before there is for Q
        for c in gl.static_range(sizes.consumers):
            mbarrier.wait(shared.Q_free.index(c), (turn & 1) ^ 1)
            where = where_rows(b, h, first_row + c * ROWS, tile.start_q, tile.N_q, sizes.table)
            fetch(shared.Q, where, shared.Q_full.index(c), shared.Q_s.index(c))
        for n in range(0, end - first):
            shared.V.fill(at.slot, b, h_kv, end - 1 - n, tile, sizes)
            at = at.following(sizes.stages)
            if n + 1 < end - first:
                shared.K.fill(at.slot, b, h_kv, end - 2 - n, tile, sizes)
            if n == gl.minimum(sizes.stages, end - first) - 1:
                coming = sizes.tile(sizes.place(gl.num_programs(0) + ticket))  # the first tickets are the programs' own
                shared.post(coming, turn)
        tile, turn = coming, turn + 1
    if gl.atomic_add(shared.counter + 1, 1) == gl.num_programs(0) - 1:
        gl.store(shared.counter, 0)                    # it serves the next launch, too: the last to finish resets it
        gl.store(shared.counter + 1, 0)


@jit
def consumer(shared, attend, me: gl.constexpr):
    """Take tile after tile, and attend(shared, task, at, me) to the 64 rows of it that are this consumer's."""
    sizes, at, turn = shared.sizes, Position(0, 0), 0
    for n in gl.static_range(sizes.stages):            # all slots are free
        shared.K.release(n)
        shared.V.release(n)
    if me == sizes.consumers - 1:                      # as if the last one had just issued: consumer 0 begins
        arrive(TURN, 256)
    tile = sizes.tile(sizes.place(gl.program_id(0)))
    while tile.number >= 0:
        first_row = tile.i * sizes.consumers * ROWS
        all_first, all_end = blocks_seen(tile, first_row, sizes.consumers * ROWS, sizes)
        first_row += me * ROWS
        first, end = blocks_seen(tile, first_row, ROWS, sizes)
        exists = first_row < tile.N_q
        if sizes.left is not None:
            first = gl.where(exists, first, all_first)
        end = gl.where(exists, end, first)
        mbarrier.wait(shared.Q_full.index(me), turn & 1)
        at = pass_over(all_end - end, at, shared, me)
        if end == first:
            mbarrier.arrive(shared.Q_free.index(me), count=1)
        else:
            head, scale_log2 = gl.cast(tile.number >> 32, gl.int32), shared.scale * LOG2_E
            if shared.fp8 is not None:
                T_q = (sizes.N_q + ROWS - 1) // ROWS
                scale_log2 *= gl.load(shared.fp8[0] + (head * T_q + first_row // ROWS))
            at = attend(shared, Task(tile, head, first_row, first, end, all_first, scale_log2), at, me)
        tile = shared.read(turn)
        turn += 1
    tma.store_wait(0)


@jit
def pass_over(count, at, shared, me: gl.constexpr):
    """Release blocks that no row of this consumer sees: the others wait for its turns, the producer for its slots."""
    for _ in range(0, count):
        if shared.sizes.left is None:
            sync(TURN + me, 256)
            arrive(TURN + (me + 1) % shared.sizes.consumers, 256)
        shared.K.wait(at)  # the producer would count a release before that for the round before
        shared.K.release(at.slot)
        shared.V.wait(at)
        shared.V.release(at.slot)
        at = at.following(shared.sizes.stages)
    return at


@jit
def issue_scores(shared, at, me: gl.constexpr):
    """Start S = Q K^T of the block at a place. Where consumers take turns: wait for this one's turn, and pass it on."""
    keys: gl.constexpr = shared.sizes.keys
    depth: gl.constexpr = 16 if shared.fp8 is None else 32     # columns of Q that one instruction takes: 32 bytes
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, depth])
    Q = shared.Q_s.index(me).reshape([ROWS, shared.Q_s.shape[-1]])
    K_j = shared.K.tile(at)
    zeros = gl.zeros([ROWS, keys], gl.float32, layout)
    if shared.sizes.left is None:
        sync(TURN + me, 256)                           # two consumers' threads: the one before arrives, this one waits
    S = wgmma(Q, K_j.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if shared.sizes.left is None:
        arrive(TURN + (me + 1) % shared.sizes.consumers, 256)
    return S


@jit
def walk(step, state, shared, task, me: gl.constexpr):
    """Step from the task's last block of keys, which `state` holds, to its first: see hopper_forward.step."""
    sizes, n = shared.sizes, task.end - 1 - task.first
    at_left, at_right = 0, gl.minimum(n, 1)            # how many blocks need a mask, at the window's edges
    if sizes.left is not None or sizes.table is not None:
        whole, whole_end = 0, task.tile.N_k            # the blocks of which every row sees every key
        place = task.first_row + task.tile.N_k - task.tile.N_q         # of the first row, among the keys
        if sizes.causal:
            whole_end = place + 1
        if sizes.left is not None:
            whole = (gl.maximum(0, place + ROWS - 1 - sizes.left) + sizes.keys - 1) // sizes.keys
            whole_end = gl.minimum(whole_end, place + sizes.right + 1)
        whole_end = gl.maximum(whole_end, 0) // sizes.keys                         # it may lie before `whole`
        at_right = gl.maximum(0, gl.minimum(n, task.end - 1 - whole_end))
        at_left = gl.maximum(0, gl.minimum(n - at_right, whole - task.first))
    if sizes.crossing:                                 # 64 rows whose last keys lie in two blocks
        for j in range(0, at_right):
            state = step(state, shared, task, n - j, only_visible, me)
        n = n - at_right
    whole = n - at_left
    if sizes.unrolled:  # two blocks a round: P of one is P_next of the other, and no register moves
        for _ in range(0, whole & 1):
            state = step(state, shared, task, n, None, me)
        n = n - (whole & 1)
        for j in range(0, whole & -2, 2):
            state = step(state, shared, task, n - j, None, me)
            state = step(state, shared, task, n - j - 1, None, me)
    else:
        for j in range(0, whole):
            state = step(state, shared, task, n - j, None, me)
    if sizes.left is not None:
        for j in range(0, at_left):
            state = step(state, shared, task, at_left - j, not_before, me)
    return state


@jit
def write_O(shared, task, O, me: gl.constexpr):
    """Have TMA write 64 rows of O while the next tile is computed."""
    O_s, tile = shared.O_s.index(me), task.tile
    tma.store_wait(0)                                  # the tile before has left O_s
    O_s.reshape([ROWS, O.shape[1]]).store(O.to(O_s.dtype))
    fence()                                            # TMA sees what threads have written
    tma.store(shared.O, where_rows(0, task.head, task.first_row, tile.start_q, tile.N_q, shared.sizes.table), O_s)
