import torch

from flashlab_course.check.cases import Mistake, case_of, whole_numbers

FIRST, LAST = "max(0, first + 1 + N_k - N_q)", "max(0, last + 1 + N_k - N_q)"
WHOLE, END = "seen_by_first // B_c", "-(-seen_by_last // B_c)"

outputs = [("whole", "query block"), ("end", "query block")]
forbid = lambda shape, **sizes: sum(n > 1 for n in shape) > 1 and f"a tensor of shape {shape} was made: sizes will do"
features = {"no mask": lambda causal: not causal, "a short last key block": lambda N_k, B_c: N_k % B_c,
            "a short last query block": lambda N_q, B_r: N_q % B_r}
case = case_of(lambda N_q, N_k, B_r, B_c, causal=True: locals())


def call(fn, N_q, N_k, B_r, B_c, causal):
    return torch.tensor([whole_numbers(fn(i, N_q, N_k, B_r, B_c, causal), f"for i = {i}", 2)
                         for i in range(-(-N_q // B_r))]).unbind(1)


def truth(N_q, N_k, B_r, B_c, causal):
    """Counted from the mask itself, with the keys that a tile has past the end hidden from all."""
    visible = torch.zeros(N_q, -(-N_k // B_c) * B_c, dtype=torch.bool)
    visible[:, :N_k] = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q) if causal else True
    blocks = [rows.split(B_c, dim=1) for rows in visible.split(B_r)]
    return tuple(torch.tensor([sum(bool(decide(block)) for block in row) for row in blocks])
                 for decide in (torch.all, torch.any))


cases = [case("no mask, whole blocks", 6, 12, 3, 4, causal=False),
         case("no mask, a short last key block", 6, 10, 3, 4, causal=False),
         case("causal, one block of each", 4, 4, 4, 4),
         case("short last blocks", 7, 7, 3, 2),
         case("one query of a decode step", 1, 10, 1, 4),
         case("fewer queries than keys", 3, 11, 2, 3),
         case("more queries than keys", 11, 4, 2, 3),
         case("one short key block", 4, 3, 2, 4)]
mistakes = [
    Mistake("top_left", "the first query was lined up with the first key", "the keys of a query where N_q ≠ N_k",
            (FIRST, "min(N_k, first + 1)"), (LAST, "min(N_k, last + 1)")),
    Mistake("short_block_without_mask", "a short last key block had no mask where all keys are seen",
            "what the last tile holds", (WHOLE, f"(-(-N_k // B_c) if seen_by_first == N_k else {WHOLE})")),
    Mistake("all_whole_without_causal", "without causal a short last key block had no mask", "what the last tile holds",
            (f"{FIRST} if causal else", f"{FIRST} if causal else B_c - 1 +")),
    Mistake("end_rounded_down", "end was rounded down, and a block seen in part was left out", "the rounding of end",
            (END, "seen_by_last // B_c")),
    Mistake("one_block_too_many", "end was one block too many where B_c divides the number of keys",
            "the rounding of end", (END, "seen_by_last // B_c + 1")),
    Mistake("own_key_hidden", "the last key that a query sees was not counted", "keys are numbered from 0", (FIRST,
             "max(0, first + N_k - N_q)"), (LAST, "max(0, last + N_k - N_q)")),
    Mistake("whole_one_short", "whole counted one key too few for the first query", "keys are numbered from 0", (FIRST,
             "max(0, first + N_k - N_q)")),
    Mistake("end_one_too_far", "end counted one key too many for the last query", "which query is the block's last",
            (LAST, "max(0, min(N_k, last + 2 + N_k - N_q))")),
    Mistake("short_query_block", "the last query block was taken to be as long as the others",
            "the last query of a short block", ("min((i + 1) * B_r, N_q) - 1", "(i + 1) * B_r - 1")),
    Mistake("negative", "whole was negative where the first query sees no key", "queries that see no key", (FIRST,
             "first + 1 + N_k - N_q")),
    Mistake("masked_by_sizes", "⌈B_r / B_c⌉ key blocks had a mask, wherever the diagonal lay", "where it enters",
            (f"return {WHOLE}", "return (max(0, -(-seen_by_last // B_c) - -(-B_r // B_c)) if causal else N_k // B_c)")),
]
hints = ["Begin without causal. The two numbers differ where the last key block is short: why?",
         "With causal, which query of the block sees the fewest keys, and which the most?",
         "One number needs every query to see all of a block, the other needs one to see a part. How is each rounded?"]
