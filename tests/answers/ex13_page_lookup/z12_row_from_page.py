# kind: one mistake
# what: in the loop over pages the rows of page p go to (p - first page) * page_size in the tile; it should be p * page_size - start for all pages but the first, as the first may be entered in the middle
# shows: start not a multiple of page_size and a tile over two or more pages: rows displaced, or an assignment that does not fit

"""ex13_page_lookup · a tile of keys from pages

Chapter 13 · difficulty 3 of 5 · 20 minutes

A paged cache keeps the keys of all sequences in one pool of pages, page_size keys each. The pages of a sequence lie anywhere in
it; its row of the block table says where: entry p is the page that holds its keys p · page_size, ..., (p + 1) · page_size − 1.

    K_pages (pages, H_kv, page_size, d)   block_table (B, max_pages), whole numbers   ->   K_j (B_c, d)

K_j has keys start, start + 1, ..., start + B_c − 1 of head h of sequence b, in this order, as a program loads them: rows from the
sequence's length on are 0. A tile may begin and end in the middle of a page, and may lie behind the last key.
The row of a sequence is filled as far as it has keys. Behind that entries may hold anything, −1 or a number that is no page, and
whatever lies in a page behind the last key is not a key either.
K_pages is float32, block_table int32; no size and no length is 0, and start is 0 or more.

Not allowed: changing the inputs, a loop over the keys (one over pages is none), the finished function from flashlab or solutions/.

Hint: key n lies in the sequence's page number n // page_size. Where in that page? And which page of the pool is it?
"""

import torch


def tile_of_keys(K_pages, block_table, b, h, start, B_c, length):
    """K_j (B_c, d): the B_c keys from `start` on of head h of sequence b, 0 from `length` on."""
    _, _, ps, d = K_pages.shape
    out = torch.zeros(B_c, d, dtype=K_pages.dtype)
    stop = min(start + B_c, length)
    if stop <= start:
        return out
    first_page = start // ps
    for p in range(first_page, (stop - 1) // ps + 1):
        lo = max(start, p * ps)
        hi = min(stop, (p + 1) * ps)
        page = int(block_table[b, p])
        row = (p - first_page) * ps
        out[row:row + hi - lo] = K_pages[page, h, lo - p * ps:hi - p * ps]
    return out
