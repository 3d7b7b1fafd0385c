# kind: one mistake
# what: left = 0 is taken for no window (left > 0 asked), it is a window of its own key only
# shows: left = 0 with length ≥ 2, e.g. length 10, left 0, B_c 2
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
    start = 0
    if left > 0:
        start = max(0, length - 1 - left)
    first, before = divmod(start, B_c)
    end = (length + B_c - 1) // B_c
    behind = end * B_c - length
    if end - first == 1:
        masked = 1 if before or behind else 0
    else:
        masked = (1 if before else 0) + (1 if behind else 0)
    return first, end, masked
