"""ex13_page_lookup · a tile of keys from pages

Chapter 13 · difficulty 3 of 5 · 20 minutes

A paged cache keeps the keys of all sequences in one pool of pages, page_size keys each. The pages of a sequence lie
anywhere in it; its row of the block table says where: entry p is the page that holds its keys p · page_size, ..., (p +
1) · page_size − 1.

    K_pages (pages, H_kv, page_size, d)   block_table (B, max_pages), whole numbers   ->   K_j (B_c, d)

K_j has keys start, start + 1, ..., start + B_c − 1 of head h of sequence b, in this order, as a program loads them:
rows from the sequence's length on are 0. A tile may begin and end in the middle of a page, and may lie behind the last
key. The row of a sequence is filled as far as it has keys. Behind that entries may hold anything, −1 or a number that
is no page, and whatever lies in a page behind the last key is not a key either. K_pages is float32, block_table int32;
no size and no length is 0, and start is 0 or more.

Not allowed: changing the inputs, a loop over the keys (one over pages is none), the finished function from flashlab or
solutions/.

Hint: key n lies in the sequence's page number n // page_size. Where in that page? And which page of the pool is it?
"""

import torch


def tile_of_keys(K_pages, block_table, b, h, start, B_c, length):
    """K_j (B_c, d): the B_c keys from `start` on of head h of sequence b, 0 from `length` on."""
    # your turn: which keys there are, their pages, their rows in them
    raise NotImplementedError("ex13_page_lookup: which keys there are, their pages, their rows in them")
