"""ex12_registers · reading a register report

Chapter 12 · difficulty 2 of 5 · 20 minutes

The compiler reports what a kernel takes: num_warps warps a program, `registers` for each thread, `shared` bytes of
shared memory for each program. How many programs does one SM of an H100 hold at the same time? Four limits say so, the
smallest one wins:

    threads          2048 an SM, and a warp has 32
    registers        65,536 an SM. Each warp gets them in pieces of 256: 32 · registers, rounded up to a multiple of 256
    shared memory    228 KiB an SM (1 KiB is 1024 bytes), and the system takes 1 KiB more for each program
    programs         32 an SM, whatever they take

Return how many programs each of the first three allows by itself (it may be more than 32), and how many the SM holds.
num_warps is 1 to 32, registers 1 to 255, shared 0 to 227 · 1024; num_warps · 32 · registers may be more than an SM has,
and then registers allow 0 programs. Example: 8 warps, 168 registers and 100,000 bytes give 8 by threads, 1 by
registers, 2 by shared memory, so the SM holds 1.

Not allowed: asking flashlab_course.gpu, the finished function from solutions/.

Hint: each limit is what the SM has, divided by what one program takes, rounded down.
"""


def resident(num_warps, registers, shared):
    """(by_threads, by_registers, by_shared, programs), four whole numbers."""
    # your turn: what each limit allows, and the least of them
    raise NotImplementedError("ex12_registers: what each limit allows, and the least of them")
