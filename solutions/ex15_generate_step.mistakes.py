"""Cases and mistakes of ex15_generate_step."""

import torch

from flashlab_course.check.cases import LOOSE, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

POSITIONS, TURNED = "torch.arange(length, length + n)", "Q, K = rotate(Q, positions), rotate(K, positions)"
K_IN, V_IN = "K_cache[:, length:end] = K", "V_cache[:, length:end] = V"
KEYS, VALUES = "K_cache[:, :end].repeat_interleave(group, dim=0)", "V_cache[:, :end].repeat_interleave(group, dim=0)"
HIDDEN, MASKED = "torch.ones(n, end, dtype=torch.bool).triu(length + 1)", "torch.softmax(S.masked_fill(hidden, -torch.inf), dim=-1)"


def call(fn, Q, K, V, K_cache, V_cache, length):
    """O, and the caches as they are afterwards; NaN, which compares with nothing, as 0."""
    K_cache, V_cache = K_cache.clone(), V_cache.clone()
    return fn(Q, K, V, K_cache, V_cache, length), K_cache.nan_to_num(0.0), V_cache.nan_to_num(0.0)


def truth(Q, K, V, K_cache, V_cache, length):
    """Token after token in float64, each turned by hand and shown its own past."""
    Q, K, V, K_cache, V_cache = (T.double() for T in (Q, K, V, K_cache.clone(), V_cache.clone()))
    half, group, O = Q.shape[-1] // 2, len(Q) // len(K), torch.empty_like(Q)
    wheel = lambda position: torch.polar(torch.ones(half).double(), position * 10.0 ** (-torch.arange(half).double() / half))

    def turned(x, position):
        pairs = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * wheel(position)
        return torch.cat((pairs.real, pairs.imag), dim=-1)

    for t in range(Q.shape[1]):
        K_cache[:, length + t], V_cache[:, length + t] = turned(K[:, t], length + t), V[:, t]
        for h in range(len(Q)):
            scores = K_cache[h // group, : length + t + 1] @ turned(Q[h, t], length + t) / Q.shape[-1] ** 0.5
            O[h, t] = torch.softmax(scores, 0) @ V_cache[h // group, : length + t + 1]
    return O, K_cache.nan_to_num(0.0), V_cache.nan_to_num(0.0)


def case(name, length, n, room, H_q=1, H_kv=1, d=4, *, seed, below=False, stale=False):
    sizes = {"length": length, "n": n, "longest": length + n + room, "H_q": H_q, "H_kv": H_kv, "d": d}
    holds = {"tokens in the cache": length > 0, "more than one new token": n > 1, "room behind the new tokens": room > 0,
             "more than one head": H_q > 1, "shared heads": H_q > H_kv, "only scores far below 0": below,
             "NaN behind the new tokens": stale}

    def make():
        new, cache = (H_kv, n, d), (H_kv, length + n + room, d)
        Q, K, K_cache = normal(H_q, n, d, seed=seed, factor=2.0), normal(*new, seed=seed + 1), normal(*cache, seed=seed + 3)
        if below:                                # in the pair of columns that turns slowest: -450 for a token's own key
            angles = torch.arange(length) * 10.0 ** (2 / d - 1)
            Q[..., d // 2 - 1] += 30
            K[..., d // 2 - 1] -= 30
            K_cache[:, :length, d // 2 - 1] -= 30 * angles.cos()
            K_cache[:, :length, d - 1] -= 30 * angles.sin()
        V_cache = normal(*cache, seed=seed + 4)
        if stale:
            K_cache[:, length + n :], V_cache[:, length + n :] = torch.nan, torch.nan
        return {"Q": Q, "K": K, "V": normal(*new, seed=seed + 2), "K_cache": K_cache, "V_cache": V_cache, "length": length}

    return Case(name, make, frozenset(f for f, true in holds.items() if true), sizes, LOOSE if below else 0.0)


EXERCISE = Exercise(
    function="generate_step",
    outputs=(Output("O", ("head", "query", "column")), Output("K_cache", ("head", "key", "column")), Output("V_cache", ("head", "key", "column"))),
    call=call,
    truth=truth,
    off_limits=("gpt",),
    cases=[
        case("the first token, and no room behind it", 0, 1, 0, seed=1500),
        case("the first token", 0, 1, 2, seed=1510),
        case("one token behind three", 3, 1, 0, seed=1520),
        case("one token behind three, and room", 3, 1, 2, seed=1530),
        case("a prompt of four", 0, 4, 0, seed=1540),
        case("three tokens behind two", 2, 3, 1, seed=1550),
        case("two tokens behind five", 5, 2, 3, seed=1560),
        case("two heads", 3, 2, 1, 2, 2, seed=1570),
        case("four heads share two", 4, 3, 2, 4, 2, 6, seed=1580),
        case("two tokens behind two, NaN behind them", 2, 2, 2, seed=1600, stale=True),
        case("two tokens behind one, scores far below 0", 1, 2, 1, seed=1590, below=True),
    ],
    mistakes=[
        Mistake("position_0", "positions were counted from 0 at each call", "the positions of the new tokens: `length` others stand before them",
                (POSITIONS, "torch.arange(n)")),
        Mistake("position_one_early", "positions were one too small", "the positions: the first token has 0, so the one behind `length` others has `length`",
                (POSITIONS, "torch.arange(length - 1, length + n - 1)")),
        Mistake("position_one_late", "positions were one too large", "the positions: the first token has 0, so the one behind `length` others has `length`",
                (POSITIONS, "torch.arange(length + 1, length + n + 1)")),
        Mistake("one_position", "all new tokens got the position of the first", "the positions: length, length + 1, and so on",
                (POSITIONS, "torch.full((n,), length)")),
        Mistake("cache_rotated_again", "all keys were rotated once more when they were read from the cache",
                "rotate: the new keys alone, and once; what lies in the cache was rotated when it came",
                (KEYS, "rotate(K_cache[:, :end], torch.arange(end)).repeat_interleave(group, dim=0)")),
        Mistake("rotated_behind_the_cache", "keys were put into the cache as they came, and rotated all when they were read", "the cache: keys lie in it rotated",
                (TURNED, "Q = rotate(Q, positions)"), (KEYS, "rotate(K_cache[:, :end], torch.arange(end)).repeat_interleave(group, dim=0)")),
        Mistake("unrotated_key_kept", "the new keys went into the cache without the rotation, though the scores had them rotated",
                "the cache: keys lie in it rotated, as the scores take them", (TURNED, "Q, unrotated, K = rotate(Q, positions), K, rotate(K, positions)"),
                ("return P @ values", "K_cache[:, length:end] = unrotated\n    return P @ values")),
        Mistake("whole_cache_times_0", "the whole cache was multiplied, its unused rows with weights of 0, and 0 · NaN is NaN",
                "the keys and values: rows 0 to length + n − 1 of the cache, whatever lies behind", (KEYS, "K_cache.repeat_interleave(group, dim=0)"),
                (VALUES, "V_cache.repeat_interleave(group, dim=0)"), (HIDDEN, "torch.ones(n, K_cache.shape[1], dtype=torch.bool).triu(length + 1)")),
        Mistake("nothing_kept", "the result was right, and the caches stayed as they were",
                "the cache: change K_cache and V_cache in place, with an assignment to their rows", (K_IN, "K_cache = torch.cat((K_cache[:, :length], K), dim=1)"),
                (V_IN, "V_cache = torch.cat((V_cache[:, :length], V), dim=1)")),
        Mistake("no_mask", "new tokens saw those behind them", "the mask: a token sees those so far and itself", (MASKED, "torch.softmax(S, dim=-1)")),
        Mistake("top_left", "the mask was aligned at the top left: the first new token saw the first token alone",
                "the mask: the first new token sees length + 1 keys", (HIDDEN, "torch.ones(n, end, dtype=torch.bool).triu(1)")),
        Mistake("without_itself", "a token did not see itself", "the mask: the token at position p sees the keys 0 to p, p among them",
                (HIDDEN, "torch.ones(n, end, dtype=torch.bool).triu(length)")),
        Mistake("heads_dealt_out", "query heads took key heads by turns, not neighbours the same one",
                "the groups: query head h takes key head h // (H_q / H_kv); repeat_interleave puts copies in that order, repeat does not",
                (KEYS, "K_cache[:, :end].repeat(group, 1, 1)"), (VALUES, "V_cache[:, :end].repeat(group, 1, 1)")),
        Mistake("piece_starts_anew", "several new tokens were taken for the beginning of the text: they saw themselves alone",
                "the keys: a piece of a prompt comes after what the cache holds",
                (HIDDEN, "torch.ones(n, end, dtype=torch.bool).triu(length + 1) | ((torch.arange(end) < length) & (n > 1))")),
        Mistake("new_ones_see_themselves", "a new token saw the cache and itself, and none of the new ones before it",
                "the mask: new token i sees all that came before it, new or not",
                (HIDDEN, "torch.cat([torch.zeros(n, length, dtype=torch.bool), ~torch.eye(n, dtype=torch.bool)], 1)")),
    ],
    hints=[
        "The new tokens have the positions torch.arange(length, length + n).",
        "K_cache[:, length : length + n] = rotate(K, positions) changes the cache in place; V goes in as it is.",
        "After that the keys are K_cache[:, : length + n]. New token t sees length + t + 1 of them.",
        "Only calls with a filled cache are wrong: positions go on at `length`, and so do the rows of the cache.",
        "Only several tokens at once are wrong: they must not see each other's future.",
        "Only shared heads are wrong: query heads 0 and 1 of 4 share the first of 2 key heads.",
    ],
)
