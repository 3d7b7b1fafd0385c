"""Spoil solutions at random and check them: the checker must have a verdict for whatever comes.

    python solutions/fuzz.py --count 200 ex06        # 200 spoilt versions of each exercise that begins so
    python solutions/fuzz.py --count 50 --passes     # and print those that passed: the same answer, or a case is missing

A version is one to three random edits of the marked regions: operators, constants, names, statements, arguments, results. Number k
of an exercise is the same one for the same seed.
"""

import argparse
import ast
import collections
import copy
import difflib
import random
import sys
import traceback

from flashlab_course.check import checker, form, overview, runner, source

SECONDS = 1.0                  # per case: a loop that never ends is common here
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.Is, ast.In)
METHODS = {"amax": "amin", "sum": "mean", "maximum": "minimum", "exp": "log", "log": "exp", "zeros": "ones", "max": "min",
           "masked_fill": "where", "load": "store", "clone": "detach", "cdiv": "minimum", "full_like": "ones_like", "T": "mT"}
RETURNS = ("None", "3", "()", "'text'", "[x]", "x, x", "lambda: x", "(y for y in [x])", "x[0]", "x.double()", "x.T", "x.sum()",
           "x.to('meta')", "x.long()", "x.bool()", "x.reshape(-1)", "x + 1j", "x.to_sparse()", "float('nan')", "{x}", "x.tolist()",
           "x[:0]", "x * float('inf')", "object()", "x.unsqueeze(0)", "x.numpy()", "x is x", "[x] * 200", "10**5000", "print")


def spoil(exercise, rng):
    """The text of a solution with one to three random edits in its regions."""
    tree = ast.parse(exercise.parsed.text)
    edits = []
    while len(edits) < rng.choice((1, 1, 2, 3)):
        edit = rng.choice(EDITS)
        places = [place for place in _places(tree, exercise.parsed.regions) if isinstance(place[0], edit.of)]
        if places:
            edit(rng, *rng.choice(places))
            edits.append(edit.__name__)
    return ast.unparse(ast.fix_missing_locations(tree))


