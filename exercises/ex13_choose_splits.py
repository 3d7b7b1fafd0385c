"""ex13_choose_splits · how many splits

Chapter 13 · difficulty 2 of 5 · 20 minutes

A decode step has P independent programs before any split: one for each head of K and V in each sequence. Each walks T key blocks. A
GPU has SMs that take one program each at a time, so programs come in waves: a wave ends when its last program has. With s splits
there are P · s programs, and each walks ⌈T / s⌉ key blocks. Afterwards a merge reads s results.

In steps of one key block each, the time with s splits is

    waves · ⌈T / s⌉           waves = ⌈P · s / SMs⌉, a last wave that is not full takes as long as a full one
    + s                       for the merge: one step for each split; nothing if s is 1, for then there is nothing to merge

s lies between 1 and T: no chunk is empty by design. Return the s with the least time; where several share it, the smallest.
P, T and SMs are whole numbers, 1 or more. T is at most 4096.

Not allowed: the finished function from flashlab or solutions/.

Hint: write the time as a function of s first, and try all s.
"""


def choose_splits(P, T, SMs):
    """The number of splits that takes the fewest steps, a whole number between 1 and T."""
    # your turn: the time of each s, and the s with the least
    raise NotImplementedError("ex13_choose_splits: the time of each s, and the s with the least")
