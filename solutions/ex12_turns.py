"""ex12_turns · whose turn is it

Chapter 12 · difficulty 4 of 5 · 30 minutes

Two consumers share the tensor cores. In each round n a consumer has its product, which needs the tensor cores, and then
its softmax, which does not: while one takes exponentials, the other should multiply. Left alone both begin to multiply
at the same time, at half the speed each, and later the tensor cores stand idle while both take exponentials. So they
take turns: in every round consumer 0's product comes first, and consumer 1's begins when it has ended.

Write the program of one consumer as a list of instructions, done one after the other:

    ("sync", b)          wait for an `arrive` on barrier b, and use it up
    ("arrive", b)        signal barrier b and go on at once; signals that come before their sync are kept and counted
    ("product", n)       issue round n's product; the next instruction follows when it has ended
    ("softmax", n)       round n's exponentials; the next instruction follows when they have ended

Barrier b stands for "it is the turn of consumer b", b is 0 or 1. At the start nobody has arrived anywhere; who of the
two gives consumer 0 its first turn is free. Signals that are left over at the end do no harm. A consumer whose rows see
fewer keys sits out its first `skip` rounds: no product, no softmax, but the other must not wait for it. me is 0 or 1, 0
≤ skip ≤ rounds, and the other consumer may have another skip.

Here a product is one instruction. On a GPU, to issue it and to wait for its end are two, and a kernel passes the turn
on between them: chapter 12b.

Not allowed: other instructions, knowing the other consumer's skip, the finished function from flashlab or solutions/.

Hint: who says that the first turn is consumer 0's? Somebody has to arrive there before anything can begin.
"""


def program(me, rounds, skip):
    """The instructions of consumer `me`, a list of tuples."""
    # >>> your turn: for each round whose turn it is, what is done, and who is told
    other = 1 - me
    todo = []
    if me == 1:
        todo.append(("arrive", 0))
    for n in range(rounds):
        todo.append(("sync", me))
        if n >= skip:
            todo.append(("product", n))
        todo.append(("arrive", other))
        if n >= skip:
            todo.append(("softmax", n))
    return todo
    # <<<
