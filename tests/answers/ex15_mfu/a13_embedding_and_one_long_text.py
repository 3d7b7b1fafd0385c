# kind: two mistakes
# what: (1) the embedding's table counts as weights, though its row is looked up; (2) pairs from all tokens of the batch, (batch · N)^2 / 2, as if it were one text; it is batch · N^2 / 2
# shows: (1) weights, flops, share on all inputs; (2) flops and share for batch > 1

"""ex15_mfu · how much of a GPU a model uses

Chapter 15 · difficulty 2 of 5 · 15 minutes

A training step has taken `seconds`. How much of what the GPU can do was the model's own work? Three numbers say so:

    weights    those that a token is multiplied with. In each layer: Q is width × width, K and V are width × kv_width each, the
               output's matrix is width × width, the MLP has two of width × 4·width. Once: the head, width × vocabulary.
               The embedding's row is looked up, nothing is multiplied; norms are too small to count
    flops      of the whole step, forward and backward, for batch texts of N tokens. A multiplication and an addition are 2 FLOPs.
               Weights: 2 for each weight and token in the forward pass. Attention: QKᵀ and PV, each 2 · width FLOPs for each pair
               of query and key in each layer; the mask is causal, and half of the N · N pairs count. The backward pass of any
               product is two products of the same size
    share      flops a second over peak, what the GPU can do a second: the model FLOPs utilisation, MFU

What is computed a second time does not count, be it in FlashAttention's backward pass or elsewhere.
Return the three as Python numbers; flops may be a float. No size is 0.

Not allowed: asking flashlab_course.gpt, the finished function from solutions/.

Hint: all that is multiplied is counted three times, once forward and twice backward.
"""


def utilisation(layers, width, kv_width, vocabulary, batch, N, seconds, peak):
    """(weights, flops, share)"""
    weights = vocabulary * width                         # token embedding
    for _ in range(layers):
        weights += width * width                         # Q
        weights += 2 * width * kv_width                  # K, V
        weights += width * width                         # output
        weights += 2 * (width * 4 * width)               # MLP
    weights += width * vocabulary                        # head

    tokens = batch * N
    flops = 6 * weights * tokens
    flops += 3 * layers * 4 * width * tokens**2 / 2
    return weights, flops, flops / (seconds * peak)
