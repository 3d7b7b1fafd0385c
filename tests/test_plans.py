"""Plans, against kernels that only note what they were given: Triton's own would need a GPU."""

import gc
import weakref

import pytest
import torch

import flashlab  # noqa: F401  before Triton: it decides whether kernels are interpreted

triton = pytest.importorskip("triton")

from flashlab.kernels import plans  # noqa: E402
from flashlab.kernels.launch import descriptor  # noqa: E402


class Compiled:
    def __init__(self, noted):
        self.noted = noted

    def __getitem__(self, grid):
        assert len(grid) == 3
        return lambda *values: self.noted.append(("again", grid, values))


class Kernel:
    """Stands for a JITFunction: the first launch by names gives what is compiled, whose launches take values in order."""

    def __init__(self, *arg_names, compiles=True):
        self.arg_names, self.noted = arg_names, []
        self.compiled = Compiled(self.noted) if compiles else None

    def __getitem__(self, grid):
        def launch(**arguments):
            self.noted.append(("first", grid, arguments))
            return self.compiled
        return launch


@pytest.fixture(autouse=True)
def none_before():
    plans.forget()


def call(kernel, X, Y, options=None, launches=None):
    options = options or {"factor": 2.0}
    launches = launches or (lambda X, Y: [(kernel, (X.shape[0],), {"Y": Y, "X": X, "n": X.shape[0], "num_warps": 4} | options)])
    plans.run(plans.key(options.items(), X, Y), launches, {"X": X, "Y": Y})


def test_the_next_call_has_its_own_tensors_in_the_same_places():
    kernel = Kernel("X", "Y", "n", "factor")
    A, B, C = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    call(kernel, A, A)                                 # one tensor in two places: they need not be one the next time
    call(kernel, B, C)
    (first, grid, arguments), (again, grid_again, values) = kernel.noted
    assert (first, grid, again, grid_again) == ("first", (3,), "again", (3, 1, 1))
    assert arguments["X"].data_ptr() == A.data_ptr() == arguments["Y"].data_ptr()
    assert values == (B.data_ptr(), C.data_ptr(), 3, 2.0)


def another(change):
    X = torch.zeros(64)
    return {"size": X[:32], "stride": torch.zeros(128)[::2], "dtype": X.half(), "alignment": torch.zeros(65)[1:]}[change]


@pytest.mark.parametrize("change", ["size", "stride", "dtype", "alignment", "option"])
def test_a_call_of_another_kind_is_worked_out_anew(change):
    kernel = Kernel("X", "Y", "n", "factor")
    X = torch.zeros(64)
    call(kernel, X, X)
    if change == "option":
        call(kernel, X, X, {"factor": 3.0})
    else:
        call(kernel, X, another(change))
    assert [noted[0] for noted in kernel.noted] == ["first", "first"]


def test_temporaries_are_made_anew():
    fills, reads, made = Kernel("X", "T"), Kernel("T", "Y"), []

    def make(shape, **kind):
        made.append(torch.zeros(shape, **kind))
        return made[-1]

    def launches(X, Y):
        T = plans.temporary(make, 2, 3, dtype=torch.int32, device=X.device)
        return [(fills, (1,), {"X": X, "T": T}), (reads, (2, 2), {"T": T, "Y": Y})]

    for _ in range(3):
        call(None, torch.zeros(3), torch.zeros(3), launches=launches)
    filled, read = [noted[2][1] for noted in fills.noted[1:]], [noted[2][0] for noted in reads.noted[1:]]
    assert filled == read == [T.data_ptr() for T in made[1:]] and len({*filled}) == 2
    assert made[1].shape == (2, 3) and made[1].dtype == torch.int32
    assert reads.noted[1][1] == (2, 2, 1)


def test_a_descriptor_moves_to_the_new_tensor():
    kernel = Kernel("X", "Y")
    launches = lambda X, Y: [(kernel, (1,), {"X": descriptor(X, (16, 32), (64, 64)), "Y": Y})]
    A, B = torch.zeros(2, 32, 64), torch.zeros(2, 32, 64)
    call(None, A, A, launches=launches)
    call(None, B, A, launches=launches)
    first, again = kernel.noted[0][2]["X"], kernel.noted[1][2][0]
    assert again.base is B and again is not first and type(again) is type(first)
    assert (again.shape, again.strides, again.block_shape) == ([64, 64], [64, 1], [16, 32])
    assert first.base.data_ptr() == A.data_ptr(), "the first call's descriptor stays as it was"


def test_where_a_launch_takes_a_copy_there_is_no_plan():
    kernel = Kernel("X", "Y", "n", "factor")
    launches = lambda X, Y: [(kernel, (1,), {"X": -X, "Y": Y, "n": 3, "factor": 2.0})]
    for X in torch.ones(3), torch.ones(3) * 2:
        call(None, X, torch.zeros(3), launches=launches)
    assert [noted[0] for noted in kernel.noted] == ["first", "first"]
    assert kernel.noted[1][2]["X"].tolist() == [-2, -2, -2]


def test_interpreted_kernels_have_no_plans():
    kernel = Kernel("X", "Y", "n", "factor", compiles=False)
    for _ in range(2):
        call(kernel, torch.zeros(3), torch.zeros(3))
    assert [noted[0] for noted in kernel.noted] == ["first", "first"]


def test_who_listens_to_launches_hears_every_one(monkeypatch):
    kernel = Kernel("X", "Y", "n", "factor")
    call(kernel, torch.zeros(3), torch.zeros(3))
    monkeypatch.setattr(triton.JITFunction, "run", lambda *args, **kwargs: None)
    call(kernel, torch.zeros(3), torch.zeros(3))
    monkeypatch.undo()
    call(kernel, torch.zeros(3), torch.zeros(3))
    assert [noted[0] for noted in kernel.noted] == ["first", "first", "again"]


def test_a_plan_keeps_no_tensor_alive():
    X = torch.zeros(3)
    gone = weakref.ref(X.untyped_storage())
    kernel = type("Forgetful", (), {"arg_names": ("X", "Y", "n", "factor"),
                                    "__getitem__": lambda self, grid: lambda **arguments: Compiled([])})()
    call(kernel, X, X)
    del X
    gc.collect()
    assert gone() is None


def test_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(plans, "AT_MOST", 2)
    kernel = Kernel("X", "Y", "n", "factor")
    for n in (1, 2, 3, 3, 1):
        call(kernel, torch.zeros(n), torch.zeros(n))
    assert [noted[0] for noted in kernel.noted] == ["first", "first", "first", "again", "first"]
