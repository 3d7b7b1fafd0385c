"""The house: imports point one way, no module takes another's private names, every folder keeps its budget."""

import ast

import house
import pytest
from house import ROOT

PACKAGES = ("flashlab", "flashlab_course")
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
           for package in PACKAGES for path in house.files(package)}

# What each room may know of the others. A room is a folder of a package, or a file that stands by itself.
FLASHLAB = {
    "cost": set(), "ops": set(), "torch_internals": set(),
    "validate": {"torch_internals"},
    "oracle": {"validate"},
    "triton_mode": {"validate"},
    "memory": {"ops", "torch_internals", "validate"},
    "tiles": {"memory", "validate"},
    "rungs": {"memory", "tiles", "validate"},
    "kernels": {"torch_internals", "triton_mode", "validate"},
    "ladder": {"cost", "kernels"},                     # names its functions and imports them on use
    "operator": {"cost", "kernels", "ladder", "oracle", "rungs", "tiles", "torch_internals", "triton_mode", "validate"},
}
ALL_OF_FLASHLAB = set(FLASHLAB)
COURSE = {
    "command": set(), "chapters": set(), "skip": set(), "ring_check": set(),
    "sweeps": set(), "compiler": set(),
    "gpu": {"compiler"},
    "gpt": set(),
    "doctor": {"chapters", "command"},
    "check": {"chapters", "command", "compiler", "gpu"},
    "bench": {"chapters", "command", "compiler", "doctor", "gpt", "gpu"},
    "figures": {"compiler", "gpu", "sweeps"},
    "player": {"compiler"},
    "workspace": {"check"},
    "lesson": {"bench", "chapters", "check", "command", "compiler", "figures", "gpu", "player", "sweeps"},
}


def room(module):
    """("flashlab", "rungs") of flashlab.rungs.fa2."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0]


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


GRAPH = {name: {module for module, _ in imports(name) if module in MODULES} - {name, *PACKAGES} for name in MODULES}


def allowed(name, other):
    """May the module `name` import the module `other`?"""
    (package, mine), (others_package, other_room) = room(name), room(other)
    if mine in ("", "__main__") or (package, mine) == (others_package, other_room):
        return mine != "" or package == others_package                   # __main__ may know all
    if package == "flashlab":
        return others_package == "flashlab" and other_room in FLASHLAB[mine]
    return other_room in (ALL_OF_FLASHLAB if others_package == "flashlab" else COURSE[mine])


def test_a_room_knows_only_what_it_may():
    """flashlab never imports flashlab_course; check, bench, figures and player do not know one another."""
    assert [f"{name} imports {other}" for name in MODULES for other in GRAPH[name] if not allowed(name, other)] == []


def test_every_room_is_on_the_list():
    rooms = {room(name) for name in MODULES} - {(package, "") for package in PACKAGES} - {("flashlab", "__main__")}
    assert {one for package, one in rooms if package == "flashlab"} == set(FLASHLAB)
    assert {one for package, one in rooms if package == "flashlab_course"} == set(COURSE)


def test_nothing_of_the_packages_knows_the_notebooks():
    others = ("notebooks", "tests", "solutions", "exercises")
    assert [name for name in MODULES for module, _ in imports(name) if module.split(".")[0] in others] == []


def test_there_is_no_circle():
    done, path = set(), []

    def walk(name):
        assert name not in path, "circle: " + " -> ".join([*path[path.index(name):], name])
        if name not in done:
            path.append(name)
            for other in sorted(GRAPH[name]):
                walk(other)
            done.add(path.pop())

    for name in MODULES:
        walk(name)


def private_names_taken(name):
    """The private names of other modules that a module uses."""
    is_private = lambda text: text.startswith("_") and not text.startswith("__")
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    yield from (f"{module}.{one}" for module, names in imports(name) for one in names
                if module.split(".")[0] in PACKAGES and is_private(one))
    modules = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
               for alias in node.names if f"{node.module}.{alias.name}" in MODULES}
    yield from (f"{node.value.id}.{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name) and node.value.id in modules and is_private(node.attr))


def test_no_module_takes_a_private_name_of_another():
    assert {name: taken for name in MODULES if (taken := list(private_names_taken(name)))} == {}


def test_rungs_never_import_one_another():
    rungs = {name for name in MODULES if name.startswith("flashlab.rungs.")}
    assert [(name, other) for name in rungs for other in GRAPH[name] & rungs] == []


@pytest.mark.parametrize("folder", house.BUDGETS)
def test_a_folder_keeps_its_budget(folder):
    lines, tokens, _ = house.total(house.files(folder))
    line_budget, token_budget = house.BUDGETS[folder]
    assert lines <= line_budget and tokens <= token_budget, f"\n{house.report()}"


def test_no_file_and_no_function_is_longer_than_a_reader_can_hold_in_mind():
    assert list(house.too_long()) == []


def test_lines_are_not_dense():
    assert house.tokens_of_a_line() <= house.TOKENS_OF_A_LINE, f"\n{house.report()}"


def test_what_make_test_samples_exists():
    """A test that is renamed would be run whole, and make test would grow in silence."""
    from tests.conftest import SAMPLED

    for file, names in SAMPLED.items():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert [name for name in names if f"def {name}(" not in text] == [], file
