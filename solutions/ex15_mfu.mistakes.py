import torch

from flashlab_course.check.cases import Mistake, case_of
from flashlab_course.check.form import Breach

KV, HEAD, PAIRS = "2 * width * kv_width", "+ width * vocabulary", "batch * N * N / 2"
BY_PAIRS, ALL = "layers * 2 * 2 * width * pairs", "3 * products"

outputs = [("weights",), ("flops",), ("share",)]
off_limits = ("gpt",)
features = {"grouped heads": lambda width, kv_width: kv_width < width, "more than one text": lambda batch: batch > 1}
case = case_of(lambda layers, width, kv_width, vocabulary, batch, N, seconds, peak: locals())


def call(fn, **inputs):
    """The three numbers as float64 tensors: written in another order, a product of floats differs in its last bit."""
    found = fn(**inputs)
    three = isinstance(found, (tuple, list)) and len(found) == 3
    if not three or any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in found):
        raise Breach("wrong_type", f"it returned {found!r}; (weights, flops, share), three numbers, was expected")
    return tuple(torch.tensor(float(value), dtype=torch.float64) for value in found)


cases = [case("one layer, one short text", 1, 5, 5, 3, 1, 4, 1.5, 1000.0),
         case("three layers", 3, 5, 5, 7, 1, 4, 1.5, 1000.0),
         case("grouped heads", 1, 8, 2, 3, 1, 4, 0.5, 4000.0),
         case("three texts", 1, 5, 5, 7, 3, 4, 0.5, 9000.0),
         case("an odd number of tokens", 3, 6, 2, 7, 4, 5, 1.5, 50_000.0),
         case("of the size of a real one", 12, 1024, 256, 256, 8, 2048, 0.08, 8e14)]
mistakes = [
    Mistake("embedding_counted", "the embedding was counted as well", "weights: whether a lookup multiplies anything",
            (HEAD, "+ 2 * width * vocabulary")),
    Mistake("head_each_layer", "the head was counted once in each layer", "weights: how many heads a model has", (HEAD,
             "+ layers * width * vocabulary")),
    Mistake("half_an_MLP", "one of the MLP's two matrices was left out", "weights: the matrices of the MLP",
            ("2 * width * 4 * width", "width * 4 * width")),
    Mistake("backward_forgotten", "only the forward pass was counted", "flops: which passes a step has",
            (ALL, "products")),
    Mistake("backward_as_forward", "the backward pass was counted like one forward pass",
            "flops: how many gradients a product has", (ALL, "2 * products")),
    Mistake("attention_backward_once", "the attention's backward pass was counted like its forward pass",
            "flops: how many gradients QKᵀ has", (ALL, f"3 * products - {BY_PAIRS}")),
    Mistake("recomputed", "the scores that the backward pass computes again were counted",
            "flops: what is the model's own work", (ALL, "3 * products + layers * 2 * width * pairs")),
    Mistake("mask_ignored", "pairs that the mask hides were counted", "flops: the pairs of query and key", (PAIRS,
             "batch * N * N")),
    Mistake("diagonal_counted", "N · (N + 1) / 2 pairs were counted", "flops: the share of the pairs that counts",
            (PAIRS, "batch * N * (N + 1) / 2")),
    Mistake("pairs_of_kv_width", "the attention was counted with kv_width columns",
            "flops: which heads take part in QKᵀ", (BY_PAIRS, "layers * 2 * 2 * kv_width * pairs")),
    Mistake("pairs_of_one_text", "the attention of a single text was counted", "flops: the pairs in a batch", (PAIRS,
             "N * N / 2")),
    Mistake("pairs_across_texts", "tokens were paired with those of other texts", "flops: the pairs in a batch", (PAIRS,
             "(batch * N) ** 2 / 2")),
]
hints = ["One layer has six matrices: Q's, K's, V's, the output's and two of the MLP. The head comes once.",
         "Forward, by weights: 2 FLOPs for each weight and token. By pairs: two products, each 2 · width for a pair.",
         "A product X W has two gradients, one for X and one for W, each a product of the same size."]
