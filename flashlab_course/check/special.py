"""What is special about the cases that fail. A feature is blamed only where the cases single it out."""

from flashlab_course.check.cases import WEAK, in_order
from flashlab_course.check.judge import RIGHT_NUMBERS

OF_MEMORY = ("SRAMOverflow", "MemoryModelError")


def numbers_are_right(judged):
    """Is all that fails something other than the numbers: traffic, a shared memory, changed inputs, too little SRAM?"""
    compared = [k for k in judged if k.problem is None or k.problem.kind in RIGHT_NUMBERS]
    return bool(compared) and not any(k.wrong or k.beside for k in compared) and all(
        k in compared or k.problem.error in OF_MEMORY for k in judged) and (judged[0] in compared)


def special(judged):
    """A sentence on which cases fail. It names a feature only if exactly the cases that have it fail."""
    failing = [k for k in judged if not k.passed]
    what = _what(failing)
    if len(failing) == len(judged):
        return f"{what} in every case."
    if feature := singled_out(judged):
        return f"{what} in every case with {feature}; all other cases are right."
    return f"{what} in {len(failing)} of {len(judged)} cases."


def _what(failing):
    kinds = {k.problem.kind if k.problem is not None else "" for k in failing}
    # no numbers: not called wrong
    known = {"raised": "An error", "timeout": "Stopped", "autograd": "Against the rules"}
    return known.get(kinds.pop(), "Wrong") if len(kinds) == 1 else "Wrong"


def singled_out(judged):
    """The most telling feature that all failing cases have and no passing one; "" if only several weak ones fit."""
    shared = frozenset.intersection(*(k.case.features for k in judged if not k.passed))
    found = in_order(shared.difference(*(k.case.features for k in judged if k.passed)))
    return "" if not found or found[0] in WEAK and len(found) > 1 else found[0]
