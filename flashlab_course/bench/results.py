"""results/*.json: the one writer, the one reader, and where a number comes from."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

from flashlab.triton_mode import import_triton, interpreted
from flashlab_course import command
from flashlab_course.doctor import driver_version

ROOT = Path(__file__).resolve().parents[2]


def start(what, command=None, **parts):
    """Results with nothing measured yet. A run saves them after each step, so that one that is cut off keeps what it had."""
    return {"what": what, "complete": False, "provenance": provenance(command), **parts}


def finish(results, out):
    """Say that nothing is missing, and write it."""
    results["complete"] = True
    save(results, out)
    return results


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
                       for words in (["rev-parse", "--verify", "HEAD"], ["status", "--porcelain", "--", "flashlab*"]))
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
    """results/<name>.json, e.g. load_results("forward_h200"), from the repository or the folder of the notebook.

    Raises: FileNotFoundError that says which there are and how to make this one, ValueError for a file that is no JSON
    """
    for folder in (ROOT, Path.cwd(), *Path.cwd().parents):
        path = folder / "results" / f"{name}.json"
        if path.exists():
            try:
                return json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{path} is no JSON: {error}. `git checkout {path}` brings a recorded file back") from None
    there = ", ".join(sorted(path.stem for path in (ROOT / "results").glob("*.json"))) or "none"
    what = str(name).partition("_")[0]                                     # a file is called <what>_<gpu>.json
    raise FileNotFoundError(f"name must be one of {ROOT / 'results'}/*.json ({there}), got {name!r}. To make it, on a machine "
                            f"with an NVIDIA GPU: python -m flashlab bench {what} --out results/{name}.json")


def where(results):
    """Of recorded results: which device, when, which version of the course."""
    p = results["provenance"]
    head, *dirty = p["commit"].split("-")
    return f"{p['device']}, {p['date'][:10]}, torch {p['torch']}, triton {p['triton']}, commit {'-'.join([head[:8], *dirty])}"


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
        return f"Triton is not installed, which times and runs the kernels: `{command.line('doctor')}` says how to get it"
    return ""
