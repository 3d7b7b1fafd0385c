"""The ladder on the GPU: one Triton file a rung, and what they share."""
