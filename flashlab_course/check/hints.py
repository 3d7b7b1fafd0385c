"""Which hint comes first: the one about what fails. Where all numbers are right, none about the formulas."""

from flashlab_course.check import special

OF_FEATURES = {
    "a causal mask": "Only the cases with a causal mask fail, so the rest is right: where is causal asked, and what "
                     "does it do?",
    "queries that see no key": "Only queries that see no key fail. Follow one of them through your lines: its scores "
                               "are all −inf, "
                               "its maximum too. What is −inf − (−inf), and what is 0/0?",
    "a causal mask and fewer queries than keys":
        "With N_q ≠ N_k the last query is lined up with the last key: query n sees the keys up to n + N_k − N_q. Does "
        "every place "
        "that knows the mask have that shift?",
    "more than one key block": "A single key block is right. What has to be carried from one block to the next, what "
                               "rescaled?",
    "a short last key block": "Only a short last key block fails: how many blocks are there, and how many keys has the "
                              "last one?",
    "more than one query block": "A single query block is right. Which index or offset tells the blocks apart?",
    "a short last query block": "Only a short last query block fails: how many rows does the last block hold, and who "
                                "asks?",
    "large scores": "Only large scores fail: float32 overflows at exp(89). Which exponent can be large?",
    "only scores far below 0": "Only rows whose scores are all far below 0 fail. With what does the running maximum "
                               "start?",
    "float64 inputs": "Only float64 inputs fail: float32 swallows what is wrong. Is there an ε, such as 1e-6, that "
                      "nothing asks "
                      "for, or a constant with too few digits?",
    "16-bit inputs": "Only 16-bit inputs fail: where is a tile turned into the dtype of the sums, and where is "
                     "something rounded?",
}
OF_FINDINGS = {                # structure.Finding's name: what helps
    "read_too_often": "The formulas need no change. Where does each load stand? Before the loop it is made once, "
                      "inside it once a "
                      "step.",
    "stored_too_often": "The formulas need no change. Where does each store stand? After the loop it is made once, "
                        "inside it once "
                        "a step.",
    "not_all_read": "The formulas need no change. Which rows and columns does each load ask for, and how often?",
    "too_many_programs": "The kernel needs no change. How many programs does the grid ask for, and how many have work?",
    "stray_load": "The numbers need no change. Which mask guards that load, and what does it compare?",
    "stray_store": "The numbers need no change. Which mask guards that store, and what does it compare?",
}
OTHER = "The numbers are right: no formula has to change, only what is said above."


def in_order(exercise, judged):
    """The hints for these answers, the one that helps soonest first."""
    failing = [k for k in judged if not k.passed]
    if special.numbers_are_right(judged):
        found = [finding.name for k in failing for finding in k.structure]
        about = [h for h in exercise.hints if "the numbers are right" in getattr(h, "about", ())]
        return [*about, next((OF_FINDINGS[name] for name in found if name in OF_FINDINGS), OTHER)]
    feature = special.singled_out(judged) or special.isolated(judged) if any(k.passed for k in judged) else ""
    own = [h for h in exercise.hints if feature and feature in getattr(h, "about", ())]
    general = [OF_FEATURES[feature]] if feature in OF_FEATURES else []
    right = frozenset().union(*(k.case.features for k in judged if k.passed))
    rest = [h for h in exercise.hints if h not in own and "the numbers are right" not in getattr(h, "about", ())]
    # what it is about is right already
    late = [h for h in rest if getattr(h, "about", frozenset()) and h.about <= right]
    return [*own, *general, *(h for h in rest if h not in late), *late]
