"""The memory model: what it counts, what it refuses, and what its errors say."""

import threading

import pytest
import torch

from flashlab.memory import (
    KiB,
    Memory,
    MemoryModelError,
    SRAMOverflow,
    active,
    format_bytes,
    kernel,
    load,
    store,
    tiles,
)
from flashlab.tiles import largest_square_tile
from flashlab.triton_mode import interpreted

A = torch.arange(12.0).reshape(3, 4)       # 48 bytes
ARRAY = A.numpy()
ROWS = torch.tensor([0, 2])                # 16 bytes
W = torch.nn.Parameter(torch.ones(100))
W.grad = torch.ones(100)


def moved(f):
    with Memory() as mem:
        f()
    return mem.read, mem.written


EAGER = [
    ("an elementwise op reads its operand and writes its result", lambda: A * 2, (48, 48)),
    ("one tensor given twice is read once", lambda: A * A, (48, 48)),
    ("two operands are read", lambda: A + A.clone(), (48 + 96, 48 + 48)),
    ("a matrix product", lambda: A @ A.T, (96, 36)),
    ("views are free", lambda: A.T[1:].unsqueeze(0).expand(5, 3, 3), (0, 0)),
    ("a reshape that must copy is not free", lambda: A.T.reshape(2, 6), (48, 48)),
    ("an expanded dimension is read once", lambda: A[:1].expand(3, 4) + 0.0, (16, 48)),
    ("empty costs nothing", lambda: torch.empty(3, 4), (0, 0)),
    ("zeros writes", lambda: torch.zeros(3, 4), (0, 48)),
    ("zeros_like does not read", lambda: torch.zeros_like(A), (0, 48)),
    ("arange writes", lambda: torch.arange(4), (0, 32)),
    ("in place reads and writes", lambda: A.clone().mul_(2), (96, 96)),
    ("a fill only writes", lambda: torch.empty(3, 4).fill_(1), (0, 48)),
    ("a slice assigned a number only writes", lambda: torch.empty(3, 4).__setitem__(slice(1), 0), (0, 16)),
    ("a copy reads the source and writes the target", lambda: torch.empty(3, 4).copy_(A), (48, 48)),
    ("a cast reads and writes in each dtype", lambda: A.half(), (48, 24)),
    ("a cast to the same dtype is free", lambda: A.float(), (0, 0)),
    ("detach is free", lambda: A.detach(), (0, 0)),
    ("cat reads every part", lambda: torch.cat([A, A + 0]), (48 + 96, 48 + 96)),
    ("softmax is one kernel", lambda: torch.softmax(A, -1), (48, 48)),
    ("where with a number", lambda: torch.where(A > 1, A, 0.0), (48 + 12 + 48, 12 + 48)),
    ("out= writes its target only", lambda: torch.add(A, 1, out=torch.empty(3, 4)), (48, 48)),
    ("an element of a tensor is read, as any part of it", lambda: A[0, 0] * 2, (4, 4)),
    ("a slice that is added to is read and written once", lambda: exec("B = A + 0; B[0:2] += 1", {"A": A}), (80, 80)),
    ("one slice assigned to another moves", lambda: exec("B = A + 0; B[0:1] = B[1:2]", {"A": A}), (64, 64)),
    ("a view made in place is free", lambda: A.clone().unsqueeze_(0), (48, 48)),
    ("rows that are picked count, and their numbers", lambda: A[ROWS], (32 + 16, 32)),
    ("index_select", lambda: A.index_select(1, ROWS), (24 + 16, 24)),
    ("an embedding", lambda: torch.nn.functional.embedding(ROWS, A), (32 + 16, 32)),
    ("gather", lambda: A.gather(1, ROWS[None]), (8 + 16, 8)),
    ("a mask picks", lambda: A[A > 9], (48 + 12 + 8, 12 + 8)),
    ("rows that are set", lambda: W.data.view(25, 4).__setitem__(ROWS, 0), (16, 32)),
    ("a mask that sets", lambda: exec("B[B > 99] = 0", {"B": W.data}), (400 + 100, 100)),
    ("rows that are added to", lambda: W.data.view(25, 4).index_add_(0, ROWS, A[:2] * 0), (32 + 16 + 32 + 32, 64)),
    ("scatter", lambda: W.data.view(25, 4).scatter_(0, ROWS[None], 1.0), (16, 8)),
    ("scattered sums", lambda: W.data.view(25, 4).scatter_add_(0, ROWS[None], A[:1]), (16 + 16 + 8, 8)),
    ("an optimizer's step", lambda: torch.optim.SGD([W], lr=0.5).step(), (800, 400)),
]


