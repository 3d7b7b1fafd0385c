# kind: right
# what: walks the possible lengths of a chunk instead of the splits; the smallest s for each length is ceil(T / length)
# shows: every s that could win is the smallest one of its chunk length, so min over (time, s) is the stub's answer

"""ex13_choose_splits · how many splits

Chapter 13 · difficulty 2 of 5 · 20 minutes

A decode step has P independent programs before any split: one for each head of K and V in each sequence. Each walks T key blocks.
With s splits there are P · s programs, and the longest of them walks ⌈T / s⌉ key blocks. A program also takes 2 steps, as long as
two key blocks, to begin and to store its partial result.

A GPU runs SMs programs at a time, one on each SM, so they come in waves; all programs of a wave are taken to last as long as the
longest. In steps of one key block the time is

    ⌈P · s / SMs⌉ waves, of ⌈T / s⌉ + 2 steps each            a last wave that is not full takes as long as a full one

s lies between 1 and T: no chunk is empty. Return the s with the least time; where several share it, the smallest, which leaves
least to merge. P, T and SMs are whole numbers, 1 or more. T is at most 4096.

Not allowed: the finished function from flashlab or solutions/.

Hint: write the time as a function of s first, and try all s.
"""


def ceil_div(a, b):
    return -(-a // b)


def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    # Between two s with the same longest chunk only the smaller one can win: it has no more waves
    # and leaves less to merge. So it is enough to look at one s for each length of a chunk.
    candidates = []
    for longest in range(1, T + 1):
        s = ceil_div(T, longest)
        waves = ceil_div(P * s, SMs)
        candidates.append((waves * (ceil_div(T, s) + 2), s))
    time, s = min(candidates)
    return s
