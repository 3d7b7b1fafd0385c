"""The picture of chapter 14: which rank computes which scores in which step of a ring."""

import numpy as np

from flashlab_course.figures.plots import matrices
from flashlab_course.figures.style import figure


@figure
def ring_parts(ranks, N, words):
    """The matrix of scores in chunks, each with the rank and the step that compute it.

    ranks: of each rank {"calls": [{"queries", "keys", "causal"}]}, places in the sequence, as
    flashlab_course.ring_check notes them
    """
    R = len(ranks)
    size, causal = N // (2 * R), ranks[0]["calls"][0]["causal"]
    owned = [set(rank["calls"][0]["queries"]) for rank in ranks]           # step 0 is a rank's own block, all of it
    shades = np.full((2 * R, 2 * R), np.nan)
    texts = np.full(shades.shape, "", dtype=object)
    times = {}
    for r, rank in enumerate(ranks):
        for call in rank["calls"]:
            owner = next(n for n, rows in enumerate(owned) if call["keys"][0] in rows)
            step = (r - owner) % R
            for q, k in pairs_of(call, size):
                times[q, k] = times.get((q, k), 0) + 1
                shades[q, k], texts[q, k] = (step + 1) / R, f"rank {r}\nstep {step}"
    chunks = R * (2 * R + 1) if causal else 4 * R * R
    whole = len(times) == chunks and set(times.values()) == {1}
    came = "every score has been computed once" if whole else "scores are missing or computed twice"
    return matrices({"": (shades, texts)}, f"After {R} steps of {R} ranks {came}",
                    f"{words} Down: queries, across: keys, in chunks of {size} rows. The darker, the later the step.",
                    "key chunk", "query chunk")


def pairs_of(call, size):
    """[(query chunk, key chunk)] of one call of the kernel, without those that its mask hides whole."""
    queries, keys = (list(dict.fromkeys(place // size for place in call[name])) for name in ("queries", "keys"))
    return [(q, k) for q in queries for k in keys if k <= q or not call["causal"]]
