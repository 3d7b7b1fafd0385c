"""Time, memory and HBM traffic of attention on a GPU, recorded with everything needed to do it again: `python -m flashlab bench`.

    forward     run time, TFLOP/s, peak memory and error of naive attention, the Triton rungs and PyTorch's own SDPA kernels
    counters    the bytes that the GPU's counters saw move, by ncu (Nsight Compute), one launch of each implementation
    backward    the same as forward, of the backward pass: `python -m flashlab bench backward --help`
    basics      what chapters 02 and 09 say about the GPU itself: `python -m flashlab bench basics --help`

Correctness comes first: a function that has not just passed oracle.judge on the problem at hand is not timed, and its row says so.
Naive attention is naive_forward itself, vmapped over the heads: the same eager operations, each one launch for all heads.
The clocks of a GPU drift as it warms up. So the functions take turns, several rounds of them with the order changed, and the
numbers to compare with (SDPA's flash kernel, a big matmul, a copy) come from the same run.
Under ncu every kernel starts with empty caches: what one kernel left in the L2 cache for the next is read from DRAM again, and
what still sits in the L2 when a kernel ends is not counted as written.
"""

import argparse
import csv
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from tqdm import tqdm

from flashlab import cost, oracle
from flashlab.doctor import driver_version, import_triton
from flashlab.ladder import RUNGS
from flashlab.rungs.naive import naive_forward
from flashlab.validate import check_positive

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 16384                         # B·N and H·d stay the same for every N and d: equal inputs, equal work per query and key
WIDTH = 2048
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
QUICK_SIZES = (1024, 4096, 16384)
HEAD_DIMS = (64, 128)
COUNTER_HEADS = 16
CHECKED_SCORES = 2**28                 # per check: in float64 one such matrix takes 2 GiB, and about six live at once
MATMUL_SIZE, COPY_BYTES = 8192, 2**30
BASELINE = "sdpa_flash"
OUT_OF_TIME = "not measured: the time budget was used up"
BYTES = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9, "Tbyte": 10**12}
COUNTERS = {"dram__bytes_read.sum": "dram_read", "dram__bytes_write.sum": "dram_written", "lts__t_bytes.sum": "l2_bytes"}


# ---- what is measured


class Problem(NamedTuple):
    """One size to run at: Q, K and V are all (B, H, N, d)."""

    N: int
    d: int
    causal: bool = False
    dtype: str = "bfloat16"
    B: int = 1
    H: int = COUNTER_HEADS

    @property
    def flops(self):
        return cost.attention_flops(self.B, self.H, self.N, self.N, self.d, causal=self.causal)

    def __str__(self):
        return f"{self.dtype} d {self.d}{' causal' if self.causal else ''} N {self.N}"


class Implementation(NamedTuple):
    name: str
    forward: Callable                  # forward(Q, K, V, causal) -> (O, L), all (B, H, ...); L is None where the library keeps it


