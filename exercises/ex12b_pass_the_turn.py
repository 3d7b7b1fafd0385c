"""ex12b_pass_the_turn · when the turn is passed on

Chapter 12b · difficulty 3 of 5 · 20 minutes

Two consumers of 128 threads each take turns at S = Q K^T: in every round consumer 0's product is issued first, then
consumer 1's. The turn of consumer c is the named barrier TURN + c. It opens when 256 threads have come: the 128 that
wait there and the 128 that only arrive. Then it counts from 0 again. The requests have the kernel's names:

    yield sync(TURN + c, 256)        wait at the barrier until it opens
    yield arrive(TURN + c, 256)      count towards it and go on

Chapter 12's ex12_turns passed the turn on when a product had ended: there one instruction stood for issuing and
computing it. On the GPU wgmma only issues a product, and the tensor cores work on products in the order of their issue.
So only the issuing needs an order, and the turn is passed on right after wgmma. Then the other's product is already
waiting when this one ends. If the turn were passed on at the end, the tensor cores would be idle while the signal
travels. The simulator's signals take no time and do not show that, so the checker looks at the order of your requests.

Write the two missing parts of the consumer. In the first, one of the two consumers gives consumer 0 its first turn: at
the start nobody has arrived anywhere. In the second, wait for K, issue S in turn, pass the turn on, and release K's
slot as soon as S is there.
Arrivals that nobody waits for at the end do no harm, but more than 256 threads at one barrier are an error.

Not allowed: an order by other means, the finished function from solutions/.

Hint: from which moment on can the other's product no longer overtake yours?
"""
from flashlab_course.gpu.warps import arrive, fetch, release, softmax, sync, wait, wgmma, wgmma_wait

TURN = 12


def producer(K, V, slots, tiles):
    """Fetches K 0, V 0, K 1, V 1, ..., each as soon as its slot is free."""
    for j in range(tiles):
        slot, phase = j % slots, j // slots % 2
        yield wait(K.free[slot], phase ^ 1)
        yield fetch(K, j, slot)
        yield wait(V.free[slot], phase ^ 1)
        yield fetch(V, j, slot)


def consumer(me, K, V, slots, tiles):
    """The program of consumer `me`, 0 or 1."""
    # your turn: who gives consumer 0 its first turn
    raise NotImplementedError("ex12b_pass_the_turn: who gives consumer 0 its first turn")
    for j in range(tiles):
        slot, phase = j % slots, j // slots % 2
        # your turn: S of tile j in turn, and the release of K's slot
        raise NotImplementedError("ex12b_pass_the_turn: S of tile j in turn, and the release of K's slot")
        yield softmax(j)
        yield wait(V.full[slot], phase)
        yield wgmma(V, slot, j)
        yield wgmma_wait(0)
        yield release(V.free[slot])


def programs(K, V, slots, tiles):
    """All three, for the simulator."""
    return producer(K, V, slots, tiles), consumer(0, K, V, slots, tiles), consumer(1, K, V, slots, tiles)
