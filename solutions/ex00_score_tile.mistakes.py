"""Cases and mistakes of ex00_score_tile."""

from flashlab_course.check.cases import epsilon, exact, in_float64, normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def case(name, N_q, N_k, d, i, j, B_r, B_c, *, draw=normal, seed):
    features = {"more than one tile of queries": i > 0, "more than one tile of keys": j > 0, "i ≠ j": i != j, "B_r ≠ B_c": B_r != B_c,
                "a short tile": (i + 1) * B_r > N_q or (j + 1) * B_c > N_k, "N_q ≠ N_k": N_q != N_k}
    sizes = {"i": i, "j": j, "B_r": B_r, "B_c": B_c}
    inputs = lambda: {"Q": draw(N_q, d, seed=seed), "K": draw(N_k, d, seed=seed + 1)} | sizes
    return Case(name, inputs, frozenset(f for f, true in features.items() if true), {"N_q": N_q, "N_k": N_k, "d": d} | sizes)


def forbid(shape, Q, K, i, j, B_r, B_c):
    if shape == (len(Q), len(K)) and (len(Q) > B_r or len(K) > B_c):
        return f"the whole of S, {len(Q)} × {len(K)} scores, was made for a tile of {B_r} × {B_c}"


EXERCISE = Exercise(
    function="score_tile",
    outputs=(Output("S_ij", ("row", "column")),),
    forbid=forbid,
    cases=[
        case("one tile is all of S", 3, 4, 2, 0, 0, 3, 4, seed=900),
        case("the first of four tiles", 4, 4, 3, 0, 0, 2, 2, seed=902),
        case("second row of tiles", 6, 4, 3, 1, 0, 3, 2, seed=904),
        case("second column of tiles", 4, 9, 3, 0, 1, 2, 3, seed=906),
        case("third row, second column", 9, 8, 5, 2, 1, 3, 4, seed=908),
        case("a short tile at the end", 7, 11, 4, 2, 3, 3, 3, seed=910),
        case("9 rows in tiles of 4", 9, 10, 3, 1, 1, 4, 4, seed=914),
        in_float64(case("exact numbers", 5, 7, 4, 1, 0, 2, 3, draw=exact, seed=912)),
    ],
    mistakes=[
        Mistake("slid_back", "the last tile was moved back so that it is full, and holds rows or columns of the one before",
                "the last tile: it starts at i · B_r like any other, and is short",
                ("Q[i * B_r : (i + 1) * B_r]", "Q[max(0, min(i * B_r, len(Q) - B_r)) :][:B_r]"),
                ("K[j * B_c : (j + 1) * B_c]", "K[max(0, min(j * B_c, len(K) - B_c)) :][:B_c]")),
        epsilon(("* Q.shape[-1] ** -0.5", "/ (Q.shape[-1] ** 0.5 + ε)"), what="a small number was added to √d", look="the scale: 1/√d needs no ε"),
        Mistake("no_scale", "the scores were not divided by √d", "S = Q Kᵀ / √d: the factor is d to the power −0.5", (" * Q.shape[-1] ** -0.5", "")),
        Mistake("scale_d", "the scores were divided by d, not by its square root", "the scale enters once: 1/√d is d ** -0.5",
                ("Q.shape[-1] ** -0.5", "Q.shape[-1] ** -1.0")),
        Mistake("scale_from_tile", "√ was taken of the tile's number of queries or of keys, not of d", "d is Q.shape[-1], the numbers of one query",
                ("Q.shape[-1] ** -0.5", "len(Q_i) ** -0.5"), also=[[("Q.shape[-1] ** -0.5", "len(K_j) ** -0.5")]]),
        Mistake("sizes_swapped", "B_r and B_c were swapped, or one of them was taken for the other", "B_r queries, B_c keys",
                ("Q[i * B_r : (i + 1) * B_r]", "Q[i * B_c : (i + 1) * B_c]"), ("K[j * B_c : (j + 1) * B_c]", "K[j * B_r : (j + 1) * B_r]")),
        Mistake("transposed", "the tile came out transposed: a row for each key", "a row of S belongs to a query: Q_i K_jᵀ", ("Q_i @ K_j.T", "K_j @ Q_i.T")),
        Mistake("from_one", "tiles were counted from 1", "i and j count from 0: the first tile begins at row 0",
                ("Q[i * B_r : (i + 1) * B_r]", "Q[(i - 1) * B_r : i * B_r]"), ("K[j * B_c : (j + 1) * B_c]", "K[(j - 1) * B_c : j * B_c]")),
        Mistake("last_row_missing", "the tile's last row and column were left out",
                "rows i · B_r to (i + 1) · B_r − 1 belong to tile i, the last one too, and keys likewise; a slice a:b ends before b",
                ("(i + 1) * B_r", "(i + 1) * B_r - 1"), ("(j + 1) * B_c", "(j + 1) * B_c - 1")),
        Mistake("whole_S", "all of S was made, and the tile cut out of it", "cut Q and K first, then multiply", body="""
            S = Q @ K.T * Q.shape[-1] ** -0.5
            return S[i * B_r : (i + 1) * B_r, j * B_c : (j + 1) * B_c]
            """),
        Mistake("root_of_N", "√ was taken of the number of queries or of keys, not of d", "√d: d is Q.shape[-1], the numbers of one query",
                ("Q.shape[-1] ** -0.5", "len(Q) ** -0.5"), also=[[("Q.shape[-1] ** -0.5", "len(K) ** -0.5")]]),
        Mistake("whole_root", "√d was rounded down to a whole number", "√d as it is, no whole number: d ** 0.5 or math.sqrt",
                ("Q.shape[-1] ** -0.5", "int(Q.shape[-1] ** 0.5) ** -1.0")),
        Mistake("tiles_alike", "the rows were dealt out evenly, into tiles of about the same size",
                "tile i begins at row i · B_r: all tiles have B_r rows but the last", ("Q[i * B_r : (i + 1) * B_r]", "Q.tensor_split(-(-len(Q) // B_r))[i]"),
                ("K[j * B_c : (j + 1) * B_c]", "K.tensor_split(-(-len(K) // B_c))[j]"), also=
                     [[("Q[i * B_r : (i + 1) * B_r]", "Q.chunk(-(-len(Q) // B_r))[i]"), ("K[j * B_c : (j + 1) * B_c]", "K.chunk(-(-len(K) // B_c))[j]")]]),
        Mistake("padded", "a short last tile was filled up to B_r by B_c with zeros", "the last tile: it is short, only on a GPU is it padded",
                ("return Q_i @ K_j.T * Q.shape[-1] ** -0.5",
                 "full = Q.new_zeros(B_r, B_c)\n    full[: len(Q_i), : len(K_j)] = Q_i @ K_j.T * Q.shape[-1] ** -0.5\n    return full")),
        Mistake("starts_by_the_other_size", "a tile started at a multiple of the other tile size: the keys at j · B_r, or the queries at i · B_c",
                "the two slices: rows go in steps of B_r, keys in steps of B_c", ("K[j * B_c : (j + 1) * B_c]", "K[j * B_r : j * B_r + B_c]"),
                also=[[("Q[i * B_r : (i + 1) * B_r]", "Q[i * B_c : i * B_c + B_r]")]]),
    ],
    hints=[
        "Tile i of the queries begins at row i * B_r and has B_r rows. Q[a:b] gives rows a to b − 1, fewer if Q ends before.",
        "The keys likewise, with j and B_c.",
        "Each score is a dot product: (rows of Q) @ (rows of K).T, divided by d ** 0.5, and d is Q.shape[-1].",
    ],
)
