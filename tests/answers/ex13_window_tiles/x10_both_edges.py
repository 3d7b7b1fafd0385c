# kind: one mistake
# what: adds one for the front edge and one for the back edge even where both lie in the same block; that block should count once
# shows: a window within one block with a place unseen on both sides, such as length = 6, left = 1, B_c = 8

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
    if left == -1:
        first_key = 0
    else:
        first_key = max(0, last_key - left)

    first = first_key // B_c
    end = last_key // B_c + 1

    masked = 0
    if first_key % B_c != 0:
        masked = masked + 1       # the first block has keys before the window
    if length % B_c != 0:
        masked = masked + 1       # the last block has places behind the last key
    return first, end, masked