def test_eager_traffic():
    assert {what: moved(f) for what, f, _ in EAGER} == {what: expected for what, _, expected in EAGER}


def test_inference_mode_is_refused():
    """There matmul and reshape come whole, and their parts would be missed."""
    with torch.inference_mode(), Memory(), pytest.raises(MemoryModelError, match="use torch.no_grad"):
        A @ A.T


def test_hbm_peak_follows_lifetimes_through_views():
    with Memory() as mem:
        x = torch.zeros(1024)              # 4 KiB
        view = x[:10]
        del x                              # the view keeps the storage alive
        y = torch.zeros(1024)
        assert mem.hbm_peak == 8 * KiB
        del view, y
        z = torch.zeros(1024)              # takes the place of the freed ones
    assert mem.hbm_peak == 8 * KiB
    del z


def test_a_kernel_moves_only_what_it_loads_and_stores():
    out = torch.empty(2, 4)
    with Memory() as mem, kernel("k", A=A, out=out):
        tile = load(A, slice(0, 2)) * 2 + 1
        store(out, slice(0, 2), tile)
    assert (mem.read, mem.written) == (32, 32)
    assert torch.equal(out, A[:2] * 2 + 1)
    moves = [(e.kind, e.name, e.rows) for e in mem.log if e.kind != "compute"]
    assert moves == [("load", "A", (0, 2)), ("store", "out", (0, 2))]


def test_a_move_is_counted_in_its_tensors_own_dtype_and_copies_even_outside_memory():
    half, out = A.half(), torch.empty(3, 4, dtype=torch.float64)
    with Memory() as mem, kernel("k"):
        store(out, slice(None), load(half, slice(None)))
    assert (mem.read, mem.written) == (24, 96)
    tile = load(A, slice(0, 1))
    tile += 1
    assert A[0, 0] == 0


def test_sram_is_freed_when_a_tile_dies_and_shared_by_views():
    with Memory() as mem, kernel("k"):
        tile = load(A, slice(None))
        view = tile.T
        assert mem.sram_live == 48
        del tile
        assert mem.sram_live == 48
        del view
        assert mem.sram_live == 0
        a = load(A, slice(None))
        a = a * 2                          # old and new live side by side for a moment
    assert mem.sram_peak == 96


def test_overflow_names_operation_tile_bytes_budget_line_and_the_living():
    with Memory(sram_bytes=100) as mem:
        with pytest.raises(SRAMOverflow) as info, kernel("k", A=A):
            K_j = load(A, slice(None))
            S_ij = K_j @ K_j.T             # 36 more bytes: 84 of 100
            P_ij = S_ij.exp()              # 36 more: too many
            del P_ij
        for part in ("exp makes a tile (3, 3) float32 of 36 B", "84 B of the SRAM's 100 B", "test_memory.py:",
                     "P_ij = S_ij.exp()", "K_j (3, 4) float32 48 B", "S_ij (3, 3) float32 36 B", "smaller tiles"):
            assert part in str(info.value)
        del K_j, S_ij, info
        with kernel("again"):              # the model survives an overflow
            load(A, slice(None))
    assert mem.sram_peak == 84


def test_an_operand_in_hbm_is_refused_on_chip():
    with Memory(), pytest.raises(MemoryModelError, match=r"operand 1, A \(3, 4\) float32, is in HBM.*load\(A, rows\)"):
        with kernel("k", A=A):
            load(A, slice(None)) + A


def test_a_number_needs_no_load_and_an_element_of_a_tensor_does():
    scale, element = torch.tensor(2.0), A[1, 1]
    with Memory() as mem, kernel("k", A=A):
        tile = load(A, slice(None))
        assert torch.equal(tile * scale, A * 2 if active() is None else tile + tile)
        with pytest.raises(MemoryModelError, match=r"operand 1, A \(\) float32, is in HBM"):
            tile * element
        with pytest.raises(MemoryModelError, match="is in HBM"):
            A[1, 1].item()
        assert tile[1, 1].item() == 5
        assert torch.equal(tile[[0, 2]], tile[0:3:2]) and (torch.tensor([1.0, 2.0]) + 1).tolist() == [2, 3]
    assert mem.read == 48


