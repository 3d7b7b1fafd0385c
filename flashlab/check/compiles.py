"""Does a learner's Triton kernel compile for a GPU? The interpreter runs more than the compiler takes: two dtypes in one tl.dot."""

from flashlab.check.form import Mistake

ELSE = Mistake("does_not_compile", "the interpreter runs it, but a GPU's compiler refuses it",
               "what the compiler says")


def refused(**names):
    """For Exercise.after: compile every kernel that the last 16-bit case launches. names: the lint's rule -> a mistake's name."""
    def look(exercise, fn):
        from flashlab.compiler.lint import lint_call
        from flashlab.gpu.launching import interpreted

        if not interpreted():                                  # then it has just been compiled, and has run
            return None
        inputs = [case for case in exercise.cases if "16-bit inputs" in case.features][-1].make()
        for finding in lint_call(lambda: exercise.invoke(fn, inputs)):
            if finding.level == "fails":
                known = [m for m in exercise.mistakes if m.name == names.get(finding.rule)]
                return (known or [ELSE])[0], f"Compiled for a GPU: {finding.text}"
        return None
    return look
