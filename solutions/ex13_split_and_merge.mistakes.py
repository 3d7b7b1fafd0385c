"""Cases and mistakes of ex13_split_and_merge."""

from dataclasses import replace

import torch

from flashlab import oracle
from flashlab.memory import KiB
from flashlab_course.check.cases import HUGE, attention_case
from flashlab_course.check.form import Exercise, Mistake, Output


def chunks_of(N_k, cuts):
    return [slice(a, b) for a, b in zip((0, *cuts), (*cuts, N_k), strict=True)]


def call(fn, Q, K, V, cuts, B_c, scale):
    chunks = chunks_of(len(K), cuts)
    O, L = torch.empty(len(Q), V.shape[-1], dtype=Q.dtype), torch.empty(len(Q), dtype=Q.dtype)
    O_part = torch.full((len(chunks) * len(Q), V.shape[-1]), float("nan"), dtype=Q.dtype)
    L_part = torch.full((len(chunks) * len(Q),), float("nan"), dtype=Q.dtype)
    fn(Q, K, V, O_part, L_part, O, L, chunks, B_c, scale)
    return O, L, O_part, L_part


def truth(Q, K, V, cuts, B_c, scale):
    """Of all keys, and of each chunk's."""
    parts = [oracle.attention(Q, K[chunk], V[chunk], scale=scale) for chunk in chunks_of(len(K), cuts)]
    return *oracle.attention(Q, K, V, scale=scale), *(torch.cat(part) for part in zip(*parts, strict=True))


def case(name, N_q, N_k, d=3, d_v=None, *, cuts, B_c, features=(), **more):
    """cuts: the keys at which the second and each later chunk begins."""
    base = attention_case(name, N_q, N_k, d, d_v, B_c=B_c, cuts=tuple(cuts), **more)
    sizes = [chunk.stop - chunk.start for chunk in chunks_of(N_k, cuts)]
    holds = {"more than one chunk": len(sizes) > 1, "more than two chunks": len(sizes) > 2, "an empty chunk": 0 in sizes,
             "chunks of different size": len(set(sizes)) > 1, "a chunk of more than one key block": max(sizes) > B_c}
    return replace(base, features=base.features | {f for f, true in holds.items() if true} | set(features),
                   sizes=base.sizes | {"chunks": "+".join(map(str, sizes))})


WEIGHT, ADD = "torch.exp(L_s[s] - L_all)", "O_all + weight[:, None] * O_s"
PART_O, PART_L = "store(O_part, part, O_i / l_safe[:, None])", "store(L_part, part, m_i + torch.log(l_i))"
LOAD_O, ALL = "load(O_part, slice(s * N_q, (s + 1) * N_q))", "torch.logsumexp(L_s, dim=0)"
STORE_L = "store(L, slice(None), L_all)"

