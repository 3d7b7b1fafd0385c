# kind: one mistake
# what: `if left > 0` takes left = 0 for no window; only -1 stands for that, with 0 the query sees its own key alone
# shows: left = 0 with length > 1

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
    first_key = 0
    if left > 0:
        first_key = max(0, length - 1 - left)
    first = first_key // B_c
    end = (length + B_c - 1) // B_c
    masked = 0
    for j in range(first, end):
        if j * B_c < first_key or (j + 1) * B_c > length:
            masked += 1
    return first, end, masked
