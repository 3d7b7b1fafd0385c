"""The Report of an answer that fails: what was done, where it shows, what to look at, and the case to try it on."""

import re
from dataclasses import replace

import torch

from flashlab_course.check import diagnose, failing, judge, line, raised, runner, special, structure, where
from flashlab_course.check.report import Report

PRINTED_LINES = 12
SHAPES = ("wrong_type", "wrong_shape", "wrong_dtype")
A_NAME = re.compile(r"(alpha|beta)\b|\w\b(?<!a)|\w*[A-Z_\d(.]")     # keeps its letters at the start of a sentence


def failed(exercise, fn, judged, place):
    """The Report: the cause, the line where it shows, which cases fail, one number. place: "your cell", or the file."""
    first = next(k for k in judged if not k.passed)
    diagnosis = diagnose.name_mistake(exercise, judged)
    if first.problem is not None and not diagnosis.name and (numbers := _numbers_alone(judged)):
        return _and_the_numbers(first, failed(exercise, fn, numbers, place))
    shown = first.wrong if first.problem is None else first.problem.kind in SHAPES
    locate = shown and not first.structure and not diagnosis.exchanged
    found = line.first_wrong(exercise, fn, judged, runner.file_of(fn)) if locate else None
    texts = [_named(diagnosis), *_shown(exercise, fn, judged, first, diagnosis, found)]
    points = first.only_structure
    against = points or first.problem is not None and first.problem.kind == "autograd"
    name = first.problem.kind if first.problem is not None else first.structure[0].name if points else None
    return Report(False, exercise.name, mistake=diagnosis.name or name,
                  message="\n".join(text.strip() for text in texts if text.strip()),
                  remedy=" ".join(sentence(f"Look at {look}") for look in {m.look: 0 for m in diagnosis.mistakes}),
                  hint=exercise.not_allowed if against and not diagnosis.name else "",
                  trace=_trace(first.problem, place), printed=_printed(first), line=found and (found.line, found.turn),
                  snippet=failing.lines(exercise, first.case))


def _numbers_alone(judged):
    """The cases as if no input had been changed, where an answer did that and its numbers are wrong too; else []."""
    alone = [replace(k, problem=None, wrong=k.beside, beside=[]) if k.problem and k.problem.kind in judge.RIGHT_NUMBERS
             else k for k in judged]
    return alone if any(k.wrong for k in alone) and all(k.problem is None for k in alone) else []


def _and_the_numbers(first, report):
    """The report on the numbers, after what the answer did to its inputs."""
    said = sentence(f"In “{first.case}” {first.problem.text}")
    report.message = f"{said} Beside that, numbers are wrong.\n{report.message}"
    report.mistake = " + ".join(filter(None, [first.problem.kind, report.mistake]))
    return report


def _named(diagnosis):
    said = " ".join(sentence(m.what) for m in diagnosis.mistakes)
    if len(diagnosis.mistakes) > 1:
        return f"Two mistakes at once give these numbers. {said}"
    if diagnosis.partly:                               # no more than that is known
        return f"Most likely: {said} That explains the smallest failing case exactly, but not all of them."
    return said


def _shown(exercise, fn, judged, first, diagnosis, found):
    """Where it shows and in which cases: true whether or not the mistake is known."""
    right = special.numbers_are_right(judged)
    if first.only_structure and (right or not diagnosis.name):
        later = "" if right else " Later cases have wrong numbers as well."
        return [*_findings(first), f"It fails in the case “{first.case}”.{later}"]
    if right and first.problem is not None:
        return [sentence(f"The numbers are right, but {first.problem.text}"), f"It fails in the case “{first.case}”.",
                sentence(raised.meaning(first.problem))]
    said = []
    if found is not None:                              # beside a known mistake in few words
        shows = f"It {'first shows' if found.first else 'shows'} in line {found.line}, `{found.code}`."
        said.append(shows if diagnosis.name else str(found))
    said.append(special.special(judged))
    if first.problem is not None:
        said += _of_problem(exercise, first, judged)
    elif first.wrong:
        said[-1] += f" In “{first.case}” {where.first_wrong(exercise, first, judge.expect(exercise, first.case))}."
        said.append(where.outputs(exercise, [k for k in judged if not k.passed]))
        if not diagnosis.name:
            said += [where.from_key_block(exercise, first, fn), *map(sentence, diagnosis.said)]
    return _findings(first, named=bool(diagnosis.name) and not diagnosis.partly) + said


def _findings(judged, named=False):
    """What is wrong with a case beside its numbers, as sentences."""
    return list(map(sentence, structure.in_words(judged, named)))


def _of_problem(exercise, first, judged):
    problem = first.problem
    alike = [k for k in judged if k.problem is not None and k.problem.kind == problem.kind]
    right = problem.kind in SHAPES and all(_numbers_fit(exercise, k) for k in alike)
    rounded = " up to rounding" if right and not _numbers_fit(exercise, first, rounding=0) else ""
    begins = f"The numbers are right{rounded}, but" if right else f"In “{first.case}”"
    said = [sentence(f"{begins} {problem.text}")]
    if problem.kind == "wrong_dtype" and "has dtype float32;" in problem.text:
        said.append("A tensor is float32 where none is asked for: `torch.zeros` and `torch.full` take `dtype=`.")
    if problem.kind == "raised":
        said += [sentence(problem.seen and f"In that line {problem.seen}"), sentence(raised.meaning(problem))]
    return said


def _numbers_fit(exercise, judged, rounding=2e-3):
    """Are the numbers right, up to a rounding to 16 bits, in results of another type, shape or dtype?"""
    expected, values = judge.expect(exercise, judged.case), judged.outcome.values
    try:
        return all(judge.distance(torch.as_tensor(x).reshape(torch.as_tensor(y).shape), y)
                   <= max(bound, rounding * float(torch.as_tensor(y).abs().nan_to_num(0, 0, 0).max()))
                   for x, y, bound in zip(values, expected.truth, expected.bounds, strict=True))
    except Exception:                                  # other lengths, strings, sparse tensors, anything
        return False


def sentence(text):
    """With a full stop, and with a capital unless it starts with a name: alpha, O_i, `row`. "" stays so."""
    if text and not A_NAME.match(text):
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!", ":")) else f"{text}."


def _trace(problem, place):
    lines = problem.lines if problem is not None else ()
    return "\n".join(f"{place}, {line}, in {function}: {code}" for line, function, code in lines)


def _printed(judged):
    lines = judged.outcome.printed.splitlines()
    more = [f"... and {len(lines) - PRINTED_LINES} lines more"] if len(lines) > PRINTED_LINES else []
    return "\n".join([line[:160] for line in lines[:PRINTED_LINES]] + more)
