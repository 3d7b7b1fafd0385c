"""The pytest plugin of run.py: chooses among a peer's tests, puts flashlab in its package's place, counts what came of it."""

import contextlib
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import flashlab            # first of all, since without a GPU it has Triton's kernels interpreted  # noqa: F401

HERE = Path(__file__).parent


def pytest_addoption(parser):
    group = parser.getgroup("peers")
    group.addoption("--peer")
    group.addoption("--checkout")
    group.addoption("--on")
    group.addoption("--longest", type=int)
    group.addoption("--one-in", type=int)
    group.addoption("--report")
    group.addoption("--about")


def pytest_configure(config):
    config.counts, config.failed, config.start = Counter(), {}, time.time()
    sys.path.insert(0, str(HERE))
    if config.getoption("peer") == "flash-attention":
        import flash_attn

        flash_attn.__path__.append(str(Path(config.getoption("checkout"), "flash_attn")))       # bert_padding, layers
    if config.getoption("peer") == "cs336":
        import cs336

        sys.modules["tests.adapters"] = cs336


# ---- on the CPU, tests that were written for a GPU

class OnTheCpu(torch.overrides.TorchFunctionMode):
    """device="cuda" means the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs = kwargs | {"device": "cpu"}
        return function(*args, **kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """While their files are imported, peers ask whether there is a GPU, and which."""
    with pytest.MonkeyPatch.context() as patch:
        if session.config.getoption("on") == "cpu":
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with OnTheCpu() if item.config.getoption("on") == "cpu" else contextlib.nullcontext():
        return (yield)


# ---- which tests run

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    import scope

    runs, counts, longest, one_in = {}, config.counts, config.getoption("longest"), config.getoption("one_in")
    for item in items:
        parameters, name = getattr(item, "callspec", None), getattr(item, "originalname", item.name)
        parameters = parameters.params if parameters else {}
        if why := scope.why_not(name, parameters):
            counts["skipped", why] += 1
        elif longest and scope.length(parameters) > longest:
            counts["left out", f"longer than {longest}"] += 1
        else:
            runs.setdefault(name, []).append(item)
    chosen = set()
    for name, many in sorted(runs.items()):
        kept = random.Random(name).sample(many, -(-len(many) // one_in))           # the same ones each time
        counts["left out", f"all but one in {one_in}"] += len(many) - len(kept)
        chosen.update(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


# ---- what came of them

def pytest_runtest_logreport(report):
    if report.skipped:
        why = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        COUNTS["skipped", why.removeprefix("flashlab has not got ") or "the peer's own skip"] += 1
    elif report.failed:
        COUNTS["failed", ""] += 1
        FAILED[report.nodeid] = str(report.longrepr).splitlines()[-1]
    elif report.when == "call":
        COUNTS["passed", ""] += 1


COUNTS, FAILED = Counter(), {}


def pytest_sessionfinish(session):
    """A worker of pytest-xdist hands its counts of what was not run to the process that has the reports."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["not run"] = [[*kind, n] for kind, n in config.counts.items()]
        return
    counts = config.counts + COUNTS
    result = json.loads(config.getoption("about")) | {
        "passed": counts["passed", ""], "failed": FAILED,
        "skipped": {why: n for (kind, why), n in sorted(counts.items()) if kind == "skipped"},
        "left out": {why: n for (kind, why), n in sorted(counts.items()) if kind == "left out" and n},
        "seconds": round(time.time() - config.start),
    }
    Path(config.getoption("report")).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Every worker has collected the same tests, so the counts of the last one are those of all."""
    if output := getattr(node, "workeroutput", None):
        node.config.counts = Counter({(kind, why): n for kind, why, n in output["not run"]})
