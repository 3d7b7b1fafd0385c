from flashlab_course.check.cases import Mistake, case_of

FIRST_KEY, END = "max(0, length - 1 - left)", "-(-length // B_c)"
START, BOUNDS = f"start = 0 if left == -1 else {FIRST_KEY}", f"first, end = start // B_c, {END}"
CROSSED = "{j for j, cut in ((first, start), (end - 1, length)) if cut % B_c}"

outputs = [("first",), ("end",), ("masked",)]
ints_only = True
forbid = lambda shape, **sizes: max(shape, default=0) > 1 and f"a tensor of shape {shape} was made: sizes will do"
features = {"no window": lambda left: left == -1, "a short last block": lambda length, B_c: length % B_c,
            "a window longer than the text": lambda length, left: left >= length}
case = case_of(lambda length, left, B_c: locals())


def truth(length, left, B_c):
    """Counted place by place."""
    seen = [place < length and (left == -1 or length - 1 - place <= left) for place in range(-(-length // B_c) * B_c)]
    blocks = [seen[n:n + B_c] for n in range(0, len(seen), B_c)]
    visited = [j for j, block in enumerate(blocks) if any(block)]
    return visited[0], visited[-1] + 1, sum(not all(blocks[j]) for j in visited)


cases = [case("one whole block, no window", 4, -1, 4),
         case("a short last block, no window", 10, -1, 4),
         case("the query's own key alone", 8, 0, 4),
         case("a window of one block", 12, 3, 4),
         case("one key more than a block", 12, 4, 4),
         case("a window and a short last block", 11, 6, 4),
         case("both ends in one block", 11, 1, 4),
         case("a window longer than the text", 6, 9, 4),
         case("a window as long as the text", 8, 7, 4),
         case("one token", 1, 5, 4),
         case("one key a block", 7, 2, 1),
         case("a block longer than the text", 5, 2, 16),
         case("a long text", 1000, 255, 64)]
mistakes = [
    Mistake("window_of_left_keys", "the query saw `left` keys, its own among them", "keys before the query's own",
            (FIRST_KEY, "max(0, length - max(left, 1))"), also=[[(FIRST_KEY, "max(0, length - left)")]]),
    Mistake("one_key_too_many", "the window began one key too early", "keys before the query's own", (FIRST_KEY,
             "max(0, length - 2 - left)")),
    Mistake("zero_is_no_window", "left = 0 was taken for no window", "what a query sees with left = 0", ("left == -1",
             "left <= 0")),
    Mistake("end_rounded_down", "the short last block was left out", "how the end is rounded", (END, "length // B_c")),
    Mistake("last_for_end", "the number of the last block was returned as end", "what end counts", (END,
             "-(-length // B_c) - 1")),
    Mistake("masked_twice", "a block that is cut at both ends was counted twice", "what `masked` counts", (CROSSED,
             "[j for j, cut in ((first, start), (end - 1, length)) if cut % B_c]")),
    Mistake("last_always_masked", "the last block was always counted as masked", "a last block that is full", (CROSSED,
             "({first} if start % B_c else set()) | {end - 1}")),
    Mistake("first_always_masked", "a first block was called masked wherever keys are hidden", "where it begins",
            (CROSSED, "({first} if start else set()) | ({end - 1} if length % B_c else set())")),
    Mistake("window_not_masked", "only the short last block was counted as masked", "where the window begins", (CROSSED,
             "{end - 1} if length % B_c else set()")),
]
hints = ["Draw 11 keys in blocks of 4, and mark what the last query sees with left = 6.",
         "Which block holds the first key that is seen? How many blocks do `length` keys fill?",
         "The first block can be cut by the window, the last one by the end of the text. They may be the same block."]
