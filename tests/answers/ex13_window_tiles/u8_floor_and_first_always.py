# kind: two mistakes
# what: end = length // B_c + 1, a block too many where B_c divides length; and with a window the first block always counts as masked, also if it begins with a key that is seen
# shows: length a multiple of B_c; a window that begins at a block's first key, or reaches back to key 0
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
    start = max(0, length - 1 - left) if left >= 0 else 0
    first = start // B_c
    end = length // B_c + 1
    needs = set()
    if left >= 0:
        needs.add(first)
    if end * B_c > length:
        needs.add(end - 1)
    return first, end, len(needs)
