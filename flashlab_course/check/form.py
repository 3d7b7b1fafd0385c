"""The form of an exercise: its cases, its truth, its mistakes. solutions/README.md shows how to add one."""

import importlib.util
import inspect
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property

import torch

from flashlab_course.check import features, source

KNOWN = ".mistakes.py"         # solutions/<name>.py is the answer, solutions/<name>.mistakes.py defines the rest


@dataclass(frozen=True)
class Case:
    """One set of inputs. `features` says in words what is special about it: "more than one key block"."""

    name: str
    make: Callable             # () -> {argument: value}; the same values at each call
    features: frozenset = frozenset()
    sizes: dict = field(default_factory=dict)    # what the report prints, and what the block numbers are counted with
    loose: float = 0.0         # relative error allowed on top: eps · |score| where scores are large
    units: int = 16            # units in the last place allowed on top; fewer where all of the arithmetic is exact
    narrow: "Case | None" = None    # the same in float32, for an answer that cannot take this one's float64
    given: dict = field(default_factory=dict)    # what it was made of: more features follow from that

    def __str__(self):
        sizes = ", ".join(f"{name} {_in_words(value)}" for name, value in self.sizes.items())
        return f"{self.name} ({sizes})" if sizes else self.name


def _in_words(value):
    return f"{value.start}:{value.stop}" if isinstance(value, slice) else str(value).removeprefix("torch.")


@dataclass(frozen=True)
class Output:
    """One result. `axes` names its dimensions; "query" and "key" are also counted in blocks of B_r and B_c.

    codes: (number, word) of numbers that stand for something else in what the exercise's `call` made of an answer
    """

    name: str
    axes: tuple = ()
    codes: tuple = ()


class Breach(Exception):
    """What the function did is against the rules: for an exercise's `call`, and for who watches. kind as in
    runner.Problem; results: what it returned, where all that is wrong is that it changed its inputs."""

    def __init__(self, kind, text, results=None):
        super().__init__(text)
        self.kind, self.results = kind, results


class Mistake:
    """A known wrong version of the solution: swaps of text inside the marked regions.

    what   one sentence on what the wrong version does, in the past tense, as said to the learner
    look   one sentence on what to look at
    swaps  (old, new) pairs; each old must stand exactly once in the regions; … in new is old
    also   other swaps that make the same mistake with other numbers: -1e9 where swaps has -1e6
    stray  only accesses outside the tensors tell it apart: the interpreter sees them, a GPU follows them or stops
    """

    def __init__(self, name, what, look, *swaps, also=(), stray=False):
        self.name, self.what, self.look, self.stray = name, what, look, stray
        self.swaps = [(old, new.replace("…", old)) for old, new in swaps]
        self.forms = [self, *(Mistake(name, what, look, *other) for other in also)]


