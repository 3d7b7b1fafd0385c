"""Every result is compared with float64 before it is timed, on poisoned outputs, as much of it as the memory holds.

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
    """PyTorch fills what it allocates with NaN, so that a check sees what a kernel forgets to write."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                                    # on operations that are not deterministic
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def check(call, Q, K, V, **masks):
    """Run `call` -> (O, L or None) on the whole problem, and judge the end of its result.

    The end is the last query rows of the last heads of the last batch, CHECKED_SCORES scores at most, fewer on a small
    GPU: every row of at least one head up to N = 16384. masks: as oracle.judge takes them
    """
    with poisoned_outputs():
        O, L = call()
    scores = CHECKED_SCORES
    if Q.is_cuda:
        scores = min(scores, torch.cuda.get_device_properties(Q.device).total_memory // 128)
    heads, heads_kv = judged_part(Q, K, scores)
    rows = max(1, min(Q.shape[2], scores // (K.shape[2] * heads)))
    O, Q = (T[-1:, -heads:, -rows:] for T in (O, Q))
    K, V = (T[-1:, -heads_kv:] for T in (K, V))
    verdict = oracle.judge(O, None if L is None else L[-1:, -heads:, -rows:], Q, K, V, **masks)
    return fields(verdict, call, error=verdict.error_O, rms_error=verdict.rms_O)


def check_gradients(call, Q, K, V, dO, **masks):
    """The same of `call` -> (dQ, dK, dV): all rows of the last heads."""
    with poisoned_outputs():
        dQ, dK, dV = call()
    # it takes about twice the memory of a forward's check
    heads, heads_kv = judged_part(Q, K, CHECKED_SCORES // 2)
    dQ, Q, dO = (T[-1:, -heads:] for T in (dQ, Q, dO))
    dK, dV, K, V = (T[-1:, -heads_kv:] for T in (dK, dV, K, V))
    verdict = oracle.judge_gradients(dQ, dK, dV, Q, K, V, dO, **masks)
    errors = {f"error_{name}": error for name, error in verdict.errors.items()}
    largest = max(errors.values(), key=lambda error: math.inf if math.isnan(error) else error)
    return fields(verdict, call, error=largest, **errors)


def judged_part(Q, K, scores):
    """How many of the last query heads and key heads have about so many scores: whole groups, one at least."""
    share = Q.shape[1] // K.shape[1]
    groups = max(1, min(K.shape[1], scores // (share * Q.shape[2] * K.shape[2])))
    return groups * share, groups


def fields(verdict, call, **errors):
    """The first fields of a row, and the memory that the call takes where it is right."""
    row = {name: error if math.isfinite(error) else None for name, error in errors.items()}
    if not verdict.ok:
        return row | {"skipped": f"refused: {verdict}"}
    return row | {"peak_bytes": peak_bytes(call), "skipped": None}
