# kind: right
# what: a list of the matrices (rows, columns, how many), forward FLOPs from it, and three times that for the step; whole numbers throughout
# shows: 2 · (2 · width) FLOPs a pair, N · N / 2 pairs, times layers and batch: 2 · width · N · N each, so nothing has to be rounded

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
    matrices = [
        (width, width, layers),             # Q
        (width, kv_width, layers),          # K
        (width, kv_width, layers),          # V
        (width, width, layers),             # the output's
        (width, 4 * width, layers),         # up
        (4 * width, width, layers),         # down
        (width, vocabulary, 1),             # the head
    ]
    weights = sum(rows * columns * many for rows, columns, many in matrices)

    tokens = batch * N
    of_weights = 2 * weights * tokens
    of_attention = layers * batch * (2 * width * N * N)      # two products, 2 · width a pair, N · N / 2 pairs
    forward = of_weights + of_attention
    backward = 2 * forward
    flops = forward + backward
    return weights, flops, flops / seconds / peak
