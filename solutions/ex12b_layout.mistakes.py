from flashlab_course.check.cases import Mistake, case_of, whole_numbers
from flashlab_course.check.form import Breach

ROW, COLUMN, ROWS = "16 * warp + lane // 4", "2 * (lane % 4)", "rows = (row, row + 8)"
COLUMNS = "tuple(first + column + n for first in range(0, N, 8) for n in (0, 1))"
OTHERS = "tuple(other for other in range(first, first + 4) if other != thread)"

outputs = [("rows",), ("columns",), ("others",)]
ints_only = True
features = {"a warp other than the first": lambda thread: thread > 31, "more than 8 columns": lambda N: N > 8}
case = case_of(lambda thread, N: locals())


def call(fn, thread, N):
    found = fn(thread, N)
    if not isinstance(found, (tuple, list)) or len(found) != 3:
        raise Breach("wrong_type", f"it returned {str(found)[:80]}; (rows, columns, other threads) was expected")
    return tuple(tuple(sorted(whole_numbers(one, f"as {name}"))) for one, (name,) in zip(found, outputs, strict=True))


def owner(row, column):
    """The thread that holds a number of S: the other way round."""
    return row // 16 * 32 + row % 8 * 4 + column % 8 // 2


def truth(thread, N):
    places = [(row, column) for row in range(64) for column in range(N) if owner(row, column) == thread]
    rows, columns = (tuple(sorted(set(numbers))) for numbers in zip(*places, strict=True))
    others = {owner(row, column) for row in rows for column in range(N)} - {thread}
    return rows, columns, tuple(sorted(others))


cases = [case("the first thread", 0, 8),
         case("the example", 5, 16),
         case("the last lane of a warp", 31, 32),
         case("the third warp", 85, 24),
         case("the last thread", 127, 16)]
mistakes = [
    Mistake("one_row", "a thread was given one row", "how many halves the 16 rows have", (ROWS, "rows = (row,)")),
    Mistake("neighbouring_rows", "a thread was given two neighbouring rows", "the rows of the lower half", (ROW,
             "16 * warp + 2 * (lane // 4)"), (ROWS, "rows = (row, row + 1)")),
    Mistake("warp_left_out", "all warps were given the first one's rows", "where the rows of warp w begin", (ROW,
             "lane // 4")),
    Mistake("thread_for_lane", "the thread's number was taken where its lane's was meant", "the lane in its warp", (ROW,
             "16 * warp + thread // 4")),
    Mistake("first_piece_only", "only the first 8 columns were held", "how many pieces N columns make",
            ("range(0, N, 8)", "(0,)")),
    Mistake("one_column_of_each", "one column of each piece was held, not two", "how many columns four lanes share",
            (COLUMN, "lane % 4"), ("for n in (0, 1)", "for n in (0,)")),
    Mistake("columns_in_one_piece", "a thread was given N / 4 columns in a row", "the pieces of 8 columns", (COLUMNS,
             "tuple(range(lane % 4 * N // 4, (lane % 4 + 1) * N // 4))")),
    Mistake("itself_among_others", "the thread was counted among the others", "the others only", (OTHERS,
             OTHERS.replace(" if other != thread", ""))),
    Mistake("the_whole_warp", "all lanes of the warp were said to share the rows", "who holds numbers of one row",
            (OTHERS, OTHERS.replace("first, first + 4", "32 * warp, 32 * warp + 32"))),
]
hints = ["Split the number: warp = thread // 32, lane = thread % 32. The warp says which 16 rows.",
         "Lanes 4 n to 4 n + 3 hold row n of both halves: the warp's rows n and n + 8.",
         "In each piece lane % 4 picks the pair of columns 2 (lane % 4) and the next. The four lanes of a row are "
         "neighbours."]
