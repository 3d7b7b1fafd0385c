"""For Exercise.after: what a GPU's compiler says of a learner's Triton kernel, which the interpreter has just run.

`refused` says what does not compile, `narrow` what is computed in 32 bits: row · stride passes 2³¹ only for tensors of
gigabytes. And where the exercise knows the mistake TF32, it says where tl.dot would round float32, which the
interpreter keeps.
"""

import re

from flashlab.triton_mode import interpreted
from flashlab_course.check import limits
from flashlab_course.check.form import Mistake
from flashlab_course.check.guard import Guard
from flashlab_course.compiler.ahead_of_time import CompileError, try_all
from flashlab_course.compiler.lint import lint_call
from flashlab_course.compiler.watch import bind, watch

REFUSED = Mistake("does_not_compile",
                  "the interpreter runs this kernel, but Triton's compiler refuses it, so no GPU can",
                  "the line that the compiler names: not all of Python exists in a kernel")
REFUSALS = ("CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure")
TF32 = "tf32"                  # the mistake that an exercise has where tl.dot must keep float32
ARCH = 90                      # any would do: what is looked at is settled before the code depends on the GPU


def refused(**names):
    """Compile every kernel that the last 16-bit case launches. names: the lint's rule -> a mistake's name."""
    def look(exercise, fn):
        if not interpreted():                                  # then it has just been compiled, and has run
            return None
        inputs = _sixteen_bit_cases(exercise)[-1].make()
        for finding in lint_call(lambda: exercise.invoke(fn, inputs)):
            if finding.level == "fails":
                known = [m for m in exercise.mistakes if m.name == names.get(finding.rule)]
                return (known or [REFUSED])[0], f"Compiled for a GPU: {finding.text}"
        return None
    return look


def narrow(name):
    """The mistake of this name if position · stride is multiplied in 32 bits anywhere, TF32 if tl.dot rounds float32 to
    it. Says so if nothing compiles at all."""
    def look(exercise, fn):
        result = _first_kernel(exercise, fn)
        if isinstance(result, CompileError):
            at = f"At `{result.line}` the" if result.line else "The"
            return (REFUSED, f"{at} compiler says: {result.reason}") if result.kind in REFUSALS else None
        if result is not None and (strides := narrow_products(result.ttir)):
            mistake = next(m for m in exercise.mistakes if m.name == name)
            return mistake, f"In the compiled kernel the product with {', '.join(strides)} has 32 bits"
        known = next((m for m in exercise.mistakes if m.name == TF32), None)
        if known and result is not None and "inputPrecision = tf32" in result.ttir:
            return known, "Compiled for a GPU, a tl.dot of float32 numbers rounds them to 10 bits of mantissa"
        return None
    return look


def _sixteen_bit_cases(exercise):
    return [case for case in exercise.cases if "16-bit inputs" in case.features]


def _first_kernel(exercise, fn):
    """What the compiler makes of the first kernel that fn launches, with 16-bit inputs if there is such a case: it is
    stricter there. None if the kernel's source cannot be had, or an argument is no plain value."""
    case = [*_sixteen_bit_cases(exercise), *exercise.cases][0]
    guard = Guard(case.make(), exercise.reads, exercise.writes)
    with watch(guard):
        limits.protected(lambda: exercise.invoke(fn, guard.inputs), 60)
    if not guard.launches:
        return None
    kernel, args, kwargs = guard.launches[0]
    try:
        return try_all([(kernel, bind(kernel, args, kwargs), ARCH)], specialise=False)[0]
    except (OSError, TypeError, ValueError):
        return None


def narrow_products(ttir):
    """Names of the arguments that are multiplied with a position (program, loop variable) in 32 bits."""
    argument = {name: name for name in re.findall(r"%(\w+): i32", ttir.partition("attributes")[0])}
    position, found = set(), []
    for line in ttir.splitlines():
        if loop := re.search(r"scf\.for %(\w+) = ", line):
            position |= {loop[1], *re.findall(r"%(\w+) = %", line.partition("iter_args")[2])}
        made = re.match(r"\s*%(\w+)(?::\d+)? = ([\w.]+) (.*)", line)
        if not made:
            continue
        name, op, rest = made.groups()
        operands = re.findall(r"%(\w+)", rest)
        narrow_type = re.search(r": (?:tensor<[\dx]*x)?i32>?(?:\s|$|\))", rest + " ")
        if op == "arith.muli" and narrow_type:
            for a, b in (operands[:2], operands[1::-1]):
                if a in argument and b in position and argument[a] not in found:
                    found.append(argument[a])
        if op == "tt.get_program_id" or any(o in position for o in operands):
            position.add(name)
        if op in ("tt.splat", "tt.broadcast", "tt.expand_dims") and operands and operands[0] in argument:
            argument[name] = argument[operands[0]]
    return found