def test_what_reads_past_pytorchs_operations_is_refused_in_hbm():
    peeks = (lambda T: T.tolist(), lambda T: T.numpy(), lambda T: T[0].tolist(),
             lambda T: torch.tensor([1.0, T[0, 0], T[1, 1]]))
    with Memory(), kernel("k", A=A):
        for peek in peeks:
            with pytest.raises(MemoryModelError, match=r"in kernel 'k': operand 0, A .* is in HBM.*load\(A, rows\)"):
                peek(A)
            assert len(peek(load(A, slice(None)))) >= 3
        for peek in (torch.from_numpy, torch.as_tensor):
            with pytest.raises(MemoryModelError, match="a NumPy array .* is in HBM"):
                peek(ARRAY)
        assert "tensor(" in repr(A) and "11." in f"{A}", "print is for the reader"
    assert A.tolist()[0][1] == 1


def test_views_and_shapes_of_tensors_in_hbm_move_nothing():
    heads = torch.arange(24.0).reshape(2, 3, 4)
    with Memory() as mem, kernel("k", A=A):
        assert torch.equal(load(A.T, slice(0, 2)), load(A, slice(None), slice(0, 2)).T)
        load(heads[1], slice(0, 1))
        assert torch.zeros_like(A).sum() == 0 and A.new_zeros(2).shape == (2,)
        with pytest.raises(MemoryModelError, match=r"A \(2, 4\) float32, is in HBM"):
            A[0:2] + 1
    assert mem.read == 24 + 24 + 16
    assert [e.name for e in mem.log if e.kind == "load"] == ["A(4, 3)", "A", "tensor(3, 4)"]


def test_a_tile_ends_with_its_kernel():
    with Memory():
        with kernel("k"):
            tile = load(A, slice(None))
        with pytest.raises(MemoryModelError, match="was on chip in kernel 'k' and ended with it"):
            tile + 1
        with pytest.raises(MemoryModelError, match="was on chip"), kernel("k"):
            tile + 1
        with pytest.raises(MemoryModelError, match="tile was on chip"), kernel("second", tile=tile):
            pass


def test_misuse_is_named():
    with Memory():
        with pytest.raises(MemoryModelError, match="load outside a kernel"):
            load(A, slice(None))
        refused = pytest.raises(MemoryModelError, match="'inner' starts inside kernel 'outer'")
        with kernel("outer"), refused, kernel("inner"):
            pass
        with kernel("k"):
            tile = load(A, slice(None))
            with pytest.raises(MemoryModelError, match="is on chip, not in HBM"):
                load(tile, slice(0, 1))
            with pytest.raises(MemoryModelError, match="is not on chip"):
                store(A, slice(None), A.clone() if active() is None else A)
            with pytest.raises(ValueError, match=r"tile has shape \(3, 4\), but T\[rows, cols\] has shape \(2, 4\)"):
                store(A, slice(0, 2), tile)
    with pytest.raises(TypeError, match="rows must be a slice"):
        load(A, 0)
    for wrong in (0.0, None):
        with pytest.raises(TypeError, match="tile must be a torch.Tensor of the shape of its place, got"):
            store(A, slice(0, 2), wrong)
    with pytest.raises(TypeError, match="T must be a vector or a matrix in HBM, such as one head"):
        load(A[None], slice(0, 1))
    with pytest.raises(TypeError, match=r"kernel\('k'\): Q must be a torch.Tensor"), kernel("k", Q=[1]):
        pass
    for value, error in ((0, ValueError), (-5, ValueError), (1.5, TypeError), ("9", TypeError)):
        with pytest.raises(error, match="sram_bytes must be an integer >= 1"):
            Memory(sram_bytes=value)


def test_autograd_is_off_inside_a_kernel():
    W = torch.ones(3, 4, requires_grad=True)
    with Memory(), kernel("k"):
        assert not load(W, slice(None)).requires_grad
    with kernel("k"):
        assert not (load(W, slice(None)) * 2).requires_grad


