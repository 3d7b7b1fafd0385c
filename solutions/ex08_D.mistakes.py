"""Cases and mistakes of ex08_D."""

import torch

from flashlab.memory import KiB, kernel, tiles
from flashlab_course.check.cases import normal
from flashlab_course.check.form import Case, Exercise, Mistake, Output


def call(fn, O, dO, B_r):
    D = torch.full((len(O),), 7.0, dtype=torch.float64 if O.dtype == torch.float64 else torch.float32)
    with kernel("preprocess", O=O, dO=dO, D=D):
        for rows in tiles(len(O), B_r):
            fn(O, dO, D, rows)
    return D


def case(name, N_q, d_v, B_r, *, seed, dtype=torch.float32):
    features = {"more than one query block": N_q > B_r, "a short last query block": N_q % B_r != 0, "more than one query": N_q > 1,
                "16-bit inputs": dtype != torch.float32}

    def make():
        return {"O": normal(N_q, d_v, seed=seed, dtype=dtype), "dO": normal(N_q, d_v, seed=seed + 1, dtype=dtype), "B_r": B_r}

    return Case(name, make, frozenset(f for f, holds in features.items() if holds), {"N_q": N_q, "d_v": d_v, "B_r": B_r})


EXERCISE = Exercise(
    function="preprocess",
    outputs=(Output("D", ("query",)),),
    call=call,
    truth=lambda O, dO, B_r: ((O.double() * dO.double()).sum(-1),),
    sram_bytes=lambda O, dO, B_r: 1 * KiB if len(O) > 40 else 16 * KiB,
    most=lambda O, dO, B_r: {"O": B_r * O.shape[1], "dO": B_r * O.shape[1]},
    cases=[
        case("one row", 1, 3, 1, seed=840),
        case("one block", 3, 4, 3, seed=842),
        case("square block", 4, 4, 4, seed=844),
        case("two blocks", 4, 3, 2, seed=846),
        case("a short last block", 7, 3, 4, seed=848),
        case("16-bit inputs", 4, 200, 4, seed=850, dtype=torch.float16),
        case("many rows, little SRAM", 96, 4, 8, seed=852),
        case("bfloat16 inputs", 3, 40, 2, seed=854, dtype=torch.bfloat16),
    ],
    mistakes=[
        Mistake("O_squared", "D was the row sums of O∘O: dO did not appear", "the product: dO_i times O_i", ("(dO_i * O_i)", "(O_i * O_i)")),
        Mistake("dO_squared", "D was the row sums of dO∘dO: O did not appear", "the product: dO_i times O_i", ("(dO_i * O_i)", "(dO_i * dO_i)")),
        Mistake("sum_of_dO", "D was the row sums of dO: O did not appear", "the product: dO_i times O_i", ("(dO_i * O_i)", "dO_i")),
        Mistake("mean", "D was the mean over the columns, not the sum", "the reduction: a scalar product is a sum", (".sum(-1)", ".mean(-1)")),
        Mistake("sum_of_column", "the sum ran down the rows, not along the columns", "the dimension of the sum: D has one number for each query",
                (".sum(-1)", ".sum(0)[: rows.stop - rows.start]")),
        Mistake("one_number", "one number was stored for all rows of the block", "the dimension of the sum: D has one number for each query",
                ("(dO_i * O_i).sum(-1)", "(dO_i * O_i).sum().expand(rows.stop - rows.start).clone()")),
        Mistake("negative", "D came out with the other sign", "the sign: dS = P∘(dP − D) has the minus already",
                ("(dO_i * O_i).sum(-1)", "-(dO_i * O_i).sum(-1)")),
        Mistake("sum_in_16_bits", "the product was rounded to 16 bits before it was summed", "each load: `.to(D.dtype)` before the product",
                ("(dO_i * O_i)", "(dO_i * O_i).to(O.dtype).to(D.dtype)")),
        Mistake("all_rows", "all rows were loaded, not only those of the block", "the index of the load: rows",
                ("O_i = load(O, rows).to(D.dtype)", "O_i = load(O, slice(0, len(O))).to(D.dtype)[rows]"),
                also=[[("load(O, rows).to(D.dtype)", "load(O, slice(0, len(O))).to(D.dtype)[rows]"),
                       ("load(dO, rows).to(D.dtype)", "load(dO, slice(0, len(dO))).to(D.dtype)[rows]")]]),
        Mistake("O_read_twice", "O was loaded twice", "how often O[rows] is loaded: once", ("(dO_i * O_i)", "(dO_i * load(O, rows).to(D.dtype))")),
        Mistake("first_row_block", "every program took O, dO or both from the first rows, not from its own", "what is loaded: O[rows] and dO[rows]",
                ("load(dO, rows)", "load(dO, slice(0, rows.stop - rows.start))"), also=[[("load(O, rows)", "load(O, slice(0, rows.stop - rows.start))")],
                      [("load(O, rows)", "load(O, slice(0, rows.stop - rows.start))"), ("load(dO, rows)", "load(dO, slice(0, rows.stop - rows.start))")]]),
        Mistake("matrix_product",
                "dO and O were multiplied as matrices, so that each row of the one met every row of the other in its block, and all of that was summed",
                "the product: element by element, then the sum over the columns", ("(dO_i * O_i).sum(-1)", "(dO_i @ O_i.T).sum(-1)"),
                also=[[("(dO_i * O_i).sum(-1)", "(O_i @ dO_i.T).sum(-1)")]]),
        Mistake("sum_not_product", "dO and O were added, not multiplied", "the product: dO_i times O_i", ("(dO_i * O_i)", "(dO_i + O_i)")),
        Mistake("sum_of_products_apart", "the row sums of dO and O were multiplied", "the order: first the products, then their sum",
                ("(dO_i * O_i).sum(-1)", "dO_i.sum(-1) * O_i.sum(-1)")),
        Mistake("root", "the square root of the sum was taken", "D: the sum itself", ("(dO_i * O_i).sum(-1)", "(dO_i * O_i).sum(-1).abs().sqrt()")),
        Mistake("divided_by_root_d", "the sum was scaled by 1/√d_v", "D: the sum itself, no scale",
                ("(dO_i * O_i).sum(-1)", "(dO_i * O_i).sum(-1) / O.shape[1] ** 0.5")),
        Mistake("last_column_missing", "the last column was left out", "the columns: all d_v of them", ("(dO_i * O_i)", "(dO_i * O_i)[:, :-1]")),
        Mistake("sum_rounded", "the sum was rounded to 16 bits", "D's dtype: the sum stays in it",
                ("(dO_i * O_i).sum(-1)", "(dO_i * O_i).sum(-1).to(O.dtype).to(D.dtype)")),
        Mistake("no_upcast", "products and sums were made from the 16-bit tiles as they were loaded, in 16 bits", "each load: `.to(D.dtype)` before the product",
                ("load(O, rows).to(D.dtype)", "load(O, rows)"), ("load(dO, rows).to(D.dtype)", "load(dO, rows)"),
                ("(dO_i * O_i).sum(-1)", "(dO_i * O_i).sum(-1).to(D.dtype)"), also=
                     [[("load(O, rows).to(D.dtype)", "load(O, rows)"), ("load(dO, rows).to(D.dtype)", "load(dO, rows)")]]),
        Mistake("stored_whole", "D was stored whole by every program", "the store: D[rows], the rows of this program",
                ("store(D, rows, (dO_i * O_i).sum(-1))", "store(D, slice(0, len(D)), (dO_i * O_i).sum(-1).repeat(len(D))[: len(D)])")),
        Mistake("first_rows_stored", "every program stored to the first rows of D", "the index of store: rows",
                ("store(D, rows,", "store(D, slice(0, rows.stop - rows.start),")),
        Mistake("never_stored", "nothing was stored", "the end of each program: store(D, rows, ...)", ("store(D, rows, (dO_i * O_i).sum(-1))", "pass")),
        Mistake("reversed", "the rows of dO and O were put together in reverse order", "row n of dO meets row n of O", ("(dO_i * O_i)", "(dO_i * O_i.flip(0))")),
        Mistake("block_from_its_length", "the block's number was rows.start divided by the block's own length, which is wrong for a short last block",
                "the index of load and store: rows, as it came", ("O_i = load(O, rows)",
                 "size = rows.stop - rows.start\n    rows = slice(rows.start // size * size, rows.start // size * size + size)\n    O_i = load(O, rows)")),
    ],
    hints=[
        "For one row: D_i = dO_i · O_i, a scalar product of two vectors of length d_v.",
        "For a block: (dO_i * O_i) has shape (B_r, d_v); sum over its last dimension.",
    ],
)
