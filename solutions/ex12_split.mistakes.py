"""Cases and mistakes of ex12_split."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output, whole

FIRST, LAST = "seen_by_first = max(0, first + 1 + N_k - N_q) if causal else N_k", "seen_by_last = max(0, last + 1 + N_k - N_q) if causal else N_k"
WHOLE, END = "seen_by_first // B_c", "-(-seen_by_last // B_c)"


def call(fn, N_q, N_k, B_r, B_c, causal):
    found = [fn(i, N_q, N_k, B_r, B_c, causal) for i in range(-(-N_q // B_r))]
    for i, pair in enumerate(found):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or any(whole(n) is None for n in pair):
            raise Breach("wrong_type", f"for i = {i} it returned {pair!r}; (whole, end), two whole numbers, was expected")
    return tuple(torch.tensor([whole(n) for n in column]) for column in zip(*found, strict=True))


def forbid(shape, N_q, N_k, B_r, B_c, causal):
    if sum(size > 1 for size in shape) > 1:
        return f"a tensor of shape {shape} was made: the sizes alone say which blocks need a mask"
    return None


def truth(N_q, N_k, B_r, B_c, causal):
    """Counted from the mask itself, with the keys that a tile has past the end hidden from all."""
    visible = torch.zeros(N_q, -(-N_k // B_c) * B_c, dtype=torch.bool)
    visible[:, :N_k] = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q) if causal else True
    blocks = [rows.split(B_c, dim=1) for rows in visible.split(B_r)]
    return tuple(torch.tensor([sum(bool(decide(block)) for block in row) for row in blocks]) for decide in (torch.all, torch.any))


def case(name, N_q, N_k, B_r, B_c, causal=True):
    inputs = {"N_q": N_q, "N_k": N_k, "B_r": B_r, "B_c": B_c, "causal": causal}
    holds = {"a causal mask": causal, "no mask": not causal, "a short last key block": N_k % B_c != 0, "a short last query block": N_q % B_r != 0,
             "N_q ≠ N_k": N_q != N_k, "more queries than keys": N_q > N_k, "B_r ≠ B_c": B_r != B_c}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in holds.items() if true), inputs)


EXERCISE = Exercise(
    function="loops",
    outputs=(Output("whole", ("query block",)), Output("end", ("query block",))),
    call=call,
    truth=truth,
    forbid=forbid,
    cases=[
        case("one block of each", 4, 4, 4, 4, causal=False),
        case("no mask, whole blocks", 8, 12, 4, 4, causal=False),
        case("no mask, a short last key block", 8, 10, 4, 4, causal=False),
        case("causal, one block of each", 4, 4, 4, 4),
        case("causal, two blocks of each", 4, 4, 2, 2),
        case("wide query blocks", 16, 16, 8, 2),
        case("wide key blocks", 12, 12, 2, 4),
        case("short last blocks", 7, 7, 3, 2),
        case("one query of a decode step", 1, 10, 1, 4),
        case("one query, whole key blocks", 1, 12, 4, 4),
        case("fewer queries than keys", 3, 11, 2, 3),
        case("fewer queries than keys, whole blocks", 4, 12, 2, 2),
        case("more queries than keys", 11, 4, 2, 3),
        case("more queries than keys, whole blocks", 12, 4, 2, 2),
        case("blocks of one", 3, 3, 1, 1),
        case("all at once", 13, 9, 5, 4),
        case("one short key block", 4, 3, 2, 4),
        case("9 queries, 10 keys, blocks of 4", 9, 10, 4, 4),
    ],
    mistakes=[
        Mistake("nothing_skipped", "every key block was walked, as without a mask", "end: the block's last query sees only keys up to its own position",
                (LAST, "seen_by_last = N_k")),
        Mistake("whole_by_last", "whole was decided by the block's last query", "whole: every query has to see the block, so the first one decides",
                ("max(0, first + 1 + N_k - N_q)", "max(0, last + 1 + N_k - N_q)")),
        Mistake("end_by_first", "end was decided by the block's first query", "end: one query of the block is enough, so the last one decides",
                ("max(0, last + 1 + N_k - N_q)", "max(0, first + 1 + N_k - N_q)")),
        Mistake("short_block_without_mask", "a short last key block went without its mask where every query sees all keys",
                "whole: the tile reaches past the last key, and what it reads there must not count",
                (WHOLE, "(-(-N_k // B_c) if seen_by_first == N_k else seen_by_first // B_c)")),
        Mistake("whole_rounded_up", "whole was rounded up, so that a block that the first query sees in part went without its mask",
                "the division for whole: all of the block has to be seen", (WHOLE, "-(-seen_by_first // B_c)")),
        Mistake("end_rounded_down", "end was rounded down, and the last block that some query sees was left out",
                "the division for end: one visible key is enough", (END, "seen_by_last // B_c")),
        Mistake("one_block_too_many", "end was ⌊seen / B_c⌋ + 1, one block too many where B_c divides seen", "end: ⌈seen / B_c⌉",
                (END, "seen_by_last // B_c + 1")),
        Mistake("own_key_hidden", "query n was taken to see the keys before n + N_k − N_q, that one not among them",
                "how many keys query n sees: n + 1 + N_k − N_q", ("max(0, first + 1 + N_k - N_q)", "max(0, first + N_k - N_q)"),
                ("max(0, last + 1 + N_k - N_q)", "max(0, last + N_k - N_q)")),
        Mistake("whole_one_short", "whole counted one key too few for the first query", "how many keys query n sees: n + 1 + N_k − N_q",
                ("max(0, first + 1 + N_k - N_q)", "max(0, first + N_k - N_q)")),
        Mistake("end_one_too_far", "end counted one key too many: the last query was taken to be (i + 1) · B_r, or its keys were miscounted",
                "how many keys the block's last query n sees: n + 1 + N_k − N_q, where n is (i + 1) · B_r − 1 at most",
                ("max(0, last + 1 + N_k - N_q)", "max(0, min(N_k, last + 2 + N_k - N_q))")),
        Mistake("short_query_block", "the last query block was taken to be as long as the others, and walked past the last key",
                "the last query: min((i + 1) · B_r, N_q) − 1", ("min((i + 1) * B_r, N_q) - 1", "(i + 1) * B_r - 1")),
        Mistake("negative", "a negative whole or end came back where the block's first or last query sees no key",
                "how many keys query n sees: max(0, n + 1 + N_k − N_q)", ("max(0, first + 1 + N_k - N_q)", "first + 1 + N_k - N_q"),
                ("max(0, last + 1 + N_k - N_q)", "last + 1 + N_k - N_q"), also=
                     [[("max(0, first + 1 + N_k - N_q)", "first + 1 + N_k - N_q")]]),
        Mistake("one_masked_block", "whole was end − 1, as if the diagonal crossed one key block always",
                "whole: a query block that is wider than a key block crosses several", ("return seen_by_first // B_c, -(-seen_by_last // B_c)",
                 "return (max(0, -(-seen_by_last // B_c) - 1) if causal else N_k // B_c), -(-seen_by_last // B_c)")),
        Mistake("all_whole_without_causal", "without causal all blocks were called whole, a short last one as well",
                "whole without causal: a tile that reaches past the last key needs its mask",
                (FIRST, "seen_by_first = max(0, first + 1 + N_k - N_q) if causal else -(-N_k // B_c) * B_c")),
        Mistake("masked_by_sizes", "the number of masked blocks was ⌈B_r / B_c⌉ everywhere, though the diagonal may cut one more",
                "whole: how many blocks the first query sees to their end", ("return seen_by_first // B_c, -(-seen_by_last // B_c)",
                 "return (max(0, -(-seen_by_last // B_c) - -(-B_r // B_c)) if causal else N_k // B_c), -(-seen_by_last // B_c)")),
    ],
    hints=[
        "Without a mask: whole = N_k // B_c, end = ⌈N_k / B_c⌉. They differ where the last block is short.",
        "With a causal mask query n sees n + 1 + N_k − N_q keys, or none if that is negative. Take the block's first query for whole.",
        "whole = seen by the first // B_c, end = ⌈seen by the last / B_c⌉; the last query is min((i + 1)·B_r, N_q) − 1.",
        "Only a short last key block is wrong: the tile of the last block has B_c rows, though fewer keys are left. Who hides the rest?",
        "Only a short last query block is wrong: which query is its last?",
        "Only where there are more queries than keys: the first of them see nothing. What does your formula say for them?",
    ],
)
