"""Published algorithms beside the lines of ours that do the same: chapter 08."""

import inspect

from flashlab.rungs import fa1_backward, fa2_backward
from flashlab_course.figures.plots import box, canvas, panel
from flashlab_course.figures.style import figure, finish

DIFFERS = "#FDEBD8"
LOAD, STORE = r"\mathrm{load}\ ", r"\mathrm{store}\ "
# (line, what it says, the line of ours, what differs)
FA1 = ("Algorithm 4 of FA1", "Dao et al. 2022, arXiv:2205.14135, appendix B.4", fa1_backward, [
    (1, r"\mathrm{generator} \leftarrow \mathcal{R}", "draw = keep_masks(", "its masks are drawn from the same state"),
    (5, r"dQ, dK, dV \leftarrow 0\ \mathrm{in\ HBM}", "dQ = torch.zeros(",
     "dK and dV are not zeroed: each is stored once, whole"),
    (6, r"\mathrm{for}\ 1 \leq j \leq T_c", "for cols in tiles(K.shape[0], B_c):", ""),
    (7, LOAD + r"K_j, V_j", "K_j = load(K, cols)", ""),
    (8, r"\tilde{dK}_j, \tilde{dV}_j \leftarrow 0\ \mathrm{on\ chip}", "dK_j = torch.zeros_like(K_j)", ""),
    (9, r"\mathrm{for}\ 1 \leq i \leq T_r", "for rows in tiles(Q.shape[0], B_r):", ""),
    (10, LOAD + r"Q_i, O_i, dO_i, dQ_i, \ell_i, m_i", "Q_i = load(Q, rows)", "dQ_i at line 21"),
    (11, r"S_{ij} = \tau\, Q_i K_j^{T}", "S_ij = Q_i @ K_j.T * scale", ""),
    (12, r"S_{ij} \leftarrow \mathrm{mask}(S_{ij})", "S_ij = S_ij.masked_fill(hidden_ij, -inf)", ""),
    (13, r"P_{ij} = \mathrm{diag}(\ell_i)^{-1}\, e^{S_{ij} - m_i}",
     "P_ij = torch.exp(S_ij - m_safe[:, None]) / l_safe[:, None]",
     "safe where a row sees no key"),
    (14, r"Z_{ij}:\ 1/(1-p)\ \mathrm{or}\ 0", "kept = keep_ij / (1 - dropout_p)", "only where there is dropout"),
    (16, r"\tilde{dV}_j \leftarrow \tilde{dV}_j + (P_{ij} \circ Z_{ij})^{T}\, dO_i", "dV_j += P_ij.T @ dO_i",
     "its product with Z is line 15"),
    (17, r"dP_{ij} = dO_i V_j^{T}", "dP_ij = dO_i @ V_j.T", ""),
    (18, r"dP_{ij} \leftarrow dP_{ij} \circ Z_{ij}", "dP_ij *= kept", "only where there is dropout"),
    (19, r"D_i = \mathrm{rowsum}(dO_i \circ O_i)", "D_i = (dO_i * load(O, rows)).sum(-1)", ""),
    (20, r"dS_{ij} = P_{ij} \circ (dP_{ij} - D_i)", "return P_ij * kept, P_ij * (dP_ij - D_i[:, None])", ""),
    (21, STORE + r"dQ_i + \tau\, dS_{ij} K_j", "dQ_i += scale * dS_ij @ K_j", ""),
    (22, r"\tilde{dK}_j \leftarrow \tilde{dK}_j + \tau\, dS_{ij}^{T} Q_i", "dK_j += scale * dS_ij.T @ Q_i", ""),
    (24, STORE + r"dK_j, dV_j", "store(dK, cols, dK_j)", ""),
])
FA2 = ("Algorithm 2 of FA2", "Dao 2023, arXiv:2307.08691, section 3.1.2", fa2_backward, [
    (3, r"dQ \leftarrow 0\ \mathrm{in\ HBM}", "dQ = torch.zeros(", ""),
    (4, r"D = \mathrm{rowsum}(dO \circ O) \in \mathbb{R}^d",
     "D_i = (load(dO, rows).to(D.dtype) * load(O, rows)).sum(-1)", "one number a row: D has N"),
    (5, r"\mathrm{for}\ 1 \leq j \leq T_c", "for cols in tiles(K.shape[0], B_c):", ""),
    (6, LOAD + r"K_j, V_j", "K_j = load(K, cols)", ""),
    (7, r"dK_j, dV_j \leftarrow 0\ \mathrm{on\ chip}", "dK_j = torch.zeros_like(K_j)", ""),
    (8, r"\mathrm{for}\ 1 \leq i \leq T_r", "for rows in tiles(Q.shape[0], B_r):",
     "causal: blocks that see nothing are skipped"),
    (9, LOAD + r"Q_i, O_i, dO_i, dQ_i, L_i, D_i", "Q_i = load(Q, rows)", "no O_i: nothing uses it; dQ_i at line 15"),
    (10, r"S_i^{(j)} = Q_i K_j^{T}", "S_ij = Q_i @ K_j.T * scale", "times scale, and then masked"),
    (11, r"P_i^{(j)} = e^{S_i^{(j)} - L_i}", "P_ij = torch.exp(S_ij - L_safe[:, None])",
     "safe where a row sees no key"),
    (12, r"dV_j \leftarrow dV_j + (P_i^{(j)})^{T}\, dO_i", "dV_j += P_ij.T @ dO_i", ""),
    (13, r"dP_i^{(j)} = dO_i V_j^{T}", "dP_ij = dO_i @ V_j.T", ""),
    (14, r"dS_i^{(j)} = P_i^{(j)} \circ (dP_i^{(j)} - D_i)", "dS_ij = P_ij * (dP_ij - D_i[:, None])", ""),
    (15, LOAD + r"dQ_i,\ " + STORE + r"dQ_i + dS_i^{(j)} K_j", "dQ_i += scale * dS_ij @ K_j",
     "times scale; loaded once, here"),
    (16, r"dK_j \leftarrow dK_j + (dS_i^{(j)})^{T} Q_i", "dK_j += scale * dS_ij.T @ Q_i", "times scale"),
    (18, STORE + r"dK_j, dV_j", "store(dK, cols, dK_j)", ""),
])
PUBLISHED = {"fa1_backward": FA1, "fa2_backward": FA2}


