# kind: one mistake
# what: time taken as all the work shared out evenly over the SMs, ceil(P*s*(ceil(T/s)+2) / SMs), but at least one program; there are waves, and a last one that is not full costs a full one
# shows: e.g. choose_splits(8, 333, 108): 14 instead of 13

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


def ceil_div(x, y):
    return -(-x // y)


def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    best_s, best_time = None, None
    for s in range(1, T + 1):
        one = ceil_div(T, s) + 2                                # steps of one program
        everything = P * s * one                                # steps of all of them
        time = max(one, ceil_div(everything, SMs))              # SMs workers, but no program is cut in two
        if best_time is None or time < best_time:
            best_s, best_time = s, time
    return best_s
