"""Cases and mistakes of ex14_ring_traffic."""

from flashlab_course.check.form import Case, Exercise, Mistake, Output

BLOCK, FORWARD, SUMS = "block = N // R * H_kv * (d + d_v)", "forward = (R - 1) * block * itemsize", "sums = R * block * 4 if R > 1 else 0"
RESULT = "return forward, forward + sums"


def truth(N, R, H_q, H_kv, d, d_v, itemsize):
    """Counted, message by message, as rank 0 sends them."""
    def walk(bytes_of_a_block, home):
        held, met, sent = list(range(R)), [{rank} for rank in range(R)], 0
        while not all(len(ranks) == R for ranks in met):
            sent += bytes_of_a_block
            held = [held[rank - 1] for rank in range(R)]
            for rank in range(R):
                met[rank].add(held[rank])
        return sent + (bytes_of_a_block if home and held[0] != 0 else 0)

    rows = N // R * H_kv
    forward = walk(rows * d * itemsize, False) + walk(rows * d_v * itemsize, False)
    return forward, forward + walk(rows * d * 4, True) + walk(rows * d_v * 4, True)


def terms(N, R, H_q, H_kv, d, d_v, itemsize):
    n = N // R
    return {"a block of K, in bytes": n * H_kv * d * itemsize, "a block of V, in bytes": n * H_kv * d_v * itemsize,
            "a block of dK, in bytes": n * H_kv * d * 4, "a block of dV, in bytes": n * H_kv * d_v * 4, "a block of Q, in bytes": n * H_q * d * itemsize}


def case(name, N, R, H_q, H_kv, d, d_v, itemsize):
    sizes = {"N": N, "R": R, "H_q": H_q, "H_kv": H_kv, "d": d, "d_v": d_v, "itemsize": itemsize}
    holds = {"one rank": R == 1, "more than one rank": R > 1, "more than two ranks": R > 2, "d_v ≠ d": d != d_v, "fewer heads of keys than of queries": H_q != H_kv,
             "16-bit inputs": itemsize == 2}
    return Case(name, lambda: dict(sizes), frozenset(f for f, true in holds.items() if true), sizes)


EXERCISE = Exercise(
    function="ring_traffic",
    outputs=(Output("forward"), Output("backward")),
    ints_only=True,
    truth=truth,
    terms=terms,
    cases=[
        case("one rank", 6, 1, 1, 1, 2, 2, 4),
        case("two ranks", 6, 2, 1, 1, 2, 2, 4),
        case("three ranks", 9, 3, 1, 1, 2, 2, 4),
        case("16 bits", 8, 2, 1, 1, 3, 3, 2),
        case("d_v ≠ d", 8, 4, 1, 1, 3, 5, 4),
        case("several heads", 12, 3, 3, 3, 4, 4, 2),
        case("grouped heads", 12, 3, 6, 2, 4, 4, 2),
        case("all at once", 40, 5, 6, 3, 7, 4, 2),
        case("as on GPUs", 131072, 8, 32, 8, 128, 128, 2),
    ],
    mistakes=[
        Mistake("R_times", "K and V were counted R times: after the last step nothing is passed on",
                "the steps: every rank has one block from the start, R − 1 have to come", (FORWARD, "forward = R * block * itemsize if R > 1 else 0")),
        Mistake("once", "K and V were counted as sent once", "the steps: a block goes round until all ranks have met it",
                (FORWARD, "forward = block * itemsize if R > 1 else 0")),
        Mistake("whole_sequence", "what all ranks send together was counted: N rows in each step, not N/R", "one rank: it sends a block of N/R rows in a step",
                (BLOCK, "block = N * H_kv * (d + d_v)")),
        Mistake("H_q_for_H_kv", "the heads of Q were taken for those of K and V", "K and V have H_kv heads", (BLOCK, "block = N // R * H_q * (d + d_v)")),
        Mistake("heads_forgotten", "the heads were left out", "a block of K has N/R rows in each of H_kv heads", (BLOCK, "block = N // R * (d + d_v)")),
        Mistake("heads_together", "the heads of queries and keys were multiplied", "K and V have H_kv heads, shared by groups of query heads",
                (BLOCK, "block = N // R * H_q * H_kv * (d + d_v)")),
        Mistake("d_for_d_v", "d was taken for the width of V", "V is d_v wide", (BLOCK, "block = N // R * H_kv * 2 * d")),
        Mistake("elements", "K and V were counted in elements, not in bytes", "the unit: an element of K or V takes itemsize bytes",
                (FORWARD, "forward = (R - 1) * block"), also=[[(FORWARD, "forward = (R - 1) * block"), (SUMS, "sums = R * block if R > 1 else 0")]]),
        Mistake("sums_in_16_bits", "dK and dV were counted with itemsize bytes an element", "dK and dV are float32, 4 bytes an element",
                (SUMS, "sums = R * block * itemsize if R > 1 else 0")),
        Mistake("sums_not_home", "dK and dV were counted R − 1 times: they never came back to their owner",
                "the sums: one step more than K and V, back to the owner", (SUMS, "sums = (R - 1) * block * 4")),
        Mistake("keys_home_too", "K and V were counted R times in the backward pass, as if they, too, had to come back to their owner",
                "the backward pass: K and V travel as they do in the forward pass, R − 1 times; dK and dV come home",
                (RESULT, "return forward, (R * block * itemsize if R > 1 else 0) + sums")),
        Mistake("sums_in_one_rank", "with one rank dK and dV were counted as sent", "one rank: its dK and dV are at home already", (SUMS, "sums = R * block * 4")),
        Mistake("only_sums", "in the backward pass K and V were not counted", "the backward pass recomputes P from Q and K: K and V travel again",
                (RESULT, "return forward, sums")),
        Mistake("sums_of_query_heads", "dK and dV were counted with H_q heads", "dK and dV: the sums over a group have the shape of K and V",
                (SUMS, "sums = R * (N // R) * H_q * (d + d_v) * 4 if R > 1 else 0")),
        Mistake("sums_home_in_16_bits", "the last step of dK and dV, to their owner, was counted in the inputs' size, not in float32",
                "the sums: 4 bytes an element in each of their R steps", (SUMS, "sums = (R - 1) * block * 4 + block * itemsize if R > 1 else 0")),
    ],
    hints=[
        "A block is K and V of N/R rows and H_kv heads: N/R · H_kv · (d + d_v) elements.",
        "With R ranks a block is passed on R − 1 times: its owner has it already.",
        "The sums of a block start at its owner, too, and have to come home: R times, unless R = 1.",
        "Only one rank is wrong: it sends nothing at all.",
    ],
)
