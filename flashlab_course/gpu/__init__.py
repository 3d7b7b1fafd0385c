"""How a GPU runs code: a SIMT interpreter, CUDA sources, and the Triton kernels of chapters 02 and 09."""
