"""The SIMT interpreter and a GPU run the same kernels on the same numbers: the CUDA C++ sources are its twins."""

import pytest
import torch

from flashlab.oracle import max_error
from flashlab_course.gpu import cuda, simt


@pytest.mark.gpu
@pytest.mark.parametrize("name, grid, block, sizes, numbers", [
    ("vector_add", 4, 64, 3 * [(200,)], [200]),
    ("matrix_add", (3, 5), (32, 8), 3 * [(40, 70)], [40, 70]),
    ("matrix_add_down_columns", (2, 9), (32, 8), 3 * [(40, 70)], [40, 70]),
    ("block_sum", 4, 128, [(512,), (4,)], []),
    *(("two_paths", 2, 64, [(100,)], [100, period, 5]) for period in (1, 16, 32)),
])
def test_the_interpreter_and_the_gpu_agree(name, grid, block, sizes, numbers):
    """Bit for bit, but for two_paths, which Python computes in float64."""
    model = [torch.randn(*size) for size in sizes]
    real = [T.clone().cuda() for T in model]
    cuda.kernel(name)(grid, block)(*real, *numbers)
    simt.launch(getattr(simt, name), grid, block, shared=1024)(*model, *numbers)
    assert max_error(real[-1].cpu(), model[-1]) <= (1e-5 if name == "two_paths" else 0)
