"""A function whose expressions hand over their values, and take others: what `line` looks for the cause with."""

import ast
import inspect
import linecache
from collections import namedtuple

import numpy
import torch

from flashlab import torch_internals
from flashlab_course.check import judge, limits, source

SEEN = "_seen_value"           # what each expression is wrapped in
NONE = ast.Starred, ast.Slice, ast.Lambda, ast.Yield, ast.YieldFrom, ast.JoinedStr, ast.FormattedValue   # no values
TURNS = 2_000                  # values of one expression that are kept
LARGEST = 20_000               # elements of a value that is kept
SPARE = 2_000                  # expressions that a run with another value may evaluate on top of twice as many

# of an expression. name: what its statement sets to it. whole: it has such a name, or is a condition. reads: the name
# that it is. returned: it is only handed on by the return of the checked function
Expression = namedtuple("Expression", "line name whole reads returned")
# kept: a copy. shape: without sizes of 1, nested for a tuple. numbers: all of them as float64, one after the other
Value = namedtuple("Value", "kept shape numbers")


class Probe:
    """fn, with each function and class of its file, rewritten so that its expressions have numbers. places: the
    Expression of each; values: {number: [Value of each turn]} of the last run without given ones, as they came up."""

    def __init__(self, fn):
        fn = source.inner(fn)
        self.file, first = fn.__code__.co_filename, fn.__code__.co_firstlineno
        tree = ast.parse("".join(linecache.getlines(self.file)))
        mine = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                    and min(part.lineno for part in (node, *node.decorator_list)) == first)
        kept = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        kept = kept if mine in kept else [mine]
        wrapper = _Wrapper(mine)
        module = ast.fix_missing_locations(wrapper.generic_visit(ast.Module(kept, [])))
        scope = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals, SEEN: self._seen}
        self.fn = source.load_text(ast.unparse(module), f"{self.file}, probed", scope=scope)[fn.__name__]
        self.places, self.values, self.most = wrapper.places, {}, 0

    def run(self, exercise, case, number=None, given=()):
        """The Judged of a case. given: Values that the expression of this number takes, turn by turn."""
        self.number, self.given, self.calls = number, iter(given), 0
        if number is None:
            self.values = {}
        judged = judge.judge(exercise, case, self.fn)
        self.most = max(self.most, (2 * self.calls + SPARE) * (number is None))
        return judged

    def _seen(self, number, value):
        self.calls += 1
        if self.number is None:
            turns = self.values.get(number, ())
            if len(turns) < TURNS and (found := read(value)):
                self.values.setdefault(number, []).append(found)
        elif self.calls > self.most:                   # a loop that no longer ends
            raise limits.TimeUp
        elif number == self.number and (given := next(self.given, None)):
            return _given_as(value, given.kept)
        return value


class _Wrapper(ast.NodeTransformer):
    """Wraps every expression that is evaluated, and what a name holds after `name += ...`."""

    def __init__(self, checked):
        self.places, self.names, self.returned = [], {}, ()
        self.checked = set(ast.walk(checked))

    def visit(self, node):
        if isinstance(node, ast.stmt):
            value = getattr(node, "value", None)
            named = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
            self.names = dict.fromkeys([value], named[0]) if named else {}
            result = isinstance(node, ast.Return) and node in self.checked
            parts = [value, *getattr(value, "elts", ())] if result else []
            self.returned = parts if all(isinstance(part, (ast.Name, ast.Tuple)) for part in parts) else ()
        node = super().visit(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            held = ast.Name(node.target.id, ast.Load())
            self.names = {held: held.id}
            return [node, ast.Assign([node.target], self._wrapped(held, node.lineno))]
        if (not isinstance(node, ast.expr) or isinstance(node, NONE)
                or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
                or isinstance(node, ast.Constant) and type(node.value) not in (int, float, bool)
                or isinstance(node, ast.Tuple) and any(isinstance(part, NONE) for part in node.elts)):
            return node
        return self._wrapped(node, node.lineno)

    def _wrapped(self, node, line):
        name, reads = self.names.get(node), getattr(node, "id", None)
        whole = bool(name) or isinstance(node, (ast.Compare, ast.BoolOp))
        self.places.append(Expression(line, name, whole, reads, node in self.returned))
        return ast.Call(ast.Name(SEEN, ast.Load()), [ast.Constant(len(self.places) - 1), node], [])

    def visit_FunctionDef(self, node):                 # not its arguments and decorators
        node.body = self.generic_visit(ast.Module(node.body, [])).body
        return node

    visit_ClassDef = visit_match_case = visit_FunctionDef

    def visit_Call(self, node):                        # not the function that is called
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args, node.keywords = ([self.visit(part) for part in parts] for parts in (node.args, node.keywords))
        return node


# ---- values

def read(value):
    """The Value of a tensor, an array, a number, a value in a Triton kernel, or a tuple of such; None of all else."""
    try:
        if type(value) in (bool, int, float):
            return Value(value, (type(value) is bool,), numpy.array([value], numpy.float64))
        if isinstance(value, (tuple, list, slice)):
            parts = [value.start, value.stop] if isinstance(value, slice) else list(value)
            found = [read(part) for part in parts]
            return Value(value, (type(value).__name__, *(one.shape for one in found)),
                         numpy.concatenate([one.numbers for one in found])) if found and all(found) else None
        value = getattr(value, "value", value)             # a constant of a Triton kernel
        if hasattr(value, "handle"):
            value = None if value.dtype.is_ptr() else numpy.asarray(value.handle.data)
        with torch_internals.without_modes():              # a copy for the probe is no traffic
            value = value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
            array = numpy.asarray(value.double() if torch.is_tensor(value) and value.is_floating_point() else value)
        if array.dtype.kind in "iufb" and 0 < array.size <= LARGEST:
            return Value(value, (array.dtype.kind == "b", *(size for size in array.shape if size > 1)),
                         array.ravel().astype(numpy.float64))
        return None
    except Exception:                                  # a tensor of a kind that cannot be read
        return None


def _given_as(value, given):
    """What was given, in the form of the value whose place it takes."""
    if isinstance(value, (tuple, list)) and len(value) == len(given):
        return type(value)(map(_given_as, value, given))
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            made = value.clone()                       # on modelled memory it lies where the value lies
            with torch_internals.without_modes():
                given = torch.as_tensor(given)
                given = given.reshape(value.shape) if given.numel() == value.numel() else given
                return made.copy_(given) if given.shape == made.shape and given.dtype == made.dtype else given.clone()
    if isinstance(given, slice) or not hasattr(given, "item"):
        return given
    return given.item()
