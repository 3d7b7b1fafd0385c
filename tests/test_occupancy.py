"""What an SM holds at once: the limits are a GPU's own, and the tightest one decides."""

import pytest
import torch

from flashlab_course.gpu.occupancy import SM, occupancy


@pytest.mark.parametrize("block, blocks, limited_by, share", [
    ({"threads": 32}, 32, "blocks", 0.5),                                      # small blocks: half of the threads
    ({"threads": 256}, 8, "threads", 1.0),
    ({"threads": 1024, "registers": 64}, 1, "registers", 0.5),
    ({"threads": 256, "registers": 128}, 2, "registers", 0.25),
    ({"threads": 256, "registers": 33}, 6, "registers", 0.75),                 # 33 are paid for as 40
    ({"threads": 128, "shared": 227 * 1024}, 1, "shared memory", 0.0625),
    ({"threads": 128, "shared": 113 * 1024}, 2, "shared memory", 0.125),       # 1 KiB for each block is the system's
    ({"threads": 40}, 32, "threads", 1.0),                                     # two warps each
])
def test_the_tightest_limit_decides(block, blocks, limited_by, share):
    fit = occupancy(**block)
    assert (fit.blocks, fit.limited_by, fit.share) == (blocks, limited_by, share)


@pytest.mark.parametrize("block, words", [
    ({"threads": 1025}, "threads must be at most 1024"), ({"threads": 0}, "threads must be"),
    ({"threads": 32, "registers": 256}, "registers must be at most 255"),
    ({"threads": 32, "shared": 228 * 1024}, "shared must be at most 232448")])
def test_a_block_that_cannot_start_is_refused(block, words):
    with pytest.raises(ValueError, match=words):
        occupancy(**block)


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
                    reason="needs an H100 or H200")
def test_the_limits_are_those_of_the_gpu():
    p, sm = torch.cuda.get_device_properties(0), SM()
    assert (p.max_threads_per_multi_processor, p.regs_per_multiprocessor) == (sm.threads, sm.registers)
    assert (p.shared_memory_per_multiprocessor, p.shared_memory_per_block_optin) == (sm.shared, sm.block_shared)
