import torch

from flashlab_course.check.cases import Mistake, case_of, normal

FROM, N = "start + B_c, length", "min(start + B_c, length) if start < length else start"
PAGE, GATHER = "block_table[b, n // page_size]", "K_pages[page, h, n % page_size]"
ROWS = "start + min(B_c, length)"

outputs = [("K_j", "row", "column")]
loops = lambda B_c, **rest: ("keys", B_c) if B_c > 8 else None
features = {"a tile across pages": lambda start, B_c, page_size: start // page_size != (start + B_c - 1) // page_size,
            "a tile that reaches past the last key": lambda lengths, b, start, B_c: start + B_c > lengths[b]}


@case_of
def case(lengths, page_size, H_kv, d, b, h, start, B_c, *, garbage=-1, seed):
    """Pages in an order of their own. What no sequence has there is NaN; entries behind a row's last page are
    garbage."""
    used = [-(-length // page_size) for length in lengths]
    order = torch.randperm(sum(used) + 1, generator=torch.Generator().manual_seed(seed)).tolist()
    K_pages = torch.full((len(order), H_kv, page_size, d), float("nan"))
    block_table = torch.full((len(lengths), max(used) + 1), garbage, dtype=torch.int32)
    for one, length in enumerate(lengths):
        for p in range(used[one]):
            block_table[one, p] = page = order.pop()
            rows = min(page_size, length - p * page_size)
            K_pages[page, :, :rows] = normal(H_kv, rows, d, seed=seed + 10 * one + p)
    return {"K_pages": K_pages, "block_table": block_table, "h": h, "b": b, "start": start, "B_c": B_c,
            "length": lengths[b]}


cases = [case("one page", [4], 4, 1, 3, b=0, h=0, start=0, B_c=4, seed=0),
         case("the second page", [8], 4, 1, 3, b=0, h=0, start=4, B_c=4, seed=3),
         case("two pages", [8], 4, 1, 3, b=0, h=0, start=0, B_c=8, seed=1),
         case("half a page", [8], 4, 1, 3, b=0, h=0, start=2, B_c=2, seed=2),
         case("across pages", [12], 4, 1, 3, b=0, h=0, start=3, B_c=6, seed=4),
         case("two heads", [6], 2, 2, 3, b=0, h=1, start=2, B_c=4, seed=5),
         case("two sequences", [6, 8], 3, 1, 2, b=1, h=0, start=3, B_c=3, seed=6),
         case("past the last key", [5], 4, 1, 2, b=0, h=0, start=4, B_c=4, seed=7),
         case("past the last page", [6], 3, 1, 2, b=0, h=0, start=4, B_c=8, garbage=10**6, seed=8),
         case("behind the last key", [3], 2, 1, 4, b=0, h=0, start=4, B_c=4, seed=9),
         case("one key a page", [5], 1, 1, 2, b=0, h=0, start=1, B_c=4, seed=10),
         case("three sequences, heads, pages", [5, 11, 7], 4, 3, 2, b=1, h=2, start=2, B_c=9, seed=13),
         case("a long one", [40, 33], 5, 2, 3, b=1, h=1, start=7, B_c=32, garbage=10**6, seed=14)]
mistakes = [
    Mistake("table_ignored", "the keys were read from page n // page_size of the pool, not through block_table",
            "what says where a sequence's pages are", (PAGE, "(n // page_size)")),
    Mistake("heads_inside_keys", "K_pages was read as (pages, page_size, H_kv, d)", "the shape of K_pages", (GATHER,
             "K_pages.reshape(len(K_pages), page_size, -1, d)[page, n % page_size, h]")),
    Mistake("begins_with_the_page", "the tile began with the first key of a page, not with key start",
            "the tile's first row", (f"torch.arange(start, {N})",
             "start // page_size * page_size + torch.arange(max(0, min(B_c, length - start)))")),
    Mistake("row_from_the_tile", "the row in the page was counted from the start of the tile",
            "a tile that begins inside a page", (GATHER, "K_pages[page, h, (n - start) % page_size]")),
    Mistake("whole_last_page", "the last page was read to its end, past the last key", "rows behind the last key", (N,
             "max(start, min(start + B_c, -(-length // page_size) * page_size))")),
    Mistake("short_tile", "the tile had only as many rows as there are keys", "the shape of the tile", ("return K_j",
             "return K_j[: len(n)]")),
    Mistake("mask_from_the_tile", "the first `length` rows of the tile were kept, as if it began at key 0",
            "row 0 of the tile", (N, ROWS), (PAGE,
             "block_table[b, (n // page_size).clamp(max=block_table.shape[1] - 1)]"), (GATHER,
             GATHER.replace("page,", "page.clamp(0, len(K_pages) - 1),")), also=[[(N, ROWS)]]),
    Mistake("last_page_of_the_tile", "the page in which the tile or the sequence ends was left out", "the last page",
            (N, "max(start, min(start + B_c, length) // page_size * page_size)")),
    Mistake("a_page_too_few", "only ⌈B_c / page_size⌉ pages were read", "how many pages a tile can touch",
            (f"page = {PAGE}", "n = n[n // page_size < start // page_size + -(-B_c // page_size)]\n    …")),
]
hints = ["With pages of 4 keys, in which page of the sequence is key 6, and in which row of it?",
         "Make a tensor of the numbers of those keys that exist. K_pages can be indexed with tensors.",
         "The other rows of the tile are 0. What lies behind the last key may be NaN, and 0 · NaN is NaN."]
