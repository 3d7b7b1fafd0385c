"""TRUTHS: the answers to predictions that no cell computes, by the name of the prediction, out of a learner's sight.

Labels and line numbers are sets: `compare` then says which are missing, and not how far off they are.
"""

TRUTHS = {
    # ---- 00


    # ---- 01


    # ---- 02


    # ---- 03


    # ---- 04


    # ---- 05


    # ---- 06


    # ---- 07
    "SRAM that a head of 256 needs": 8 * 256**2 / 6 * 2 / 1024,    # M > 8 d² / 6, in KiB of 16-bit numbers

    # ---- 08
    "gradients that one key block finishes": {"dK", "dV"},

    # ---- 09


    # ---- 09b


    # ---- 10


    # ---- 11


    # ---- 12


    # ---- 13


    # ---- 14


    # ---- 15


    # ---- 16
}
