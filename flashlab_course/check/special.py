"""What is special about the cases that fail. A feature is blamed only where the cases single it out."""

from flashlab_course.check.cases import IMPLIES, WEAK, in_order
from flashlab_course.check.judge import RIGHT_NUMBERS

OF_MEMORY = ("SRAMOverflow", "MemoryModelError")


def numbers_are_right(judged):
    """Is all that fails something other than the numbers: traffic, a shared memory, changed inputs, too little SRAM?"""
    compared = [k for k in judged if k.problem is None or k.problem.kind in RIGHT_NUMBERS]
    return bool(compared) and not any(k.wrong or k.beside for k in compared) and all(
        k in compared or k.problem.error in OF_MEMORY for k in judged) and (judged[0] in compared)


def special(judged):
    """A sentence on which cases fail; it names a feature only if no other can be meant."""
    failing = [k for k in judged if not k.passed]
    what = _what(failing)
    if len(failing) == len(judged):
        return f"{what} in every case."
    if feature := singled_out(judged):
        return f"{what} in every case with {feature}; all other cases are right."
    if feature := isolated(judged):
        having = [k for k in judged if feature in k.case.features]
        return f"{what} only with {feature}, in {len(failing)} of {len(having)} such cases."
    return f"{what} in {len(failing)} of {len(judged)} cases."


def _what(failing):
    kinds = {k.problem.kind if k.problem is not None else "" for k in failing}
    # no numbers: not called wrong
    known = {"raised": "An error", "timeout": "Stopped", "autograd": "Against the rules"}
    return known.get(kinds.pop(), "Wrong") if len(kinds) == 1 else "Wrong"


def singled_out(judged):
    """The feature that all failing cases have and no passing one, "" if there is none or it could be another one as
    well."""
    found = _shared(judged)
    found = [f for f in found if not any(f in IMPLIES.get(other, ()) for other in found)]
    strong = [f for f in found if f not in WEAK]
    if len(strong) == 1 or not strong and len(found) == 1:
        return (strong or found)[0]
    if len(strong) == 2:
        return " and ".join(in_order(strong))
    return ""


def _shared(judged):
    failing = [k.case.features for k in judged if not k.passed]
    passing = frozenset().union(*(k.case.features for k in judged if k.passed))
    return in_order(frozenset.intersection(*failing) - passing)


def isolated(judged):
    """A feature of all failing cases, though some with it are right, if one failing case has nothing else that is
    special."""
    failing = [k.case.features for k in judged if not k.passed]
    everywhere = frozenset.intersection(*(k.case.features for k in judged))
    shared = [f for f in in_order(frozenset.intersection(*failing) - everywhere) if f not in WEAK]
    for feature in shared:
        others = IMPLIES.get(feature, frozenset()) | everywhere | WEAK | {feature}
        having = sum(feature in k.case.features for k in judged)
        if len(failing) > having / 2 and any(features <= others for features in failing):
            return feature
    return ""
