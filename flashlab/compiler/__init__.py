"""Triton's two ways to run a kernel, interpreted or compiled: which it is here, what a run did, what a GPU would make of it."""
