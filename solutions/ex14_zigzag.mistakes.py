"""Cases and mistakes of ex14_zigzag."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output, whole

SOURCE, MINE, THEIRS = "source = (rank - step) % world", "mine = (rank, 2 * world - 1 - rank)", "theirs = (source, 2 * world - 1 - source)"
PAIRS = "[(q, k, q == k) for q in mine for k in theirs if k <= q]"
NOT, WHOLE, MASKED = 0, 1, 2


def call(fn, world):
    """Of all ranks and steps: what became of each pair of chunks. 0: not computed, 1: whole, 2: with a mask."""
    return torch.tensor([[table(fn(rank, step, world), rank, step, world) for step in range(world)] for rank in range(world)])


def table(found, rank, step, world):
    at = f"for rank {rank}, step {step}, world {world}"
    if not isinstance(found, (list, tuple, set)) or any(not isinstance(one, (list, tuple)) or len(one) != 3 for one in found):
        raise Breach("wrong_type", f"{at} it returned {str(found)[:80]}; a list of (query chunk, key chunk, masked) was expected")
    pairs = [[NOT] * (2 * world) for _ in range(2 * world)]
    for q, k, masked in found:
        if whole(q) is None or whole(k) is None or not (0 <= q < 2 * world and 0 <= k < 2 * world):
            raise Breach("wrong_type", f"{at} it returned {(q, k, masked)!r}; chunks are whole numbers from 0 to {2 * world - 1}")
        if pairs[q][k]:
            raise Breach("wrong_type", f"{at} it returned query chunk {q} and key chunk {k} twice")
        pairs[q][k] = MASKED if masked else WHOLE
    return pairs


def truth(world):
    """Dealt out like cards, to the last rank and back; the blocks walk in fact; chunks of two rows, looked at row by row."""
    owned = [[] for _ in range(world)]
    for chunk, rank in enumerate([*range(world), *reversed(range(world))]):
        owned[rank].append(chunk)
    found, held = torch.zeros(world, world, 2 * world, 2 * world, dtype=torch.int64), list(owned)
    for step in range(world):
        for rank in range(world):
            for q in owned[rank]:
                for k in held[rank]:
                    seen = [2 * k + key <= 2 * q + query for query in (0, 1) for key in (0, 1)]
                    found[rank, step, q, k] = WHOLE if all(seen) else MASKED if any(seen) else NOT
        held = [held[rank - 1] for rank in range(world)]
    return found


def case(world):
    holds = {"more than one rank": world > 1, "more than two ranks": world > 2}
    return Case(f"{world} rank{'s' if world > 1 else ''}", lambda: {"world": world}, frozenset(f for f, true in holds.items() if true), {"R": world})


EXERCISE = Exercise(
    function="work",
    outputs=(Output("pair", ("rank", "step", "query chunk", "key chunk"), ((NOT, "left out"), (WHOLE, "whole"), (MASKED, "with a mask"))),),
    call=call,
    truth=truth,
    cases=[case(world) for world in (1, 2, 3, 4, 5, 8)],
    mistakes=[
        Mistake("in_order", "rank r was given chunks 2r and 2r + 1: that is the sequence's own order, not zig-zag",
                "which two chunks a rank owns: one from the front and one from the end", (MINE, "mine = (2 * rank, 2 * rank + 1)"),
                (THEIRS, "theirs = (2 * source, 2 * source + 1)")),
        Mistake("round_robin", "rank r was given chunks r and r + R, as cards are dealt in one direction",
                "the second chunk: as far from the end as chunk r is from the front", (MINE, "mine = (rank, world + rank)"),
                (THEIRS, "theirs = (source, world + source)")),
        Mistake("keys_in_order", "the queries' chunks are zig-zag, the keys' are not",
                "the keys that arrive: the two chunks that their owner has, zig-zag as yours are", (THEIRS, "theirs = (2 * source, 2 * source + 1)")),
        Mistake("keys_round_robin", "of the keys that arrive, the second chunk was that of their owner + R",
                "the keys that arrive: the second chunk is as far from the end as the first from the front", (THEIRS, "theirs = (source, world + source)")),
        Mistake("mirrored_rank", "rank R − 1 − r's chunks were taken for rank r's", "chunk r from the front is rank r's",
                (MINE, "mine = (world - 1 - rank, world + rank)"), (THEIRS, "theirs = (world - 1 - source, world + source)")),
        Mistake("one_chunk", "only the first of the rank's two chunks of queries was computed", "the queries: a rank owns two chunks", (MINE, "mine = (rank,)")),
        Mistake("one_chunk_of_keys", "only the first of the two chunks of keys was looked at", "the keys: two chunks arrive", (THEIRS, "theirs = (source,)")),
        Mistake("wrong_direction", "in step t the block of rank r + t was taken, as if blocks travelled to lower ranks",
                "the direction: blocks go to rank + 1, so in step 1 rank r holds the one of rank r − 1", (SOURCE, "source = (rank + step) % world")),
        Mistake("no_wrap", "where step exceeds rank, the block of rank step − rank was taken: rank − step without its sign, not modulo R",
                "the ring closes: rank 0 gets the block of rank R − 1, so the owner is rank − step modulo R", (SOURCE, "source = abs(rank - step)")),
        Mistake("no_diagonal", "a chunk of queries did not meet its own keys", "the condition: a query sees its own place, so k = q belongs to it",
                (PAIRS, "[(q, k, False) for q in mine for k in theirs if k < q]")),
        Mistake("own_block_masked", "every pair of the own block was masked", "masked: of the own block, too, the first chunk is seen whole by the second",
                (PAIRS, "[(q, k, source == rank) for q in mine for k in theirs if k <= q]")),
        Mistake("mask_inverted", "the pairs that need a mask went without, and the others got one", "masked: True where query and key chunk are the same",
                (PAIRS, "[(q, k, q != k) for q in mine for k in theirs if k <= q]")),
        Mistake("compared_by_rank", "a block of a higher rank was skipped whole",
                "the condition: compare chunks, not ranks: of a higher rank's keys the second chunk of queries sees both",
                (PAIRS, "[(q, k, q == k) for q in mine for k in theirs if k <= q and source <= rank]")),
        Mistake("own_block_only_diagonal", "of the own block only the two chunks on the diagonal were computed",
                "the own block: the second chunk of queries sees the first chunk of keys whole",
                (PAIRS, "[(q, k, q == k) for q in mine for k in theirs if k <= q and (source != rank or q == k)]")),
        Mistake("one_chunk_of_higher_ranks", "of a higher rank's block only one chunk was computed with: the late queries see both",
                "a block of a higher rank: both its chunks lie before the late queries",
                (PAIRS, "[(q, k, q == k) for q in mine for k in theirs if k <= q and (source <= rank or k == source)]"),
                also=[[(PAIRS, "[(q, k, q == k) for q in mine for k in theirs if k <= q and (source <= rank or k != source)]")]]),
    ],
    hints=[
        "Of 8 chunks and 4 ranks: rank 0 has 0 and 7, rank 1 has 1 and 6, rank 3 has 3 and 4.",
        "A block comes from rank r − 1 in step 1, from rank r − 2 in step 2: (rank − step) % world.",
        "Four pairs of chunks are possible. Keep those with key chunk ≤ query chunk; only a chunk that meets itself needs a mask.",
        "One rank is right: now the block that arrives belongs to another one, (rank − step) % world.",
    ],
)
