# kind: right
# what: everything by name, product by product: forward FLOPs of one text, times batch, times 3
# shows: whole numbers throughout (4 * width * N * N is even), only share is a float
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
    # weights
    w_query = width * width
    w_key = width * kv_width
    w_value = width * kv_width
    w_output = width * width
    w_mlp_up = width * (4 * width)
    w_mlp_down = (4 * width) * width
    w_layer = w_query + w_key + w_value + w_output + w_mlp_up + w_mlp_down
    w_head = width * vocabulary
    weights = layers * w_layer + w_head

    # one text, forward
    by_weights = 2 * weights * N
    by_scores = 2 * width * N * N
    by_outputs = 2 * width * N * N
    by_attention = layers * (by_scores + by_outputs) // 2       # causal: half of the pairs
    forward = by_weights + by_attention

    # the backward pass of C = A B is dA = dC Bᵀ and dB = Aᵀ dC
    backward = 2 * forward
    flops = batch * (forward + backward)

    return weights, flops, flops / seconds / peak
