# kind: right
# what: the half-open range of keys that are seen, and the set of the blocks that its two ends cut in the middle
# shows: a set counts a block once that is cut on both sides; left = -1 and left >= length both begin at key 0

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
    begin, stop = (0 if left == -1 else max(length - 1 - left, 0)), length      # keys begin, ..., stop - 1
    cut = {edge // B_c for edge in (begin, stop) if edge % B_c}
    return begin // B_c, (stop - 1) // B_c + 1, len(cut)
