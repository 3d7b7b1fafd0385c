# kind: right
# what: tries only the smallest s of each chunk length; for one chunk length more splits can only mean more waves
# shows: within the contract: an s that is left out takes at least as long as a smaller s that is tried; ties keep the smallest

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


def ceildiv(a, b):
    return -(-a // b)


def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    # O(T) candidates but only ~2*sqrt(T) distinct ones: for a chunk of c blocks the smallest s is ceil(T / c)
    best_s, best_time = 1, ceildiv(P, SMs) * (T + 2)
    c = T
    while c > 1:
        s = ceildiv(T, c - 1)            # smallest s whose chunks are shorter than c
        c = ceildiv(T, s)
        time = ceildiv(P * s, SMs) * (c + 2)
        if time < best_time:             # strictly: s only grows from here, a tie stays with the earlier
            best_s, best_time = s, time
    return best_s
