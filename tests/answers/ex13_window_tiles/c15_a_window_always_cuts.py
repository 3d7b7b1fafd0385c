# kind: one mistake
# what: wherever the window hides keys, the first block is counted as masked, also if the window begins exactly at its first key; then nothing in that block is hidden
# shows: first key seen a multiple of B_c and above 0, e.g. length=8, left=3, B_c=4: (1, 2, 0), here masked is 1
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
    windowed = left >= 0 and left + 1 < length
    begin = length - 1 - left if windowed else 0
    first = begin // B_c
    end = (length + B_c - 1) // B_c
    masked = set()
    if windowed:
        masked.add(first)            # the window's edge
    if length % B_c:
        masked.add(end - 1)          # the last block is short
    return first, end, len(masked)
