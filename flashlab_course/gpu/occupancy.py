"""How many blocks of a kernel an SM holds at once.

    fit = occupancy(threads=256, registers=128, shared=48 * 1024)
    fit.blocks, fit.limited_by, fit.share                  # 2, "registers", 0.25
"""

from typing import NamedTuple

from flashlab.validate import check_positive

WARP = 32


class SM(NamedTuple):
    """One SM's limits, by default an H100's or H200's. An A100 has 164 and 163 KiB of shared memory."""

    threads: int = 2048
    blocks: int = 32
    registers: int = 65536         # of 4 bytes
    shared: int = 228 * 1024       # bytes
    block_threads: int = 1024
    block_shared: int = 227 * 1024
    thread_registers: int = 255
    reserved: int = 1024           # bytes of shared memory that the system takes for each block


class Fit(NamedTuple):
    blocks: int                    # that an SM holds
    limited_by: str
    each: dict                     # how many blocks each limit allows
    share: float                   # of the SM's threads


def occupancy(threads, registers=32, shared=0):
    """A Fit. threads: of a block; registers: of a thread; shared: bytes of a block."""
    sm = SM()
    check_positive(threads=threads, registers=registers)
    for name, asked, allowed in (("threads", threads, sm.block_threads), ("registers", registers, sm.thread_registers),
                                 ("shared", shared, sm.block_shared)):
        if asked > allowed:
            raise ValueError(f"{name} must be at most {allowed} for one block or thread, got {asked}")
    warps = -(-threads // WARP)
    per_warp = -(-registers * WARP // 256) * 256           # registers are handed out in pieces of 256 a warp
    each = {"threads": sm.threads // (WARP * warps), "blocks": sm.blocks,
            "registers": sm.registers // (per_warp * warps),
            "shared memory": sm.shared // (shared + sm.reserved)}
    limited_by = min(each, key=each.get)
    return Fit(each[limited_by], limited_by, each, each[limited_by] * WARP * warps / sm.threads)
