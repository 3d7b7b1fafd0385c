# kind: right
# what: visited blocks by floor and ceiling; masked = visited blocks less those that lie wholly between the first key and the last, by ceiling and floor
# shows: where first and last key share a block the number of whole ones would be negative, hence the max with 0; left = -1, 0, longer than the text, blocks longer than the text
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
    lo = 0 if left == -1 else max(length - 1 - left, 0)      # first key seen
    hi = length                                               # one past the last
    first = lo // B_c
    end = -(-hi // B_c)
    whole = max(hi // B_c - -(-lo // B_c), 0)                # blocks that lie in lo ... hi from end to end
    return first, end, end - first - whole
