"""Cases and mistakes of ex14_ring_step."""

import torch

from flashlab_course.check.cases import LOOSE, far_below, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output

inf = float("inf")
MERGE = "O_sum = old[:, None] * O[r] + new[:, None] * O_j"
DIVIDED = "O_all.append(O_sum / both.masked_fill(both == 0, 1)[:, None])"
NEW_L = "L_all.append(m + torch.log(both))"
FACTORS = "old, new = torch.exp(L[r] - m), torch.exp(L_j - m)"
SAFE = "m = m.masked_fill(m == -inf, 0)"
PASS_ON = "K, V, owner = K.roll(1, 0), V.roll(1, 0), owner.roll(1, 0)"
ATTEND = "O_j, L_j = attend(Q[r], K[r], V[r], r, int(owner[r]))"


def begun(R, n, d, d_v, first, steps, seed, factor, below):
    """The state of all ranks after `steps` steps, in float64: rank r began with the block of rank r + first."""
    Q, K, V = (normal(R, n, w, seed=seed + i, dtype=torch.float64, factor=f) for i, (w, f) in enumerate(((d, factor), (d, 1.0), (d_v, 1.0))))
    Q, K = far_below(Q, K) if below else (Q, K)
    owner = (torch.arange(R) + first) % R
    scores = torch.einsum("rnd,skd->rnsk", Q, K) * d**-0.5
    places = torch.arange(R * n).view(R, n)
    scores = scores.masked_fill(places[None, None] > places[:, :, None, None], -inf)               # (R, n, R, n)
    met = torch.zeros(R, R, dtype=torch.bool)
    for step in range(steps):
        met[torch.arange(R), owner.roll(step)] = True
    scores = scores.masked_fill(~met[:, None, :, None], -inf).flatten(2)
    L = torch.logsumexp(scores, -1)
    P = torch.exp(scores - L.masked_fill(L == -inf, 0)[..., None])
    held = owner.roll(steps)
    return Q, K[held], V[held], held, P @ V.flatten(0, 1), L


def case(name, R, n, d, d_v, steps, *, first=0, seed, factor=1.0, below=False, features=()):
    def make():
        state = begun(R, n, d, d_v, first, steps, seed, factor, below)
        return {key: T.float() if T.is_floating_point() else T for key, T in zip(("Q", "K", "V", "owner", "O", "L"), state, strict=True)}

    holds = {"more than one rank": R > 1, "more than two ranks": R > 2, "a step after the first": steps > 0, "large scores": factor > 1 or below,
             "only scores far below 0": below,
             "d_v ≠ d": d != d_v}
    return Case(name, make, frozenset(f for f, true in holds.items() if true) | set(features), {"R": R, "n": n, "d": d, "d_v": d_v, "steps before": steps},
                LOOSE if factor > 1 or below else 0.0)


