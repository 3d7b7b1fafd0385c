"""The backward kernels as GPUs would run them: tensor cores, copies, registers, shared memory."""

import re
from itertools import product

import pytest
import torch

import flashlab  # noqa: F401   before triton: it decides whether kernels are interpreted
from flashlab import ladder
from flashlab_course.compiler.ahead_of_time import SHARED_LIMIT, compile_all
from flashlab_course.gpu.occupancy import occupancy

pytest.importorskip("flashlab.kernels.launch", reason="triton is not installed (it exists for Linux only)")

from test_compiled import BY_THREADS, BY_TMA, MEASURED, PACKED, PRODUCT, SEED, WINDOW, product_loops  # noqa: E402

from flashlab.kernels import fa2_atomic_backward, fa2_backward, fa2_split_backward, fa2_tma_backward
from flashlab.kernels.tuning import Tiles  # noqa: E402
from flashlab.operator import hopper_backward, wide_backward  # noqa: E402

DKDV, DQ = 1, 2                        # which launch of three
LAST_BUT_ONE = -2                      # of however many
SMALLER = {"tiles": {"keys": Tiles(64, 64, 8, 2)}}
DROPOUT = {"dropout_p": 0.1, "seed": SEED}
ANY = 2**20                            # bytes spilled: not looked at


def job(module, arch, d, causal, N=4096, *, which=DKDV, H_kv=16, heads=16, N_k=None, dtype=torch.bfloat16, few=None,
        **tiles):
    X, X_kv = (torch.empty(1, H, n, d, dtype=dtype, device="meta") for H, n in ((heads, N), (H_kv, N_k or N)))
    L = torch.empty(1, heads, N, device="meta")
    launches = module.launch(X, X_kv, X_kv, X, X, L, None, X, X_kv, X_kv, causal=causal, scale=d**-0.5, **few or {})
    kernel, _, arguments = launches[which]
    return kernel, arguments | tiles, arch


def hopper(d, causal, N=4096, **options):
    return job(hopper_backward, 90, d, causal, N, **options)


def for_a_4090(d, dtype, which, few=None):
    """99 KiB of shared memory, and tiles for it."""
    tiles = fa2_backward.best_tiles(d, dtype, dropout=few is not None, small=True, by_threads=True)[which - 1]
    return job(fa2_backward, 89, d, True, which=which, dtype=dtype, few=few,
               **dict(zip(("B_r", "B_c", "num_warps", "num_stages"), tiles, strict=True)))


BOTH, fp32 = (DKDV, DQ), torch.float32
# compiling takes seconds, so few for each kernel; then bytes spilled, at most: of addresses and counts, none of a tile
CASES = {
    **{f"triton d {d}, {which}": (job(fa2_backward, 90, d, d == 256, which=which), 0)
       for d, which in product((64, 128, 256), BOTH)},
    "triton grouped heads": (job(fa2_backward, 90, 128, True, H_kv=4), 0),
    **{f"triton dropout, {which}": (job(fa2_backward, 90, 128, True, few=DROPOUT, which=which), 48) for which in BOTH},
    **{f"triton float32, {which}": (job(fa2_backward, 90, 128, True, dtype=fp32, which=which), 0) for which in BOTH},
    **{f"triton {arch}, {which}": (job(fa2_backward, arch, 128, True, which=which), ANY)
       for arch, which in product((80, 100), BOTH)},
    **{f"triton 4090 d {d}, {which}": (for_a_4090(d, torch.bfloat16, which), ANY)
       for d, which in product((64, 128, 256), BOTH)},
    **{f"triton 4090 d 128 dropout, {which}": (for_a_4090(128, torch.bfloat16, which, DROPOUT), 96) for which in BOTH},
    **{f"triton 4090 d 256 float32, {which}": (for_a_4090(256, fp32, which), ANY) for which in BOTH},
    "split dK, dV 90": (job(fa2_split_backward, 90, 64, True), 0),
    "split dQ 89": (job(fa2_split_backward, 89, 64, True, which=DQ), 0),
    "atomic 80": (job(fa2_atomic_backward, 80, 64, True), 96),
    "atomic 90": (job(fa2_atomic_backward, 90, 64, True), 0),
    "atomic 90 d 128": (job(fa2_atomic_backward, 90, 128, False), 96),
    "atomic 100": (job(fa2_atomic_backward, 100, 128, True, B_c=64), 0),          # what launch picks for a Blackwell
    "tma d 64": (job(fa2_tma_backward, 90, 64, True), 0),
    "tma d 64, lean": (job(fa2_tma_backward, 90, 64, False), 60),
    "tma d 128": (job(fa2_tma_backward, 90, 128, False, 4095, H_kv=4), 200),
    "tma 100": (job(fa2_tma_backward, 100, 128, True, few=SMALLER), 0),           # what launch picks there
    "hopper d 64": (hopper(64, True), 0),
    "hopper d 128": (hopper(128, True, 4095), 400),
    "hopper d 128, shared key heads": (hopper(128, True, 256, H_kv=2), 400),      # in 8 parts
    "hopper d 64, three consumers": (hopper(64, False, 12288), 800),
    "hopper d 64, window": (hopper(64, False, which=LAST_BUT_ONE, few=WINDOW), 0),
    "hopper d 128, window": (hopper(128, False, which=LAST_BUT_ONE, few=WINDOW), 600),
    **{f"wide d {d}": (job(wide_backward, 90, d, d == 192), 150) for d in (192, 256)},
    "wide d 256, window": (job(wide_backward, 90, 256, False, few=WINDOW), 300),
    "hopper d 128, packed": (hopper(128, True, 16384, which=LAST_BUT_ONE, few=PACKED), 600),
}
FIRST_TILES = {module.__name__: job(module, 90, 64, True, 57, H_kv=1, heads=1, N_k=352)
               for module in (fa2_backward, fa2_split_backward, fa2_atomic_backward)}


