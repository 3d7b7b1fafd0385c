"""Cases and mistakes of ex13_kv_update."""

import torch

from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

K_PUT, V_PUT = "K_cache[b, :, n:n + N_new] = K_new[b]", "V_cache[b, :, n:n + N_new] = V_new[b]"
LOOP, END = "for b, n in enumerate(lengths.tolist()):", "return lengths + N_new"


def call(fn, K_cache, V_cache, K_new, V_new, lengths):
    """The caches as they are afterwards, and the lengths that came back."""
    K, V = K_cache.clone(), V_cache.clone()
    return K, V, fn(K, V, K_new, V_new, lengths)


def truth(K_cache, V_cache, K_new, V_new, lengths):
    """Place by place: which token lies there afterwards?"""
    place = torch.arange(K_cache.shape[2])
    which = place - lengths[:, None]                                # (B, N_max)
    new = ((which >= 0) & (which < K_new.shape[2]))[:, None, :, None]
    found = []
    for cache, tokens in ((K_cache, K_new), (V_cache, V_new)):
        at = which.clamp(0, K_new.shape[2] - 1).long()[:, None, :, None].expand(-1, cache.shape[1], -1, cache.shape[3])
        found.append(torch.where(new, tokens.gather(2, at), cache))
    return *found, lengths + K_new.shape[2]


def both(name, what, look, old, new, **more):
    """A mistake that is made with keys and values alike: old and new with K in them."""
    return Mistake(name, what, look, (old, new), (old.replace("K_", "V_"), new.replace("K_", "V_")), **more)


def case(name, lengths, N_new, N_max, H_kv=1, d=2, d_v=None, *, dtype=torch.int64, seed, features=()):
    d_v, B = d_v or d, len(lengths)

    def make():
        shapes = {"K_cache": (B, H_kv, N_max, d), "V_cache": (B, H_kv, N_max, d_v), "K_new": (B, H_kv, N_new, d), "V_new": (B, H_kv, N_new, d_v)}
        return {name: normal(*shape, seed=seed + n) for n, (name, shape) in enumerate(shapes.items())} | {"lengths": torch.tensor(lengths, dtype=dtype)}

    holds = {"more than one sequence": B > 1, "sequences of different length": len(set(lengths)) > 1, "more than one new token": N_new > 1,
             "more than one head": H_kv > 1, "an empty sequence": 0 in lengths, "a cache with room to spare": max(lengths) + N_new < N_max}
    return Case(name, make, frozenset([*features, *(f for f, true in holds.items() if true)]), {"lengths": str(lengths), "N_new": N_new, "N_max": N_max})


EXERCISE = Exercise(
    function="append",
    outputs=(Output("K_cache", ("sequence", "head", "key", "column")), Output("V_cache", ("sequence", "head", "key", "column")), Output("lengths", ("sequence",))),
    call=call,
    truth=truth,
    cases=[
        case("an empty cache", [0], 1, 3, seed=0),
        case("one token more", [2], 1, 4, seed=10),
        case("the last place", [3], 1, 4, seed=20),
        case("three tokens at once", [2], 3, 7, seed=30),
        case("two sequences", [2, 2], 1, 4, seed=40),
        case("two sequences of different length", [3, 1], 1, 5, seed=50),
        case("d_v ≠ d", [1, 2], 1, 4, d=2, d_v=3, seed=60),
        case("two heads", [1, 2], 2, 5, H_kv=2, seed=70),
        case("as many heads as sequences and tokens", [1, 3], 2, 6, H_kv=2, seed=80),
        case("lengths in 32 bits", [4, 0, 2], 2, 8, H_kv=2, d_v=3, dtype=torch.int32, seed=90),
        case("one of them full", [5, 1, 3], 1, 6, H_kv=3, seed=100),
    ],
    mistakes=[
        both("at_the_beginning", "the new tokens were written to the cache's first places", "the place: behind the keys that are there, from n on", K_PUT,
                "K_cache[b, :, 0:N_new] = K_new[b]"),
        both("over_the_last_key", "the new tokens were written from place n − 1 on, over the last key", "the place: the keys so far end at n − 1", K_PUT,
                "K_cache[b, :, max(0, n - 1):max(0, n - 1) + N_new] = K_new[b]"),
        both("one_place_late", "the new tokens were written from place n + 1 on: place n stayed as it was", "the place: the first free one is n", K_PUT,
             "K_cache[b, :, n + 1:n + 1 + N_new] = K_new[b, :, :max(0, K_cache.shape[2] - n - 1)]"),
        both("at_the_end", "the new tokens were written to the cache's last places", "the place: behind the keys that are there, from n on", K_PUT,
                "K_cache[b, :, K_cache.shape[2] - N_new:] = K_new[b]"),
        both("first_sequence_for_all", "all sequences got the first one's new tokens", "the tokens of sequence b: K_new[b], V_new[b]", K_PUT,
                "K_cache[b, :, n:n + N_new] = K_new[0]"),
        both("first_head_only", "only the first head got its new tokens", "all heads of K_new[b]", K_PUT, "K_cache[b, 0, n:n + N_new] = K_new[b, 0]"),
        both("first_head_for_all", "all heads got the first head's new tokens", "the tokens of head h: K_new[b, h], V_new[b, h]", K_PUT,
                "K_cache[b, :, n:n + N_new] = K_new[b, :1]"),
        both("one_token_only", "only the first new token was written", "how many there are: N_new", K_PUT, "K_cache[b, :, n:n + 1] = K_new[b, :, :1]"),
        both("last_token_only", "only the last new token was kept, at the first free place: the others were left out, or overwritten at that same place",
                "token t of the new ones belongs to place n + t", K_PUT, "K_cache[b, :, n:n + 1] = K_new[b, :, -1:]"),
        both("last_token_repeated", "the last new token was written to all the new places", "token t of the new ones belongs to place n + t", K_PUT,
                "K_cache[b, :, n:n + N_new] = K_new[b, :, -1:]"),
        both("reversed", "the new tokens were written in reverse order", "token t of the new ones belongs to place n + t", K_PUT,
                "K_cache[b, :, n:n + N_new] = K_new[b].flip(1)"),
        both("added", "the new tokens were added to what lay in their places", "the places may hold anything: set them", K_PUT,
                "K_cache[b, :, n:n + N_new] += K_new[b]"),
        both("to_the_end_of_the_cache", "every place from n on was set to the new token, the last one where there are several",
                "only N_new places are new, the rest stays as it is", K_PUT, "K_cache[b, :, n:] = K_new[b, :, -1:]"),
        both("rest_cleared", "what lies behind the new tokens was set to 0", "only N_new places are new, the rest stays as it is", K_PUT,
                "K_cache[b, :, n:n + N_new] = K_new[b]\n        K_cache[b, :, n + N_new:] = 0"),
        both("pushed_out", "the keys were moved towards the beginning to make room at the end", "there is room behind the keys: nothing has to move", K_PUT,
                "K_cache[b] = torch.cat([K_cache[b, :, N_new:], K_new[b]], dim=1)"),
        ],
    hints=[
        "Sequence b: places lengths[b], ..., lengths[b] + N_new − 1 of all its heads.",
        "K_cache[b, :, n:n + N_new] = K_new[b] for each b with n = lengths[b]; the same for V.",
        "Only sequences of different length are wrong: one place for all of them will not do.",
        "Only several tokens at once are wrong: how many places are new?",
    ],
)
