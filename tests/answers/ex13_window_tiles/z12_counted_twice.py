# kind: one mistake
# what: a block that is cut in front and behind is counted as two masked blocks; it is one
# shows: a short window inside one block that starts after the block's start, with the length in the middle of the block, e.g. length 6, left 2, B_c 8

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
    first_key = max(length - left - 1, 0) if left >= 0 else 0
    last_key = length - 1
    first = first_key // B_c
    end = last_key // B_c + 1
    masked = 0
    if first_key > first * B_c:          # leading block starts before the window
        masked += 1
    if end * B_c > length:               # trailing block runs past the last key
        masked += 1
    return first, end, masked
