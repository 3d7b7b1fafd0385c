import torch

from flashlab_course.check.cases import Mistake, case_of, whole_numbers
from flashlab_course.check.form import Breach, Output

NEVER = -1                     # for a query block that is not visited
FIRST, ROUND = "max(0, j * B_c + N_q - N_k) // B_r", "(j + step) % T_r"

outputs = [Output("the step of the visit", ("key block", "query block"), ((NEVER, "never"),))]
ints_only = True
features = {"no mask": lambda causal: not causal, "a short last query block": lambda N_q, B_r: N_q % B_r}


def call(fn, N_q, N_k, B_r, B_c, causal):
    """At which step each program visits each query block."""
    T_r, T_c = -(-N_q // B_r), -(-N_k // B_c)
    when = torch.full((T_c, T_r), NEVER)
    for j in range(T_c):
        for step, i in enumerate(whole_numbers(fn(j, N_q, N_k, B_r, B_c, causal), f"for j = {j}")):
            if i not in range(T_r):
                raise Breach("wrong_type", f"for j = {j} it returned query block {i}: there are 0 to {T_r - 1}")
            when[j, i] = step
    return when


def truth(N_q, N_k, B_r, B_c, causal):
    """From the mask: a query block is visited if it sees a key of the block."""
    T_r, T_c = -(-N_q // B_r), -(-N_k // B_c)
    sees = torch.ones(N_q, N_k, dtype=torch.bool).tril(N_k - N_q if causal else N_k)
    when = torch.full((T_c, T_r), NEVER)
    for j in range(T_c):
        visited = [i for i in range(T_r) if sees[i * B_r:(i + 1) * B_r, j * B_c:(j + 1) * B_c].any()]
        begin = 0 if causal else j % T_r
        when[j, visited[begin:] + visited[:begin]] = torch.arange(len(visited))
    return when


case = case_of(lambda N_q, N_k, B_r, B_c, causal=False: locals())

cases = [case("causal, two blocks of each", 8, 8, 4, 4, True),
         case("two blocks of each", 8, 8, 4, 4),
         case("causal, three blocks of each", 12, 12, 4, 4, True),
         case("three blocks of each", 12, 12, 4, 4),
         case("causal, a short last query block", 10, 10, 4, 2, True),
         case("causal, wide key blocks", 10, 10, 2, 4, True),
         case("causal, more keys", 6, 14, 2, 2, True),
         case("causal, more queries", 14, 6, 2, 2, True),
         case("more key blocks than query blocks", 4, 18, 2, 2)]
mistakes = [
    Mistake("short_block_dropped", "a short last query block was never visited", "how many query blocks there are",
            ("-(-N_q // B_r)", "N_q // B_r")),
    Mistake("first_block_j", "under the mask the visits began at query block j, as if B_r were B_c",
            "the query block that holds the first query that sees the keys", (FIRST, "min(j, T_r)")),
    Mistake("rounded_up", "a query block was left out whose last queries see the keys",
            "the query block that holds the first query that sees a key", (FIRST, f"-(-{FIRST[:-7]} // B_r)")),
    Mistake("last_key", "under the mask the visits began where the block's last key is seen first",
            "a block's first keys", (FIRST, "max(0, min((j + 1) * B_c, N_k) - 1 + N_q - N_k) // B_r")),
    Mistake("equal_lengths", "query n was taken to see the keys 0 to n, also where N_q and N_k differ",
            "which key the last query sees", (FIRST, "min(j * B_c, N_q) // B_r")),
    Mistake("offset_turned", "N_k − N_q was added where it has to be subtracted",
            "which query is the first to see key j·B_c", (FIRST, "max(0, j * B_c + N_k - N_q) // B_r")),
    Mistake("everything_visited", "under the mask every query block was visited", "queries that see no key of j",
            (FIRST, "0")),
    Mistake("all_begin_at_0", "without a mask every program began at query block 0", "where program j begins", (ROUND,
             "step")),
    Mistake("begun_apart_under_the_mask", "under the mask, too, program j began j blocks later", "where visits begin",
            ("list(range(first, T_r))", "[first + (j + step) % (T_r - first) for step in range(T_r - first)]")),
]
hints = ["Take N_q = N_k = 12 and blocks of 4. Which query blocks see key 4, and which does program 1 visit?",
         "Query n sees key k if k ≤ n + N_k − N_q. Solve that for n, with the block's first key; no query is below 0.",
         "Without a mask, visit number `step` of program j goes to j + step, and the count goes round at T_r."]
