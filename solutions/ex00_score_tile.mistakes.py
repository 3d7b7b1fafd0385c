from flashlab_course.check.cases import Mistake, case_of, drawn, in_float64

Q_ROWS, K_ROWS, ROOT = "Q[i * B_r : (i + 1) * B_r]", "K[j * B_c : (j + 1) * B_c]", "Q.shape[-1] ** -0.5"

outputs = [("S_ij", "row", "column")]
forbid = lambda shape, Q, K, i, j, B_r, B_c: shape == (len(Q), len(K)) != (min(len(Q), B_r), min(len(K), B_c)) and (
    f"the whole of S, {len(Q)} × {len(K)} scores, was made for a tile of {B_r} × {B_c}")
features = {"a short tile": lambda N_q, N_k, i, j, B_r, B_c: (i + 1) * B_r > N_q or (j + 1) * B_c > N_k}


@case_of
def case(N_q, N_k, d, i, j, B_r, B_c, **how):
    Q, K, *_ = drawn(N_q, N_k, d, **how)
    return {"Q": Q, "K": K, "i": i, "j": j, "B_r": B_r, "B_c": B_c}


cases = [case("one tile is all of S", 3, 4, 5, 0, 0, 3, 4, seed=900),
         case("second row of tiles", 6, 4, 3, 1, 0, 3, 2, seed=904),
         case("second column of tiles", 4, 9, 3, 0, 1, 2, 3, seed=906),
         case("third row, second column", 9, 8, 5, 2, 1, 3, 4, seed=908),
         case("a short tile at the end", 7, 11, 4, 2, 3, 3, 3, seed=910),
         case("9 rows in tiles of 4", 9, 10, 3, 1, 1, 4, 4, seed=914),
         in_float64(case("exact numbers", 5, 7, 4, 1, 0, 2, 3, exact=True, seed=912))]
mistakes = [
    Mistake("no_scale", "the scores were not divided by √d", "what follows the product of queries and keys",
            (" * " + ROOT, "")),
    Mistake("scale_d", "the scores were divided by d, not by its square root", "the power of d in the scale", (ROOT,
             "Q.shape[-1] ** -1.0")),
    Mistake("root_of_N", "the square root was taken of a number of rows, not of d", "which dimension is d", (ROOT,
             "len(Q) ** -0.5"), also=[[(ROOT, f"len({T}) ** -0.5")] for T in ("K", "K_j")]),
    Mistake("sizes_swapped", "queries were cut in tiles of B_c, and keys in tiles of B_r", "which size is whose",
            (Q_ROWS, "Q[i * B_c : (i + 1) * B_c]"), (K_ROWS, "K[j * B_r : (j + 1) * B_r]")),
    Mistake("i_and_j_swapped", "i counted key tiles, and j query tiles", "which letter is whose",
            (Q_ROWS, "Q[j * B_r : (j + 1) * B_r]"), (K_ROWS, "K[i * B_c : (i + 1) * B_c]")),
    Mistake("starts_by_the_other_size", "a tile started at a multiple of the other tile size",
            "the start of both slices", (K_ROWS, "K[j * B_r :][:B_c]"), also=[[(Q_ROWS, "Q[i * B_c :][:B_r]")]]),
    Mistake("starts_at_its_number", "a slice started at the number of its tile, not multiplied by the tile size",
            "the start of both slices", (Q_ROWS, "Q[i : i + B_r]"), (K_ROWS, "K[j : j + B_c]"),
            also=[[(Q_ROWS, "Q[i : i + B_r]")], [(K_ROWS, "K[j : j + B_c]")]]),
    Mistake("from_one", "tiles were counted from 1", "where tile 0 begins", (Q_ROWS, "Q[(i - 1) * B_r : i * B_r]"),
            (K_ROWS, "K[(j - 1) * B_c : j * B_c]")),
    Mistake("last_row_missing", "the tile's last row and column were left out", "whether a slice includes its end",
            ("(i + 1) * B_r", "(i + 1) * B_r - 1"), ("(j + 1) * B_c", "(j + 1) * B_c - 1")),
    Mistake("slid_back", "the last tile was moved back to be full, so it overlaps the one before", "the last tile",
            (Q_ROWS, "Q[: (i + 1) * B_r][-B_r:]"), (K_ROWS, "K[: (j + 1) * B_c][-B_c:]")),
    Mistake("padded", "a short last tile was padded with zeros to B_r by B_c", "the size of the last tile",
            ("return Q_i", "full = Q.new_zeros(B_r, B_c)\n    full[: len(Q_i), : len(K_j)] = Q_i"), (ROOT,
             "…\n    return full")),
    Mistake("whole_S", "all of S was made, and the tile was cut out of it", "what can be cut before the product",
            (Q_ROWS, "Q"), (K_ROWS, "K"), (f"Q_i @ K_j.T * {ROOT}", f"(…)[{Q_ROWS[2:-1]}, {K_ROWS[2:-1]}]")),
]
hints = ["How many rows of Q do the tiles before tile i take? Tile i begins there and has B_r rows.",
         "Q[a:b] gives rows a to b − 1, and fewer if Q ends before b. The keys likewise, with j and B_c.",
         "Each score is a dot product: (rows of Q) @ (rows of K).T, divided by the square root of d."]
