"""The tile player: watch a tiled algorithm, or your own code, move line by line.

    play(record(fa2_forward, Q, K, V, B_r=4, B_c=4, sram_bytes=1024))          # in a notebook, the last line of a cell
    play(record(fa1_forward, ...), record(fa2_forward, ...))                   # side by side, on one clock
    play(record(call, follow=my_function), at=("O", (3, 1)))                   # opens where O[3, 1] was written
    play(record(call, rows=4, say={"softmax": "Softmax loads S and stores P."}))    # eager operations, and in words
    play_traffic((record(fa2_forward, ...), formula))                          # bytes of each tensor filling up
    play_ring(log["runs"]["all"], log["N"])                 # blocks of keys on their way among ranks
    play(record_kernel(fa2_triton_forward, Q, K, V, B_r=16, B_c=16))           # interpreted Triton kernels

`play(...).save("player.html")` writes a page that needs nothing else.
"""

# ruff: noqa: F401 (imported to be found here)

from flashlab_course.player.kernels import record_kernel
from flashlab_course.player.page import Player, play
from flashlab_course.player.record import record
from flashlab_course.player.ring import play_ring
from flashlab_course.player.traffic import play_traffic
