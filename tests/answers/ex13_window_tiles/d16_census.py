# kind: right
# what: marks for each block of the text how many of its B_c places are seen; visits those with at least one, masks those with fewer than B_c
# shows: plain counting of places, no mask as a tensor; a block that both edges cut is one block
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
    lo = 0 if left < 0 else max(length - 1 - left, 0)         # first key that is seen
    hi = length                                               # behind the last one

    def seen(j):
        return max(0, min(hi, (j + 1) * B_c) - max(lo, j * B_c))

    blocks = [j for j in range((length + B_c - 1) // B_c) if seen(j) > 0]
    return blocks[0], blocks[-1] + 1, sum(1 for j in blocks if seen(j) < B_c)
