"""A small GPT that takes its attention as an argument: where everything of the course comes together.

    from flashlab import gpt

    tokens, held_back = gpt.split(gpt.encode(gpt.text()))
    model = gpt.GPT(gpt.Shape(), gpt.ATTENTIONS["flash_attention"])
    losses = gpt.train(model, tokens, 300, report=gpt.progress("flash_attention"))
    print(gpt.decode(gpt.generate(model, gpt.encode("ROMEO:")[None], 200)[0]))
"""

from flashlab.gpt.attentions import ATTENTIONS
from flashlab.gpt.count import flops_per_token, mfu, training_bytes, weights
from flashlab.gpt.generate import Cache, generate
from flashlab.gpt.model import GPT, Shape
from flashlab.gpt.profile import parts
from flashlab.gpt.train import decode, encode, held_back_loss, progress, split, text, train, windows

__all__ = ["ATTENTIONS", "GPT", "Cache", "Shape", "decode", "encode", "flops_per_token", "generate", "held_back_loss", "mfu",
           "parts", "progress", "split", "text", "train", "training_bytes", "weights", "windows"]
