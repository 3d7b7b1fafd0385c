"""Cases and mistakes of ex13_window_tiles."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output

START, BOUNDS = "start = 0 if left == -1 else max(0, length - 1 - left)", "first, end = start // B_c, -(-length // B_c)"
CROSSED = "{j for j, cut in ((first, start), (end - 1, length)) if cut % B_c}"


def forbid(shape, length, left, B_c):
    return f"a tensor of shape {shape} was made: the sizes alone say which blocks are read" if max(shape, default=0) > 1 else None


def truth(length, left, B_c):
    """Counted place by place."""
    seen = [place < length and (left == -1 or length - 1 - place <= left) for place in range(-(-length // B_c) * B_c)]
    blocks = [seen[n:n + B_c] for n in range(0, len(seen), B_c)]
    visited = [j for j, block in enumerate(blocks) if any(block)]
    return visited[0], visited[-1] + 1, sum(not all(blocks[j]) for j in visited)


def case(name, length, left, B_c):
    inputs = {"length": length, "left": left, "B_c": B_c}
    start = 0 if left == -1 else max(0, length - 1 - left)
    holds = {"no window": left == -1, "a window": left != -1, "a short last block": length % B_c != 0, "a window longer than the text": left >= length,
             "a window that begins inside a block": start % B_c != 0, "a window within one block": start // B_c == (length - 1) // B_c and left != -1}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in holds.items() if true), inputs)


EXERCISE = Exercise(
    function="window_tiles",
    outputs=(Output("first"), Output("end"), Output("masked")),
    ints_only=True,
    truth=truth,
    forbid=forbid,
    cases=[
        case("one whole block, no window", 4, -1, 4),
        case("three whole blocks, no window", 12, -1, 4),
        case("a short last block, no window", 10, -1, 4),
        case("the query's own key alone", 8, 0, 4),
        case("a window of one block", 12, 3, 4),
        case("a window of two blocks", 12, 7, 4),
        case("one key more than a block", 12, 4, 4),
        case("a window inside a block", 12, 1, 4),
        case("a window and a short last block", 11, 6, 4),
        case("both ends in one block", 11, 1, 4),
        case("a short last block, a window of whole blocks", 10, 5, 4),
        case("a window longer than the text", 6, 9, 4),
        case("a window as long as the text", 8, 7, 4),
        case("one key less than the text", 8, 6, 4),
        case("one token", 1, 5, 4),
        case("one key a block", 7, 2, 1),
        case("a block longer than the text", 5, 2, 16),
        case("a long text", 1000, 255, 64),
        case("another", 1000, 100, 48),
    ],
    mistakes=[
        Mistake("window_of_left_keys", "`left` keys were seen, the query's own among them: it sees `left` besides",
                "the first key that is seen: length − 1 − left", (START, "start = 0 if left == -1 else max(0, length - max(left, 1))"),
                also=[[(START, "start = 0 if left == -1 else max(0, length - left)")]]),
        Mistake("one_key_too_many", "the window began a key too early", "the first key that is seen: length − 1 − left",
                (START, "start = 0 if left == -1 else max(0, length - 2 - left)")),
        Mistake("window_ignored", "the window was ignored: all blocks from the first on were visited", "the first block: that of the first key that is seen",
                (START, "start = 0")),
        Mistake("no_window_unknown", "`left` = −1 was taken for a number of keys", "left = −1: no window", (START, "start = max(0, length - 1 - left)")),
        Mistake("zero_is_no_window", "`left` = 0 was taken for no window; it leaves the query its own key", "left = −1 alone is no window",
                (START, "start = 0 if left <= 0 else max(0, length - 1 - left)")),
        Mistake("negative_start", "the first key came out negative where the window is longer than the text", "the first key: 0 at least",
                (START, "start = 0 if left == -1 else length - 1 - left")),
        Mistake("first_rounded_up", "the block in which the window begins was left out, where it begins inside that block",
                "the first block: the number of the first key that is seen, divided by B_c and rounded down",
                (BOUNDS, "first, end = -(-start // B_c), -(-length // B_c)")),
        Mistake("end_rounded_down", "the short last block was left out", "the end: ⌈length / B_c⌉", (BOUNDS, "first, end = start // B_c, length // B_c")),
        Mistake("end_one_more", "a block behind the last key was visited where the last block is full", "the end: ⌈length / B_c⌉",
                (BOUNDS, "first, end = start // B_c, length // B_c + 1")),
        Mistake("last_for_end", "the last block's number came back as the end", "the end: one more than the last block",
                (BOUNDS, "first, end = start // B_c, -(-length // B_c) - 1")),
        Mistake("blocks_by_the_window", "as many blocks were visited as the window's keys fill; it may lie across one more", "first and end, each by itself",
                (BOUNDS, "end = -(-length // B_c)\n    first = max(0, end - -(-(length - start) // B_c))")),
        Mistake("keys_for_blocks", "keys came back, not blocks", "first and end count blocks of B_c keys", (BOUNDS, "first, end = start, length")),
        Mistake("masked_twice", "a block that both ends cut was counted twice", "masked: how many blocks, not how many cuts",
                (CROSSED, "[j for j, cut in ((first, start), (end - 1, length)) if cut % B_c]")),
        Mistake("last_always_masked", "the last block was counted as masked, also where length is a multiple of B_c",
                "masked: the last block needs a mask where places behind the last key belong to it", (CROSSED, "({first} if start % B_c else set()) | {end - 1}")),
        Mistake("first_always_masked", "the first block was counted as masked wherever the window hides keys, also where it begins with that block",
                "masked: the first block needs a mask where some of its keys lie before the window",
                (CROSSED, "{j for j, cut in ((end - 1, length),) if cut % B_c} | ({first} if start > 0 else set())")),
    ],
    hints=[
        "The query stands at place length − 1. The first key that it sees is at max(0, length − 1 − left), or 0 without a window.",
        "first is that place // B_c; end is ⌈length / B_c⌉.",
        "Two blocks can be cut: the first, if the window does not begin where the block does, and the last, if length is no multiple of B_c. They may be the same.",
        "Only where both ends lie in one block: how many blocks need a mask there?",
    ],
)