@dataclass(eq=False)
class Exercise:
    """Everything the checker knows about an exercise, under the names that its list of mistakes gives it; title,
    chapter, difficulty and minutes stand in the solution's docstring."""

    outputs: list                        # of Output, or of tuples of a name and its axes
    cases: list                          # of Case, from the smallest to the nastiest
    mistakes: list                       # of Mistake
    hints: list                          # of str, the gentlest first
    features: dict = field(default_factory=dict)     # {feature: of arguments of a case, whether it has it}
    function: str = ""                   # what the learner writes; "": what the solution defines last
    truth: Callable | None = None        # (**inputs) -> outputs in float64; None: the solution in float64
    call: Callable | None = None         # (fn, inputs) -> outputs; None: fn with the solution's own signature
    sram_bytes: Callable | None = None   # (**inputs) -> bytes: run under flashlab.memory.Memory and hold the traffic
    forbid: Callable | None = None       # (shape, **inputs) -> a sentence if no tensor of that shape may be made
    without: tuple = ()                  # what may not be called: keys of points.LIBRARY, "autograd"
    off_limits: tuple = ()               # rooms of flashlab that may not be called, besides points.READY
    loops: Callable | None = None        # (**inputs) -> ("heads", 8): no line may run 8 times; or None
    most: Callable | None = None         # (**inputs) -> {tensor: most elements in one load}
    reads: tuple = ()                    # Triton: the inputs that are put between NaNs
    writes: tuple = ()                   # Triton: the outputs that are poisoned; they are the results
    traffic: Callable | None = None      # Triton: (**inputs) -> {tensor: (elements loaded, elements stored)}
    fewer: Callable | None = None        # (**inputs) -> may a right answer move less than that, or than the solution?
    after: list = field(default_factory=list)    # (exercise, fn) -> (Mistake, what was seen): what no case shows
    ints_only: bool = False              # the answers are whole numbers: compared exactly
    seconds: float = 3                   # per case
    show: Callable | None = None         # (fn, **inputs): a call on modelled memory for the player
    name: str = ""

    def __post_init__(self):
        self.outputs = [Output(one[0], one[1:]) if isinstance(one, tuple) else one for one in self.outputs]
        self.cases = [replace(case, features=case.features | features.features_of(case.given, self.features))
                      for case in self.cases]
        self.function = self.function or re.findall(r"^def (\w+)", self.parsed.text, re.MULTILINE)[-1]

    @property
    def triton(self):
        return bool(self.writes)

    @property
    def moves(self):
        """Does an answer move tiles between HBM and chip, so that the player can show it?"""
        return self.triton or self.sram_bytes is not None or self.show is not None

    def case(self, name):
        """The case of that name."""
        return {one.name: one for wide in self.cases for one in (wide, wide.narrow) if one is not None}[name]

    def mistake(self, name):
        return next(one for one in self.mistakes if one.name == name)

    def needed(self, inputs):
        """{tensor: (bytes loaded, bytes stored)}: the closed form of the traffic."""
        return {name: (loaded * inputs[name].element_size(), stored * inputs[name].element_size())
                for name, (loaded, stored) in self.traffic(**inputs).items()}

    @cached_property
    def parsed(self):
        return source.Parsed(self.name, source.solution_text(self.name))

    @property
    def head(self):
        return self.parsed.head

    @property
    def not_allowed(self):
        """What the stub says of it: "Not allowed: ..."."""
        return " ".join(re.search(r"^Not allowed: .*?(?=\n\n)", self.parsed.text, re.MULTILINE | re.DOTALL)[0].split())

    @cached_property
    def signature(self):
        return inspect.signature(self.solution())

    @cache                               # noqa: B019    one for each exercise, as long as the process
    def solution(self):
        return source.load_text(self.parsed.text, f"solution of {self.name}",
                                source.solution_path(self.name))[self.function]

    @cache                               # noqa: B019
    def wrong(self, *mistakes):
        """The function with these mistakes made in it, one after the other."""
        parsed = self.parsed
        for mistake in mistakes:
            parsed = parsed.edited(mistake.name, mistake.swaps)
        title = f"{self.name} with {' and '.join(m.name for m in mistakes)}"
        return source.load_text(parsed.text, title)[self.function]

    def invoke(self, fn, inputs):
        """Call fn as the solution's signature says: positions for what has one, keywords for the rest."""
        if self.call is not None:
            return self.call(fn, **inputs)
        only = inspect.Parameter.KEYWORD_ONLY
        kinds = {name: p.kind for name, p in self.signature.parameters.items() if name in inputs}
        return fn(*(inputs[name] for name, kind in kinds.items() if kind is not only),
                  **{name: inputs[name] for name, kind in kinds.items() if kind is only})


def whole(value):
    """The int that a value is: Python's own, numpy's, a tensor's that holds nothing else. None for everything else."""
    if isinstance(value, bool) or getattr(value, "ndim", 0) or getattr(value, "dtype", None) == torch.bool:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def names():
    """Every exercise, in the order of the chapters; within one as its notebook comes to them."""
    root = source.root()
    known = sorted(path.name.removesuffix(KNOWN) for path in (root / "solutions").glob(f"ex*{KNOWN}"))
    return sorted(known, key=lambda name: (source.chapter(name), _place(root, name)))


@cache
def _place(root, name):
    """Where the chapter's text first names an exercise; behind all others if it does not."""
    chapters = sorted((root / "notebooks" / "src").glob(f"{source.chapter(name)}_*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in chapters)
    return text.find(name) if name in text else len(text)


@cache
def exercise(name):
    """The Exercise of that name. Raises: KeyError for an unknown one."""
    if name not in names():
        raise KeyError(name)
    path = source.solution_path(name).with_name(f"{name}{KNOWN}")
    spec = importlib.util.spec_from_file_location(f"flashlab_mistakes.{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = vars(module)
    return Exercise(name=name, **{one.name: known[one.name] for one in fields(Exercise) if one.name in known})
