"""What is special about a case, in words that end a sentence: "wrong in every case with ..."."""

import inspect

import torch

# {feature: whether the arguments of a case have it}, the most telling first; a case without such an argument has not
GENERAL = {
    "queries that see no key": lambda causal, N_q, N_k: causal and N_q > N_k,
    "a causal mask and fewer queries than keys": lambda causal, N_q, N_k: causal and N_q < N_k,
    "a causal mask": lambda causal: causal,
    "a short last key block": lambda N_k, B_c: N_k > B_c and N_k % B_c,
    "more than one key block": lambda N_k, B_c: N_k > B_c,
    "a short last query block": lambda N_q, B_r: N_q > B_r and N_q % B_r,
    "more than one query block": lambda N_q, B_r: N_q > B_r,
    "only scores far below 0": lambda below: below,
    "large scores": lambda large: large,
    "16-bit inputs": lambda dtype: dtype in (torch.float16, torch.bfloat16),
    "float64 inputs": lambda dtype: dtype == torch.float64,
    "d_v ≠ d": lambda d, d_v: d_v != d,
}


def features_of(given, own):
    """The features that a case with these arguments has. own: those of its exercise, as GENERAL."""
    return frozenset(text for text, holds in (GENERAL | own).items()
                     if (names := inspect.signature(holds).parameters) and names.keys() <= given.keys()
                     and holds(**{name: given[name] for name in names}))
