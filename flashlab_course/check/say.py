"""The Report of an answer that fails: what was done, where it shows, what to look at, and the case to try it on."""

from dataclasses import replace

import torch

from flashlab_course.check import diagnose, failing, judge, line, raised, runner, special, structure, where
from flashlab_course.check.report import Report

PRINTED_LINES = 12
NAMES = {"alpha", "beta"}      # keep their small letter at the start, as an exercise's own names do
AFTER_A_NAME = ("was", "is", "were", "are", "and", "has", "holds", "held", "came", "started", "counted", "did", "took",
                "lined",
                "of", "in")
SHAPES = ("wrong_type", "wrong_shape", "wrong_dtype")


def failed(exercise, fn, judged, place):
    """The Report: the cause, the line where it shows, which cases fail, one number. place: "your cell", or the file."""
    first = next(k for k in judged if not k.passed)
    diagnosis = diagnose.name_mistake(exercise, judged)
    if first.problem is not None and not diagnosis.name and (numbers := _numbers_alone(judged)):
        return _and_the_numbers(first, failed(exercise, fn, numbers, place), place)
    found = first.wrong and not first.structure and line.first_wrong(exercise, fn, judged, runner.file_of(fn)) or None
    texts = [*_named(exercise, diagnosis), *_shown(exercise, fn, judged, first, diagnosis, found)]
    points = first.only_structure
    against = points or first.problem is not None and first.problem.kind == "autograd"
    looked = " ".join(sentence(f"Look at {look}") for look in dict.fromkeys(m.look for m in diagnosis.mistakes))
    name = first.problem.kind if first.problem is not None else first.structure[0].name if points else None
    return Report(False, exercise.name, mistake=diagnosis.name or name,
                  message="\n".join(text.strip() for text in texts if text.strip()),
                  remedy=looked, hint=exercise.not_allowed if against and not diagnosis.name else "",
                  trace=trace(first.problem, place), printed=printed(first), line=found and (found.line, found.turn),
                  snippet=failing.lines(exercise, first.case))


def _numbers_alone(judged):
    """The cases as if no input had been changed, where an answer did that and its numbers are wrong too; else []."""
    alone = [replace(k, problem=None, wrong=k.beside, beside=[]) if k.problem and k.problem.kind in judge.RIGHT_NUMBERS
             else k
             for k in judged]
    return alone if any(k.wrong for k in alone) and all(k.problem is None for k in alone) else []


def _and_the_numbers(first, report, place):
    """The report on the numbers, after what the answer did to its inputs."""
    said = sentence(f"In “{first.case}” {first.problem.text}")
    report.message = f"{said} Beside that, numbers are wrong.\n{report.message}"
    report.mistake = " + ".join(filter(None, [first.problem.kind, report.mistake]))
    return report


def _named(exercise, diagnosis):
    said = " ".join(sentence(m.what, exercise) for m in diagnosis.mistakes)
    if len(diagnosis.mistakes) > 1:
        return [f"Two mistakes at once give these numbers. {said}"]
    if diagnosis.partly:                               # no more than that is known
        return [f"Most likely: {said} That explains the smallest failing case exactly, but not all of them."]
    return [said]


def _shown(exercise, fn, judged, first, diagnosis, found):
    """Where it shows and in which cases: true whether or not the mistake is known."""
    if first.only_structure and (special.numbers_are_right(judged) or not diagnosis.name):
        later = "" if special.numbers_are_right(judged) else " Later cases have wrong numbers as well."
        return [*findings(first), f"It fails in the case “{first.case}”.{later}"]
    if special.numbers_are_right(judged) and first.problem is not None:
        means = [sentence(text)] if (text := raised.meaning(first.problem)) else []
        return [f"The numbers are right, but {first.problem.text}.", f"It fails in the case “{first.case}”.", *means]
    said = [special.special(judged)]
    if first.problem is not None:
        said += _of_problem(exercise, first, judged)
    elif first.wrong:
        shown = where.first_wrong(exercise, first, judge.expect(exercise, first.case))
        said[-1] += f" In “{first.case}” {shown}."
        if text := where.outputs(exercise, [k for k in judged if not k.passed]):
            said.append(sentence(text, exercise))
        if not diagnosis.name:
            said += [where.from_key_block(exercise, first, fn), *(sentence(text, exercise) for text in diagnosis.said)]
    if found is not None:                              # beside a known mistake in few words
        shows = f"It {'first shows' if found.first else 'shows'} in line {found.line}, `{found.code}`."
        said.insert(0, shows if diagnosis.name else str(found))
    return findings(first, exercise, named=bool(diagnosis.name) and not diagnosis.partly) + said


