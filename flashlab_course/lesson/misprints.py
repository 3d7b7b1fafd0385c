"""Hand-made copies of two published backward passes, misprints included, as code that runs.

    copied = misprints.COPIES["FA2"]   # shows itself, with a number for each line
    print(copied.verdict({1: "D = ..."}))      # what it gives with lines of the learner's own put in
    copied.wrong()                     # the numbers of the wrong lines, found by running them
    copied.corrected(1)                # how such a line should read

A line is wrong if it alone, in an otherwise right program, changes a gradient, moves needless bytes, or does not run.
"""

import functools
import math
import textwrap

import torch

from flashlab.memory import Memory, kernel, load, store, tiles
from flashlab.oracle import attention, gradients, max_error

CLOSE = 1e-9                   # of gradients in float64
N_Q, N_K, D_HEAD, B_R, B_C, P_DROP = 12, 6, 8, 4, 3, 0.2      # T_r is not T_c: a loop over the wrong blocks is seen

# Under a line that was copied wrongly, # marks the right one; # alone: there should be no line.
FA1 = """
dQ, dK, dV = torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V)
with kernel('backward', Q=Q, K=K, V=V, O=O, dO=dO, l=l, m=m, keep=keep, dQ=dQ, dK=dK, dV=dV):
    for j in query_blocks:
#   for j in key_blocks:
        K_j, V_j = load(K, j), load(V, j)
        dK_j, dV_j = torch.zeros_like(K_j), torch.zeros_like(V_j)
        for i in key_blocks:
#       for i in query_blocks:
            Q_i, O_i, dO_i, dQ_i = load(Q, i), load(O, i), load(dO, i), load(dQ, i)
            l_i, m_i = load(l, i), load(m, i)
            S_ij = Q_i @ K_j.T
#           S_ij = tau * Q_i @ K_j.T
            P_ij = torch.diag(l_i)**0.5 @ torch.exp(S_ij - m_i[:, None])
#           P_ij = torch.diag(1 / l_i) @ torch.exp(S_ij - m_i[:, None])
            Z_ij = load(keep, i, j) / (1 + p)
#           Z_ij = load(keep, i, j) / (1 - p)
            dV_j += (P_ij * Z_ij).T @ dO_i
            dP_ij = (dO_i @ V_j.T) * Z_ij
            D_i = (dP_ij * D_i).sum(-1)
#           D_i = (dO_i * O_i).sum(-1)
            dK_j = P_ij * (dP_ij - D_i[:, None])
#           dS_ij = P_ij * (dP_ij - D_i[:, None])
            store(dQ, i, dQ_i + tau * dS_ij @ K_j)
            dK_j += tau * dS_ij.T @ Q_i
        store(dK, j, dK_j)
        store(dV, j, dV_j)
"""
FA2 = """
D = (dO * O).sum(0)
# D = (dO * O).sum(-1)
dQ, dK, dV = torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V)
with kernel('backward', Q=Q, K=K, V=V, O=O, dO=dO, L=L, D=D, dQ=dQ, dK=dK, dV=dV):
    for j in key_blocks:
        K_j, V_j = load(K, j), load(V, j)
        dK_j, dV_j = torch.zeros_like(K_j), torch.zeros_like(V_j)
        for i in query_blocks:
            Q_i = load(Q, i)
#           Q_i, dO_i = load(Q, i), load(dO, i)
            O_i = load(O, i)
#
            dQ_i = load(dQ, i)
#
            L_i, D_i = load(L, i), load(D, i)
            P_ij = torch.exp(tau * Q_i @ K_j.T - L_i[:, None])
            dV_j += P_ij.T @ dO_i
            dP_ij = dO_i @ V_j.T
            dS_ij = P_ij * (dP_ij - D_i[:, None])
            dQ_i = load(dQ, i)
            store(dQ, i, dQ_i + tau * dS_ij @ K_j)
            dK_j += tau * dS_ij.T @ Q_i
        store(dK, j, dK_j)
        store(dV, j, dV_j)
"""


