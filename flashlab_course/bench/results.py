"""results/*.json: a file for each benchmark and device, with labelled runs that say where their numbers come from.

    {"runs": [{"label": "all", "what": "forward", "complete": true, "provenance": {...}, "rows": [{...}, ...]}, ...]}
"""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

import torch

from flashlab.triton_mode import import_triton, interpreted
from flashlab_course import command
from flashlab_course.doctor import driver_version

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY if (REPOSITORY / "results").is_dir() else Path.cwd()     # an installed package has no results/
UNSAID = ("ms_low", "ms_high", "runs", "bytes", "flops", "kernels", "losses", "name")


def start(what, command=None, label="all"):
    """A run with nothing measured yet."""
    return {"label": label, "what": what, "complete": False, "provenance": provenance(command)}


def collect(run, pieces, out=None, say=print):
    """The run, complete, with all pieces of a subject: pairs of a part's name, and rows or values to add to it.

    `out` is written after each piece: a run that is cut off keeps the pieces it had.
    """
    for name, piece in pieces:
        if isinstance(piece, list):
            run.setdefault(name, []).extend(piece)
            for row in piece:
                say(line(row), flush=True)
        else:
            run[name] = run.get(name, {}) | piece
        save(run, out)
    run["complete"] = True
    save(run, out)
    return run


def line(row):
    """A row for a terminal: its fields, and why there is no measurement where there is none."""
    said = {name: value for name, value in row.items() if value is not None and name not in UNSAID}
    short = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in said.items()}
    return ", ".join(f"{name} {value}" for name, value in short.items())


def provenance(command=None):
    """Where a number comes from: device, versions, date, commit, command."""
    gpu, triton = torch.cuda.is_available(), import_triton()
    return {
        "device": torch.cuda.get_device_name() if gpu else "CPU",
        "capability": "{}.{}".format(*torch.cuda.get_device_capability()) if gpu else None,
        "torch": torch.__version__,
        "triton": triton.__version__ if triton else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "flash-attn-4": next((one.version for one in distributions(name="flash-attn-4")), None),
        "driver": driver_version() or None,
        "python": sys.version.split()[0],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command,
    }


def commit(root=ROOT):
    """$FLASHLAB_COMMIT (for a copy without history); else HEAD, -dirty if flashlab*/ differs; else "unknown"."""
    if given := os.environ.get("FLASHLAB_COMMIT"):
        return given
    if not (root / ".git").exists() or not shutil.which("git"):    # an installed flashlab has no repository
        return "unknown"

    def git(*words):
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout.strip()

    head = git("rev-parse", "--verify", "HEAD") or "unknown"
    return f"{head}-dirty" if head != "unknown" and git("status", "--porcelain", "--", "flashlab*") else head


def save(run, out):
    """Put the run in the file `out`, in place of one with its label. The file is replaced whole, never half written."""
    if out is None:
        return
    runs = {one["label"]: one for one in (read(out) if out.exists() else [])} | {run["label"]: run}
    text = ",\n".join(map(as_text, runs.values()))
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    part.write_text('{"runs": [\n' + text + "\n]}\n", encoding="utf-8")
    part.replace(out)


def as_text(run):
    """A run as JSON, each row on a line of its own."""
    parts = []
    for name, value in run.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(row, allow_nan=False) for row in value) + "]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "}"


def read(path):
    """The runs of a file. Raises: ValueError for a file without runs"""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["runs"]
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}. `git checkout {path}` restores a recorded file"
        raise ValueError(f"{path} must be JSON with a list of runs, but reading it gave {reason}") from None


def load_runs(name):
    """All runs of results/<name>.json, from the repository or a folder above the notebook.

    Raises: FileNotFoundError that says which files there are and how to make this one, ValueError as `read`
    """
    for folder in (ROOT, Path.cwd(), *Path.cwd().parents):
        path = folder / "results" / f"{name}.json"
        if path.exists():
            return read(path)
    there = ", ".join(sorted(path.stem for path in (ROOT / "results").glob("*.json"))) or "none"
    what = str(name).partition("_")[0]                                     # a file is called <what>_<gpu>.json
    raise FileNotFoundError(
        f"name must be one of {ROOT / 'results'}/*.json ({there}), got {name!r}. To make it, on a machine "
        f"with an NVIDIA GPU: python -m flashlab bench {what} --out results/{name}.json"
    )


def load_results(name, label=None):
    """A run of results/<name>.json, e.g. load_results("forward_h200", "float16"); without a label the file's first.

    Raises: as load_runs, and ValueError for a label that is not in the file
    """
    runs = load_runs(name)
    for run in runs:
        if label in (None, run["label"]):
            return run
    labels = ", ".join(repr(run["label"]) for run in runs) or "none"
    raise ValueError(f"label must be one of those in results/{name}.json ({labels}), got {label!r}")


def measured(run):
    """The rows that hold a measurement, of a run with rows or with sections of rows."""
    parts = [run, *run.get("sections", {}).values()]
    return [row for part in parts for row in part.get("rows", []) if not row.get("skipped")]


def where(run):
    """The device, the date and the versions of a recorded run, in words."""
    p = run["provenance"]
    head, *dirty = p["commit"].split("-")
    commit = "-".join([head[:8], *dirty])
    return f"{p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}, commit {commit}"


def gpu_slug(name):
    """A GPU's short name for a file: "NVIDIA H100 80GB HBM3" -> "h100"."""
    parts = re.split(r"[\s-]+", name.lower())
    return next((part for part in parts if re.search(r"\d", part)), parts[-1])


def why_no_gpu():
    """Why nothing can be measured here, or ""."""
    if not torch.cuda.is_available():
        return "it sees no NVIDIA GPU (torch.cuda.is_available() is False)"
    if interpreted():
        return "TRITON_INTERPRET runs the kernels on the CPU: unset it"
    if import_triton() is None:
        doctor = command.line("doctor")
        return f"Triton is not installed, which times and runs the kernels: `{doctor}` says how to get it"
    return ""
