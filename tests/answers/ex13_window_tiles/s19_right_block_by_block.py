# kind: right
# what: first and last visible key, then each visited block is asked whether all its B_c places are visible
# shows: no tensor: a comparison of the block's ends with the visible keys; left = -1 means first key 0
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
    oldest = 0
    if left != -1 and newest - left > 0:
        oldest = newest - left
    first, end = oldest // B_c, newest // B_c + 1

    def whole(j):
        return oldest <= j * B_c and (j + 1) * B_c - 1 <= newest

    masked = (end - first) - sum(whole(j) for j in range(first, end))
    return first, end, masked
