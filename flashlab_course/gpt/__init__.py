"""A small GPT that takes its attention as an argument: where everything of the course comes together.

    from flashlab_course import gpt

    tokens, held_back = gpt.split(gpt.encode(gpt.text()))
    model = gpt.GPT(gpt.Shape(), gpt.ATTENTIONS["flash_attention"])
    losses = gpt.train(model, tokens, 300, report=gpt.progress("flash_attention"))
    print(gpt.decode(gpt.generate(model, gpt.encode("ROMEO:")[None], 200)[0]))
"""

from flashlab_course.gpt.attentions import ATTENTIONS
from flashlab_course.gpt.count import flops_per_token, mfu, training_bytes, weights
from flashlab_course.gpt.generate import Cache, generate
from flashlab_course.gpt.model import GPT, Shape
from flashlab_course.gpt.profile import parts
from flashlab_course.gpt.train import decode, encode, held_back_loss, progress, split, text, train, windows

__all__ = ["ATTENTIONS", "GPT", "Cache", "Shape", "decode", "encode", "flops_per_token", "generate", "held_back_loss",
           "mfu", "parts", "progress", "split", "text", "train", "training_bytes", "weights", "windows"]
