"""What an exception means: the shapes that met in the failing line, and what to do about the usual ones."""

import linecache
import re
import traceback

import torch

# a pattern in "it raised IndexError: ...", and what to say
MEANINGS = {
    r"size of tensor a \(\d+\) must match|shapes? .*not be broadcast|broadcast.*shape|(not|annot .*) broadcast":
        "Shapes are lined up at the right, and a size of 1 is stretched. To scale the rows of an (N, M) tensor, turn "
        "an (N,) into (N, 1) with `[:, None]`",
    r"mat1 and mat2 shapes|size mismatch|inconsistent tensor size|Expected size for first two dimensions|batch1|batch2":
        "A product (a, b) @ (b, c) needs the same b twice: does one of the two have to be transposed (`.mT`)?",
    r"same dtype|expected scalar type|dtype.* but got":
        "The two sides have different dtypes: convert 16-bit tiles right after the load (`.to(...)`)",
    r"Boolean value of Tensor with more than one value|truth value of an array":
        "`if`, `and`, `or`, `max(a, b)` and `min(a, b)` need a single truth value. For tensors use torch.where, &, |, "
        "torch.maximum",
    r"out of bounds for dimension|(list|tuple) index out of range":
        "A dimension of size n has the indices 0 to n − 1",
    r"TypeError: .*(object of type 'int' has no len|'int' object is not (iterable|subscriptable))":
        "A number stands where a tuple is needed: a one-dimensional grid is `(n,)`, with a comma",
    r"IndexError: .*(too many indices|Dimension out of range)":
        "The tensor has fewer dimensions than that line expects: print its shape before it",
    r"argument 'input' .*must be Tensor, not (float|int)":
        "A torch function got a plain number: use `math.exp`, or make it a tensor",
    r"raised UnboundLocalError":
        "The name was never assigned on the way to this line: did the loop or branch not run?",
    r"result type .* can't be cast":
        "An in-place operation cannot change a tensor's dtype: assign to a new name",
    r"TypeError: .*'NoneType'":
        "A value is None: did a function return nothing, or was an argument None?",
    r"incorrect number of gradients":
        "backward returns one value for each argument of forward after ctx, and None where there is no gradient",
    r"a leaf Variable that requires grad|modified by an inplace operation":
        "Autograd needs the value that was overwritten in place: assign to a new name",
    r"raised SRAMOverflow":
        "SRAM holds little more than the algorithm needs at one time: which of the live tiles could be freed earlier?",
    r"arange.*power of (2|two)|must be a power of (2|two)":
        "The size of a Triton block is a power of two: triton.next_power_of_2",
    r"Mask argument cannot be block type|pointer argument is not a block":
        "Pointers and mask need the same shape: make the pointers a block of addresses",
    r"raised (EOFError|BdbQuit|SystemExit)":
        "A check has no keyboard: take `input()`, `breakpoint()` or `exit()` out, or pass debug=True",
}


def meaning(problem):
    """A sentence on what the exception means, or ""."""
    return next((text for pattern, text in MEANINGS.items() if re.search(pattern, problem.text)), "")


def seen(error, text, own_file):
    """"alpha has shape (4,), O_i (4, 3)": the tensors of the innermost line of the learner's, as they were then."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)
              if frame.f_code.co_filename == own_file]
    if not frames or "thread (" in text:               # a kernel run thread by thread says where itself
        return ""
    frame, line = frames[-1]
    code = linecache.getline(own_file, line).partition("#")[0]
    found = {}
    for name in dict.fromkeys(re.findall(r"(?<![\w.])[A-Za-z_]\w*", code.rpartition(" = ")[2])):
        value = frame.f_locals.get(name)
        # plain types only: nothing of the learner's runs here
        if type(value) in (torch.Tensor, torch.nn.Parameter) or type(value).__module__ == "triton.language.core":
            if getattr(value, "shape", None) is not None:
                found[name] = tuple(value.shape), str(getattr(value, "dtype", "")).removeprefix("torch.")
    several = len({dtype for _, dtype in found.values()}) > 1
    return ", ".join(f"{name} {'' if n else 'has shape '}{shape}{f' {dtype}' * several}"
                     for n, (name, (shape, dtype)) in enumerate(list(found.items())[:6]))
