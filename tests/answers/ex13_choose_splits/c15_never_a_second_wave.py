# kind: one mistake
# what: tries only the s whose programs fit the GPU at once (P · s <= SMs, at least s = 1), as if more programs than SMs could not pay; all s from 1 to T are candidates
# shows: P=100, T=256, SMs=132: only s=1 is tried, and splits in several nearly full waves are faster
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

def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    most = max(1, min(T, SMs // P))           # beyond that there is no SM left for them
    times = []
    for s in range(1, most + 1):
        waves = -(-P * s // SMs)
        blocks = -(-T // s)
        times.append(waves * (blocks + 2))
    return times.index(min(times)) + 1