def forward_problems(N=SIZES, d=HEAD_DIMS, causal=(False, True), dtype=("bfloat16",)):
    """Every combination, with about TOKENS = B·N and WIDTH = H·d.

    Raises: TypeError, ValueError if an N or d is not an integer >= 1
    """
    for n, width in product(N, d):
        check_positive(N=n, d=width)
    return [Problem(n, width, masked, t, max(1, TOKENS // n), max(1, WIDTH // width))
            for t, width, masked, n in product(dtype, d, causal, N)]


def implementations():
    """name -> Implementation: naive attention, the Triton rungs, PyTorch's backends."""
    found = [Implementation("naive_forward", naive_over_heads)]
    found += [Implementation(rung.name, partial(_run_rung, rung)) for rung in RUNGS if rung.heads]
    backends = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    found += [Implementation(f"sdpa_{name}", partial(_run_sdpa, backend)) for name, backend in backends.items()]
    return {implementation.name: implementation for implementation in found}


def naive_over_heads(Q, K, V, causal):
    """naive_forward for (B, H, N, d): the operations it makes for one head, each launched once for all heads."""
    heads = [T.flatten(0, 1) for T in (Q, K, V)]                            # (B·H, N, d)
    O, L = torch.vmap(partial(naive_forward, causal=causal))(*heads)
    return O.unflatten(0, Q.shape[:2]), L.unflatten(0, Q.shape[:2])


def _run_rung(rung, Q, K, V, causal):
    return rung.function(Q, K, V, causal=causal)


def _run_sdpa(backend, Q, K, V, causal):
    with sdpa_kernel(backend):                                             # this one or an error, never another in its place
        return scaled_dot_product_attention(Q, K, V, is_causal=causal), None    # its mask is top-left: the same, as N_q = N_k


def inputs(problem, device):
    """Random Q, K, V. The seed is the problem's, so every implementation sees the same numbers."""
    generator = torch.Generator(device).manual_seed(problem.N + problem.d)
    shape = (problem.B, problem.H, problem.N, problem.d)
    return [torch.randn(shape, generator=generator, device=device, dtype=getattr(torch, problem.dtype)) for _ in range(3)]


# ---- correct first


def check(function, Q, K, V, causal):
    """Run `function` on the whole problem, judge the end of its result in float64. Returns oracle.Verdict.

    The end: of the last batch the last heads, and of those the last query rows, CHECKED_SCORES scores at most (fewer on a
    small GPU). That is every row of at least one head up to N = 16384.
    """
    O, L = function(Q, K, V, causal)
    H, N = Q.shape[1:3]
    scores = CHECKED_SCORES
    if Q.is_cuda:
        scores = min(scores, torch.cuda.get_device_properties(Q.device).total_memory // 128)
    heads, rows = max(1, min(H, scores // N**2)), max(1, min(N, scores // N))
    keys = (slice(-1, None), slice(-heads, None))
    part = (*keys, slice(-rows, None))
    return oracle.judge(O[part], None if L is None else L[part], Q[part], K[keys], V[keys], causal=causal)


def attempt(function, *args):
    """(result, None), or (None, why it failed). Memory that others left cached is freed first, so that it starves nobody."""
    torch.cuda.empty_cache()
    try:
        return function(*args), None
    except torch.OutOfMemoryError:
        return None, "out of memory"
    except Exception as error:                                             # whatever a kernel may raise: its row says it
        return None, f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0][:300]}"


def peak_bytes(function):
    """Most memory that PyTorch held during one call beyond what it held before: results count, inputs do not. None on a CPU."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def admit(row, function, Q, K, V, causal):
    """Fill in row's errors and peak_bytes; where the function fails or is wrong, row["skipped"] says so."""
    verdict, reason = attempt(check, function, Q, K, V, causal)
    if verdict is not None:
        row["error"] = verdict.error_O if math.isfinite(verdict.error_O) else None
        row["rms_error"] = verdict.rms_O if math.isfinite(verdict.rms_O) else None
        reason = None if verdict.ok else f"refused: {verdict}"
    if reason is None:
        row["peak_bytes"], reason = attempt(peak_bytes, partial(function, Q, K, V, causal))
    row["skipped"] = reason


# ---- then time


def time_ms(function, warmup=25, rep=100):
    """ms of each of many runs, by the GPU's events, after warm-up; the L2 cache is cleared before every run."""
    from triton.testing import do_bench

    return do_bench(function, warmup=warmup, rep=rep, return_mode="all")


quick_ms = partial(time_ms, warmup=10, rep=30)


def interleaved_times(functions, timer, rounds, expired):
    """{name: ms of all its runs}, {name: why it failed}: the functions take turns, and each round has another order."""
    names = list(functions)
    times, failed = {name: [] for name in names}, {}
    for r in range(rounds):
        k = r % max(1, len(names))
        order = names[k:] + names[:k]
        for name in order[::-1] if r % 2 else order:                       # so that nobody always follows the same one
            if expired() or name in failed:
                continue
            ms, reason = attempt(timer, functions[name])
            if reason:
                failed[name] = reason
            else:
                times[name] += ms
    return times, failed


def measure(problem, chosen, *, device="cuda", timer=time_ms, rounds=3, expired=lambda: False):
    """One row for each Implementation in `chosen`. What fails, is wrong or comes too late has a reason in row["skipped"]."""
    rows = {implementation.name: _empty_row(implementation.name, problem) for implementation in chosen}
    tensors, reason = attempt(inputs, problem, device)
    functions = {}
    for name, forward in ((implementation.name, implementation.forward) for implementation in chosen):
        row = rows[name]
        row["skipped"] = reason or (OUT_OF_TIME if expired() else None)
        if row["skipped"] is None:
            admit(row, forward, *tensors, problem.causal)
        if row["skipped"] is None:
            functions[name] = partial(forward, *tensors, problem.causal)
    times, failed = interleaved_times(functions, timer, rounds, expired)
    for name, ms in times.items():
        if ms and name not in failed:
            rows[name].update(_statistics(ms, problem.flops))
        else:
            rows[name]["skipped"] = failed.get(name, OUT_OF_TIME)
    baseline = rows.get(BASELINE, {}).get("ms")
    for row in rows.values():
        row[f"vs_{BASELINE}"] = round(baseline / row["ms"], 4) if baseline and row["ms"] else None
    return list(rows.values())


def _empty_row(name, problem):
    row = {"implementation": name, "pass": "forward", "dtype": problem.dtype}
    row |= {key: getattr(problem, key) for key in ("B", "H", "N", "d", "causal")} | tiles(name, problem)
    unknown = ("ms", "ms_low", "ms_high", "runs", "tflops", f"vs_{BASELINE}", "peak_bytes", "error", "rms_error", "skipped")
    return row | dict.fromkeys(unknown)


def _statistics(ms, flops):
    """Median, 20th and 80th percentile; TFLOP/s at the median."""
    at = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    low, median, high = torch.tensor(ms, dtype=torch.float64).quantile(at).tolist()
    return {"ms": round(median, 6), "ms_low": round(low, 6), "ms_high": round(high, 6), "runs": len(ms),
            "tflops": round(flops / median / 1e9, 3)}


def ceilings(device="cuda", timer=time_ms):
    """What no kernel here can beat by much: a big bfloat16 matmul's TFLOP/s, a device copy's TB/s, bytes read + written."""
    A, B = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=device, dtype=torch.bfloat16) for _ in range(2))
    matmul = _statistics(timer(lambda: A @ B), 2 * MATMUL_SIZE**3)
    source = torch.randn(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copy = _statistics(timer(lambda: target.copy_(source)), 0)
    return {"matmul_tflops": matmul["tflops"], "copy_tb_s": round(2 * COPY_BYTES / copy["ms"] / 1e9, 4)}


def deadline(seconds, clock=time.monotonic):
    """A function that says whether `seconds` have passed since now."""
    end = clock() + seconds
    return lambda: clock() >= end


def run_forward(problems, chosen, *, out=None, command=None, device="cuda", timer=time_ms, rounds=3, expired=lambda: False):
    """Measure every problem. `out`, a path, is written after each, so that a run that is cut off keeps what it had."""
    results = {"what": "forward", "complete": False, "provenance": provenance(command),
               "ceilings": ceilings(device, timer), "rows": []}
    progress = tqdm(problems, unit="size")
    for problem in progress:
        progress.set_description(str(problem))
        results["rows"] += measure(problem, chosen, device=device, timer=timer, rounds=rounds, expired=expired)
        save(results, out)
    results["complete"] = True
    save(results, out)
    return results


# ---- the hardware's counters


def tiles(name, problem):
    """The tile sizes that the Triton rung of that name picks, {"B_r", "B_c"}; {} for all others, and without Triton."""
    for rung in RUNGS:
        if rung.name == name and rung.heads and import_triton():
            best_tiles = getattr(import_module(rung.module), "best_tiles", lambda *_: ())
            return dict(zip(("B_r", "B_c"), best_tiles(problem.d, getattr(torch, problem.dtype), problem.causal), strict=False))
    return {}


def launch_once(name, problem):
    """One launch, checked and warm, between cudaProfilerStart and cudaProfilerStop: what ncu is to look at."""
    problem, forward = Problem(*problem), implementations()[name].forward
    tensors = inputs(problem, "cuda")
    verdict = check(forward, *tensors, problem.causal)
    if not verdict.ok:
        raise SystemExit(f"refused: {verdict}")
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    forward(*tensors, problem.causal)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def ncu_command(name, problem, log):
    child = f"from flashlab.bench.forward import launch_once; launch_once({name!r}, {tuple(problem)!r})"
    return ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(COUNTERS),
            "--print-units", "base", "--csv", "--log-file", str(log), sys.executable, "-c", child]


def parse_ncu(text):
    """The kernels of an `ncu --csv` log in order of launch: [{"name", "dram_read", "dram_written", "l2_bytes"}].

    Raises: ValueError if there is no table, or a counter is missing or in a unit that is not bytes
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]   # ncu's own messages start with ==
    if len(lines) < 2 or not lines[0].startswith('"ID"'):
        raise ValueError(f"ncu wrote no table: {_last_words(text)}")
    kernels = {}
    for cell in csv.DictReader(lines):
        kernel = kernels.setdefault(int(cell["ID"]), {"name": short_name(cell["Kernel Name"])})
        metric, unit, value = (cell[f"Metric {key}"] for key in ("Name", "Unit", "Value"))
        if metric not in COUNTERS:
            continue
        if unit not in BYTES or not value[:1].isdigit():
            raise ValueError(f"ncu: {metric} of {kernel['name']} must be a number of bytes, got {value!r} in unit {unit!r}")
        kernel[COUNTERS[metric]] = round(float(value.replace(",", "")) * BYTES[unit])    # 1,234,567
    for kernel in kernels.values():
        if missing := set(COUNTERS.values()) - set(kernel):
            raise ValueError(f"ncu: no {', '.join(sorted(missing))} for kernel {kernel['name']}")
    return [kernels[number] for number in sorted(kernels)]


def short_name(kernel):
    """A C++ kernel's name without what all of them share, 160 characters at most."""
    return re.sub(r"^void |at::native::|c10::|\(anonymous namespace\)::|<unnamed>::", "", kernel)[:160]


def _last_words(text):
    return " / ".join([line for line in text.splitlines() if line.strip()][-3:])[-300:] or "nothing at all"


def count_bytes(name, problem, run=subprocess.run, timeout=120):
    """The kernels of one launch of implementation `name` and the bytes of each, by ncu in a process of its own.

    Raises: RuntimeError with ncu's or the child's last words if it fails; ValueError as parse_ncu
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        environment = os.environ | {"LC_ALL": "C"}                         # ncu writes numbers as the locale does
        child = run(ncu_command(name, problem, log), capture_output=True, text=True, cwd=ROOT, env=environment, timeout=timeout)
        text = log.read_text() if log.exists() else ""
    if child.returncode != 0:
        errors = "\n".join(line for line in text.splitlines() if line.startswith("==ERROR=="))
        raise RuntimeError(_last_words(f"{child.stdout}\n{child.stderr}\n{errors}"))
    return parse_ncu(text)


def run_counters(problems, names, *, out=None, command=None, count=count_bytes, expired=lambda: False):
    """Read the counters for every problem and implementation. `out` is written after each."""
    results = {"what": "counters", "complete": False, "provenance": provenance(command), "rows": []}
    results["provenance"]["ncu"] = shlex.join(ncu_command("NAME", Problem(0, 0), "LOG")[:-3])
    for problem, name in tqdm([(problem, name) for problem in problems for name in names], unit="launch"):
        row = {"implementation": name, **problem._asdict(), **dict.fromkeys(COUNTERS.values()), "kernels": [], "skipped": None}
        kernels, row["skipped"] = (None, OUT_OF_TIME) if expired() else attempt(count, name, problem)
        if kernels:
            row |= {key: sum(kernel[key] for kernel in kernels) for key in COUNTERS.values()}
            row |= {"kernels": kernels} | tiles(name, problem)
        results["rows"].append(row)
        save(results, out)
    results["complete"] = True
    save(results, out)
    return results


# ---- results/*.json


def provenance(command=None):
    """Where a number comes from: device, versions, date, commit, command."""
    gpu, triton = torch.cuda.is_available(), import_triton()
    return {
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "capability": "{}.{}".format(*torch.cuda.get_device_capability()) if gpu else None,
        "torch": torch.__version__,
        "triton": triton.__version__ if triton else None,
        "cuda": torch.version.cuda,
        "driver": driver_version() or None,
        "python": sys.version.split()[0],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command,
    }


def commit(root=ROOT):
    """The variable FLASHLAB_COMMIT (for a copy without history); else HEAD, -dirty if flashlab/ differs; else "unknown"."""
    if given := os.environ.get("FLASHLAB_COMMIT"):
        return given
    if (root / ".git").exists() and shutil.which("git"):                   # not the repository of whoever installed flashlab
        head, dirty = (subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout.strip()
                       for words in (["rev-parse", "--verify", "HEAD"], ["status", "--porcelain", "--", "flashlab"]))
        if head:
            return f"{head}-dirty" if dirty else head
    return "unknown"


def save(results, out):
    """Write the JSON in one move: a reader never sees half of it. Nothing happens if `out` is None."""
    if out is None:
        return
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    part.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    part.replace(out)


def load_results(name):
    """results/<name>.json, e.g. load_results("forward_h100"), from the repository or the folder of the notebook.

    Raises: FileNotFoundError that says which there are and how to make this one
    """
    for folder in (ROOT, Path.cwd(), *Path.cwd().parents):
        path = folder / "results" / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text())
    there = ", ".join(sorted(path.stem for path in (ROOT / "results").glob("*.json"))) or "none"
    what = next((what for what in ("counters", "backward") if str(name).startswith(what)), "forward")
    raise FileNotFoundError(f"name must be one of {ROOT / 'results'}/*.json ({there}), got {name!r}. To make it, on a machine "
                            f"with an NVIDIA GPU: python -m flashlab bench {what} --out results/{name}.json")


def where(results):
    """Of recorded results: which device, when, which version of the course."""
    p = results["provenance"]
    head, *dirty = p["commit"].split("-")
    return f"{p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}, commit {'-'.join([head[:8], *dirty])}"


def live_or_recorded(name="forward_h100", seconds=60.0):
    """(results, words): a short forward run where there is a GPU, else results/<name>.json; the words say which it is."""
    if why_no_gpu():
        results = load_results(name)
        return results, f"recorded on {where(results)}"
    results = quick_forward(seconds)
    return results, f"measured here on {where(results)}"


def quick_forward(seconds=60.0):
    """Three sizes, one short round: enough to see the shape of it."""
    return run_forward(forward_problems(N=QUICK_SIZES), implementations().values(), rounds=1, timer=quick_ms,
                       expired=deadline(seconds))


# ---- the command line


def why_no_gpu():
    """Why nothing can be measured here, or ""."""
    if not torch.cuda.is_available():
        return "it sees no NVIDIA GPU (torch.cuda.is_available() is False)"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 runs the kernels on the CPU: unset it"
    if import_triton() is None:
        return "Triton is not installed, which times and runs the kernels: python -m flashlab doctor says how to get it"
    return ""


NO_GPU = """bench measures on a GPU, and on this machine {why}.
Instead: recorded results are in results/, and notebooks/16_benchmarks.ipynb plots them; README.md says how to use a remote GPU;
`python -m flashlab doctor` says what this machine can do."""


def table(results):
    """The results for a terminal: TFLOP/s (× SDPA flash), or MB; a dash where a row was skipped."""
    names = list(dict.fromkeys(row["implementation"] for row in results["rows"]))
    lines = {}
    for row in results["rows"]:
        size = str(Problem(*(row[key] for key in Problem._fields)))
        lines.setdefault(size, {})[row["implementation"]] = _cell(results["what"], row)
    unit = "TFLOP/s (x sdpa_flash)" if results["what"] != "counters" else "MB: DRAM read + written, L2"
    text = [f"{unit:<32}" + "".join(f"{name:>28}" for name in names)]
    text += [f"{size:<32}" + "".join(f"{cells.get(name, ''):>28}" for name in names) for size, cells in lines.items()]
    reasons = [f"skipped: {row['implementation']}, {Problem(*(row[key] for key in Problem._fields))}: {row['skipped']}"
               for row in results["rows"] if row["skipped"]]
    ceiling = [f"in the same run: {results['ceilings']}"] if "ceilings" in results else []
    return "\n".join(text + ceiling + reasons)


def _cell(what, row):
    if row["skipped"]:
        return "-"
    if what == "counters":
        return f"{row['dram_read'] / 1e6:.1f} + {row['dram_written'] / 1e6:.1f}, {row['l2_bytes'] / 1e6:.1f}"
    ratio = row[f"vs_{BASELINE}"]
    return f"{row['tflops']:.1f}" + (f" ({ratio:.2f}x)" if ratio else "")


def _positive(convert, words):
    def parse(text):
        try:
            value = convert(text)
        except ValueError:
            value = 0
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected {words}, got {text!r}")
        return value

    return parse


def _out(text):
    if Path(text).is_dir() or not text.endswith(".json"):
        raise argparse.ArgumentTypeError(f"expected the path of a .json file, got {text!r}")
    return Path(text)


def arguments(argv):
    parser = argparse.ArgumentParser("python -m flashlab bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    integer = _positive(int, "an integer >= 1")
    parser.add_argument("what", nargs="?", choices=("forward", "counters"), default="forward", help="default: forward")
    parser.add_argument("--N", type=integer, nargs="+", help="sequence lengths (512 ... 16384; counters 1024 ... 16384)")
    parser.add_argument("--d", type=integer, nargs="+", help="head dimensions (64 128; counters 64)")
    parser.add_argument("--causal", choices=("both", "yes", "no"), help="(both; counters no)")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), nargs="+", default=["bfloat16"], help="(bfloat16)")
    parser.add_argument("--implementations", choices=list(implementations()), nargs="+", metavar="NAME",
                        help=f"among {', '.join(implementations())} (all; counters: naive_forward and the Triton rungs)")
    parser.add_argument("--quick", action="store_true", help="three sizes, one short round")
    parser.add_argument("--budget-seconds", type=_positive(float, "a number of seconds > 0"), default=900.0, metavar="S",
                        help="what is not measured by then is recorded as skipped (900)")
    parser.add_argument("--out", type=_out, help="the JSON to write; the full set goes to "
                        "results/<what>_<gpu>.json without it, a part of it nowhere")
    return parser.parse_args(argv)


def gpu_slug(name):
    """The short name in a file name: "NVIDIA H100 80GB HBM3" -> "h100"."""
    parts = re.split(r"[\s-]+", name.lower())
    return next((part for part in parts if re.search(r"\d", part)), parts[-1])


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["basics"]:                                             # chapters 02 and 09, with options of their own
        from flashlab.bench import basics as bench_basics

        return bench_basics.main(argv[1:])
    if argv[:1] == ["backward"]:                                           # its functions are differentiated, not just called
        from flashlab.bench import backward as bench_backward

        return bench_backward.main(argv[1:])
    args = arguments(argv)
    why = why_no_gpu()
    if not why and args.what == "counters" and not shutil.which("ncu"):
        why = "ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH"
    if why:
        print(NO_GPU.format(why=why), file=sys.stderr)
        return 2
    out, full = args.out, not (args.quick or args.N or args.d or args.causal or args.implementations)
    if out is None and full:
        out = ROOT / "results" / f"{args.what}_{gpu_slug(torch.cuda.get_device_name())}.json"
    results = _run(args, out, shlex.join(["python", "-m", "flashlab", "bench", *argv]))
    print(table(results))
    print(f"wrote {out}" if out else "nothing written: name a file with --out")
    return 0 if any(row["skipped"] is None for row in results["rows"]) else 1


def _run(args, out, command):
    """What the arguments ask for."""
    expired, found = deadline(args.budget_seconds), implementations()
    masks = {"both": (False, True), "yes": (True,), "no": (False,), None: None}[args.causal]
    if args.what == "counters":
        names = args.implementations or ["naive_forward", *(rung.name for rung in RUNGS if rung.heads)]
        sizes = args.N or (QUICK_SIZES if args.quick else SIZES[1:])
        problems = [Problem(N, d, causal, dtype) for dtype, d, causal, N
                    in product(args.dtype, args.d or (64,), masks or (False,), sizes)]
        return run_counters(problems, names, out=out, command=command, expired=expired)
    problems = forward_problems(args.N or (QUICK_SIZES if args.quick else SIZES), args.d or HEAD_DIMS,
                                masks or (False, True), args.dtype)
    timer, rounds = (quick_ms, 1) if args.quick else (time_ms, 3)
    chosen = [found[name] for name in args.implementations or found]
    return run_forward(problems, chosen, out=out, command=command, timer=timer, rounds=rounds, expired=expired)