def _places(tree, regions):
    """(node, its parent, names in use) of every node inside a region."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            line = getattr(node, "lineno", None)
            if line and any(region.start < line <= region.stop for region in regions):
                yield node, parent, names


def edits(*kinds):
    def mark(function):
        function.of = kinds
        return function
    return mark


def _replace(parent, node, other):
    for field, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, field, other)
        elif isinstance(value, list) and any(one is node for one in value):
            value[next(n for n, one in enumerate(value) if one is node)] = other


def _body(parent, node):
    return next(value for _, value in ast.iter_fields(parent) if isinstance(value, list) and any(one is node for one in value))


@edits(ast.BinOp)
def another_operator(rng, node, parent, names):
    node.op = rng.choice(ARITHMETIC)()


@edits(ast.BinOp)
def sides_exchanged(rng, node, parent, names):
    node.left, node.right = node.right, node.left


@edits(ast.BinOp, ast.Call)
def one_part_alone(rng, node, parent, names):
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [*node.args, node.func]
    _replace(parent, node, rng.choice(parts))


@edits(ast.Compare)
def another_comparison(rng, node, parent, names):
    node.ops = [rng.choice(COMPARISONS)() for _ in node.ops]


@edits(ast.Constant)
def another_constant(rng, node, parent, names):
    value = node.value
    if isinstance(value, (int, float)):
        node.value = rng.choice((value + 1, value - 1, 2 * value, 0, 1, -1, 0.5, 1e30, 10**9, None, not value))
    else:
        node.value = rng.choice((value, "", 0, None))


@edits(ast.Name)
def another_name(rng, node, parent, names):
    node.id = rng.choice(names)


@edits(ast.Attribute)
def another_method(rng, node, parent, names):
    node.attr = METHODS.get(node.attr, rng.choice((*METHODS, "shape", "no_such_name")))


@edits(ast.UnaryOp, ast.Name, ast.Call)
def negated(rng, node, parent, names):
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        _replace(parent, node, ast.UnaryOp(rng.choice((ast.USub, ast.Not, ast.Invert))(), node))


@edits(ast.Subscript)
def index_dropped(rng, node, parent, names):
    _replace(parent, node, node.value)


@edits(ast.Call)
def arguments_disturbed(rng, node, parent, names):
    if node.args and rng.random() < 0.6:
        rng.choice((lambda: node.args.pop(rng.randrange(len(node.args))), lambda: rng.shuffle(node.args),
                    lambda: node.args.append(rng.choice(node.args))))()
    elif node.keywords:
        node.keywords.pop(rng.randrange(len(node.keywords)))


@edits(ast.stmt)
def statement_dropped(rng, node, parent, names):
    _replace(parent, node, ast.Pass())


@edits(ast.stmt)
def statement_doubled(rng, node, parent, names):
    _body(parent, node).insert(rng.randrange(len(_body(parent, node)) + 1), copy.deepcopy(node))


@edits(ast.stmt)
def statements_exchanged(rng, node, parent, names):
    body = _body(parent, node)
    here, there = next(n for n, one in enumerate(body) if one is node), rng.randrange(len(body))
    body[here], body[there] = body[there], body[here]


@edits(ast.If, ast.While, ast.IfExp)
def condition_settled(rng, node, parent, names):
    node.test = ast.Constant(rng.choice((True, False)))


@edits(ast.For)
def loop_disturbed(rng, node, parent, names):
    node.body.append(rng.choice((ast.Break(), ast.Continue(), ast.Return(None))))


@edits(ast.Return)
def another_result(rng, node, parent, names):
    text = rng.choice(RETURNS)
    inner = node.value or ast.Constant(None)
    first = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
    holder = ast.parse(text, mode="eval")
    for at in list(ast.walk(holder)):
        for name in [one for one in ast.iter_child_nodes(at) if isinstance(one, ast.Name) and one.id == "x"]:
            _replace(at, name, copy.deepcopy(first))
    if isinstance(inner, ast.Tuple) and rng.random() < 0.5:      # one of several results
        inner.elts[rng.randrange(len(inner.elts))] = holder.body
    else:
        node.value = holder.body


@edits(ast.Return)
def results_exchanged(rng, node, parent, names):
    if isinstance(node.value, ast.Tuple):
        rng.shuffle(node.value.elts)


EDITS = [value for value in list(globals().values()) if hasattr(value, "of")]


def spoilt(exercise, seed, k):
    """The k-th version as text; None where the edits leave no Python."""
    rng = random.Random(f"{exercise.name} {seed} {k}")
    try:
        text = spoil(exercise, rng)
        compile(text, exercise.name, "exec")
    except (ValueError, TypeError, SyntaxError, IndexError, AttributeError):
        return None
    return text


def verdict(exercise, text):
    """(kind of verdict, Report or traceback): "named", "located", "problem", "passed", "same", "file", "undiagnosed", "RAISED"."""
    if ast.dump(ast.parse(text)) == ast.dump(ast.parse(exercise.parsed.text)):
        return "same", None
    namespace, error = runner.protected(lambda: source.load_text(text, f"spoilt {exercise.name}"), 5)
    if error is not None or exercise.function not in namespace:
        return "file", None
    try:
        report = checker.examine(exercise, namespace[exercise.function])
        str(report), report._repr_html_()
    except Exception:
        return "RAISED", traceback.format_exc()
    if report.passed:
        return "passed", report
    if "Naming the mistake failed" in report.message or "could not be compared" in report.message:
        return "undiagnosed", report
    known = {m.name for m in exercise.mistakes}
    if report.mistake is None:
        return "located", report
    return ("named" if set(report.mistake.split(" + ")) <= known else "problem"), report


def changed(exercise, text):
    """The lines that differ from the solution."""
    old = ast.unparse(ast.parse(exercise.parsed.text)).splitlines()
    return "\n".join(line for line in difflib.unified_diff(old, text.splitlines(), lineterm="", n=0)
                     if line[:3] not in ("---", "+++") and line[:2] != "@@")


def fuzz(name, count, seed, show):
    exercise = form.exercise(name)
    exercise.seconds = min(exercise.seconds, SECONDS)
    tally, seen = collections.Counter(), set()
    for k in range(count):
        text = spoilt(exercise, seed, k)
        kind, what = ("no Python", None) if text is None else verdict(exercise, text)
        tally[kind] += 1
        if (kind in show or kind == "RAISED") and text not in seen:
            seen.add(text)
            print(f"--- {name} {seed} {k} {kind}\n{changed(exercise, text)}\n{what if kind != 'passed' else ''}", flush=True)
    print(f"{name}: {', '.join(f'{n} {kind}' for kind, n in tally.most_common())}", flush=True)
    return tally


def main(argv=None):
    parser = argparse.ArgumentParser("solutions/fuzz.py", description="spoil solutions at random and check them")
    parser.add_argument("exercises", nargs="*", metavar="EX", help="only these, or those that begin so")
    parser.add_argument("--count", type=int, default=20, help="versions of each exercise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", action="store_true", help="print those that passed, by what is different")
    args = parser.parse_args(argv)
    names = [name for text in args.exercises for name in overview.matches(text)] or form.names()
    show = {"undiagnosed"} | ({"passed"} if args.passes else set())
    total = sum((fuzz(name, args.count, args.seed, show) for name in names), collections.Counter())
    print(f"all: {', '.join(f'{n} {kind}' for kind, n in total.most_common())}")
    return 1 if total["RAISED"] else 0


if __name__ == "__main__":
    sys.exit(main())
