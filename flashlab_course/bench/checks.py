"""What a result is held against before it is timed: float64, on poisoned outputs, as much of it as the memory holds.

A check gives the first fields of a row: errors, None where they are not finite, as JSON knows no such numbers; and
"skipped", which says what is wrong, or None.
"""

import contextlib
import math
import warnings

import torch

from flashlab import oracle
from flashlab_course.bench.timing import peak_bytes

CHECKED_SCORES = 2**28                 # per check: in float64 one such matrix takes 2 GiB, and about six live at once


@contextlib.contextmanager
def poisoned_outputs():
    """PyTorch fills what it allocates with NaN, so that what a kernel forgets to write is seen."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                                    # on operations that are not deterministic
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def check(call, Q, K, V, causal=False):
    """Run `call` -> (O, L or None) on the whole problem, and judge the end of its result.

    The end: of the last batch the last heads, and of those the last query rows, CHECKED_SCORES scores at most (fewer on
    a small GPU). That is every row of at least one head up to N = 16384.
    """
    with poisoned_outputs():
        O, L = call()
    H, N = Q.shape[1:3]
    scores = CHECKED_SCORES
    if Q.is_cuda:
        scores = min(scores, torch.cuda.get_device_properties(Q.device).total_memory // 128)
    heads, heads_kv = judged_part(H, N, H // K.shape[1], scores)
    rows = max(1, min(N, scores // (N * heads)))
    keys = (slice(-1, None), slice(-heads_kv, None))
    part = (slice(-1, None), slice(-heads, None), slice(-rows, None))
    verdict = oracle.judge(O[part], None if L is None else L[part], Q[part], K[keys], V[keys], causal=causal)
    return fields(verdict, call, error=verdict.error_O, rms_error=verdict.rms_O)


def check_gradients(call, Q, K, V, dO, causal=False):
    """The same of `call` -> (dQ, dK, dV): all rows of the last heads."""
    with poisoned_outputs():
        grads = call()
    H, N = Q.shape[1:3]
    # it takes about twice the memory of a forward's check
    heads, heads_kv = judged_part(H, N, H // K.shape[1], CHECKED_SCORES // 2)
    queries, keys = ((slice(-1, None), slice(-count, None)) for count in (heads, heads_kv))
    parts = (queries, keys, keys, queries, keys, keys, queries)
    ends = [T[part] for T, part in zip((*grads, Q, K, V, dO), parts, strict=True)]
    verdict = oracle.judge_gradients(*ends, causal=causal)
    errors = {f"error_{name}": error for name, error in verdict.errors.items()}
    largest = max(errors.values(), key=lambda error: math.inf if math.isnan(error) else error)
    return fields(verdict, call, error=largest, **errors)


def judged_part(heads, N, share, scores):
    """How many of the last query heads and key heads have about so many scores: whole groups, one at least."""
    groups = max(1, min(heads // share, scores // (share * N**2)))
    return groups * share, groups


def fields(verdict, call=None, **errors):
    """The first fields of a row, and the memory that the call takes where it is right."""
    row = {name: error if math.isfinite(error) else None for name, error in errors.items()}
    if not verdict.ok:
        return row | {"skipped": f"refused: {verdict}"}
    return row | ({"peak_bytes": peak_bytes(call)} if call else {}) | {"skipped": None}