def test_memories_close_after_an_error_and_do_not_nest():
    with pytest.raises(ZeroDivisionError), Memory():
        raise ZeroDivisionError
    with Memory() as mem:
        with pytest.raises(MemoryModelError, match="a Memory starts inside a Memory"), Memory():
            pass
        assert active() is mem
    assert active() is None


def test_a_memory_sees_its_own_thread_alone():
    """Another thread is neither counted nor disturbed; what it computes is in HBM, not on chip."""
    def elsewhere(f):
        found = []
        thread = threading.Thread(target=lambda: found.append(f()))
        thread.start()
        thread.join()
        return found[0]

    def others():
        assert active() is None
        with kernel("theirs", A=A):
            return load(A, slice(0, 2)) + 1

    with Memory() as mem, kernel("mine", A=A):
        made = elsewhere(others)
        with pytest.raises(MemoryModelError, match="is in HBM"):
            made + 1
    assert (mem.read, mem.written) == (0, 0)


def test_every_matrix_product_counts_its_flops():
    products = [
        (lambda: torch.mm(A, A.T, out=torch.empty(3, 3)), 72),
        (lambda: torch.mm(A, torch.ones(4, 7), out=torch.empty(3, 7)), 2 * 3 * 4 * 7),
        (lambda: A @ torch.ones(4), 24),
        (lambda: torch.ones(3) @ A, 24),
        (lambda: A[0] @ A[1], 8),
        (lambda: torch.addmv(torch.ones(3), A, torch.ones(4)), 24),
        (lambda: torch.addmm(torch.ones(3), A, A.T), 72),
        (lambda: torch.ones(3, 3).addmm_(A, A.T), 72),
        (lambda: torch.ones(5, 3, 4) @ A.T, 5 * 72),
        (lambda: torch.bmm(torch.ones(5, 3, 4), torch.ones(5, 4, 2)), 5 * 48),
        (lambda: torch.einsum("ik,jk->ij", A, A), 72),
        (lambda: torch.nn.functional.linear(A, A, torch.ones(3)), 72),
    ]
    for f, expected in products:
        with Memory() as mem:
            f()
        assert mem.matmul_flops == expected
    with Memory() as mem:
        torch.mm(A, A.T)                   # 2·3·4·3
        (A * 2).sum(-1)                    # 12 + 12
        A.clone()                          # moves, computes nothing
    assert (mem.matmul_flops, mem.other_flops) == (72, 24)


def test_a_custom_kernel_is_refused():
    triton_rung = pytest.importorskip("flashlab.kernels.fa2", exc_type=ImportError).fa2_triton_forward
    X = torch.randn(1, 1, 16, 16, device="cpu" if interpreted() else "cuda")
    with Memory(), pytest.raises(MemoryModelError, match="the model cannot see what it moves"):
        triton_rung(X, X, X)


def test_tiles_cover_everything_once_and_the_default_follows_the_sram():
    assert tiles(7, 3) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert tiles(0, 3) == []
    with pytest.raises(ValueError, match="B must be an integer >= 1, got 0"):
        tiles(7, 0)
    assert largest_square_tile(64, 64, 4) == 64
    assert largest_square_tile(128, 128, 4) == 32
    with Memory(sram_bytes=64 * KiB):
        assert largest_square_tile(64, 64, 4) == 16
    with Memory(sram_bytes=1024):
        assert largest_square_tile(64, 64, 4) == 1      # nothing fits; the overflow will say so


def test_table_and_formats():
    with Memory() as mem:
        torch.softmax(A, -1)
    assert mem.table().splitlines()[1].split() == ["_softmax", "48", "B", "48", "B"]
    assert format_bytes(1536) == "1.5 KiB"


def test_who_watches_a_kernel_sees_what_is_on_chip():
    """The player draws what is on chip: a view of a tile is, a tensor in HBM and a tile that is gone are not."""
    T = torch.zeros(4, 2)
    with Memory() as mem:
        assert mem.running is None
        with kernel("look", T=T):
            tile = load(T, slice(0, 2))
            name, tensors = mem.running
            assert (name, tensors["T"] is T, mem.sram_live) == ("look", True, tile.nbytes)
            assert mem.on_chip(tile) and mem.on_chip(tile.T) and not mem.on_chip(T)
        assert mem.running is None and mem.sram_live == 0 and not mem.on_chip(tile)
