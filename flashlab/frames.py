"""Whose line is running? The frames of a learner's code, for what the memory model says of it."""

import linecache
import os
import sys

import torch

_TORCH = os.path.dirname(torch.__file__)


def user_frame(own):
    """The innermost frame that is neither PyTorch's nor of the file `own` nor of this one, nor that of another mode."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename == own or frame.f_code.co_filename.startswith(_TORCH)
                                        or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back
    return frame


def is_triton(frame):
    return "triton" in frame.f_code.co_filename and frame.f_globals.get("__name__", "").startswith("triton.")


def in_words(frame):
    """fa2.py:63: S_ij = Q_i @ K_j.T"""
    file, line = frame.f_code.co_filename, frame.f_lineno
    place = "this cell, line " if "ipykernel" in file else f"{os.path.basename(file)}:"
    return f"{place}{line}: {linecache.getline(file, line).strip()}"


def local_tensors(frame):
    """(name, tensor) of the local variables of the frame and of those that called it, the innermost last."""
    found = []
    while frame is not None:
        found += [(name, value) for name, value in frame.f_locals.items() if isinstance(value, torch.Tensor)]
        frame = frame.f_back
    return found[::-1]
