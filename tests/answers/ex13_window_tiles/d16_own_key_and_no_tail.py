# kind: two mistakes
# what: (1) counts the query's own key among the `left` ones: first key length - left, it should be length - 1 - left; (2) masks the window's edge only, a short last block is not counted
# shows: (1) left >= 0 where length - 1 - left is in another block or at the edge of one: length 16, left 8, B_c 8; (2) length no multiple of B_c, left = -1: length 5, B_c 4 gives masked 0, it should be 1
"""ex13_window_tiles · what a window leaves to read

Chapter 13 · difficulty 2 of 5 · 15 minutes

In a decode step the query is the last of `length` tokens, and its key is in the cache already. With a sliding window it sees its
own key and the `left` keys before it, or all before it if there are not so many; left = -1 stands for no window. Key block j holds
keys j · B_c, ..., (j + 1) · B_c − 1. A program that knows its window starts at the first block with a key that is seen, and ends
after the last one.

Return (first, end, masked): the blocks to visit are first, ..., end − 1, and `masked` of them hold a place that is not to be seen,
be it before the window or behind the last key. length and B_c are 1 or more, left is -1 or more.

Not allowed: the mask as a tensor, the finished function from flashlab or solutions/.

Hint: which is the first key that is seen, which the last?
"""


def window_tiles(length, left, B_c):
    """(first, end, masked), three whole numbers."""
    if left == -1:
        start = 0
    else:
        start = max(length - left, 0)
    first = start // B_c
    end = (length - 1) // B_c + 1
    masked = 1 if start > first * B_c else 0
    return first, end, masked
