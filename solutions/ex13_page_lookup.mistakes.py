"""Cases and mistakes of ex13_page_lookup."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

N, PAGE = "n = torch.arange(start, min(start + B_c, length) if start < length else start)", "page = block_table[b, n // page_size].long()"
GATHER, LOOK = "K_pages[page, h, n % page_size]", "block_table[b, n // page_size]"
ALL = "n = torch.arange(start, start + B_c)"


def case(name, lengths, page_size, H_kv, d, *, b, h, start, B_c, garbage=-1, seed, features=()):
    """Pages in an order of their own; what no sequence has there is NaN, and entries behind a row's last page are garbage."""
    def make():
        used = [-(-length // page_size) for length in lengths]
        order = torch.randperm(sum(used) + 1, generator=torch.Generator().manual_seed(seed)).tolist()
        K_pages = torch.full((len(order), H_kv, page_size, d), float("nan"))
        block_table = torch.full((len(lengths), max(used) + 1), garbage, dtype=torch.int32)
        for one, length in enumerate(lengths):
            for p in range(used[one]):
                block_table[one, p] = page = order.pop()
                rows = min(page_size, length - p * page_size)
                K_pages[page, :, :rows] = normal(H_kv, rows, d, seed=seed + 10 * one + p)
        return {"K_pages": K_pages, "block_table": block_table, "b": b, "h": h, "start": start, "B_c": B_c, "length": lengths[b]}

    end = start + B_c
    holds = {"more than one page": end > page_size and lengths[b] > page_size, "more than one sequence": len(lengths) > 1, "more than one head": H_kv > 1,
             "a tile that reaches past the last key": end > lengths[b], "a tile behind the last key": start >= lengths[b],
             "a tile that begins inside a page": start % page_size != 0, "a tile across pages": start // page_size != (end - 1) // page_size}
    sizes = {"length": lengths[b], "page_size": page_size, "b": b, "h": h, "start": start, "B_c": B_c}
    return Case(name, make, frozenset([*features, *(f for f, true in holds.items() if true)]), sizes)


EXERCISE = Exercise(
    function="tile_of_keys",
    outputs=(Output("K_j", ("row", "column")),),
    loops=lambda B_c, **rest: ("keys", B_c) if B_c > 8 else None,
    cases=[
        case("one page", [4], 4, 1, 2, b=0, h=0, start=0, B_c=4, seed=0),
        case("the second page", [8], 4, 1, 2, b=0, h=0, start=4, B_c=4, seed=3),
        case("two pages", [8], 4, 1, 2, b=0, h=0, start=0, B_c=8, seed=1),
        case("half a page", [8], 4, 1, 3, b=0, h=0, start=2, B_c=2, seed=2),
        case("across pages", [12], 4, 1, 2, b=0, h=0, start=3, B_c=6, seed=4),
        case("two heads", [6], 2, 2, 3, b=0, h=1, start=2, B_c=4, seed=5),
        case("two sequences", [6, 8], 3, 1, 2, b=1, h=0, start=3, B_c=3, seed=6),
        case("past the last key", [5], 4, 1, 2, b=0, h=0, start=4, B_c=4, seed=7),
        case("past the last page", [6], 3, 1, 2, b=0, h=0, start=4, B_c=8, garbage=10**6, seed=8),
        case("behind the last key", [3], 2, 1, 2, b=0, h=0, start=4, B_c=4, seed=9),
        case("one key a page", [5], 1, 1, 2, b=0, h=0, start=1, B_c=4, seed=10),
        case("a page for all", [3], 8, 1, 2, b=0, h=0, start=0, B_c=4, seed=11),
        case("as many columns as keys", [8], 2, 2, 4, b=0, h=1, start=2, B_c=4, seed=12),
        case("three sequences, heads, pages", [5, 11, 7], 4, 3, 2, b=1, h=2, start=2, B_c=9, seed=13),
        case("a long one", [40, 33], 5, 2, 3, b=1, h=1, start=7, B_c=32, garbage=10**6, seed=14),
    ],
    mistakes=[
        Mistake("table_ignored", "page number n // page_size of the pool was taken, and the block table was not asked",
                "the page: the sequence's own numbers go through block_table", (PAGE, "page = n // page_size")),
        Mistake("page_and_row_swapped", "n % page_size was taken for the page and n // page_size for the row", "// gives the page, % the row in it",
                (LOOK, "block_table[b, n % page_size]"), (GATHER, "K_pages[page, h, n // page_size]")),
        Mistake("page_by_remainder", "the block table was asked for entry n % page_size", "the page's number in the sequence: n // page_size",
                (LOOK, "block_table[b, n % page_size]")),
        Mistake("row_by_quotient", "the row in the page was n // page_size", "the row in the page: n % page_size", (GATHER, "K_pages[page, h, n // page_size]")),
        Mistake("first_sequence", "the block table's first row was used for every sequence", "the row of block_table: b",
                (LOOK, "block_table[0, n // page_size]")),
        Mistake("first_head", "head 0 was loaded for every head", "the second index of K_pages: h", (GATHER, "K_pages[page, 0, n % page_size]")),
        Mistake("heads_inside_keys", "the pool was read as if the heads of a key lay side by side: (pages, page_size, H_kv, d)",
                "the shape of K_pages: (pages, H_kv, page_size, d), a head's keys of a page lie together",
                (GATHER, "K_pages.reshape(len(K_pages), page_size, -1, d)[page, n % page_size, h]")),
        Mistake("heads_outside_pages", "the pool was read as if each head had all its pages together: (H_kv, pages, page_size, d)",
                "the shape of K_pages: (pages, H_kv, page_size, d), a page holds all heads",
                (GATHER, "K_pages.reshape(-1, len(K_pages), page_size, d)[h, page, n % page_size]")),
        Mistake("begins_with_the_page", "the tile began with the first row of the page that key start lies in, start % page_size keys too early",
                "the tile's first row: key start, which is row start % page_size of its page",
                (N, "n = start // page_size * page_size + torch.arange(max(0, min(B_c, length - start)))"),
                also=[[(N, "n = torch.arange(start // page_size * page_size, max(start // page_size * page_size, min(start // page_size * page_size + B_c, "
                        "length)))")]]),
        Mistake("row_from_the_tile", "the row in the page was counted from the tile's beginning, (n − start) % page_size",
                "the row in the page: n % page_size, of the key's own number", (GATHER, "K_pages[page, h, (n - start) % page_size]")),
        Mistake("whole_last_page", "the last page was loaded to its end, past the last key", "the keys there are: all below length, in the last page as well",
                ("min(start + B_c, length) if start < length else start", "max(start, min(start + B_c, -(-length // page_size) * page_size))")),
        Mistake("short_tile", "the tile has only as many rows as there are keys", "the tile's shape: B_c rows, those without a key 0",
                ("return K_j", "return K_j[: len(n)]")),
        Mistake("mask_from_the_tile", "the rows kept were the first `length` of the tile, as if it began at key 0", "a key's number is start + its row",
                (N, "n = torch.arange(start, start + min(B_c, length))"), (LOOK, "block_table[b, (n // page_size).clamp(max=block_table.shape[1] - 1)]"),
                (GATHER, "K_pages[page.clamp(0, len(K_pages) - 1), h, n % page_size]"), also=[[(N, "n = torch.arange(start, start + min(B_c, length))")]]),
        Mistake("last_page_of_the_tile", "a page was left out where the tile, or the sequence, ends within it",
                "the last page: that of key min(start + B_c, length) − 1",
                ("min(start + B_c, length) if start < length else start", "max(start, min(start + B_c, length) // page_size * page_size)")),
        Mistake("a_page_too_few", "⌈B_c / page_size⌉ pages were read from that of `start` on: a tile that begins within a page may reach into one more",
                "the pages: up to that of the tile's last key", ("K_j[: len(n)] = K_pages[page, h, n % page_size]",
                 "n = n[n // page_size < start // page_size + -(-B_c // page_size)]\n    K_j[: len(n)] = K_pages[page[: len(n)], h, n % page_size]")),
    ],
    hints=[
        "Key n is row n % page_size of the sequence's page n // page_size, and block_table[b, n // page_size] says which page of the pool that is.",
        "Make n = torch.arange(...) of those keys of the tile that exist, and index with it: K_pages[page, h, row] takes tensors.",
        "Write what you found into the first rows of torch.zeros(B_c, d).",
        "Only tiles that reach past the last key: what lies there, in the table and in the pages, may be anything. Do not use it, not even times 0.",
        "Only tiles that begin inside a page: which number do you divide, the key's own or the one in the tile?",
    ],
)
