"""ex12b_slots · how many slots a ring may have

Chapter 12b · difficulty 2 of 5 · 20 minutes

More slots let the producer run further ahead, and shared memory limits them. A program of the Hopper kernels holds

    Q        64 rows of d numbers for each consumer
    K, V     a ring each, with the same number of slots; a slot holds `keys` rows of d numbers
    O        64 rows of d numbers for each consumer, 2 bytes each, if own_O. Otherwise O takes Q's place at the end

A number of Q, K and V takes `size` bytes: 2, or 1 in FP8, where own_O is always True. A program on an H100 may have 227
KiB (1 KiB is 1024 bytes). Signals need room, too: an mbarrier has 8 bytes, and Triton adds a few hundred bytes for what
it hands to the warps. For the kernel that `flash_attention` runs at d = 128 the compiler reports 197,112 bytes with two
slots, and 196,608 of them are tiles. Set 1 KiB aside for everything else.

Return three whole numbers: the bytes of Q and O together, the bytes that one more slot takes in both rings together,
and the largest number of slots that fits, 0 if not even one does. Example: d = 128, keys = 128, 2 consumers, 2 bytes
and own_O give 65,536, 65,536 and 2. The compiler agrees: with three slots it reports 262,680 bytes, and 232,448 are
allowed. keys is a multiple of 8, d one of 16.

Not allowed: the finished function from flashlab or solutions/.

Hint: what is left for the rings once Q, O and 1 KiB are taken off?
"""


def slots(d, keys, consumers, size, own_O):
    """(bytes of Q and O, bytes of a slot of both rings, the largest number of slots)."""
    # your turn: the bytes of Q and O, the bytes of a slot, and how many slots fit into the rest
    raise NotImplementedError("ex12b_slots: the bytes of Q and O, the bytes of a slot, and how many slots fit into the rest")
