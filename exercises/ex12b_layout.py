"""ex12b_layout · who holds what of S

Chapter 12b · difficulty 3 of 5 · 20 minutes

A wgmma of a warpgroup leaves S, 64 rows and N columns of float32, in registers of its 128 threads. Who holds what is
fixed by the hardware. In Gluon it is called NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16]):

    warps      warp w, which is threads 32 w to 32 w + 31, holds rows 16 w to 16 w + 15
    rows       cut these 16 rows into an upper and a lower 8. Lanes 0 to 3 hold the first row of each half, lanes 4 to 7
               the second row of each, and so on up to lanes 28 to 31
    columns    cut a row into pieces of 8 columns. Of each piece the first of its four lanes holds two neighbouring
               columns, the first two, the next lane the next two, and so on

Given a thread, 0 to 127, and N, a multiple of 8, return three tuples: the rows that the thread holds numbers of, their
columns, and the other threads that hold numbers of the same rows. Example: thread 5 with N = 16 holds rows 1 and 9,
columns 2, 3, 10 and 11, and shares both rows with threads 4, 6 and 7.

This is why a row's maximum is cheap. Each thread finds the largest of its own N / 4 numbers. Two shuffles, one with the
neighbour and one with the neighbouring pair, spread it among the four threads. A column lies in 32 threads of four
warps: its maximum would have to go through shared memory. So the softmax works on S, whose rows are queries.

Not allowed: asking Triton, the finished function from solutions/.

Hint: start from the lane, thread % 32. lane // 4 says which row of eight, lane % 4 which pair of columns.
"""


def holds(thread, N):
    """(rows, columns, other threads of these rows), three tuples."""
    # your turn: the rows and columns of this thread, and the other threads of these rows
    raise NotImplementedError("ex12b_layout: the rows and columns of this thread, and the other threads of these rows")
