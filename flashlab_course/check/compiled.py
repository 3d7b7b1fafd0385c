"""For Exercise.after: what a GPU's compiler says of a learner's Triton kernel, which the interpreter has just run."""

from flashlab_course.check import limits
from flashlab_course.check.form import Mistake
from flashlab_course.check.guard import Guard
from flashlab_course.compiler.ahead_of_time import CompileError, narrow_products, try_all
from flashlab_course.compiler.watch import bind, watch

REFUSED = Mistake("does_not_compile", "the interpreter runs this kernel, but Triton's compiler refuses it",
                  "the line that the compiler names: not all of Python exists in a kernel")
REFUSALS = ("CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure")
TF32 = "tf32"                  # the mistake that an exercise has where tl.dot must keep float32
ARCH = 90                      # any would do: what is looked at is settled before the code depends on the GPU


def narrow(name):
    """Looks for what the interpreter does not show: position · stride multiplied in 32 bits (the mistake of this name),
    which overflows in tensors of gigabytes; float32 that tl.dot rounds to TF32; what does not compile at all."""
    def look(exercise, fn):
        result = _first_kernel(exercise, fn)
        if isinstance(result, CompileError):
            at = f"At `{result.line}` the" if result.line else "The"
            return (REFUSED, f"{at} compiler says: {result.reason}") if result.kind in REFUSALS else None
        if result is not None and (strides := narrow_products(result.ttir)):
            return exercise.mistake(name), f"In the compiled kernel the product with {', '.join(strides)} has 32 bits"
        known = next((m for m in exercise.mistakes if m.name == TF32), None)
        if known and result is not None and "inputPrecision = tf32" in result.ttir:
            return known, "Compiled for a GPU, a tl.dot of float32 numbers rounds them to 10 bits of mantissa"
        return None
    return look


def _first_kernel(exercise, fn):
    """What the compiler makes of the first kernel that fn launches, with 16-bit inputs if there is such a case: it is
    stricter there. None if the kernel's source cannot be had, or an argument is no plain value."""
    case = next((case for case in exercise.cases if "16-bit inputs" in case.features), exercise.cases[0])
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
