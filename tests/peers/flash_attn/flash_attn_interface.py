"""What flash-attention's tests ask this module for."""

USE_TRITON_ROCM = False


def _get_block_size_n(*_):
    """How many keys lie in the blocks whose running maximum the third result is relative to: all of them, see
    `probs`."""
    return 2**30
