"""The rungs on the GPU: one Triton file a rung. Importing one of them needs triton (Linux); importing flashlab does not."""