class Copied:
    """An algorithm as it was copied: its lines as printed, and the right ones. dropout: whether it knows p and keep."""

    def __init__(self, title, text, dropout):
        self.title, self.dropout = title, dropout
        self.printed, self.right = [], []
        for line in text.strip().split("\n"):
            if line.startswith("#"):
                self.right[-1] = _indented_as(self.right[-1], line[1:])
            else:
                self.printed.append(line)
                self.right.append(line)

    def __repr__(self):
        return "\n".join([self.title, *(f"{n:>2}  {line}" for n, line in enumerate(self.printed, 1))])

    def corrected(self, n):
        """The right form of line n, without its indentation; "" where there should be none."""
        return self.right[n - 1].strip()

    def wrong(self):
        """The numbers of the lines that are wrong: each is tried alone, in a program that is right."""
        right, found = self._run(self.right), []
        for n, line in enumerate(self.printed):
            errors, nbytes = self._run([*self.right[:n], line, *self.right[n + 1:]])
            if isinstance(errors, str) or max(errors.values()) > CLOSE or nbytes != right[1]:
                found.append(n + 1)
        return found

    def verdict(self, fixes=None):
        """How wrong the gradients are, and how many bytes too many move. fixes: {line: new code; "" drops the line}"""
        texts = list(self.printed)
        for n, code in (fixes or {}).items():
            if n not in range(1, len(texts) + 1):
                raise ValueError(f"fixes must be for lines 1 to {len(texts)}, got {n!r}")
            texts[n - 1] = _indented_as(texts[n - 1], code)
        errors, nbytes = self._run(texts)
        if isinstance(errors, str):
            return f"does not run: {errors}"
        off = [f"{name} {'right' if error <= CLOSE else f'off by {error:.1g}'}" for name, error in errors.items()]
        more = nbytes - self._run(self.right)[1]
        moved = "no byte too many" if more == 0 else f"{abs(more)} bytes too {'many' if more > 0 else 'few'}"
        return f"{', '.join(off)}; {moved}"

    def _run(self, texts):
        """({gradient: its error}, bytes moved) of the program of these lines; (what it raised, 0) if it fails."""
        inputs, truth = _problem(self.dropout)
        body = textwrap.indent("\n".join(texts), "    ")
        place = {"torch": torch, "load": load, "store": store, "kernel": kernel} | inputs
        try:
            exec(f"def backward():\n{body}\n    return dQ, dK, dV", place)
            with Memory() as mem:
                found = place["backward"]()
            errors = [float(max_error(mine, right)) for mine, right in zip(found, truth, strict=True)]
        except SyntaxError as error:   # its own line number counts the def
            return f"SyntaxError in line {error.lineno - 1}: {error.msg}", 0
        except Exception as error:     # noqa: BLE001    a misprint may raise anything
            return f"{type(error).__name__}: {error}".split("\n")[0], 0
        finite = [float("inf") if math.isnan(error) else error for error in errors]
        return dict(zip(("dQ", "dK", "dV"), finite, strict=True)), mem.read + mem.written


def _indented_as(line, code):
    return line[:len(line) - len(line.lstrip())] + code.strip()


@functools.cache
def _problem(dropout):
    """The names that the lines may use, in float64, and the true gradients."""
    g = torch.Generator().manual_seed(0)
    Q, K, V, dO = (torch.randn(n, D_HEAD, generator=g, dtype=torch.float64) for n in (N_Q, N_K, N_K, N_Q))
    p, tau = P_DROP if dropout else 0.0, D_HEAD**-0.5
    keep = torch.rand(N_Q, N_K, generator=g) >= p
    O, L = attention(Q, K, V, dropout_p=p, keep=keep) if dropout else attention(Q, K, V)
    m = (tau * Q @ K.T).amax(-1)
    inputs = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "L": L, "m": m, "l": torch.exp(L - m), "keep": keep.double(),
              "p": p, "tau": tau, "query_blocks": tiles(N_Q, B_R), "key_blocks": tiles(N_K, B_C)}
    return inputs, gradients(Q, K, V, dO, **({"dropout_p": p, "keep": keep} if dropout else {}))


COPIES = {"FA1": Copied("FA1's Algorithm 4 (p: dropout, keep: what it keeps, tau: the scale)", FA1, True),
          "FA2": Copied("FA2's Algorithm 2 (tau: the scale, which the paper leaves out)", FA2, False)}