def findings(judged, exercise=None, named=False):
    """What is wrong with a case beside its numbers, as sentences."""
    return [sentence(text, exercise) for text in structure.in_words(judged, named)]


def _of_problem(exercise, first, judged):
    problem = first.problem
    alike = [k for k in judged if k.problem is not None and k.problem.kind == problem.kind]
    right = problem.kind in SHAPES and all(_numbers_fit(exercise, k) for k in alike)
    rounded = " up to rounding" if right and not _numbers_fit(exercise, first, rounding=0) else ""
    said = [f"The numbers are right{rounded}, but {problem.text}." if right
            else f"In “{first.case}” {problem.text}."]
    if problem.kind == "wrong_dtype" and "has dtype float32;" in problem.text:
        said.append("A tensor is float32 where none is asked for: `torch.zeros` and `torch.full` take `dtype=`.")
    if problem.kind == "raised":
        said += [sentence(f"In that line {problem.seen}")] if problem.seen else []
        said += [sentence(text)] if (text := raised.meaning(problem)) else []
    return said


def _numbers_fit(exercise, judged, rounding=2e-3):
    """Results of another type, shape or dtype whose numbers are right."""
    expected, values = judge.expect(exercise, judged.case), judged.outcome.values
    ordinary = all(not isinstance(v, torch.Tensor) or v.device.type == "cpu" and v.layout == torch.strided
                   for v in values)
    if len(values) != len(expected.truth) or not ordinary:
        return False
    try:
        pairs = [(torch.as_tensor(v).double(), torch.as_tensor(t).double())
                 for v, t in zip(values, expected.truth, strict=True)]
        return all(_near(*pair, bound, rounding) for pair, bound in zip(pairs, expected.bounds, strict=True))
    # lists of different lengths, strings, sparse tensors, anything
    except Exception:
        return False


def _near(x, y, bound, rounding):
    """Equal but for their shape and a rounding, to 16 bits if it is that large."""
    if x.numel() != y.numel():
        return False
    return not y.numel() or judge.distance(x.reshape(y.shape), y) <= max(bound,
                                                                         rounding * float(y.abs().nan_to_num(0, 0,
                                                                                                             0).max()))


def sentence(text, exercise=None):
    """With a full stop, and with a capital unless it starts with a name: alpha, O_i, `row`."""
    first, _, rest = text.partition(" ")
    first = first.rstrip(",:;")
    names = NAMES | ({o.name for o in exercise.outputs} | set(exercise.signature.parameters) if exercise is not None
                     else set())
    a_name = first in names and (not rest or rest.split()[0] in AFTER_A_NAME)
    if first == "a" or len(first) > 1 and first.isalpha() and first.islower() and not a_name:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!", ":")) else f"{text}."


def trace(problem, place):
    if problem is None or not problem.lines:
        return ""
    return "\n".join(f"{place}, {line}, in {function}: {code}" for line, function, code in problem.lines)


def printed(judged):
    lines = judged.outcome.printed.splitlines()
    more = [f"... and {len(lines) - PRINTED_LINES} lines more"] if len(lines) > PRINTED_LINES else []
    return "\n".join([line[:160] for line in lines[:PRINTED_LINES]] + more)
