# kind: one mistake
# what: the number of blocks to visit is taken to be ceil(window / B_c), counted back from end; a window that lies across the blocks touches one more, first should be (first key seen) // B_c
# shows: e.g. window_tiles(10, 3, 4): window of 4 keys 6 ... 9 lies in blocks 1 and 2; gives first 2 instead of 1

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
    window = length if left == -1 else min(left + 1, length)    # how many keys are seen
    end = (length + B_c - 1) // B_c
    visits = (window + B_c - 1) // B_c
    first = end - visits

    masked = 0
    for j in range(first, end):
        lo, hi = j * B_c, (j + 1) * B_c                         # keys lo ... hi - 1
        if lo < length - window or hi > length:
            masked += 1
    return first, end, masked
