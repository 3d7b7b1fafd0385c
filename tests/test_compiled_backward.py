"""The backward kernels above the first as GPUs would run them: tensor cores, copies, registers, shared memory, ahead of time."""

import re

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all
from flashlab_course.gpu.occupancy import occupancy

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")

from test_compiled_ladder import BY_TMA, PACKED, PRODUCT, WINDOW  # noqa: E402

from flashlab.kernels import fa2_atomic_backward, fa2_backward, fa2_split_backward, fa2_tma_backward
from flashlab.kernels.tuning import Tiles  # noqa: E402
from flashlab.operator import hopper_backward as fa2_hopper_backward  # noqa: E402

COPIES = {80: "cp.async.cg", 89: "cp.async.cg", 90: "cp.async.cg", 100: "cp.async.cg"}
DKDV, DQ = 1, 2                        # which launch of three
LAST_BUT_ONE = -2                      # of however many


def job(module, which, arch, d, causal, N=4096, H_kv=16, few=None, heads=16, N_k=None, **tiles):
    X, X_kv = (torch.empty(1, H, n, d, dtype=torch.bfloat16, device="meta") for H, n in ((heads, N), (H_kv, N_k or N)))
    L = torch.empty(1, heads, N, device="meta")
    launches = module.launch(X, X_kv, X_kv, X, X, L, None, X, X_kv, X_kv, causal=causal, scale=d**-0.5, **few or {})
    kernel, _, arguments = launches[which]
    return kernel, arguments | tiles, arch


# compiling takes seconds, so few for each kernel; then bytes spilled, at most: of addresses and counts, none of a tile
CASES = {
    "split dK, dV 90": (job(fa2_split_backward, DKDV, 90, 64, True), 0),
    "split dQ 89": (job(fa2_split_backward, DQ, 89, 64, True), 0),
    "atomic 80": (job(fa2_atomic_backward, DKDV, 80, 64, True), 96),
    "atomic 90": (job(fa2_atomic_backward, DKDV, 90, 64, True), 0),
    "atomic 90 d 128": (job(fa2_atomic_backward, DKDV, 90, 128, False), 96),
    "atomic 100": (job(fa2_atomic_backward, DKDV, 100, 128, True, B_c=64), 0),    # what launch picks for a Blackwell
    "tma d 64": (job(fa2_tma_backward, DKDV, 90, 64, True), 0),
    "tma d 64, lean": (job(fa2_tma_backward, DKDV, 90, 64, False), 60),
    "tma d 128": (job(fa2_tma_backward, DKDV, 90, 128, False, 4095, 4), 200),
    "tma 100": (job(fa2_tma_backward, DKDV, 100, 128, True, few={"tiles": {"keys": Tiles(64, 64, 8, 2)}}), 0),      # the same
    "hopper d 64": (job(fa2_hopper_backward, DKDV, 90, 64, True), 0),
    "hopper d 128": (job(fa2_hopper_backward, DKDV, 90, 128, True, 4095), 400),
    "hopper d 128, shared key heads": (job(fa2_hopper_backward, DKDV, 90, 128, True, 256, 2), 400),        # in 8 parts
    "hopper d 64, three consumers": (job(fa2_hopper_backward, DKDV, 90, 64, False, 12288), 800),
    "hopper d 64, window": (job(fa2_hopper_backward, LAST_BUT_ONE, 90, 64, False, few=WINDOW), 0),
    "hopper d 128, window": (job(fa2_hopper_backward, LAST_BUT_ONE, 90, 128, False, few=WINDOW), 600),
    "hopper d 128, packed": (job(fa2_hopper_backward, LAST_BUT_ONE, 90, 128, True, 16384, few=PACKED), 600),
}


