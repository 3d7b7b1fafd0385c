# kind: one mistake
# what: counts the first block as masked whenever the window begins behind key 0, even where it begins exactly with a block
# shows: length - 1 - left a positive multiple of B_c: length 8, left 3, B_c 4

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
    lo = 0 if left < 0 else max(0, length - 1 - left)
    first = lo // B_c
    end = -(-length // B_c)
    begins_masked = lo > 0
    ends_masked = length % B_c != 0
    if end - first == 1:
        masked = int(begins_masked or ends_masked)
    else:
        masked = int(begins_masked) + int(ends_masked)
    return first, end, masked