ALWAYS = "atomic 90", "tma d 64", "hopper d 64", "tma d 64, lean"
SERIAL = "tma d 64, lean", "triton dropout, 1"         # the fastest all the same


@pytest.fixture(scope="module")
def compiled(asked_for):
    """All in one process: starting one takes longer than compiling a kernel."""
    jobs = {name: job for name, (job, _) in CASES.items()}
    jobs = asked_for(jobs | FIRST_TILES) | {name: jobs[name] for name in ALWAYS}
    return dict(zip(jobs, compile_all(jobs.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_the_compiler_made_of_it(compiled, name):
    """Fails if the tensor cores or the background copies are lost, registers spill, or shared memory is too small."""
    ((_, arguments, arch), spills), result = CASES[name], compiled[name]
    copies = BY_TMA if name.startswith(("hopper", "tma", "wide")) else BY_THREADS
    assert (PRODUCT[arch] in result.ptx) == ("float32" not in name)
    assert copies in result.ptx or arguments.get("num_stages") == 1
    assert result.spills <= spills or not MEASURED
    assert not result.warnings or name in SERIAL       # ptxas says here when wgmma is serialised
    assert result.shared_bytes <= SHARED_LIMIT[arch]


def test_every_kernel_is_compiled_somewhere():
    """fa2_tuned_backward has fa2_split_backward's kernels."""
    there = {f"fa2_{name.split()[0]}_backward" for name in CASES}
    assert {kernel.name for kernel in ladder.BACKWARD_KERNELS} - there == {"fa2_tuned_backward"}


def test_dq_is_added_up_without_waiting_and_in_whole_lines(compiled):
    """Fails if a sum returns its old value, which a program would wait for, or goes out number by number."""
    adds = set(re.findall(r"\b(?:RED|ATOM)\w*\.\S+", compiled["atomic 90"].sass))
    assert adds and all(add.startswith("RED") and "x4" in add for add in adds), adds
    assert all("cp.reduce.async.bulk.tensor" in compiled[name].ptx for name in ("tma d 64", "hopper d 64"))


def test_three_lean_programs_run_on_an_sm(compiled):
    """They make up for products that wait for one another: 168 registers are too few to have two under way."""
    lean = compiled["tma d 64, lean"]
    assert occupancy(4 * 32, lean.registers, lean.shared_bytes).blocks == 3


@pytest.mark.skipif(not MEASURED, reason="another ptxas")
@pytest.mark.parametrize("name, at_most", [("hopper d 64", 0), ("hopper d 128", 12)])
def test_the_consumers_of_the_hopper_kernel_keep_their_tiles_in_registers(compiled, name, at_most):
    """Fails if a round of two tiles reads more spilled registers than a few addresses."""
    steps = [loop for loop in product_loops(compiled[name].sass) if loop.count("MUFU.EX2") == 64]
    assert len(steps) >= 4                             # each consumer has its own, with masks and without
    for step in sorted(steps, key=len)[:4]:
        assert len(re.findall(r"\bLDL\b", step)) <= at_most
    assert "setmaxnreg" in compiled[name].ptx


@pytest.mark.parametrize("name", FIRST_TILES)
def test_a_tile_that_is_not_there_is_not_copied(compiled, name):
    """Fails if the compiler assumes that there is a tile, and copies the first one before the loop without asking.

    A copy in the background has a size, 0 where nothing is to be read. 57 rows make no whole tile, so no size is always
    above 0.
    """
    ptx = compiled[name].ptx
    always = {size for size, count in re.findall(r"mov\.b32\s+(%r\d+), (\d+);", ptx) if int(count) > 0}
    sizes = re.findall(r"^\s*cp\.async\.c[ag]\.shared\.global .*, (\S+);$", ptx, re.MULTILINE)
    assert sizes and not [size for size in sizes if size in always or not size.startswith("%")]
