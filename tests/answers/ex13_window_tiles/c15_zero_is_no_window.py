# kind: one mistake
# what: left = 0 is treated as no window, like -1; with left = 0 the query sees its own key alone
# shows: left=0 with a text longer than one block (first should be the last block), or one that fills its one block, e.g. length=4, B_c=4 (masked is 1, here 0)
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
    last = length - 1
    first_key = last - left if left > 0 else 0
    first_key = max(first_key, 0)
    first, end = first_key // B_c, last // B_c + 1

    cut_in_front = first_key % B_c > 0
    cut_behind = length % B_c > 0
    if end - first == 1:
        masked = int(cut_in_front or cut_behind)
    else:
        masked = cut_in_front + cut_behind
    return first, end, masked
