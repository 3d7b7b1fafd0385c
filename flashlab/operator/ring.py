"""Ring attention: exact attention over a sequence split among several processes, which torchrun starts, one GPU each.

A rank keeps its queries. Keys and values travel round the ring: in R steps every rank meets the block of every other
rank, and merges the results by L, as two halves of one softmax are merged. Nobody ever holds all keys or stores S.
"""

import weakref
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from flashlab.operator.attention import ATTENTION_BACKWARD, Options, checked, flash_attention, in_order
from flashlab.operator.transforms import as_autocast
from flashlab.validate import check_bool, check_qkv, describe, name_of

inf = float("inf")


class Part(NamedTuple):
    """What a rank computes in one step: these rows of its own shard against these keys of the shard of `source`."""

    source: int
    rows: slice
    keys: slice
    causal: bool


def part(rank, step, world, n, *, causal=False, zigzag=True):
    """The Part of a rank in a step, n being the rows of a shard; None where its queries see no key of the block.

    Zig-zag: a rank owns chunks r and 2R - 1 - r of the sequence's 2R. Of a lower rank's block all its queries see the
    first chunk and none the second; of a higher rank's block its later queries see both chunks. Either is half a
    block's scores, so all ranks work equally long, and only a rank's own block needs a mask.
    """
    source = (rank - step) % world
    whole, first, second = slice(0, n), slice(0, n // 2), slice(n // 2, n)
    if not causal or source == rank:
        return Part(source, whole, whole, causal)          # a shard's rows are in the sequence's order, zig-zag or not
    if zigzag:
        return Part(source, whole, first, False) if source < rank else Part(source, second, whole, False)
    return Part(source, whole, whole, False) if source < rank else None


def bytes_sent(world, n, H_kv, d, d_v, itemsize):
    """What a rank sends, (forward, backward), with n rows a shard: K and V, and backward float32 dK and dV too."""
    block = n * H_kv * (d + d_v)
    forward = (world - 1) * block * itemsize
    return forward, forward + (world * block * 4 if world > 1 else 0)


def zigzag_shard(X, rank, world, dim=-2):
    """The rows of X that a rank owns in a causal ring: chunks r and 2R - 1 - r of 2R.

    Shapes:  X (..., N, d) -> (..., N/R, d); dim: where N stands, 1 for tokens (B, N)
    Raises:  ValueError if N does not divide into 2R chunks, or there is no such rank
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie in 0 to {world - 1}, as world is {world}, got {rank}")
    if X.shape[dim] % (2 * world):
        raise ValueError(f"X must have a length N that 2 x {world} chunks divide, two for each rank, got N = "
                         f"{X.shape[dim]}")
    chunks = X.chunk(2 * world, dim)
    return torch.cat([chunks[rank], chunks[2 * world - 1 - rank]], dim)


def zigzag_unshard(shards, dim=-2):
    """X again, from all shards in the order of their ranks."""
    halves = [shard.chunk(2, dim) for shard in shards]
    return torch.cat([first for first, _ in halves] + [second for _, second in reversed(halves)], dim)


@torch.compiler.disable(reason="messages between processes are not part of a graph")
def ring_attention(
    Q, K, V, *, causal=False, scale=None, group=None, zigzag=True, return_lse=False, backend="auto", deterministic=None,
):
    """Exact attention over a sequence split among the ranks. All ranks call it, with shards of equal shapes.

    Shapes:  Q (B, H_q, N/R, d), K (B, H_kv, N/R, d), V (B, H_kv, N/R, d_v) -> O (B, H_q, N/R, d_v) in Q's dtype, the
             rank's rows; with return_lse also L (B, H_q, N/R), natural-log logsumexp over all N keys
    Causal:  with zigzag the shards are those of zigzag_shard, else rank r's rows follow those of rank r - 1. Without
             causal a query sees all keys, and either order does
    Gradient: of O and of L, once: K and V travel again, and dK and dV with them, back to their owner
    Traffic: a rank sends (R - 1)·n·(d + d_v) elements for each head of K, n = N/R; backward as much again, and the
             float32 sums R·n·(d + d_v)
    Memory:  O, dQ, dK, dV are summed in float32; beside its own shards a rank holds two blocks of K and V
    Backend, deterministic: as flash_attention, which runs on each block
    Raises:  TypeError or ValueError on every rank if one rank has other shapes or wrong arguments; RuntimeError if a
             rank is gone: gloo says so at once, NCCL's watchdog ends the process after init_process_group's timeout.
             On GPUs ranks compare each kind of call once: its repetitions must agree among themselves
    Source:  Liu, Zaharia, Abbeel 2023, arXiv:2310.01889; zig-zag shards: zhuzilin/ring-flash-attention; work per rank:
             Brandon et al. 2023, arXiv:2311.09431
    """
    place, options, wrong = place_in(group), None, None
    try:
        Q, K, V = as_autocast(Q, K, V)
        check_qkv(Q, K, V, ndim=4)
        check_bool(causal=causal, zigzag=zigzag, return_lse=return_lse)
        options, n = checked(Q, K, Options(None, causal, scale, 0.0, backend, in_order(deterministic))), Q.shape[2]
        if causal and K.shape[2] != n:
            raise ValueError(f"K must have as many rows as Q where causal, {n}, got {describe(K)}")
        if causal and zigzag and n % 2:
            raise ValueError("Q must have an even number of rows, two chunks as zigzag_shard gives, got "
                             f"{describe(Q)}. Shards in the sequence's own order want zigzag=False")
    except (TypeError, ValueError) as error:
        wrong = error
    _agree(place, wrong, Q, K, V, options, zigzag)
    O, L = _Ring.apply(Q, K, V, place, options, zigzag)
    return (O, L) if return_lse else O


class _Ring(torch.autograd.Function):
    """One walk round the ring for O and L, another for the gradients."""

    @staticmethod
    def forward(ctx, Q, K, V, place, options, zigzag):
        choice = {"scale": options.scale, "backend": options.backend, "deterministic": options.deterministic}
        block = [K.contiguous(), V.contiguous()]
        for step in range(place.world):
            # posted before the kernel and waited for after it: NCCL and gloo copy in the background
            arriving = pass_on(block if step < place.world - 1 else [], place, step)
            mine = part(place.rank, step, place.world, Q.shape[2], causal=options.causal, zigzag=zigzag)
            if mine:
                K_j, V_j = (T[:, :, mine.keys] for T in block)
                O_j, L_j = flash_attention(Q[:, :, mine.rows], K_j, V_j, causal=mine.causal, return_lse=True, **choice)
                if step == 0:
                    O, L = O_j.to(L_j.dtype), L_j          # O in float32: R roundings to 16 bits would add up
                else:
                    merge(O[:, :, mine.rows], L[:, :, mine.rows], O_j, L_j)
            block = arriving()
        O = O.to(Q.dtype)
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.place, ctx.options, ctx.zigzag = place, options, zigzag
        ctx.set_materialize_grads(False)
        return O, L

    @staticmethod
    @once_differentiable
    def backward(ctx, dO, dL):
        """Each step is flash_attention's backward with the final O and L, so P comes out normalised over all N keys."""
        Q, K, V, O, L = ctx.saved_tensors
        place, options = ctx.place, ctx.options
        dO = torch.zeros_like(O) if dO is None else dO
        dQ = Q.new_zeros(Q.shape, dtype=L.dtype)
        block = [K.contiguous(), V.contiguous()]
        sums = [torch.zeros_like(T, dtype=L.dtype) for T in block]         # dK, dV, from the ranks visited so far
        arrived = lambda: sums
        for step in range(place.world):
            arriving = pass_on(block if step < place.world - 1 else [], place, step)
            mine = part(place.rank, step, place.world, Q.shape[2], causal=options.causal, zigzag=ctx.zigzag)
            if mine:
                own = [None if T is None else T[:, :, mine.rows] for T in (Q, O, dO, L, dL)]
                theirs = [T[:, :, mine.keys] for T in block]
                dQ_j, *grads = ATTENTION_BACKWARD(own[0], *theirs, *own[1:], *options._replace(causal=mine.causal))
                dQ[:, :, mine.rows] += dQ_j
            sums = arrived()                               # a step behind K and V: the rank before has added its own
            if mine:
                for total, grad in zip(sums, grads, strict=True):
                    total[:, :, mine.keys] += grad
            arrived = pass_on(sums, place, step, tag=2)
            block = arriving()
        dK, dV = arrived()                                 # after R steps they are back with their owner
        return dQ.to(Q.dtype), dK.to(K.dtype), dV.to(V.dtype), None, None, None


def merge(O, L, O_j, L_j):
    """Take a block's O_j and L_j into O and L, in place: both were divided by their own sums, exp(L) and exp(L_j)."""
    weight = torch.sigmoid(L_j - L)                        # (B, H, n)  exp(L_j) / (exp(L) + exp(L_j)), and no overflow
    weight = weight.masked_fill(L_j == -inf, 0)            # (B, H, n)  neither saw a key: -inf − -inf would be NaN
    O.lerp_(O_j.to(O.dtype), weight[..., None])            # O + weight (O_j − O)
    L.copy_(torch.logaddexp(L, L_j))


class Place(NamedTuple):
    group: object
    rank: int                                              # of this process in its ring
    world: int


def place_in(group):
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("ring_attention needs torch.distributed.init_process_group first, in processes that "
                           "torchrun starts")
    group = dist.group.WORLD if group is None else group
    place = Place(group, dist.get_rank(group), dist.get_world_size(group))
    if place.rank < 0:
        raise ValueError(f"group must be one that this process is in, global rank {dist.get_rank()} is not")
    return place


def pass_on(tensors, place, step, tag=0):
    """Send these to the next rank and receive as many from the one before: returns a function that waits for them."""
    if not tensors or place.world == 1:
        return lambda: tensors
    when = f"in step {step} of {place.world}"
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    arriving = [torch.empty_like(T) for T in tensors]
    moves = [dist.P2POp(dist.isend, T, None, place.group, tag + n, group_peer=after) for n, T in enumerate(tensors)]
    moves += [dist.P2POp(dist.irecv, T, None, place.group, tag + n, group_peer=before) for n, T in enumerate(arriving)]
    works = _named_failure(place, when, dist.batch_isend_irecv, moves)

    def wait():
        for work in works:                             # with NCCL the GPU's stream waits, not Python
            _named_failure(place, when, work.wait)
        return arriving
    return wait


def _named_failure(place, when, function, *arguments):
    """function(*arguments); if a message fails, the error names both neighbours."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise RuntimeError(f"ring_attention on rank {place.rank} {when}: no message to rank "
                           f"{(place.rank + 1) % place.world} or from rank {(place.rank - 1) % place.world}. A process "
                           "has ended or does not take part; the first one to fail says why. Below it was: "
                           f"{(str(error) or 'no message').splitlines()[0][:200]}") from error


_agreed = weakref.WeakKeyDictionary()                  # group -> the kinds of call on which its ranks agree, on GPUs


def _agree(place, wrong, Q, K, V, options, zigzag):
    """Raise on all ranks if one was called wrongly, or not as the others: a ring of unequal blocks would hang."""
    if wrong:
        mine = str(wrong)
    else:
        mine = {name: f"{tuple(T.shape)} {name_of(T.dtype)}" for name, T in (("Q", Q), ("K", K), ("V", V))}
        mine |= {"causal": options.causal, "scale": options.scale, "zigzag": zigzag,
                 "gradients": torch.is_grad_enabled() and any(T.requires_grad for T in (Q, K, V))}
    agreed = _agreed.setdefault(place.group, [])
    if mine in agreed:
        return
    of_ranks = [None] * place.world
    with torch.cuda.device_of(Q) if isinstance(Q, torch.Tensor) else torch.no_grad():          # NCCL's current device
        _named_failure(place, "before the first step", dist.all_gather_object, of_ranks, mine, place.group)
    if wrong:
        raise wrong
    for rank, theirs in enumerate(of_ranks):
        if isinstance(theirs, str):
            raise ValueError(f"ring_attention was called wrongly on rank {rank}, so rank {place.rank} stops too: "
                             f"{theirs}")
        for name, first in of_ranks[0].items():
            if theirs[name] != first:
                raise ValueError(f"{name} must be alike on all ranks, got {first} on rank 0, {theirs[name]} on rank "
                                 f"{rank}")
    if Q.is_cuda:                                      # comparing waits for a GPU; on a CPU it is cheap each time
        agreed.append(mine)


def ulysses_attention(Q, K, V, *, causal=False, scale=None, group=None, **options):
    """As ring_attention of shards in the sequence's own order: ranks trade rows for heads, and trade back.

    Shapes:  as ring_attention; R must divide H_q and H_kv
    Traffic: of Q, K, V and O a rank sends all but 1/R of its shard; backward as much again
    Source:  Jacobs et al. 2023, arXiv:2309.14509
    """
    place = place_in(group)
    from torch.distributed.nn.functional import all_to_all_single

    for name, T in (("Q", Q), ("K", K)):
        if T.shape[1] % place.world:
            raise ValueError(f"{name} must have a number of heads that {place.world} ranks divide, got {describe(T)}")

    def traded(X):                                     # (R, ...): part r goes to rank r and comes from rank r
        X = X.contiguous()
        return _named_failure(place, "in a trade with all", all_to_all_single, torch.empty_like(X), X, None, None,
                              place.group)

    Q, K, V = (traded(T.unflatten(1, (place.world, -1)).movedim(1, 0)) for T in (Q, K, V))         # (R, B, H/R, n, d)
    O = flash_attention(*(T.movedim(0, 2).flatten(2, 3) for T in (Q, K, V)), causal=causal, scale=scale, **options)
    O = traded(O.unflatten(2, (place.world, -1)).movedim(2, 0))
    return O.movedim(0, 1).flatten(1, 2)
