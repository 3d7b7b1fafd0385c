"""ex13_choose_splits · how many splits

Chapter 13 · difficulty 2 of 5 · 20 minutes

A decode step has P independent programs before any split: one for each head of K and V in each sequence. Each walks T
key blocks. With s splits there are P · s programs, and the longest of them walks ⌈T / s⌉ key blocks. A program also
takes 2 steps, as long as two key blocks, to begin and to store its partial result.

A GPU runs SMs programs at a time, one on each SM, so they come in waves; all programs of a wave are taken to last as
long as the longest. In steps of one key block the time is

    ⌈P · s / SMs⌉ waves, of ⌈T / s⌉ + 2 steps each            a last wave that is not full takes as long as a full one

s lies between 1 and T: no chunk is empty. Return the s with the least time; where several share it, the smallest, which
leaves least to merge. P, T and SMs are whole numbers, 1 or more. T is at most 4096.

Not allowed: the finished function from flashlab or solutions/.

Hint: write the time as a function of s first, and try all s.
"""


def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    # >>> your turn: the time of each s, and the s with the least
    best, least = 1, -(-P // SMs) * (T + 2)
    for s in range(2, T + 1):
        time = -(-(P * s) // SMs) * (-(-T // s) + 2)
        if time < least:
            best, least = s, time
    return best
    # <<<
