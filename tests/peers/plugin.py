"""The pytest plugin of run.py: chooses among a peer's tests, puts flashlab in its package's place, counts results."""

import contextlib
import json
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import flashlab  # noqa: F401      # before Triton: without a GPU it has the kernels interpreted

sys.path.insert(0, str(Path(__file__).parent))         # the shims
import scope  # noqa: E402


def pytest_addoption(parser):
    group = parser.getgroup("peers")
    group.addoption("--peer")
    group.addoption("--checkout")
    group.addoption("--on")
    group.addoption("--tests")
    group.addoption("--longest", type=int)
    group.addoption("--one-in", type=int)
    group.addoption("--part")
    group.addoption("--report")
    group.addoption("--about")


def pytest_configure(config):
    config.counts, config.emptied, config.start = Counter(), set(), time.time()
    if config.getoption("peer") == "flash-attention":
        import flash_attn

        flash_attn.__path__.append(str(Path(config.getoption("checkout"), "flash_attn")))       # bert_padding, layers
    if config.getoption("peer") == "cs336":
        import cs336

        sys.modules["tests.adapters"] = cs336
    if config.getoption("peer") == "transformers":
        import attention_interface

        attention_interface.install()


# ---- on the CPU, tests that were written for a GPU

FOR_A_GPU = "flash-attention", "cs336"


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
        if session.config.getoption("on") == "cpu" and session.config.getoption("peer") in FOR_A_GPU:
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    option = item.config.getoption
    with OnTheCpu() if option("on") == "cpu" and option("peer") in FOR_A_GPU else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """Workers share a GPU's memory: what a test has left cached is another's."""
    if item.config.getoption("on") == "cuda":
        torch.cuda.empty_cache()


# ---- which tests run

def pytest_pycollect_makeitem(collector, name, obj):
    """Tests whose names do not match --tests are not made into cases at all."""
    wanted = collector.config.getoption("tests")
    return [] if name.startswith("test") and wanted and not re.search(wanted, name) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Chooses before pytest makes items of the cases: flash-attention has half a million, which would take a minute."""
    yield
    config, name = metafunc.config, metafunc.function.__name__
    if metafunc._calls:                                # private, and the only place for it
        metafunc._calls[:] = choose(config, name, metafunc._calls)
        if not metafunc._calls:                        # pytest would take it for a test without parameters
            config.emptied.add(name)
    elif why := scope.why_not(name, {}):
        config.counts["skipped", why] += 1
        config.emptied.add(name)


def choose(config, name, calls):
    """The calls within flashlab's scope and --longest; one in so many of them, always the same; of these the --part."""
    longest, one_in, kept = config.getoption("longest"), config.getoption("one_in"), []
    for call in calls:
        if why := scope.why_not(name, call.params):
            config.counts["skipped", why] += 1
        elif longest and scope.length(call.params) > longest:
            config.counts["left out", f"longer than {longest}"] += 1
        else:
            kept.append(call)
    places = random.Random(name).sample(range(len(kept)), -(-len(kept) // one_in))
    config.counts["left out", f"all but one in {one_in}"] += len(kept) - len(places)
    part, parts = map(int, (config.getoption("part") or "1/1").split("/"))
    config.counts["left out", f"all but part {part} of {parts}"] += len(places) - len(places[part - 1::parts])
    return [kept[place] for place in sorted(places[part - 1::parts])]


@pytest.hookimpl(trylast=True)                         # after -k
def pytest_collection_modifyitems(config, items):
    items[:] = [item for item in items if getattr(item, "originalname", item.name) not in config.emptied]
    if config.getoption("peer") == "transformers":     # methods of unittest's classes, not chosen among above
        items[:] = [item for item in items if re.search(config.getoption("tests"), item.name)]
        reasons = [scope.why_not(item.name, {}) or scope.why_not_class(item.cls) for item in items]
        config.counts.update(("skipped", why) for why in reasons if why)
        items[:] = [item for item, why in zip(items, reasons, strict=True) if not why]


# ---- results

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test of transformers in which flashlab was not called has shown nothing."""
    before, item.calls = getattr(item, "calls", 0), getattr(sys.modules.get("attention_interface"), "calls", 0)
    report = yield
    ours = item.config.getoption("peer") == "transformers" and call.when == "call"
    if ours and report.passed and item.calls == before:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: it calls no attention but eager")
    return report


def pytest_runtest_logreport(report):
    if report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        why = why.removeprefix("Skipped: ").removeprefix("flashlab has not got ")
        COUNTS["skipped", why or "the peer's own skip"] += 1
    elif report.failed:
        COUNTS["failed", ""] += 1
        lines = str(report.longrepr).splitlines()
        FAILED[report.nodeid] = next((line for line in lines if line.startswith("E ")), lines[-1])[:200]
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
