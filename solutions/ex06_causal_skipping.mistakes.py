"""Cases and mistakes of ex06_causal_skipping."""

import torch

from flashlab_course.check.cases import features_of
from flashlab_course.check.form import Breach, Case, Exercise, Hint, Mistake, Output, whole

VISITED = "-(-seen_by_last // B_c)"


def call(fn, N_q, N_k, B_r, B_c):
    found = [fn(i, N_q, N_k, B_r, B_c) for i in range(-(-N_q // B_r))]
    for i, pair in enumerate(found):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or any(whole(n) is None for n in pair):
            raise Breach("wrong_type", f"for i = {i} it returned {pair!r}; (full, visited), two whole numbers, was expected")
    return tuple(torch.tensor([whole(n) for n in column]) for column in zip(*found, strict=True))


def forbid(shape, N_q, N_k, B_r, B_c):
    if sum(size > 1 for size in shape) > 1:
        return f"a tensor of shape {shape} was made: the sizes alone say how many blocks are visited"
    return None


def truth(N_q, N_k, B_r, B_c):
    """Counted from the mask itself."""
    visible = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q)
    full, visited = [], []
    for rows in visible.split(B_r):
        blocks = rows.split(B_c, dim=1)
        visited.append(sum(bool(block.any()) for block in blocks))
        full.append(sum(bool(block.all()) for block in blocks))
    return torch.tensor(full), torch.tensor(visited)


def case(name, N_q, N_k, B_r, B_c):
    inputs = {"N_q": N_q, "N_k": N_k, "B_r": B_r, "B_c": B_c}
    found = features_of(N_q, N_k, 1, 1, B_r, B_c, True) - {"a causal mask", "queries that see no key", "a causal mask and fewer queries than keys"}
    return Case(name, lambda: dict(inputs), found, inputs)


EXERCISE = Exercise(
    function="key_blocks",
    outputs=(Output("full", ("query block",)), Output("visited", ("query block",))),
    call=call,
    truth=truth,
    forbid=forbid,
    cases=[
        case("one block of each", 2, 2, 2, 2),
        case("two blocks of each", 4, 4, 2, 2),
        case("wide query blocks", 8, 8, 4, 2),
        case("wide key blocks", 12, 12, 2, 4),
        case("short last blocks", 7, 7, 3, 2),
        case("fewer queries than keys", 3, 11, 2, 3),
        case("more queries than keys", 11, 4, 2, 3),
        case("one query of a decode step", 1, 10, 1, 4),
        case("all at once", 13, 9, 5, 4),
        case("blocks of one", 3, 3, 1, 1),
        case("fewer queries than keys, whole blocks", 4, 8, 2, 2),
        case("more queries than keys, whole blocks", 8, 4, 2, 2),
        case("one short key block", 4, 3, 2, 4),
        case("9 queries, 10 keys, blocks of 4", 9, 10, 4, 4),
    ],
    mistakes=[
        Mistake("nothing_skipped", "every key block was visited, as without a mask", "visited: the last query of the block sees only keys up to its own position",
                (VISITED, "-(-N_k // B_c)")),
        Mistake("visited_by_first", "visited was decided by the block's first query", "visited: some query of the block is enough, so its last one decides",
                ("last + 1 + N_k - N_q", "first + 1 + N_k - N_q")),
        Mistake("full_by_last", "full was decided by the block's last query", "full: every query has to see the whole block, so the first one decides",
                ("first + 1 + N_k - N_q", "last + 1 + N_k - N_q")),
        Mistake("top_left", "the first query was lined up with the first key", "N_k − N_q: the last query is lined up with the last key",
                ("last + 1 + N_k - N_q", "last + 1"), ("first + 1 + N_k - N_q", "first + 1")),
        Mistake("shift_reversed", "the shift was N_q − N_k, with the wrong sign", "N_k − N_q: with more keys than queries each query sees more",
                ("last + 1 + N_k - N_q", "last + 1 + N_q - N_k"), ("first + 1 + N_k - N_q", "first + 1 + N_q - N_k")),
        Mistake("visited_floor", "visited was rounded down, so that a block of which the last query sees only a part was skipped",
                "visited: rounded up, since a block is visited for one visible key", (VISITED, "seen_by_last // B_c")),
        Mistake("visited_off_by_one", "query n was taken to see the keys before n + N_k − N_q, its own not among them",
                "how many keys query n sees: n + 1 + N_k − N_q", ("last + 1 + N_k - N_q", "last + N_k - N_q"), ("first + 1 + N_k - N_q", "first + N_k - N_q")),
        Mistake("one_too_many", "one key block too many was visited where the last query sees a multiple of B_c keys",
                "visited: ⌈s / B_c⌉ for s keys seen; s // B_c + 1 is one too many where B_c divides s", (VISITED, "seen_by_last // B_c + 1")),
        Mistake("full_rounded_up", "full was rounded up, so that a block on the diagonal went without its mask",
                "the rounding of full: a block counts where the first query sees all of it", ("seen_by_first // B_c", "-(-seen_by_first // B_c)")),
        Mistake("short_last_query_block", "the last query block was taken to be as long as the others", "the last query: min((i + 1) · B_r, N_q) − 1",
                ("min((i + 1) * B_r, N_q) - 1", "(i + 1) * B_r - 1"), ("min(N_k, max(0, last + 1 + N_k - N_q))", "max(0, last + 1 + N_k - N_q)")),
        Mistake("negative", "a query block that sees no key got a negative number of blocks", "max(0, ...): queries before the first key see nothing",
                ("max(0, last + 1 + N_k - N_q)", "last + 1 + N_k - N_q"), ("max(0, first + 1 + N_k - N_q)", "first + 1 + N_k - N_q"),
                also=[[("max(0, last + 1 + N_k - N_q)", "last + 1 + N_k - N_q")]]),
        Mistake("r_and_c_swapped", "B_r and B_c were swapped", "which size belongs to queries: B_r", ("first, last = i * B_r, min((i + 1) * B_r, N_q) - 1",
                "B_r, B_c = B_c, B_r\n    first, last = i * B_r, min((i + 1) * B_r, N_q) - 1")),
        Mistake("blocks_compared", "visited was i + 1, as if query and key blocks had one size", "the positions: count in queries and keys, then divide by B_c",
                (VISITED, "min(i + 1, -(-N_k // B_c))")),
        Mistake("short_last_key_block", "a short last key block counted as not seen whole though every query sees all keys",
                "full, where the first query of the block sees all N_k keys: ⌈N_k / B_c⌉, the short block too",
                ("visited if seen_by_first == N_k else seen_by_first // B_c", "seen_by_first // B_c")),
        Mistake("none_full", "full was always 0: every block was given a mask", "full: blocks left of the diagonal need none",
                ("return full, visited", "return 0, visited")),
        Mistake("visited_one_key_too_far",
                "visited was one key too far: it counted as if the block's last query were the first one of the next block, or saw one key more",
                "the last query of block i, min((i + 1) · B_r, N_q) − 1, and how many keys query n sees: n + 1 + N_k − N_q",
                ("last + 1 + N_k - N_q", "last + 2 + N_k - N_q")),
        Mistake("visited_top_left", "visited lined up the first query with the first key; full did not", "N_k − N_q belongs into both",
                ("last + 1 + N_k - N_q", "last + 1")),
        Mistake("full_top_left", "full lined up the first query with the first key; visited did not", "N_k − N_q belongs into both",
                ("first + 1 + N_k - N_q", "first + 1")),
        Mistake("visited_one_query_short", "visited was one key short: it counted the keys before the last query's own",
                "how many keys query n sees: n + 1 + N_k − N_q", ("last + 1 + N_k - N_q", "last + N_k - N_q")),
        Mistake("full_one_query_short", "full was one key short: it counted the keys before the first query's own",
                "how many keys query n sees: n + 1 + N_k − N_q", ("first + 1 + N_k - N_q", "first + N_k - N_q"),
                also=[[("visited if seen_by_first == N_k else seen_by_first // B_c", "visited if seen_by_first == N_k else max(0, seen_by_first - 1) // B_c")]]),
        Mistake("full_one_key_too_far", "full counted one key too many for the first query", "how many keys query n sees: n + 1 + N_k − N_q",
                ("first + 1 + N_k - N_q", "first + 2 + N_k - N_q")),
        Mistake("swapped", "full and visited came back in the other order", "the order in `return`: full, visited",
                ("return full, visited", "return visited, full")),
        Mistake("blocks_on_the_diagonal", "full counted the blocks that cross the diagonal, visited − full", "full: the blocks that need no mask",
                ("return full, visited", "return visited - full, visited")),
        Mistake("full_is_visited_less_one", "full was visited − 1, as if the diagonal crossed one block always",
                "full: a wide query block crosses several key blocks", ("return full, visited", "return max(0, visited - 1), visited")),
        Mistake("full_from_N_q", "whether the first query sees all keys was asked of N_q, not of N_k", "a query that sees all N_k keys sees the short block whole",
                ("if seen_by_first == N_k", "if seen_by_first == N_q")),
        Mistake("visited_counts_keys", "visited counted keys, not blocks", "visited: ⌈keys / B_c⌉", (VISITED, "seen_by_last")),
        Mistake("clipped_index", "a query block that sees no key visited one block, as if its last query saw key 0",
                "visited, where the last query sees no key: 0; clip the number of keys to 0, not the index of the last one",
                (VISITED, "max(0, last + N_k - N_q) // B_c + 1")),
        Mistake("int_for_floor", "int() or math.trunc was taken for the floor, and rounds −1/2 to 0, not to −1: a query block that sees no key visited one block",
                "the division: // rounds down below 0 too; int(… / …) rounds towards 0", (VISITED, "max(0, int((last + N_k - N_q) / B_c) + 1)")),
        Mistake("shift_never_negative", "the shift was max(0, N_k − N_q): more queries than keys were lined up at the first key",
                "N_k − N_q may be negative: the last query is lined up with the last key", ("last + 1 + N_k - N_q", "last + 1 + max(0, N_k - N_q)"),
                ("first + 1 + N_k - N_q", "first + 1 + max(0, N_k - N_q)")),
    ],
    hints=[
        "Query n sees n + 1 + N_k − N_q keys: clip that to 0 … N_k.",
        "visited = ⌈seen by the last query / B_c⌉. The block's last query is min((i + 1)·B_r, N_q) − 1.",
        "full = seen by the first query // B_c; where that query sees all keys, a short last block counts as well.",
        Hint("Only a short last query block is wrong: which query is its last, if there are fewer than B_r of them?", "a short last query block"),
        Hint("Only a short last key block is wrong: it has fewer than B_c keys, and it is full as soon as all of those are seen.", "a short last key block"),
        Hint("With as many queries as keys all is right: how many keys does query 0 see where N_q ≠ N_k? Can your number be below 0, or above N_k?", "N_q ≠ N_k"),
        Hint("Only where there are more queries than keys: the first of them see nothing. What does your formula say for them?", "more queries than keys"),
    ],
)
