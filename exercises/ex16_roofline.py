"""ex16_roofline · how fast a kernel can be at most

Chapter 16 · difficulty 1 of 5 · 10 minutes

A kernel computes `flops` FLOPs and moves `moved` bytes between HBM and the chip. The GPU computes at most `tflops`
TFLOP/s and moves at most `tb_s` TB/s, both at the same time. Three numbers place the kernel on the roofline:

    intensity  FLOPs for each byte that is moved
    ms         the least time that the kernel can take, in milliseconds
    reached    its TFLOP/s if it takes no longer

T is 10¹². Return the three as Python numbers.

Not allowed: asking flashlab_course.figures, the finished function from solutions/.

Hint: the slower of the two sets the time.
"""


def roofline(flops, moved, tflops, tb_s):
    """(intensity, ms, reached)"""
    # your turn: FLOPs a byte, the least time, the speed at that time
    raise NotImplementedError("ex16_roofline: FLOPs a byte, the least time, the speed at that time")
