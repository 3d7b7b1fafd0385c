"""Cases and mistakes of ex14_zigzag."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output, whole

NOT, WHOLE, MASKED = 0, 1, 2


def call(fn, world):
    """For all ranks and steps, what became of each pair of chunks: not computed, computed whole or with a mask."""
    pairs = torch.full((world, world, 2 * world, 2 * world), NOT)
    for rank in range(world):
        for step in range(world):
            found = fn(rank, step, world)
            if problem := refused(found, 2 * world):
                raise Breach("wrong_type", f"for rank {rank}, step {step}, world {world} it returned {problem}")
            for q, k, masked in found:
                pairs[rank, step, q, k] = MASKED if masked else WHOLE
    return pairs


def refused(found, chunks):
    """What is wrong with the form of an answer; "" if nothing is."""
    triples = isinstance(found, (list, tuple, set)) and all(isinstance(t, (list, tuple)) and len(t) == 3 for t in found)
    if not triples:
        return f"{str(found)[:80]}; a list of (query chunk, key chunk, masked) was expected"
    for one in found:
        if any(whole(chunk) is None or not 0 <= chunk < chunks for chunk in one[:2]):
            return f"{one!r}; chunks are whole numbers from 0 to {chunks - 1}"
    twice = len({tuple(one[:2]) for one in found}) < len(found)
    return f"a pair of chunks twice: {str(found)[:80]}" if twice else ""


def case(world):
    holds = {"more than one rank": world > 1, "more than two ranks": world > 2}
    return Case(f"{world} rank{'s' * (world > 1)}", lambda: {"world": world},
                frozenset(f for f, true in holds.items() if true), {"R": world})




SOURCE, MINE = "(rank - step) % world", "mine = (rank, 2 * world - 1 - rank)"
THEIRS, SEEN = "theirs = (source, 2 * world - 1 - source)", "if k <= q"

EXERCISE = Exercise(
    function="work",
    outputs=(Output("pair", ("rank", "step", "query chunk", "key chunk"),
                    ((NOT, "left out"), (WHOLE, "whole"), (MASKED, "with a mask"))),),
    call=call,
    cases=[case(world) for world in (1, 2, 3, 5, 8)],
    mistakes=[
        Mistake("in_order", "rank r was given chunks 2r and 2r + 1, in the order of the sequence",
                "which two chunks a rank owns", (MINE, "mine = (2 * rank, 2 * rank + 1)"),
                (THEIRS, "theirs = (2 * source, 2 * source + 1)")),
        Mistake("round_robin", "rank r was given chunks r and r + R", "the second chunk that a rank owns",
                (MINE, "mine = (rank, world + rank)"), (THEIRS, "theirs = (source, world + source)")),
        Mistake("keys_in_order", "the queries' chunks were dealt out zig-zag, the keys' were not",
                "which two chunks of keys arrive", (THEIRS, "theirs = (2 * source, 2 * source + 1)")),
        Mistake("one_chunk", "only the first of the rank's two chunks of queries was computed", "how many chunks a rank owns",
                (MINE, "mine = (rank,)")),
        Mistake("one_chunk_of_keys", "only the first of the two chunks of keys was used", "how many chunks arrive",
                (THEIRS, "theirs = (source,)")),
        Mistake("own_keys_always", "every step used the rank's own keys", "whose keys a rank holds after a step",
                (SOURCE, "rank")),
        Mistake("wrong_direction", "step t used the block of rank r + t, as if blocks went to lower ranks",
                "the direction in which blocks travel", (SOURCE, "(rank + step) % world")),
        Mistake("no_wrap", "where step exceeds rank, the block of rank step − rank was taken",
                "whose block rank 0 gets in step 1", (SOURCE, "abs(rank - step)")),
        Mistake("no_diagonal", "a chunk of queries did not meet its own keys", "whether a query sees its own place",
                (SEEN, "if k < q")),
        Mistake("later_keys_too", "chunks of later keys were computed, too", "which pairs of chunks can be left out",
                (SEEN, "")),
        Mistake("compared_by_rank", "the blocks of higher ranks were skipped whole", "what the second chunk of queries sees",
                (SEEN, "if k <= q and source <= rank")),
        Mistake("own_block_only_diagonal", "within the rank's own block, chunks met only themselves",
                "what the second chunk of queries sees in step 0", (SEEN, "if k <= q and (source != rank or q == k)")),
        Mistake("one_chunk_of_higher_ranks", "of a higher rank's block only one chunk was computed",
                "what the second chunk of queries sees", (SEEN, "if k <= q and (source <= rank or k == source)")),
        Mistake("own_block_masked", "every pair of the rank's own block was masked",
                "the pair of different chunks in step 0", ("q == k)", "source == rank)")),
        Mistake("never_masked", "masked was always False", "what a query sees of its own chunk", ("q == k)", "False)")),
    ],
    hints=[
        "With 4 ranks there are 8 chunks. Rank 0 has 0 and 7, rank 1 has 1 and 6. What has rank 3?",
        "In step 1 a block comes from rank r − 1, in step 2 from rank r − 2. What comes before rank 0?",
        "Two chunks meet two chunks: four pairs. For each, compare the numbers of the chunks, not of the ranks.",
    ],
)
