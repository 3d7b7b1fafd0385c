"""Cases and mistakes of ex15_mfu."""

import torch

from flashlab_course.check.form import Breach, Case, Exercise, Mistake, Output

NAMES = "weights", "flops", "share"
LAYER, HEAD, PAIRS = "2 * width * width + 2 * width * kv_width + 2 * width * 4 * width", "+ width * vocabulary", "batch * N * N / 2"
BY_WEIGHTS, BY_PAIRS, ALL, SHARE = "2 * weights * batch * N", "layers * 2 * 2 * width * pairs", "3 * products", "flops / seconds / peak"


def call(fn, **inputs):
    """The three numbers as float64 tensors: written in another order, a product of floats differs in its last bit."""
    found = fn(**inputs)
    if not isinstance(found, (tuple, list)) or len(found) != len(NAMES):
        raise Breach("wrong_type", f"it returned {found!r}; (weights, flops, share), three numbers, was expected")
    for name, value in zip(NAMES, found, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Breach("wrong_type", f"{name} is {value!r}; a Python number was expected")
    return tuple(torch.tensor(float(value), dtype=torch.float64) for value in found)


def truth(layers, width, kv_width, vocabulary, batch, N, seconds, peak):
    """Every matrix product of a step counted one by one, as (rows, columns, inner size)."""
    T = batch * N
    by_weights = [(T, columns, inner) for inner, columns in
                  layers * [(width, width), (width, kv_width), (width, kv_width), (width, width), (width, 4 * width), (4 * width, width)]
                  + [(width, vocabulary)]]
    forward = sum(2 * m * n * k for m, n, k in by_weights) + layers * batch * 2 * (2 * N * N * width) / 2
    found = sum(n * k for _, n, k in by_weights), 3 * forward, 3 * forward / (seconds * peak)
    return tuple(torch.tensor(float(value), dtype=torch.float64) for value in found)


def case(name, layers, width, kv_width, vocabulary, batch, N, seconds, peak):
    inputs = {"layers": layers, "width": width, "kv_width": kv_width, "vocabulary": vocabulary, "batch": batch, "N": N,
              "seconds": seconds, "peak": peak}
    holds = {"more than one layer": layers > 1, "grouped heads": kv_width < width, "more than one text": batch > 1,
             "an odd number of tokens": N % 2 == 1}
    return Case(name, lambda: dict(inputs), frozenset(f for f, true in holds.items() if true), inputs)


EXERCISE = Exercise(
    function="utilisation",
    outputs=tuple(Output(name) for name in NAMES),
    call=call,
    truth=truth,
    off_limits=("gpt",),
    cases=[
        case("one layer, one short text", 1, 4, 4, 3, 1, 2, 2.0, 1000.0),
        case("two layers", 2, 4, 4, 3, 1, 2, 2.0, 1000.0),
        case("grouped heads", 1, 8, 2, 3, 1, 4, 0.5, 4000.0),
        case("three texts", 1, 4, 4, 5, 3, 2, 0.5, 9000.0),
        case("an odd number of tokens", 3, 6, 2, 7, 2, 5, 1.5, 50_000.0),
        case("a long text", 2, 8, 4, 11, 1, 500, 0.25, 1e9),
        case("of the size of a real one", 12, 1024, 256, 256, 8, 2048, 0.08, 8e14),
    ],
    mistakes=[
        Mistake("embedding_counted", "the embedding was counted too: its row is looked up, nothing is multiplied",
                "weights: the vocabulary appears once, in the head", (HEAD, "+ 2 * width * vocabulary")),
        Mistake("head_forgotten", "the head was left out", "weights: the last matrix, width × vocabulary", (HEAD, "")),
        Mistake("head_each_layer", "the head was counted once in each layer", "weights: there is one head behind all layers",
                (HEAD, "+ layers * width * vocabulary")),
        Mistake("kv_as_wide_as_Q", "K and V were counted as wide as Q", "weights: K and V are width × kv_width", ("2 * width * kv_width", "2 * width * width")),
        Mistake("V_forgotten", "K and V were counted as one matrix", "weights: one matrix for K, one for V", ("2 * width * kv_width", "width * kv_width")),
        Mistake("output_forgotten", "one of the two width × width matrices was left out, Q's or the output's",
                "weights: Q's matrix and the output's are width × width each", ("2 * width * width", "width * width")),
        Mistake("half_an_MLP", "half of the MLP was counted, one matrix of width × 4 · width", "weights: the MLP goes up to 4 · width and down again",
                ("2 * width * 4 * width", "width * 4 * width")),
        Mistake("backward_as_forward", "the backward pass was counted like a forward one", "flops: a product has two gradients, each a product of its own",
                (ALL, "2 * products")),
        Mistake("recomputed", "what the backward pass computes again was counted", "flops: the model's work, forward once and backward twice",
                (ALL, "4 * products"), also=[[(ALL, "3 * products + layers * 2 * width * pairs")]]),
        Mistake("mask_ignored", "pairs that the mask hides were counted", "flops of the attention: half of the N · N pairs", (PAIRS, "batch * N * N")),
        Mistake("diagonal_counted", "the visible pairs were counted exactly, N · (N + 1) / 2, each query's own key as a whole",
                "flops of the attention: half of the N · N pairs, by convention", (PAIRS, "batch * N * (N + 1) / 2")),
        Mistake("attention_backward_once", "the attention's backward pass was counted like a forward one: one gradient for each of its products",
                "flops of the attention: a product has two gradients, here too", (ALL, "3 * 2 * weights * batch * N + 2 * layers * 2 * 2 * width * pairs")),
        Mistake("pairs_of_kv_width", "the attention was counted with kv_width columns", "flops of the attention: every query head meets its keys, shared or not",
                (BY_PAIRS, "layers * 2 * 2 * kv_width * pairs")),
        Mistake("pairs_of_one_text", "the attention of one text was counted", "flops of the attention: in each text of the batch", (PAIRS, "N * N / 2")),
        Mistake("pairs_across_texts", "tokens were paired with those of other texts", "flops of the attention: N · N pairs in each of the batch texts",
                (PAIRS, "(batch * N) ** 2 / 2")),
        ],
    hints=[
        "weights: layers · (2 · width² + 2 · width · kv_width + 8 · width²) + width · vocabulary.",
        "Forward, weights: 2 · weights · batch · N. Forward, attention: layers · 2 products · 2 · width · pairs, with batch · N² / 2 pairs.",
        "flops is three times the forward pass; share = flops / seconds / peak.",
        "K and V have kv_width columns where heads share them, but every query head is multiplied with them: the attention's own "
             "products keep `width`.",
        "A text's tokens meet those of the same text: batch · N · N pairs, before the mask.",
    ],
)
