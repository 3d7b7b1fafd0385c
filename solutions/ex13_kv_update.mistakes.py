import torch

from flashlab_course.check.cases import Mistake, case_of, normal

K_PUT, V_PUT = "K_cache[b, :, n:n + N_new] = K_new[b]", "V_cache[b, :, n:n + N_new] = V_new[b]"
LOOP, END = "for b, n in enumerate(lengths.tolist()):", "return lengths + N_new"
AXES = ("sequence", "head", "key", "column")

outputs = [("K_cache", *AXES), ("V_cache", *AXES), ("lengths", "sequence")]
features = {"an empty sequence": lambda lengths: 0 in lengths, "more than one new token": lambda N_new: N_new > 1,
            "sequences of different length": lambda lengths: len({*lengths}) > 1}


def call(fn, K_cache, V_cache, K_new, V_new, lengths):
    """The caches as they are afterwards, and the lengths that came back."""
    K, V = K_cache.clone(), V_cache.clone()
    return K, V, fn(K, V, K_new, V_new, lengths)


def truth(K_cache, V_cache, K_new, V_new, lengths):
    """Place by place: which token lies there afterwards?"""
    which = torch.arange(K_cache.shape[2]) - lengths[:, None]       # (B, N_max)
    new = ((which >= 0) & (which < K_new.shape[2]))[:, None, :, None]
    at = which.clamp(0, K_new.shape[2] - 1).long()[:, None, :, None]
    K, V = (torch.where(new, torch.take_along_dim(tokens, at, 2), cache)
            for cache, tokens in ((K_cache, K_new), (V_cache, V_new)))
    return K, V, lengths + K_new.shape[2]


def both(name, what, look, new):
    """A mistake that is made with keys and values alike: `new` is what it makes of K_PUT."""
    return Mistake(name, what, look, (K_PUT, new), (V_PUT, new.replace("K_", "V_")))


@case_of
def case(lengths, N_new, N_max, H_kv=1, d=2, d_v=None, *, dtype=torch.int64, seed):
    shapes = {"K_cache": (N_max, d), "V_cache": (N_max, d_v or d), "K_new": (N_new, d), "V_new": (N_new, d_v or d)}
    drawn = {name: normal(len(lengths), H_kv, *shape, seed=seed + n) for n, (name, shape) in enumerate(shapes.items())}
    return drawn | {"lengths": torch.tensor(lengths, dtype=dtype)}


cases = [case("an empty cache", [0], 1, 3, seed=0),
         case("one token more", [2], 1, 4, seed=10),
         case("three tokens at once", [2], 3, 7, seed=30),
         case("two sequences of different length", [3, 1], 1, 5, d=4, d_v=3, seed=50),
         case("two heads", [1, 3, 2], 2, 6, H_kv=2, d=4, seed=80),
         case("as many heads as sequences and tokens", [1, 3], 2, 6, H_kv=2, seed=85),
         case("lengths in 32 bits", [4, 0, 2], 2, 8, H_kv=2, d_v=3, dtype=torch.int32, seed=90),
         case("one of them full", [5, 1, 3], 1, 6, H_kv=3, seed=100)]
mistakes = [
    both("one_place_late", "the new tokens began at place n + 1", "place n, which is free",
         "room = K_cache.shape[2] - n - 1\n        K_cache[b, :, n + 1:n + 1 + N_new] = K_new[b, :, :room]"),
    Mistake("one_length_for_all", "every sequence's tokens went to the place where the longest one ends",
            "the place for each sequence", (LOOP, "for b, n in enumerate([int(lengths.max())] * len(lengths)):")),
    both("first_sequence_for_all", "all sequences got the new tokens of the first one", "the index of the sequence",
         "K_cache[b, :, n:n + N_new] = K_new[0]"),
    both("one_token_only", "only the first new token was written", "how many tokens are new",
         "K_cache[b, :, n:n + 1] = K_new[b, :, :1]"),
    both("lengths_repeated", "each head took the length of another sequence",
         "the order of (sequence, head) in a flattened batch",
         "H = K_new.shape[1]\n        for h in range(H):\n            at = int(lengths.repeat(H)[b * H + h])"
          "\n            K_cache[b, h, at:at + N_new] = K_new[b, h]"),
    both("rest_cleared", "the places behind the new tokens were set to 0", "what is to stay as it is",
         "K_cache[b, :, n:] = 0\n        K_cache[b, :, n:n + N_new] = K_new[b]"),
    both("copied", "the new tokens went into a copy of the cache", "how the caches are written to",
         "K_cache = K_cache.clone()\n        K_cache[b, :, n:n + N_new] = K_new[b]"),
    Mistake("V_too_far", "the values were written N_new places too far", "the places of the values", (V_PUT,
             "n += N_new\n        room = V_cache.shape[2] - n"
             "\n        V_cache[b, :, n:n + N_new] = V_new[b, :, :room]")),
    Mistake("lengths_stayed", "the lengths came back as they were", "how many keys each sequence has now", (END,
             "return lengths.clone()")),
]
hints = ["With lengths [3, 1] and one new token each, which places are filled afterwards?",
         "Take one sequence at a time. Its new tokens lie side by side, in all heads at the same places.",
         "A slice of the cache that stands on the left of = is changed in place; a reshape or an index makes a copy."]
