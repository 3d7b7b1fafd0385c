"""The Report of an answer that fails: what was done, where it shows, what to look at, and the case to try it on."""

import re
from dataclasses import replace

from flashlab_course.check import diagnose, failing, judge, line, raised, structure, where
from flashlab_course.check.features import GENERAL
from flashlab_course.check.report import Report
from flashlab_course.check.runner import FINAL

PRINTED_LINES = 12
CHANGED = "changed_inputs"
A_NAME = re.compile(r"(alpha|beta)\b|\w\b(?<!a)|\w*[A-Z_\d(.]")     # keeps its letters at the start of a sentence


def failure(exercise, fn, judged, place):
    """The Report. place: "your cell", or the file."""
    changed = [finding.text for k in judged for finding in k.structure if finding.kind == CHANGED]
    if not changed or not any(k.wrong for k in judged):
        return _failure(exercise, fn, judged, place)
    numbers = [replace(k, structure=[one for one in k.structure if one.kind != CHANGED]) for k in judged]
    report = _failure(exercise, fn, numbers, place)
    report.mistake = " + ".join(filter(None, [CHANGED, report.mistake]))
    report.message = f"{sentence(changed[0])} Besides, some numbers are wrong.\n{report.message}"
    return report


def _failure(exercise, fn, judged, place):
    """The cause, the line where it shows, which cases fail, one number."""
    first = next(k for k in judged if not k.passed)
    diagnosis = diagnose.name_mistake(exercise, judged)
    locate = diagnosis.name != diagnose.EXCHANGED and (first.problem is None or first.problem.kind not in FINAL)
    found = line.first_wrong(exercise, fn, judged, diagnosis.mistakes) if locate else None
    if found and not found.certain and first.problem is not None and first.problem.lines:
        found = None                                   # the line that raised is known; another would be a guess
    texts = [_named(diagnosis), *_shown(exercise, judged, first, diagnosis, found)]
    rule = structure.breach(judged)
    if rule and not any(rule[1:] in text for text in texts):
        texts = [sentence(rule), *texts]
    plain = first.problem or first.only_structure and first.structure[0]
    against = rule or not diagnosis.name and (first.only_structure or plain and plain.kind == "autograd")
    lines = first.problem.lines if first.problem is not None else ()
    report = Report(False, exercise.name, mistake=diagnosis.name or (plain.kind if plain else None),
                    message="\n".join(text.strip() for text in texts if text.strip()),
                    remedy=" ".join(sentence(f"Look at {look}") for look in {m.look: 0 for m in diagnosis.mistakes}),
                    hint=exercise.not_allowed if against else "",
                    trace="\n".join(f"{place}, {at}, in {function}: {code}" for at, function, code in lines),
                    printed=_printed(first.outcome.printed.splitlines()), line=found and (found.line, found.turn),
                    snippet=failing.lines(exercise, first.case))
    if first.wrong:
        n, _, bound = first.wrong[0]
        index = where.first_index(first.outcome.values[n], judge.expect(exercise, first.case).truth[n], bound)
        report.where = first.case.name, exercise.outputs[n].name, index
    return report


def _named(diagnosis):
    said = [m.what for m in diagnosis.mistakes]
    if len(said) > 1:
        return f"Two mistakes at once give these numbers. {' '.join(map(sentence, said))}"
    if diagnosis.partly:                               # no more than that is known
        return f"Most likely {said[0]}. That explains the smallest failing case exactly, but not all of them."
    return " ".join(map(sentence, said))


def _shown(exercise, judged, first, diagnosis, found):
    """Where it shows and in which cases: true whether or not the mistake is known."""
    right = not any(k.wrong or k.problem and k.problem.error not in judge.OF_MEMORY for k in judged)
    fails = f"It fails, for example, in the case “{first.case}”."
    line_text = [str(found)] if found is not None else []
    meaning = sentence(raised.meaning(first.problem)) if first.problem is not None else ""
    if first.only_structure and (right or not diagnosis.name):
        fails += "" if right else " Later cases have wrong numbers as well."
        return [*map(sentence, structure.in_words(first)), *line_text, fails]
    if right and first.problem is not None and judged[0].problem is None:
        return [sentence(f"The numbers are right, but {first.problem.text}"), fails, meaning]
    if found is not None and diagnosis.name:           # in few words
        line_text = [f"{'That is in' if found.certain else 'It first shows in'} line {found.line}, `{found.code}`."]
    said = [*line_text, which_cases(judged)]
    if first.problem is not None:
        said.append(sentence(f"In “{first.case}” {first.problem.text}"))
        said += [sentence(first.problem.seen and f"In that line {first.problem.seen}"), meaning]
    elif first.wrong:
        said[-1] += f" In “{first.case}” {where.first_wrong(exercise, first, judge.expect(exercise, first.case))}."
        said.append(where.outputs(exercise, [k for k in judged if not k.passed]))
    beside = structure.in_words(first, named=bool(diagnosis.name) and not diagnosis.partly)
    return [*map(sentence, beside), *said]


def which_cases(judged):
    """A sentence on which cases fail. It names a feature only if exactly the cases that have it fail."""
    failed = [k for k in judged if not k.passed]
    what = "Wrong" if any(k.wrong for k in failed) else "It fails"
    if len(failed) == len(judged):
        return f"{what} in every case."
    shared = frozenset.intersection(*(k.case.features for k in failed))
    found = shared.difference(*(k.case.features for k in judged if k.passed))
    found = sorted(found.difference(GENERAL)) + [text for text in GENERAL if text in found]     # its own ones first
    if found:
        return f"{what} in every case with {found[0]}; all other cases are right."
    return f"{what} in {len(failed)} of {len(judged)} cases."


def sentence(text):
    """With a full stop, and with a capital unless it starts with a name: alpha, O_i, `row`. "" stays so."""
    if text and not A_NAME.match(text):
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!", ":")) else f"{text}."


def _printed(lines):
    more = [f"... and {len(lines) - PRINTED_LINES} more lines"] if len(lines) > PRINTED_LINES else []
    return "\n".join([line[:160] for line in lines[:PRINTED_LINES]] + more)
