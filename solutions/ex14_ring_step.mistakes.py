import torch

from flashlab_course.check import form
from flashlab_course.check.cases import BELOW, Mistake, case_of, drawn

PASS_ON = "K, V, owner = K.roll(1, 0), V.roll(1, 0), owner.roll(1, 0)"
ATTEND, START = "attend(Q[r], K[r], V[r], r, int(owner[r]))", "O_all, L_all = [], []"
DIVIDED = "O_all.append(O_sum / both.masked_fill(both == 0, 1)[:, None])"

outputs = [("K", "rank", "key", "column"), ("V", "rank", "key", "column"), ("owner", "rank"),
           ("O", "rank", "query", "column"), ("L", "rank", "query")]
features = {"a block that comes after the queries": lambda steps, first: steps + first > 0,
            "queries that have met no key after the step either": lambda first: first > 0}


@case_of
def case(R, n, d, d_v, steps, *, first=0, seed, **how):
    """What the ranks hold after `steps` steps: rank r began with the block of rank r + first."""
    Q, K, V, _ = drawn(n, n, d, d_v, H=(R,), H_kv=(R,), seed=seed, dtype=torch.float64, **how)
    owner = (torch.arange(R) + first) % R
    held = K[owner], V[owner], owner, torch.zeros_like(V), torch.full((R, n), -torch.inf, dtype=Q.dtype)
    for _ in range(steps):
        held = form.exercise("ex14_ring_step").solution()(Q, *held)
    named = zip(("Q", "K", "V", "owner", "O", "L"), (Q, *held), strict=True)
    return {name: T.float() if T.is_floating_point() else T for name, T in named}


cases = [case("one rank", 1, 3, 4, 5, 0, seed=10),
         case("two ranks, the first step", 2, 3, 4, 5, 0, seed=20),
         case("two ranks, the second step", 2, 3, 4, 5, 1, seed=30),
         case("four ranks, the second step", 4, 2, 3, 5, 1, seed=50),
         case("four ranks, the last step", 4, 3, 2, 5, 3, seed=70),
         case("scores in the hundreds", 3, 5, 4, 2, 2, seed=80, factor=150),
         case("a ring that begins with other blocks", 3, 2, 4, 5, 0, first=1, seed=90),
         case("scores far below 0", 3, 2, 4, 5, 0, first=1, below=BELOW, seed=120),
         case("n = d = d_v", 2, 3, 3, 3, 1, seed=110)]
mistakes = [
    Mistake("passed_backwards", "the blocks went to rank r − 1", "the direction in which the blocks travel", (PASS_ON,
             "K, V, owner = K.roll(-1, 0), V.roll(-1, 0), owner.roll(-1, 0)")),
    Mistake("V_stayed", "K was passed on, V was not", "which tensors are passed on", (PASS_ON,
             "K, owner = K.roll(1, 0), owner.roll(1, 0)")),
    Mistake("owner_stayed", "the blocks were passed on, but owner was not", "what belongs to a block besides K and V",
            (PASS_ON, "K, V = K.roll(1, 0), V.roll(1, 0)")),
    Mistake("overwritten", "blocks were overwritten before they went on: all ranks got rank 0's", "what you read",
            (PASS_ON, "K, V, owner = (torch.stack([T[0]] * len(Q)) for T in (K, V, owner))")),
    Mistake("last_stays", "the last rank's block did not reach rank 0", "what rank 0 receives", (PASS_ON,
             "K, V, owner = (torch.cat([T[:1], T[:-1]]) for T in (K, V, owner))")),
    Mistake("passed_before", "the blocks were passed on first, and attended to afterwards",
            "the order of attending and passing on", (PASS_ON, "pass"), (START, f"…\n    {PASS_ON}")),
    Mistake("looked_up", "rank r attended to K[owner[r]], not to the block that it holds",
            "what owner[r] is a number of", (ATTEND, "attend(Q[r], K[owner[r]], V[owner[r]], r, int(owner[r]))")),
    Mistake("rank_and_owner_swapped", "rank and owner were swapped in the call of attend",
            "the order of attend's arguments", (ATTEND, "attend(Q[r], K[r], V[r], int(owner[r]), r)")),
    Mistake("not_divided", "the merged O was not divided by the sum of the two weights", "what the weights add up to",
            (DIVIDED, "O_all.append(O_sum)")),
    Mistake("L_maximum", "the new L was the larger of L and L_j", "how two logsumexps make one", ("m + torch.log(both)",
             "torch.maximum(L[r], L_j)")),
    Mistake("no_maximum", "exp(L) and exp(L_j) were computed without a shift", "exponentials of large and small L",
            ("m = m.masked_fill(m == -inf, 0)", "m = torch.zeros_like(m)")),
    Mistake("divided_by_0", "a query that has met no key got NaN", "queries where L and L_j are both -inf", (DIVIDED,
             "O_all.append(O_sum / both[:, None])")),
    Mistake("minus_inf_as_0", "an L of -inf was replaced by 0, which counts as a key",
            "what L counts where no key has been met", (START, "…\n    L = L.masked_fill(L == -inf, 0)")),
    Mistake("L_before_O", "L was updated first, so that the old O got a weight of 1", "which of O and L is first",
            (DIVIDED, "O_all.append(O[r] + (new / both.masked_fill(both == 0, 1))[:, None] * O_j)")),
    Mistake("unseen_stays", "a rank did not pass on a block that its queries cannot see", "every block, seen or not",
            (PASS_ON, "unseen = owner > torch.arange(len(Q))\n    K, V, owner = (T.clone() for T in (K, V, owner))"
             "\n    K[unseen], V[unseen], owner[unseen] = 0, 0, 0\n    …")),
]
hints = ["For each rank: attend(...) gives O_j and L_j, they are merged with O[r] and L[r], the block goes on.",
         "Each output counts by its share of exp(L) + exp(L_j). Take the larger L out of both exponents first.",
         "Where L and L_j are both -inf, −inf − (−inf) is NaN, and so is 0 / 0."]
