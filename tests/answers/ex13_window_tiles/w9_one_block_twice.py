# kind: one mistake
# what: the ends are counted one by one; if window begin and last key lie in the same block this block is counted twice, it should be once
# shows: first == end - 1 with both ends in the middle of the block, as length = 7, left = 1, B_c = 8

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
    lo = 0 if left < 0 else max(length - 1 - left, 0)
    hi = length                                   # one past the last key
    first = lo // B_c
    end = -(-hi // B_c)
    masked = int(lo % B_c != 0) + int(hi % B_c != 0)
    return first, end, masked
