# kind: point missed
# what: the numbers are right, but the whole row of the mask is made as a tensor and looked at ("Not allowed: the mask as a tensor")
# shows: the source (torch.arange of all places, a boolean tensor); a length of millions takes memory and time

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

import torch


def window_tiles(length, left, B_c):
    """(first, end, masked), three whole numbers."""
    n_blocks = -(-length // B_c)
    n = torch.arange(n_blocks * B_c)                    # all places, the last block to its end
    seen = n < length
    if left != -1:
        seen &= n >= length - 1 - left
    seen = seen.view(n_blocks, B_c)

    visited = seen.any(1).nonzero().flatten()
    first, end = visited[0].item(), visited[-1].item() + 1
    masked = (~seen.all(1))[first:end].sum().item()
    return first, end, masked
