import torch

from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import Mistake, case_of, normal

SUM = "(dO_i * O_i).sum(-1)"

outputs = [("D", "query")]
truth = lambda O, dO, B_r: (O.double() * dO.double()).sum(-1)
sram_bytes = lambda O, dO, B_r: 1 * KiB if len(O) > 40 else 16 * KiB
most = lambda O, dO, B_r: {"O": B_r * O.shape[1], "dO": B_r * O.shape[1]}


def call(fn, O, dO, B_r):
    D = torch.full((len(O),), 7.0, dtype=torch.float64 if O.dtype == torch.float64 else torch.float32)
    with kernel("preprocess", O=O, dO=dO, D=D):
        for rows in tiles(len(O), B_r):
            fn(O, dO, D, rows)
    return D


case = case_of(lambda N_q, d_v, B_r, *, seed, dtype=torch.float32: {
    "O": normal(N_q, d_v, seed=seed, dtype=dtype), "dO": normal(N_q, d_v, seed=seed + 1, dtype=dtype), "B_r": B_r})
cases = [case("one row", 1, 3, 1, seed=840),
         case("two blocks", 6, 5, 3, seed=846),
         case("a short last block", 7, 3, 4, seed=848),
         case("16-bit inputs", 4, 200, 4, seed=850, dtype=torch.float16),
         case("many rows, little SRAM", 96, 4, 8, seed=852)]
mistakes = [
    Mistake("matrix_product", "dO and O were multiplied as matrices, and everything was summed",
            "the product of dO and O", (SUM, "(O_i @ dO_i.T).sum(-1)")),
    Mistake("sum_of_products_apart", "the row sums of dO and O were multiplied", "the order of product and sum", (SUM,
             "dO_i.sum(-1) * O_i.sum(-1)")),
    Mistake("mean", "D was the mean over the columns, not the sum", "the reduction over the columns", (".sum(-1)",
             ".mean(-1)")),
    Mistake("sum_of_column", "the sum ran over the rows, not over the columns", "the dimension of the sum", (".sum(-1)",
             ".sum(0)[: rows.stop - rows.start]")),
    Mistake("no_upcast", "product and sum were computed in 16 bits", "where the tiles are converted to D.dtype",
            *((f"load({T}, rows).to(D.dtype)", f"load({T}, rows)") for T in ("O", "dO")), (SUM, "….to(D.dtype)")),
    Mistake("sum_in_16_bits", "the product was rounded to 16 bits before the sum",
            "where the tiles are converted to D.dtype", ("(dO_i * O_i)", "(dO_i * O_i).to(O.dtype).to(D.dtype)")),
    Mistake("first_row_block", "every program loaded the first rows of O and dO", "the index of the loads",
            *((f"load({T}, rows)", f"load({T}, slice(rows.stop - rows.start))") for T in ("O", "dO"))),
    Mistake("first_rows_stored", "every program stored to the first rows of D", "the index of the store",
            ("store(D, rows,", "store(D, slice(0, rows.stop - rows.start),")),
]
hints = ["D_i = Σ_j P_ij dP_ij, and dP_ij = Σ_c dO_ic V_jc. Let the two sums change places: what is Σ_j P_ij V_jc?",
         "For one row D_i is a scalar product of two vectors of length d_v.",
         "For a block: an elementwise product of shape (B_r, d_v), summed over its last dimension."]