UNSEEN = ["a block that comes after the queries"]
EXERCISE = Exercise(
    function="ring_step",
    outputs=(Output("K", ("rank", "key", "column")), Output("V", ("rank", "key", "column")), Output("owner", ("rank",)),
             Output("O", ("rank", "query", "column")), Output("L", ("rank", "query"))),
    cases=[
        case("one rank", 1, 3, 2, 2, 0, seed=10),
        case("two ranks, the first step", 2, 3, 2, 2, 0, seed=20),
        case("two ranks, the second step", 2, 3, 2, 2, 1, seed=30, features=UNSEEN),
        case("four ranks, the first step", 4, 2, 3, 2, 0, seed=40),
        case("four ranks, the second step", 4, 2, 3, 2, 1, seed=50, features=UNSEEN),
        case("four ranks, the third step", 4, 2, 3, 5, 2, seed=60, features=UNSEEN),
        case("four ranks, the last step", 4, 3, 2, 3, 3, seed=70, features=UNSEEN),
        case("scores in the hundreds", 3, 3, 4, 2, 2, seed=80, factor=150, features=UNSEEN),
        case("a ring that begins with other blocks", 3, 2, 3, 2, 0, first=1, seed=90, features=[*UNSEEN, "queries that have met no key after the step either"]),
        case("the step after that", 3, 2, 3, 2, 1, first=2, seed=100, features=[*UNSEEN, "queries that have met no key after the step either"]),
        case("scores far below 0", 3, 2, 4, 2, 0, first=1, below=True, seed=120, features=[*UNSEEN, "queries that have met no key after the step either"]),
        case("n = d = d_v", 2, 2, 2, 2, 1, seed=110, features=UNSEEN),
    ],
    mistakes=[
        Mistake("passed_backwards", "the blocks went to rank r − 1",
                "the direction: rank r's block goes to rank r + 1, so that rank r then holds what rank r − 1 held",
                (PASS_ON, "K, V, owner = K.roll(-1, 0), V.roll(-1, 0), owner.roll(-1, 0)")),
        Mistake("V_stayed", "K was passed on and V was not", "K and V travel together", (PASS_ON, "K, owner = K.roll(1, 0), owner.roll(1, 0)")),
        Mistake("owner_stayed", "the blocks were passed on and owner was not", "owner[r] says whose block rank r holds: it travels with the block",
                (PASS_ON, "K, V = K.roll(1, 0), V.roll(1, 0)")),
        Mistake("overwritten", "a block was overwritten before it was passed on: in the end all ranks held rank 0's",
                "the order: take the received blocks from where the sent ones still are, not from what was just overwritten",
                (PASS_ON, "K, V, owner = K.clone(), V.clone(), owner.clone()\n    for r in range(len(Q)):\n        s = (r + 1) % len(Q)\n"
                 "        K[s], V[s], owner[s] = K[r], V[r], owner[r]")),
        Mistake("last_stays", "the last rank's block did not come round to rank 0", "a ring has no end: rank R − 1 passes its block to rank 0",
                (PASS_ON, "K, V, owner = (torch.cat([T[:1], T[:-1]]) for T in (K, V, owner))")),
        Mistake("passed_before", "the blocks were passed on first, and each rank attended to the block that had just come",
                "the order: attend to the block that is there, then pass it on", (PASS_ON, "pass"),
                ("O_all, L_all = [], []", "O_all, L_all = [], []\n    K, V, owner = K.roll(1, 0), V.roll(1, 0), owner.roll(1, 0)")),
        Mistake("looked_up", "rank r attended to K[owner[r]], but K[r] is already the block that it holds",
                "which block rank r holds: K[r]; owner[r] only says where its keys stand in the sequence",
                (ATTEND, "O_j, L_j = attend(Q[r], K[owner[r]], V[owner[r]], r, int(owner[r]))")),
        Mistake("rank_and_owner_swapped", "rank and owner changed places in attend", "the arguments of attend: the queries' rank comes before the block's owner",
                (ATTEND, "O_j, L_j = attend(Q[r], K[r], V[r], int(owner[r]), r)")),
        Mistake("mean", "the mean of O and O_j was taken", "the weights: each output counts by its share of the exponentials",
                (DIVIDED, "O_all.append((O[r] + O_j) / 2)")),
        Mistake("not_divided", "the merged O was not divided by the sum of the two weights", "where O becomes an average: its weights add up to 1",
                (DIVIDED, "O_all.append(O_sum)")),
        Mistake("L_maximum", "the larger of L and L_j was taken for the new L",
                "the new L: log(exp(L) + exp(L_j)), the larger one being taken out of the exponents and added again",
                (NEW_L, "L_all.append(torch.maximum(L[r], L_j))")),
        Mistake("no_maximum", "the exponentials of L and L_j were taken as they are: those of large scores are inf, and of scores far below 0 they are 0",
                "the exponents: take out the larger of L and L_j first", (SAFE, "m = torch.zeros_like(m)"),
                also=[[(SAFE, "m = m.masked_fill(m == -inf, 0) * 0")]]),
        Mistake("divided_by_0", "where a query has met no key, its weight was 0/0 or made of −inf − (−inf), and that is NaN",
                "rows with both L −inf: 0 takes the place of what is NaN there", (DIVIDED, "O_all.append(O_sum / both[:, None])")),
        Mistake("L_before_O", "the old O counted with the weight 1: its own was left out, or was made with the new L as exp(L − L)",
                "the weight of the old O: exp(L − new L), with the L from before the step",
                (DIVIDED, "O_all.append(O[r] + (new / both.masked_fill(both == 0, 1))[:, None] * O_j)")),
        Mistake("unseen_stays", "a rank passed its block on only where its queries see it", "the passing on: a block travels all the way round, seen or not",
                (PASS_ON, "went = [int(owner[r]) <= r for r in range(len(Q))]\n"
                 "    K, V, owner = (torch.stack([T[r - 1] * went[r - 1] for r in range(len(Q))]) for T in (K, V, owner))"),
                also=[[(PASS_ON, "went = [int(owner[r]) <= r for r in range(len(Q))]\n"
                        "    K, V, owner = (torch.stack([T[r - 1] if went[r - 1] else T[r] for r in range(len(Q))]) for T in (K, V, owner))")]]),
        ],
    hints=[
        "Three things happen to each rank: attend(...) gives O_j and L_j; they are merged with O[r] and L[r]; the block goes on to rank r + 1.",
        "The merged O is (exp(L)·O + exp(L_j)·O_j) / (exp(L) + exp(L_j)), and the new L is log(exp(L) + exp(L_j)). Take the larger of both out of the exponents.",
        "`K.roll(1, 0)` moves every block to the next rank, and the last one to rank 0. owner moves alike.",
        "Only queries that have met no key after the step either are wrong: L and L_j are both −inf there, −inf − (−inf) is NaN, and so is 0 / 0.",
        "Only large scores are wrong: exp(L) is inf there. exp(L − m) is not, m being the larger of L and L_j.",
        "Only later steps are wrong: what the rank had before the step counts, too.",
    ],
)
