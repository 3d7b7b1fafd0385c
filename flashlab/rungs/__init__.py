"""The ladder in plain PyTorch, on modelled memory. Rungs know the memory model, and never import one another."""
