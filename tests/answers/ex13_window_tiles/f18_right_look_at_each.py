# kind: right
# what: finds first and end, then asks of each block whether all its places are seen
# shows: a block with a place before the window and one behind the last key counts once
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
    own = length - 1
    oldest = 0 if left < 0 else max(own - left, 0)
    first = oldest // B_c
    end = own // B_c + 1
    masked = 0
    for j in range(first, end):
        all_seen = oldest <= j * B_c and (j + 1) * B_c - 1 <= own
        if not all_seen:
            masked += 1
    return first, end, masked
