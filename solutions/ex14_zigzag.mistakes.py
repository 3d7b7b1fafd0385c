from itertools import product

import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach, Output, whole

NOT, WHOLE, MASKED = 0, 1, 2
SOURCE, MINE = "(rank - step) % world", "mine = (rank, 2 * world - 1 - rank)"
THEIRS, SEEN = "theirs = (source, 2 * world - 1 - source)", "if k <= q"

outputs = [Output("pair", ("rank", "step", "query chunk", "key chunk"),
                  ((NOT, "left out"), (WHOLE, "whole"), (MASKED, "with a mask")))]
features = {"more than one rank": lambda world: world > 1}
case = case_of(lambda world: {"world": world})
cases = [case(f"{world} rank{'s' * (world > 1)}", world) for world in (1, 2, 3, 5, 8)]


def call(fn, world):
    """For all ranks and steps, what became of each pair of chunks: not computed, computed whole or with a mask."""
    pairs = torch.full((world, world, 2 * world, 2 * world), NOT)
    for rank, step in product(range(world), repeat=2):
        at, found = f"for rank {rank}, step {step}, world {world} it returned", fn(rank, step, world)
        for one in found if isinstance(found, (list, tuple, set)) else [found]:
            if not isinstance(one, (list, tuple)) or len(one) != 3 or not {*map(whole, one[:2])} <= {*range(2 * world)}:
                raise Breach("wrong_type", f"{at} {str(one)[:80]} where (query chunk, key chunk, masked) was expected, "
                                           f"with chunks from 0 to {2 * world - 1}")
            q, k, masked = one
            if pairs[rank, step, q, k] != NOT:
                raise Breach("wrong_type", f"{at} query chunk {q} and key chunk {k} twice")
            pairs[rank, step, q, k] = MASKED if masked else WHOLE
    return pairs


mistakes = [
    Mistake("round_robin", "rank r was given chunks r and r + R", "the second chunk that a rank owns", (MINE,
             "mine = (rank, world + rank)"), (THEIRS, "theirs = (source, world + source)")),
    Mistake("wrong_direction", "in step t, the block of rank r + t was used", "the direction in which blocks travel",
            (SOURCE, "(rank + step) % world")),
    Mistake("no_wrap", "where step exceeds rank, the block of rank step − rank was taken",
            "whose block rank 0 gets in step 1", (SOURCE, "abs(rank - step)")),
    Mistake("no_diagonal", "a chunk of queries did not meet its own keys", "whether a query sees its own place", (SEEN,
             "if k < q")),
    Mistake("compared_by_rank", "the blocks of higher ranks were skipped whole",
            "what the second chunk of queries sees", (SEEN, "if k <= q and source <= rank")),
    Mistake("own_block_only_diagonal", "within the rank's own block, chunks met only themselves",
            "what the second chunk of queries sees in step 0", (SEEN, "if k <= q and (source != rank or q == k)")),
    Mistake("one_chunk_of_higher_ranks", "of a higher rank's block only one chunk was computed",
            "what the second chunk of queries sees", (SEEN, "if k <= q and (source <= rank or k == source)")),
    Mistake("own_block_masked", "every pair of the rank's own block was masked",
            "the pair of different chunks in step 0", ("q == k)", "source == rank)")),
    Mistake("never_masked", "masked was always False", "what a query sees of its own chunk", ("q == k)", "False)")),
]
hints = ["With 4 ranks there are 8 chunks. Rank 0 has 0 and 7, rank 1 has 1 and 6. What has rank 3?",
         "In step 1 a block comes from rank r − 1, in step 2 from rank r − 2. What comes before rank 0?",
         "Two chunks meet two chunks: four pairs. For each, compare the numbers of the chunks, not of the ranks."]