EXERCISE = Exercise(
    function="split_and_merge",
    outputs=(Output("O", ("query", "column")), Output("L", ("query",)), Output("O_part", ("row", "column")), Output("L_part", ("row",))),
    call=call,
    truth=truth,
    sram_bytes=lambda Q, **rest: 64 * KiB,
    fewer=lambda K, cuts, **rest: 0 in (chunk.stop - chunk.start for chunk in chunks_of(len(K), cuts)),     # Q, for an empty chunk
    most=lambda Q, K, V, cuts, B_c, scale: {"K": B_c * K.shape[1], "V": B_c * V.shape[1]},
    cases=[
        case("one chunk", 1, 3, cuts=(), B_c=3, scale=1.0),
        case("two chunks", 1, 6, cuts=(3,), B_c=3, scale=1.0, seed=1),
        case("two chunks, three queries", 3, 6, cuts=(3,), B_c=3, scale=0.5, seed=2),
        case("two key blocks a chunk", 1, 8, cuts=(4,), B_c=2, scale=0.7, seed=3),
        case("chunks of different size", 2, 9, cuts=(2, 7), B_c=2, scale=-0.6, seed=4),
        case("d_v ≠ d", 3, 8, 4, 2, cuts=(3, 5), B_c=2, scale=0.5, seed=5),
        case("as many queries as chunks", 3, 9, cuts=(3, 6), B_c=3, scale=0.5, seed=6),
        case("an empty last chunk", 2, 5, cuts=(3, 5), B_c=2, scale=0.5, seed=7),
        case("an empty first chunk", 2, 5, cuts=(0, 3), B_c=2, scale=0.5, seed=8),
        case("one key a chunk", 1, 4, cuts=(1, 2, 3), B_c=1, scale=0.5, seed=9),
        case("a scale of 0", 2, 6, cuts=(2,), B_c=2, scale=0.0, seed=10),
        case("scores in the hundreds", 2, 8, 4, cuts=(3, 6), B_c=2, scale=-0.5, large=True, seed=11),
        case("scores up to 500", 2, 6, 4, cuts=(3,), B_c=3, scale=0.5, factor=HUGE, seed=12),
        case("scores far below 0", 2, 6, 4, cuts=(2, 4), B_c=2, scale=0.5, below=True, seed=13),
        case("an empty chunk, scores far below 0", 2, 5, 4, cuts=(0, 3), B_c=2, scale=0.5, below=True, seed=15),
        case("one key in all", 1, 1, 4, cuts=(), B_c=2, scale=0.5, exactly=True, seed=14),
    ],
    mistakes=[
        Mistake("averaged", "the chunks were averaged, as if each had the same weight", "the weight of a chunk: exp(L_s − L)", (ADD, "O_all + O_s / splits")),
        Mistake("added", "the chunks were added without weights", "O_part holds averages: they have to be weighted", (ADD, "O_all + O_s")),
        Mistake("weighted_by_L", "a chunk's weight was its share of L itself, without an exponential",
                "the weight: L is a logarithm, exp(L) is the sum of the chunk's exponentials",
                (WEIGHT, "torch.where(L_s[s] == -inf, 0.0, L_s[s] / L_s.masked_fill(L_s == -inf, 0).sum(0))"),
                also=[[(WEIGHT, "L_s[s] / L_s.sum(0)")]]),
        Mistake("not_normalised", "the weights were exp(L_s), which do not sum to 1", "the weight: exp(L_s − L), with L of all the keys",
                (WEIGHT, "torch.exp(L_s[s])")),
        Mistake("maximum_for_L", "the weights were exp(L_s − max L_s), which do not sum to 1",
                "the weight: subtract L of all the keys, or divide by the sum at the end", (WEIGHT, "torch.exp(L_s[s] - L_s.amax(0))")),
        Mistake("unshifted", "exp(L_s) was taken as it is: it overflows for large scores, and is 0 for those far below 0",
                "the exponents: subtract the largest first", (ALL, "torch.log(torch.exp(L_s).sum(0))"),
                also=[[(WEIGHT, "torch.exp(L_s[s]) / torch.exp(L_s).sum(0)"), (ALL, "torch.log(torch.exp(L_s).sum(0))")]]),
        Mistake("sign", "the exponent was L − L_s, with the wrong sign", "the exponent: no weight exceeds 1", (WEIGHT, "torch.exp(L_all - L_s[s])"),
                also=[[(WEIGHT, "torch.exp(L_all - L_s[s]).masked_fill(L_s[s] == -inf, 0)")]]),
        Mistake("chunks_and_queries_swapped", "L_part was read as N_q rows of one number for each chunk; it is a row of N_q numbers for each chunk",
                "where chunk s has its rows: from s · N_q on", (".view(splits, N_q)", ".view(N_q, splits).T")),
        Mistake("queries_before_chunks", "the merge took the rows of O_part and L_part for those of one query after the other, (N_q, splits)",
                "the rows of O_part and L_part: chunk s has rows s · N_q to (s + 1) · N_q, one for each query", (
                 "L_s = load(L_part, slice(None)).view(splits, N_q)",
                 "L_s = load(L_part, slice(None)).view(N_q, splits).T\n    O_parts = load(O_part, slice(None)).view(N_q, splits, O.shape[-1])"),
                ("O_s = load(O_part, slice(s * N_q, (s + 1) * N_q))", "O_s = O_parts[:, s]")),
        Mistake("L_not_log", "the L stored was a sum, without its logarithm", "the L that is stored is a logarithm",
                (STORE_L, "store(L, slice(None), torch.exp(L_all))")),
        Mistake("no_rescale_O", "O_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "O_i after a key block: exp(m_i − m_new) · O_i + P_ij V_j, with m_i from before the block",
                ("alpha[:, None] * O_i + P_ij @ V_j", "O_i + P_ij @ V_j")),
        Mistake("no_rescale_l", "l_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "l_i after a key block: exp(m_i − m_new) · l_i + the row sums of P_ij, with m_i from before the block",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("m_starts_at_0", "the maximum started at 0, or at another number that scores can fall below, or was kept from falling below it",
                "m_i: −inf before the first key block, then the largest score so far, also where that is far below 0",
                ("torch.full((len(Q),), -inf, dtype=Q.dtype)", "torch.zeros(len(Q), dtype=Q.dtype)"),
                also=[
                      *([("torch.full((len(Q),), -inf, dtype=Q.dtype)", f"torch.full((len(Q),), {x}, dtype=Q.dtype)")] for x in ("-1.0", "-10.0", "-50.0", "-100.0"))]),
        Mistake("maximum_before_scale",
                "the maximum was taken before the scores were scaled, and is not the largest of the scaled ones: exp overflows or underflows",
                "the order: first scale, then the maximum", ("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (Q_i @ K_j.T).amax(-1))"),
                also=[[("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (Q_i @ K_j.T).amax(-1) * scale)")]]),
        Mistake("empty_chunk_stores_nothing", "the program of an empty chunk stored nothing, and whatever lay in O_part and L_part was merged",
                "an empty chunk: O_part is 0 there, and L_part −inf",
                ("Q_i = load(Q, slice(None))", "if not blocks:\n        return\n    Q_i = load(Q, slice(None))")),
        ],
    hints=[
        "The first kernel: chapter 06's loop over `blocks`, one division, O to O_part[part] and m_i + log(l_i) to L_part[part].",
        "exp(L_s) is the sum of chunk s's exponentials. Add them over the chunks, take the logarithm: L of all the keys. torch.logsumexp does that without overflow.",
        "The weight of chunk s is exp(L_s − L), one for each query. O is the sum of weight · O_s.",
        "Only cases with an empty chunk fail: its l_i is 0. What is 0 / 0, and what is 0 · NaN?",
        "Only with more than one query: how do splits · N_q rows lie in L_part?",
        "Only large scores fail: exp(L) overflows at 89, exp of a difference does not.",
    ],
)
