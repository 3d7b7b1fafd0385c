# kind: right
# what: first and end by division, then looks at each block to visit and asks what sticks out
# shows: left = -1, left = 0, a window wider than the sequence, one block with both edges counted once
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
    newest = length - 1
    oldest = 0 if left == -1 else max(newest - left, 0)
    first, end = oldest // B_c, newest // B_c + 1
    masked = 0
    for j in range(first, end):
        lo, hi = j * B_c, (j + 1) * B_c - 1
        if lo < oldest or hi > newest:
            masked += 1
    return first, end, masked