@figure
def algorithm_beside_code(name):
    """A published algorithm, line by line, beside ours.

    name: a key of PUBLISHED. Shaded: where ours does something else.

    Raises: ValueError for a name without one, or where a line of code is no longer in the source
    """
    if name not in PUBLISHED:
        raise ValueError(f"name must be one of {', '.join(PUBLISHED)}, got {name!r}")
    title, where, module, lines = PUBLISHED[name]
    source = inspect.getsource(module)
    fig, ax = panel(10.4, 0.9 + 0.34 * len(lines))
    for y, (number, formula, code, differs) in enumerate(lines):
        if code not in source:
            raise ValueError(f"{module.__name__} has no line {code!r} any more")
        if differs:
            box(ax, 0, y - 0.5, fill=DIFFERS, lw=0)
        ours = next(line for line in source.splitlines() if code in line).split("  #")[0].strip()
        ax.text(0.005, y, number, va="center", color="#555555", fontsize=9)
        ax.text(0.04, y, f"${formula}$", va="center", fontsize=10.5)
        ax.text(0.31, y, ours if len(ours) <= 62 else ours[:60] + " …", va="center", fontsize=8, family="monospace")
        ax.text(0.995, y, differs, ha="right", va="center", fontsize=8, color="#9A4A00")
    canvas(ax, (0, 1), (len(lines) - 0.4, -0.6), equal=False)
    changed = sum(bool(differs) for *_, differs in lines)
    return finish(fig, f"{title} beside our lines: {changed} of {len(lines)} are not the same",
                  f"Published: {where}, in our words and letters. Code: flashlab/rungs/{name}.py. Shaded: what "
                  "differs.")
