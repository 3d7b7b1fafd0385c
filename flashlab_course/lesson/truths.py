"""TRUTHS: the answers to predictions that no cell computes, by the name of the prediction, out of a learner's sight.

Labels and line numbers are sets: `compare` then says which are missing, and not how far off they are.
"""

TRUTHS = {
    # ---- 01
    "weights that einsum's nn reads": 512,
    # ---- 02
    "N from which attention without S waits for arithmetic": 416,      # N / 2 FLOPs a byte, and 208 at the corner
    # ---- 08
    "gradients that one key block finishes": {"dK", "dV"},
    # ---- 12b
    "bytes of a block of keys": 128 * 128 * 2,
    "a second wait for parity 0": "goes on",
    "slot and parity of block 5": [1, 0],
    "the earliest place of K's fetch": "wgmma_wait",
    "registers for S": 64,
    "exchanges of a block": 2 * (2 + 2),
    "tiles fetched with the wrong parity": 0,
    "registers of a consumer's thread": 240,
    "products that may still be under way": 1,
    "threads at the barrier of a turn": 256,
    "when the last SM is done": {"fixed": 6, "counter": 5},
    "registers of S, P and O at 256 keys": 224,
}
