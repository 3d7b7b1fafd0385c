import torch

from flashlab_course.check.cases import Mistake, case_of, whole_numbers

VISITED, FULL = "-(-seen_by_last // B_c)", "visited if seen_by_first == N_k else seen_by_first // B_c"
LAST, FIRST = "last + 1 + N_k - N_q", "first + 1 + N_k - N_q"

outputs = [("full", "query block"), ("visited", "query block")]
forbid = lambda shape, **sizes: sum(n > 1 for n in shape) > 1 and f"a tensor of shape {shape} was made: sizes will do"
case = case_of(lambda N_q, N_k, B_r, B_c: locals())


def call(fn, N_q, N_k, B_r, B_c):
    return torch.tensor([whole_numbers(fn(i, N_q, N_k, B_r, B_c), f"for i = {i}", 2)
                         for i in range(-(-N_q // B_r))]).unbind(1)


def truth(N_q, N_k, B_r, B_c):
    """Counted from the mask itself."""
    blocks = [rows.split(B_c, dim=1) for rows in torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q).split(B_r)]
    return tuple(torch.tensor([sum(bool(seen(block)) for block in row) for row in blocks])
                 for seen in (torch.all, torch.any))


cases = [case("one block of each", 5, 4, 5, 4),
         case("wide query blocks", 8, 8, 4, 2),
         case("short last blocks", 7, 7, 3, 2),
         case("fewer queries than keys", 3, 11, 2, 3),
         case("more queries than keys", 11, 4, 2, 3),
         case("one query of a decode step", 1, 10, 1, 4),
         case("one short key block", 4, 3, 2, 4)]
mistakes = [
    Mistake("full_by_last", "full was decided by the block's last query",
            "full: which query of the block sees fewest keys", (FIRST, LAST)),
    Mistake("top_left", "the first query was lined up with the first key", "how many keys query 0 sees if N_q ≠ N_k",
            (LAST, "last + 1"), (FIRST, "first + 1")),
    Mistake("shift_reversed", "the shift between queries and keys had the wrong sign",
            "the keys of query 0 if N_q ≠ N_k", (LAST, "last + 1 + N_q - N_k"), (FIRST, "first + 1 + N_q - N_k")),
    Mistake("full_one_query_short", "full was one key short: the first query's own key was not counted",
            "how many keys the block's first query sees", (FIRST, "first + N_k - N_q")),
    Mistake("visited_floor", "visited was rounded down", "visited: a block of which the last query sees a part",
            (VISITED, "seen_by_last // B_c")),
    Mistake("full_rounded_up", "full was rounded up", "full: a block of which the first query sees a part",
            ("seen_by_first // B_c", "-(-seen_by_first // B_c)")),
    Mistake("short_last_query_block", "the short last query block was taken to be full", "its last query",
            ("min((i + 1) * B_r, N_q) - 1", "(i + 1) * B_r - 1"), (f"min(N_k, max(0, {LAST}))", f"max(0, {LAST})")),
    Mistake("short_last_key_block", "a short last key block never counted as full",
            "full where the first query sees all keys", (FULL, "seen_by_first // B_c")),
    Mistake("negative", "a query block that sees no key visited a negative number of blocks",
            "the number of keys that early queries see", (f"max(0, {LAST})", LAST)),
]
hints = ["How many keys does query n see? Clip that number to 0 … N_k.",
         "The block's last query decides visited, rounded up; its first query decides full, rounded down.",
         "The last block may have fewer than B_r queries, and the last key block fewer than B_c keys."]