@pytest.fixture(scope="module")
def compiled():
    """All in one process: starting one takes longer than compiling a kernel."""
    return dict(zip(CASES, compile_all(job for job, _ in CASES.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if a change loses the tensor cores or the copies in the background, spills registers, or outgrows shared memory."""
    ((_, _, arch), spills), result = CASES[name], compiled[name]
    assert PRODUCT[arch] in result.ptx and (BY_TMA if "hopper" in name or "tma" in name else COPIES[arch]) in result.ptx
    assert result.spills <= spills
    assert not result.warnings or name == "tma d 64, lean"              # ptxas says here when wgmma is serialised
    assert result.shared_bytes <= SHARED_LIMIT[arch]


def test_every_kernel_is_compiled_somewhere():
    """fa2_triton_backward in test_triton_backward.py; fa2_tuned_backward has fa2_split_backward's kernels."""
    there = {f"fa2_{name.split()[0]}_backward" for name in CASES}
    assert {kernel.name for kernel in ladder.BACKWARD_KERNELS} - there == {"fa2_triton_backward", "fa2_tuned_backward"}


def test_dq_is_added_up_without_waiting_and_in_whole_lines(compiled):
    """Fails if a sum returns its old value, which a program would wait for, or goes out number by number."""
    adds = set(re.findall(r"\b(?:RED|ATOM)\w*\.\S+", compiled["atomic 90"].sass))
    assert adds and all(add.startswith("RED") and "x4" in add for add in adds), adds
    assert all("cp.reduce.async.bulk.tensor" in compiled[name].ptx for name in ("tma d 64", "hopper d 64"))


def test_three_lean_programs_run_on_an_sm(compiled):
    """What makes up for products that wait for one another there: 168 registers are too few to have two under way."""
    lean = compiled["tma d 64, lean"]
    assert occupancy(4 * 32, lean.registers, lean.shared_bytes).blocks == 3


def loops(sass):
    """The code of each loop that computes products."""
    code = [line for line in sass.splitlines() if re.search(r"/\*[0-9a-f]{4,5}\*/", line)]
    places = {int(re.search(r"/\*([0-9a-f]{4,5})\*/", line)[1], 16): n for n, line in enumerate(code)}
    jumps = [(places.get(int(to[1], 16), n), n) for n, line in enumerate(code) if (to := re.search(r"BRA 0x([0-9a-f]+)", line))]
    found = ["\n".join(code[start:end + 1]) for start, end in jumps if start < end]
    return [loop for loop in found if "HGMMA" in loop]


def test_the_consumers_of_the_hopper_kernel_keep_their_tiles_in_registers(compiled):
    """Fails if a round of two tiles reads more spilled registers than a few addresses, or waits for a product it has just begun."""
    for name, at_most in (("hopper d 64", 0), ("hopper d 128", 12)):
        steps = [loop for loop in loops(compiled[name].sass) if len(re.findall("MUFU.EX2", loop)) == 64]
        assert len(steps) >= 4                         # each consumer has its own, with masks and without
        shortest = sorted(steps, key=len)[:4]
        assert all(len(re.findall(r"\bLDL\b", step)) <= at_most for step in shortest)
        assert "setmaxnreg" in compiled[name].ptx


@pytest.mark.parametrize("module", [fa2_backward, fa2_split_backward, fa2_atomic_backward])
def test_a_tile_that_is_not_there_is_not_copied(module):
    """Fails if the compiler may take it that there is a tile: it then copies the first one before the loop without asking.

    A copy in the background has a size, 0 where nothing is to be read. 57 rows make no whole tile, so no size is always above 0.
    """
    kernel, arguments, arch = job(module, DKDV, 90, 64, True, 57, 1, heads=1, N_k=352)
    ptx = compile_all([(kernel, arguments, arch)])[0].ptx
    always = {name for name, size in re.findall(r"mov\.b32\s+(%r\d+), (\d+);", ptx) if int(size) > 0}
    sizes = re.findall(r"^\s*cp\.async\.c[ag]\.shared\.global .*, (\S+);$", ptx, re.MULTILINE)
    assert sizes and not [size for size in sizes if size in always or not size.startswith("%")]
