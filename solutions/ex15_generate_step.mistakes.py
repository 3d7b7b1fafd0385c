import torch

from flashlab_course.check.cases import BELOW, Mistake, case_of, normal

POSITIONS, ROTATED = "torch.arange(length, length + n)", "Q, K = rotate(Q, positions), rotate(K, positions)"
T_KEPT = "{0}_cache = torch.cat(({0}_cache[:, :length], {0}), dim=1)".format
REPEATED = "repeat_interleave(group, dim=0)", "repeat(group, 1, 1)"
KEYS, VALUES = (f"{name}_cache[:, :end].repeat_interleave(group, dim=0)" for name in "KV")
TURNED_ALL = "rotate(K_cache[:, :end], torch.arange(end)).repeat_interleave(group, dim=0)"
HIDDEN, ONES = "torch.ones(n, end, dtype=torch.bool).triu(length + 1)", "torch.ones(n, end, dtype=torch.bool)"

outputs = [("O", "head", "query", "column"), ("K_cache", "head", "key", "column"), ("V_cache", "head", "key", "column")]
off_limits = ("gpt",)
features = {"tokens in the cache": lambda length: length > 0, "more than one new token": lambda n: n > 1,
            "shared heads": lambda H_q, H_kv: H_q > H_kv}


def call(fn, Q, K, V, K_cache, V_cache, length):
    """O, and the caches as they are afterwards; NaN, which compares with nothing, as 0."""
    K_cache, V_cache = K_cache.clone(), V_cache.clone()
    return fn(Q, K, V, K_cache, V_cache, length), K_cache.nan_to_num(0.0), V_cache.nan_to_num(0.0)


@case_of
def case(length, n, room, H_q=1, H_kv=1, d=6, *, seed, below=0, stale=False):
    new, cache = (H_kv, n, d), (H_kv, length + n + room, d)
    Q, K, V = normal(H_q, n, d, seed=seed, factor=2.0), normal(*new, seed=seed + 1), normal(*new, seed=seed + 2)
    K_cache, V_cache = normal(*cache, seed=seed + 3), normal(*cache, seed=seed + 4)
    if below:                                # in the pair of columns that turns slowest, for a token's own key
        Q[..., d // 2 - 1] += below**0.5
        K[..., d // 2 - 1] -= below**0.5
    if stale:
        K_cache[:, length + n :], V_cache[:, length + n :] = torch.nan, torch.nan
    return {"Q": Q, "K": K, "V": V, "K_cache": K_cache, "V_cache": V_cache, "length": length}


cases = [case("the first token", 0, 1, 2, seed=1510),
         case("one token behind three", 3, 1, 0, seed=1520),
         case("a prompt of four", 0, 4, 0, seed=1540),
         case("three tokens behind two", 2, 3, 1, seed=1550),
         case("two heads", 3, 2, 1, 2, 2, 4, seed=1570),
         case("four heads share two", 5, 3, 1, 4, 2, seed=1580),
         case("two tokens behind two, NaN behind them", 2, 2, 2, d=4, seed=1600, stale=True),
         case("a prompt of two, scores far below 0", 0, 2, 1, d=4, seed=1590, below=BELOW)]
mistakes = [
    Mistake("position_0", "positions were counted from 0 in each call", "the position of the first new token",
            (POSITIONS, "torch.arange(n)")),
    Mistake("queries_from_0", "the positions of queries were counted from 0 in each call", "how queries are rotated",
            (ROTATED, ROTATED.replace("rotate(Q, positions)", "rotate(Q, torch.arange(n))"))),
    Mistake("position_one_late", "positions were one too large", "the position of the first new token", (POSITIONS,
             "torch.arange(length + 1, length + n + 1)")),
    Mistake("one_position", "all new tokens got the position of the first", "the positions of several new tokens",
            (POSITIONS, "torch.full((n,), length)")),
    Mistake("scale_missing", "the scores were not divided by √d", "how the scores are computed",
            ("Q @ keys.mT * d**-0.5", "Q @ keys.mT")),
    Mistake("cache_rotated_again", "keys from the cache were rotated a second time", "where keys are rotated", (KEYS,
             TURNED_ALL)),
    Mistake("rotated_behind_the_cache", "keys went into the cache unrotated, and all were rotated on reading",
            "what the cache holds: rotated keys", (ROTATED, "Q = rotate(Q, positions)"), (KEYS, TURNED_ALL)),
    Mistake("unrotated_key_kept", "the new keys went into the cache unrotated", "what the cache holds: rotated keys",
            ("return P @ values", "K_cache[:, length:end] = raw\n    …"), (ROTATED, f"raw = K\n    {ROTATED}")),
    Mistake("whole_cache_times_0", "unused rows of the cache were multiplied by 0, but 0 · NaN is NaN",
            "which rows are multiplied", (KEYS, KEYS.replace("[:, :end]", "")), (VALUES,
             VALUES.replace("[:, :end]", "")), (HIDDEN, HIDDEN.replace("end", "K_cache.shape[1]"))),
    Mistake("nothing_kept", "O was right, but the caches did not change", "how the caches are written to",
            *((f"{T}_cache[:, length:end] = {T}", T_KEPT(T)) for T in "KV")),
    Mistake("no_mask", "new tokens saw those after them", "which keys a new token sees",
            ("S.masked_fill(hidden, -torch.inf)", "S")),
    Mistake("top_left", "the mask began at the top left: the first new token saw one key",
            "how many keys the first new token sees", (HIDDEN, "torch.ones(n, end, dtype=torch.bool).triu(1)")),
    Mistake("without_itself", "a token did not see itself", "where the mask begins in a row", (HIDDEN,
             "torch.ones(n, end, dtype=torch.bool).triu(length)")),
    Mistake("heads_dealt_out", "neighbouring query heads took different key heads", "how key heads are repeated",
            *((heads, heads.replace(*REPEATED)) for heads in (KEYS, VALUES))),
    Mistake("piece_starts_anew", "several new tokens did not see the cache", "what a piece of a prompt comes after",
            (HIDDEN, f"{HIDDEN} | ((torch.arange(end) < length) & (n > 1))")),
    Mistake("new_ones_see_themselves", "a new token did not see the new ones before it", "what new tokens see", (HIDDEN,
             "torch.cat([torch.zeros(n, length), 1 - torch.eye(n)], 1).bool()")),
]
hints = ["K_cache[:, length : length + n] = ... changes the cache in place. What do its rows hold, rotated or not?",
         "After that the keys are K_cache[:, : length + n]. New token t sees length + t + 1 of them.",
         "Query heads 0 and 1 of 4 share the first of 2 key heads: repeat_interleave, not repeat."]
