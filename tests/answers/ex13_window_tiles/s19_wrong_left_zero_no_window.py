# kind: one mistake
# what: left = 0 is treated as no window (if left > 0); with left = 0 the query sees its own key alone, only -1 stands for no window
# shows: left = 0 and length > 1: first is 0 instead of the last key's block, or masked is off
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
    last_key = length - 1
    first_key = max(0, last_key - left) if left > 0 else 0

    first = first_key // B_c
    end = last_key // B_c + 1

    masked = 0
    for j in range(first, end):
        if j * B_c < first_key or (j + 1) * B_c > length:
            masked += 1
    return first, end, masked
