# kind: right
# what: first and last key seen, their blocks; the blocks that need a mask are put into a set, so that one block with both edges is one
# shows: left = -1 and a window longer than the text both begin at key 0; a block needs a mask only where an edge cuts it

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
        first_key = max(last_key - left, 0)

    first, last = first_key // B_c, last_key // B_c
    cut = set()
    if first_key > first * B_c:               # keys before the window
        cut.add(first)
    if last_key < (last + 1) * B_c - 1:       # places behind the last key
        cut.add(last)
    return first, last + 1, len(cut)
