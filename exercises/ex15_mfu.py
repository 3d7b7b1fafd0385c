"""ex15_mfu · how much of a GPU a model uses

Chapter 15 · difficulty 2 of 5 · 15 minutes

A training step has taken `seconds`. How much of what the GPU can do was the model's own work? Three numbers say so:

    weights    those that a token is multiplied by. In each layer: Q is width × width, K and V are width × kv_width
               each, the output's matrix is width × width, the MLP has two of width × 4·width. Once: the head, width ×
               vocabulary. The embedding's row is looked up, nothing is multiplied; norms are too small to count
    flops      of the whole step, forward and backward, for batch texts of N tokens. A multiplication and an addition
               are 2 FLOPs. Weights: 2 for each weight and token in the forward pass. Attention: QKᵀ and PV, each 2 ·
               width FLOPs for each pair of query and key in each layer; the mask is causal, and half of the N · N pairs
               count. The backward pass of any product is two products of the same size
    share      flops a second over peak, what the GPU can do a second: the model FLOPs utilisation, MFU

Do not count what is computed a second time, as in FlashAttention's backward pass.
Return the three as Python numbers; flops may be a float. No size is 0.

Not allowed: asking flashlab_course.gpt, the finished function from solutions/.

Hint: each product counts three times, once forward and twice backward.
"""


def utilisation(layers, width, kv_width, vocabulary, batch, N, seconds, peak):
    """(weights, flops, share)"""
    # your turn: count the weights, the FLOPs of the step, and divide
    raise NotImplementedError("ex15_mfu: count the weights, the FLOPs of the step, and divide")
