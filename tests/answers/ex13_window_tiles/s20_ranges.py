# kind: right
# what: two Python ranges, the seen keys and a block's places; a block is masked unless both of its ends are seen
# shows: left -1, 0, longer than the text; one block that is cut at both sides counts once

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
    seen = range(length) if left == -1 else range(max(length - 1 - left, 0), length)
    first = seen[0] // B_c
    end = seen[-1] // B_c + 1
    masked = 0
    for j in range(first, end):
        places = range(j * B_c, (j + 1) * B_c)
        if places[0] not in seen or places[-1] not in seen:
            masked += 1
    return first, end, masked
