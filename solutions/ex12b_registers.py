"""ex12b_registers · registers that change hands

Chapter 12b · difficulty 3 of 5 · 20 minutes

An SM has 65,536 registers, and a program of the Hopper kernels takes nearly all. It consists of warpgroups of 128
threads: one for each consumer, and one for the producer, whose single warp Triton fills up to four. Registers are
counted for a thread, in multiples of 8, and whatever is left over is lost:

    at launch      all threads of all warpgroups get the same number, as large as the 65,536 allow
    later          the producer's threads keep 24 and give up the others; setmaxnreg says so. All consumers' threads
                   share what was given up, equally

While a consumer's threads work on P of one block, the tensor cores write S of the next one. So it holds three tiles at
the same time, spread evenly over its 128 threads; a register has 4 bytes:

    S    64 x keys, float32
    P    64 x keys, 16 bits, two numbers a register
    O    64 x d, float32

Return three numbers: the registers of a thread at launch, those of a consumer's thread later, and how many of these the
three tiles leave free (less than 0 if they do not fit). There are 2 to 7 consumers; keys and d are multiples of 16.
Example: 2 consumers, d = 128 and keys = 128 give 168, 240 and 80. Something has to be left for maxima, sums and
addresses: with 80, or with the 32 that `flash_attention`'s kernels have at d = 64, the compiler spills nothing. With
three consumers at d = 128 nothing is left, and 1,128 bytes of each thread are spilled to memory.

Not allowed: the finished function from flashlab or solutions/.

Hint: at launch each of the consumers + 1 warpgroups has 128 threads. Count for one thread of each warpgroup.
"""


def registers(consumers, d, keys):
    """(of a thread at launch, of a consumer's thread later, left beside S, P and O), three whole numbers."""
    # >>> your turn: the share of each thread, before and after, and what the tiles take
    launch = 65536 // (128 * (consumers + 1)) // 8 * 8
    share = (launch * (consumers + 1) - 24) // consumers // 8 * 8
    S, P, O = 64 * keys // 128, 64 * keys // 2 // 128, 64 * d // 128
    return launch, share, share - (S + P + O)
    # <<<
