"""The house: imports point one way, no module takes another's private names, nothing grows beyond reading."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "flashlab"
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
           for path in sorted(PACKAGE.rglob("*.py"))}

# What each room may know of the others. A room is a folder of flashlab/, or a file that stands by itself.
FOUNDATION = {"command", "validate", "chapters", "skip", "cost", "oracle"}       # know nothing, or validate
MAY_KNOW = {
    "command": set(), "validate": set(), "chapters": set(), "skip": set(), "cost": set(), "oracle": set(),
    "ops": set(), "frames": set(),                                       # what an operation moves; whose line it stands in
    "memory": {"frames", "ops", "validate"},
    "tiles": {"memory", "validate"},
    "compiler": {"validate"},
    "rungs": {"memory", "tiles", "validate"},
    "kernels": {"compiler", "validate"},
    "gpu": {"compiler", "validate"},
    "ladder": {"cost"},                                                  # names its functions; imports them on use
    "transforms": {"cost"},                                              # what PyTorch asks of an operator
    "again": set(),
    "attention": {"again", "compiler", "kernels", "ladder", "rungs", "transforms", "validate"},
    "decoding": {"again", "attention", "compiler", "kernels", "validate"},
    "fp8": {"compiler", "kernels", "validate"},
    "huggingface": {"attention", "validate"},
    "gpt": {"attention", "decoding"},
    "ring": {"attention", "transforms", "validate"},
    "ring_check": {"oracle", "ring"},
    "sweeps": {"ladder", "memory", "tiles", "validate"},
    "doctor": {"attention", "chapters", "command", "compiler", "ladder"},
    "bench": FOUNDATION | {"attention", "compiler", "decoding", "doctor", "fp8", "gpt", "gpu", "kernels", "ladder", "ring",
                           "rungs"},
    "figures": FOUNDATION | {"gpu", "ladder", "memory", "rungs", "sweeps", "tiles"},
    "lesson": FOUNDATION | {"bench", "check", "compiler", "figures", "kernels", "ladder", "memory", "player", "rungs", "sweeps",
                            "tiles"},
    "player": {"compiler", "ladder", "memory"},
    "check": FOUNDATION | {"compiler", "gpu", "ladder", "memory", "rungs", "tiles"},
    "__main__": {"bench", "check", "command", "doctor", "ladder", "lesson"},
    "fa2": {"rungs"}, "fa2_backward": {"rungs"}, "simt": {"gpu"},        # where exercise answers used to find them
}
LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 450, 60


def room(module):
    return module.split(".")[1] if "." in module else "flashlab"


def imports(name):
    """(module imported, names taken from it) for every import in a module, wherever it stands."""
    base = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(base.split(".")[: len(base.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (package, node.module)))
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (inner, []) if inner in MODULES else (module, [alias.name])


GRAPH = {name: {module for module, _ in imports(name) if module in MODULES} - {name, "flashlab"} for name in MODULES}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "flashlab"])
def test_a_room_knows_only_what_it_may(name):
    allowed = MAY_KNOW[room(name)] | {room(name)}
    known = {module: room(module) for module in GRAPH[name]}
    assert not {module for module, where in known.items() if where not in allowed}, f"{name} may know {sorted(allowed)}"


def test_nothing_of_the_package_knows_the_notebooks():
    others = ("notebooks", "tests", "solutions", "exercises")
    assert not [name for name in MODULES for module, _ in imports(name) if module.split(".")[0] in others]


def test_there_is_no_circle():
    done, path = set(), []

    def walk(name):
        if name in path:
            raise AssertionError("circle: " + " -> ".join([*path[path.index(name):], name]))
        if name not in done:
            path.append(name)
            for other in sorted(GRAPH[name]):
                walk(other)
            done.add(path.pop())

    for name in MODULES:
        walk(name)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_takes_a_private_name_of_another(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    taken = [f"{module}.{one}" for module, names in imports(name) for one in names
             if module.split(".")[0] == "flashlab" and one.startswith("_") and not one.startswith("__")]
    modules = {alias.asname or alias.name.split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
               for alias in node.names if f"{node.module}.{alias.name}" in MODULES}
    taken += [f"{node.value.id}.{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)
              and isinstance(node.value, ast.Name) and node.value.id in modules
              and node.attr.startswith("_") and not node.attr.startswith("__")]
    assert not taken


@pytest.mark.parametrize("name", MODULES)
def test_files_and_functions_stay_readable(name):
    text = MODULES[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_OF_A_FILE
    long = {node.name: node.end_lineno - node.lineno + 1 for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef)}
    assert not {function: n for function, n in long.items() if n > LINES_OF_A_FUNCTION}


def test_rungs_never_import_one_another():
    rungs = {name for name in MODULES if name.startswith("flashlab.rungs.")}
    assert not {(name, other) for name in rungs for other in GRAPH[name] & rungs}


def test_answers_find_what_has_moved_where_it_was():
    """Stubs of an earlier edition began with these lines."""
    from flashlab.rungs import fa2
    from flashlab.rungs import fa2_backward as backward
    from flashlab.rungs.fa2 import fa2_forward
    from flashlab.rungs.fa2_backward import fa2_backward
    from flashlab_course.gpu import simt
    from flashlab_course.gpu.simt import blockDim, blockIdx, launch, threadIdx

    assert fa2_forward is fa2.fa2_forward and fa2_backward is backward.fa2_backward
    assert (blockDim, blockIdx, launch, threadIdx) == (simt.blockDim, simt.blockIdx, simt.launch, simt.threadIdx)


def test_what_make_test_samples_exists():
    """A test that is renamed would be run whole, and make test would grow in silence."""
    from tests.conftest import SAMPLED

    for file, names in SAMPLED.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert [name for name in names if f"def {name}(" not in text] == [], file
