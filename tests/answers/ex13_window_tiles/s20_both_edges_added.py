# kind: one mistake
# what: adds one for the cut at the window's begin and one for the cut behind the last key; if both are in the same block it is counted twice
# shows: a window within one block that neither begins nor ends with the block, e.g. length 7, left 1, B_c 8: masked 2 instead of 1

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
    if left < 0 or left > length - 1:
        oldest = 0
    else:
        oldest = length - 1 - left
    first = oldest // B_c
    end = (length + B_c - 1) // B_c
    masked = int(oldest % B_c != 0) + int(length % B_c != 0)
    return first, end, masked
