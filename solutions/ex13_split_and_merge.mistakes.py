"""Cases and mistakes of ex13_split_and_merge."""

from dataclasses import replace

import torch

from flashlab import oracle
from flashlab.memory import KiB
from flashlab_course.check.cases import EPSILONS, HUGE, attention_case, epsilon
from flashlab_course.check.form import Exercise, Hint, Mistake, Output


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
                also=[[(WEIGHT, "L_s[s] / L_s.sum(0)")], [(WEIGHT, "L_s[s] / L_all")]]),
        Mistake("not_normalised", "the weights were exp(L_s), which do not sum to 1", "the weight: exp(L_s − L), with L of all the keys",
                (WEIGHT, "torch.exp(L_s[s])")),
        Mistake("maximum_for_L", "the weights were exp(L_s − max L_s), which do not sum to 1",
                "the weight: subtract L of all the keys, or divide by the sum at the end", (WEIGHT, "torch.exp(L_s[s] - L_s.amax(0))")),
        Mistake("unshifted", "exp(L_s) was taken as it is: it overflows for large scores, and is 0 for those far below 0",
                "the exponents: subtract the largest first", (ALL, "torch.log(torch.exp(L_s).sum(0))"),
                also=[[(WEIGHT, "torch.exp(L_s[s]) / torch.exp(L_s).sum(0)"), (ALL, "torch.log(torch.exp(L_s).sum(0))")]]),
        Mistake("sign", "the exponent was L − L_s, with the wrong sign", "the exponent: no weight exceeds 1", (WEIGHT, "torch.exp(L_all - L_s[s])"),
                also=[[(WEIGHT, "torch.exp(L_all - L_s[s]).masked_fill(L_s[s] == -inf, 0)")]]),
        Mistake("base_2", "powers of 2 were taken: L is a natural logarithm", "the weight: exp(L_s − L), a power of e", (WEIGHT, "torch.exp2(L_s[s] - L_all)")),
        Mistake("best_chunk_alone", "each query took the chunk with the largest L alone", "all chunks have a weight",
                (WEIGHT, "(L_s[s] == L_s.amax(0)).to(O.dtype)")),
        Mistake("last_chunk_alone", "O held the last chunk's share alone", "O: the sum of weight · O_s over all chunks", (ADD, "weight[:, None] * O_s")),
        Mistake("last_chunk_unweighted", "O was the last chunk's own, without the others and without a weight", "O: the sum of weight · O_s over all chunks",
                (ADD, "O_s")),
        Mistake("last_chunk_missing", "the last chunk was left out of O", "how many chunks there are: `splits`", ("range(splits)", "range(splits - 1)")),
        Mistake("first_chunk_missing", "the first chunk was left out of O", "how many chunks there are: from 0 to splits − 1",
                ("range(splits)", "range(1, splits)")),
        Mistake("one_weight", "the first query's weight was taken for all queries", "the weight: one for each query", (ADD, "O_all + weight[0] * O_s")),
        Mistake("chunks_and_queries_swapped", "L_part was read as N_q rows of one number for each chunk; it is a row of N_q numbers for each chunk",
                "where chunk s has its rows: from s · N_q on", (".view(splits, N_q)", ".view(N_q, splits).T")),
        Mistake("queries_before_chunks", "the merge took the rows of O_part and L_part for those of one query after the other, (N_q, splits)",
                "the rows of O_part and L_part: chunk s has rows s · N_q to (s + 1) · N_q, one for each query", (
                 "L_s = load(L_part, slice(None)).view(splits, N_q)",
                 "L_s = load(L_part, slice(None)).view(N_q, splits).T\n    O_parts = load(O_part, slice(None)).view(N_q, splits, O.shape[-1])"),
                ("O_s = load(O_part, slice(s * N_q, (s + 1) * N_q))", "O_s = O_parts[:, s]")),
        Mistake("place_in_the_merge", "the merge read chunk s of O_part from row s on, not from row s · N_q on", "where chunk s has its rows: from s · N_q on",
                (LOAD_O, "load(O_part, slice(s, s + N_q))")),
        Mistake("same_chunk_again", "the merge read the first chunk's O for every chunk", "where chunk s has its rows of O_part: from s · N_q on",
                (LOAD_O, "load(O_part, slice(0, N_q))")),
        Mistake("L_is_max", "the L stored was the largest of the chunks' L", "L of all the keys: the logarithm of the sum of all exp(L_s)",
                (STORE_L, "store(L, slice(None), L_s.amax(0))")),
        Mistake("L_is_sum", "the L stored was the sum of the chunks' L", "sums of exponentials are added, not their logarithms",
                (STORE_L, "store(L, slice(None), L_s.sum(0))")),
        Mistake("L_is_mean", "the L stored was the mean of the chunks' L", "L of all the keys: the logarithm of the sum of all exp(L_s)",
                (STORE_L, "store(L, slice(None), L_s.mean(0))")),
        Mistake("L_of_last_chunk", "the L stored was the last chunk's", "the L that is stored: that of all the keys", (STORE_L, "store(L, slice(None), L_s[-1])")),
        Mistake("L_not_log", "the L stored was a sum, without its logarithm", "the L that is stored is a logarithm",
                (STORE_L, "store(L, slice(None), torch.exp(L_all))")),
        Mistake("divided_again", "O was divided by exp(L) once more", "O_part is divided already: its weights sum to 1",
                ("store(O, slice(None), O_all)", "store(O, slice(None), O_all / torch.exp(L_all)[:, None])")),
        Mistake("parts_undivided", "O_part was stored undivided, but the merge weighs finished outputs",
                "O_part: what a chunk alone gives, divided by its own sum l_i", (PART_O, "store(O_part, part, O_i)")),
        Mistake("empty_chunk_not_zero", "O_part was not 0 where a chunk is empty", "an empty chunk: O_part is 0 there",
                ("torch.zeros(len(Q), V.shape[-1], dtype=Q.dtype)", "torch.ones(len(Q), V.shape[-1], dtype=Q.dtype)")),
        Mistake("part_L_without_m", "L_part was log(l_i): the maximum was not added back", "L_part: m_i + log(l_i)",
                (PART_L, "store(L_part, part, torch.log(l_i))")),
        Mistake("part_L_is_m", "L_part was the maximum alone", "L_part: m_i + log(l_i)", (PART_L, "store(L_part, part, m_i)")),
        Mistake("part_L_is_l", "L_part was l_i itself, the sum without its logarithm and the maximum", "L_part: m_i + log(l_i)",
                (PART_L, "store(L_part, part, l_i)")),
        Mistake("empty_chunk_divided", "O of an empty chunk was 0 / 0, which is NaN, and a weight of 0 does not remove it",
                "the division by l_i, where l_i is 0: O_part of an empty chunk is 0", ("O_i / l_safe[:, None]", "O_i / l_i[:, None]")),
        Mistake("one_place_for_all", "each program stored to the first rows of O_part and L_part, over the others' results", "the rows of a store: part",
                (PART_O, PART_O.replace("part, O_i", "slice(0, len(Q)), O_i")), (PART_L, PART_L.replace("part, m_i", "slice(0, len(Q)), m_i"))),
        Mistake("all_keys_each", "each program walked all the keys, not those of its chunk", "the keys of a program: the slices in `blocks`",
                ("for cols in blocks:", "for cols in [slice(n, min(n + B_c, len(K))) for n in range(0, len(K), B_c)]:")),
        Mistake("first_keys_each", "each program walked as many keys as its chunk has, but from key 0 on",
                "the keys of a program: the slices in `blocks`, as they are",
                ("for cols in blocks:", "for cols in [slice(n.start - blocks[0].start, n.stop - blocks[0].start) for n in blocks]:")),
        Mistake("one_block_a_chunk", "only the first key block of each chunk counted", "the keys of a program: all slices in `blocks`",
                ("for cols in blocks:", "for cols in blocks[:1]:")),
        Mistake("last_block_missing", "the last key block of each chunk was left out", "the keys of a program: all slices in `blocks`",
                ("for cols in blocks:", "for cols in blocks[:-1]:")),
        Mistake("no_rescale_O", "O_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "O_i after a key block: exp(m_i − m_new) · O_i + P_ij V_j, with m_i from before the block",
                ("alpha[:, None] * O_i + P_ij @ V_j", "O_i + P_ij @ V_j")),
        Mistake("no_rescale_l", "l_i kept the unit of the old maximum when it grew: exp(m_i − m_new) was left out, or was 1 because m_i was no longer the old one",
                "l_i after a key block: exp(m_i − m_new) · l_i + the row sums of P_ij, with m_i from before the block",
                ("alpha * l_i + P_ij.sum(-1)", "l_i + P_ij.sum(-1)")),
        Mistake("m_not_carried",
                "in O_part the last key block of a chunk alone remained: m_i was still −inf when it came, or what was there before was overwritten",
                "what a key block leaves behind for the next: m_i, l_i and O_i, of all keys so far", ("m_i = m_new", ""),
                also=[[("m_i = m_new", ""), ("m_i + torch.log(l_i)", "m_new + torch.log(l_i)")],
                      [("alpha * l_i + P_ij.sum(-1)", "P_ij.sum(-1)"), ("alpha[:, None] * O_i + P_ij @ V_j", "P_ij @ V_j")]]),
        Mistake("scale_missing", "the scores were not multiplied by scale", "the scores: Q_i K_jᵀ · scale", ("Q_i @ K_j.T * scale", "Q_i @ K_j.T")),
        Mistake("scale_twice", "the scores were multiplied by scale twice", "each place where scale enters the scores: once",
                ("Q_i @ K_j.T * scale", "(Q_i * scale) @ K_j.T * scale")),
        epsilon(("O_i / l_safe[:, None]", "O_i / (l_safe + ε)[:, None]"), sizes=EPSILONS[:3]),
        epsilon((ALL, "torch.logsumexp(L_s, dim=0) + ε"), sizes=EPSILONS[:3], name="epsilon_in_L", what="a small number was added to L",
                look="L: the logarithm of the sum, with nothing added"),
        Mistake("m_starts_at_0", "the maximum started at 0, or at another number that scores can fall below, or was kept from falling below it",
                "m_i: −inf before the first key block, then the largest score so far, also where that is far below 0",
                ("torch.full((len(Q),), -inf, dtype=Q.dtype)", "torch.zeros(len(Q), dtype=Q.dtype)"),
                also=[
                      *([("torch.full((len(Q),), -inf, dtype=Q.dtype)", f"torch.full((len(Q),), {x}, dtype=Q.dtype)")] for x in ("-1.0", "-10.0", "-50.0", "-100.0")),
                      [("torch.full((len(Q),), -inf, dtype=Q.dtype)", "torch.zeros(len(Q), dtype=Q.dtype)"),
                       ("l_i.masked_fill(l_i == 0, 1)", "l_i if blocks else torch.ones_like(l_i)")]]),
        Mistake("maximum_before_scale",
                "the maximum was taken before the scores were scaled, and is not the largest of the scaled ones: exp overflows or underflows",
                "the order: first scale, then the maximum", ("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (Q_i @ K_j.T).amax(-1))"),
                also=[[("torch.maximum(m_i, S_ij.amax(-1))", "torch.maximum(m_i, (Q_i @ K_j.T).amax(-1) * scale)")]]),
        Mistake("O_as_wide_as_Q", "O was made with d columns, as many as Q has", "the shape of O: it has V's columns, d_v",
                ("torch.zeros(len(Q), V.shape[-1], dtype=Q.dtype)", "torch.zeros_like(Q)")),
        Mistake("empty_chunk_stores_nothing", "the program of an empty chunk stored nothing, and whatever lay in O_part and L_part was merged",
                "an empty chunk: O_part is 0 there, and L_part −inf",
                ("Q_i = load(Q, slice(None))", "if not blocks:\n        return\n    Q_i = load(Q, slice(None))")),
        Mistake("merge_starts_at_0", "the maximum of the merge started at 0, or did not fall below it: the weights of rows far below 0 underflow",
                "the merge: the largest L_part, also where it is negative",
                (f"L_all = {ALL}", "m = L_s.amax(0).clamp(min=0)\n    L_all = m + torch.log(torch.exp(L_s - m).sum(0))"),
                (WEIGHT, "torch.exp(L_s[s] - m) / torch.exp(L_s - m).sum(0)")),
    ],
    hints=[
        "The first kernel: chapter 06's loop over `blocks`, one division, O to O_part[part] and m_i + log(l_i) to L_part[part].",
        "exp(L_s) is the sum of chunk s's exponentials. Add them over the chunks, take the logarithm: L of all the keys. torch.logsumexp does that without overflow.",
        "The weight of chunk s is exp(L_s − L), one for each query. O is the sum of weight · O_s.",
        Hint("Only cases with an empty chunk fail: its l_i is 0. What is 0 / 0, and what is 0 · NaN?", "an empty chunk"),
        Hint("Only with more than one query: how do splits · N_q rows lie in L_part?", "more than one query"),
        Hint("Only large scores fail: exp(L) overflows at 89, exp of a difference does not.", "large scores"),
    ],
)
