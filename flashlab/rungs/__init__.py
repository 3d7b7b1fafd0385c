"""The ladder in plain PyTorch, on modelled memory. Rungs know the memory model, and never import one another.

A forward rung takes one head, Q (N_q, d), K (N_k, d), V (N_k, d_v), and returns O (N_q, d_v) in Q's dtype and L (N_q,),
the natural-log logsumexp of each row, in float32 (float64 for float64). A backward rung takes O, dO and what it needs
of L besides, and returns dQ, dK, dV, each like its tensor. The traffic of a rung is exactly cost.py's closed form.

Causal: bottom-right aligned: the last query sees every key. A query that sees none gets O = 0, L = -inf and dQ = 0
Tiles:  B_r queries by B_c keys at most; the default is tiles.largest_square_tile
Error:  against float64 at most 2x that of naive in the same dtype, 3x for gradients
Raises: TypeError or ValueError that names the argument; SRAMOverflow under a Memory too small
"""
