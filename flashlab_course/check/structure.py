"""What no number shows: what was moved, how often, by which programs, where it was stored. Each breach is a Problem,
whose text follows "The numbers are right, but"."""

from flashlab_course.check.runner import Problem

USUAL = " are usual"                   # ends what is said of a tensor of which less was read than by the solution


def findings(exercise, outcome, right, numbers_right):
    """The Problems of one case, breaches of a rule first: they explain the rest. right: the solution's outcome on it;
    its facts are what is needed."""
    facts, right = outcome.facts, right.facts
    rules = [Problem(*rule) for rule in facts.get("broken", {}).items()]
    rules.sort(key=lambda rule: rule.kind != "ready_answer")
    changed = [Problem("changed_inputs", text) for key, text in facts.items() if key == "changed"]
    if right.get("programs") and not facts.get("programs"):
        wanted = " and ".join(exercise.writes) or exercise.outputs[0].name
        return [*(rule for rule in rules if rule.kind == "ready_answer"),
                Problem("no_launch", f"no kernel was launched, so none computed {wanted}")]
    if rules and "moved" in facts and not any(facts["moved"][name][0] for name in exercise.reads):
        by = rules[0].text.replace("computed part of it", "computed them")
        return [Problem(rules[0].kind, f"{by}; your kernel only copies the result")]
    return [*rules, *changed, *_stored(facts), *_programs(facts, right), *_traffic(facts, right, numbers_right)]


def in_words(judged, named=False):
    """A breach of a rule if there is one, as a sentence, else up to two findings.

    named: the mistake is known. Then at most one of its consequences is worth a word: a stray access shows the place.
    """
    rule = breach([judged])
    if judged.only_structure:
        said = [one.text for one in judged.structure if not (named and one.text.endswith(USUAL))]
        return [f"the numbers are right, but {said[0]}", *said[1:1 if named or rule else 2]] if said else []
    return [one.text for one in judged.structure if not named or one.kind.startswith("stray")][:0 if rule else 1]


def breach(judged):
    """The first breach of a rule in any of the cases, in words, or ""."""
    return next((one.structure[0].text for one in judged if one.structure and one.outcome.facts.get("broken")), "")


# ---- where it was stored, and by whom

def _stored(facts):
    verbs = {"load": "loaded", "store": "stored", "atomic": "updated"}
    said = [Problem(f"stray_{kind}", f"{f'program {program}' if program else 'a program'} {verbs[kind]} {where}")
            for (kind, _), (where, program) in facts.get("stray", {}).items()]
    said += [Problem("not_stored", f"no kernel stored {missing} of the {total} elements of {name}, the first {at}")
             for name, (missing, total, at) in facts.get("missed", {}).items()]
    return said + [Problem("stored_repeatedly",
                           f"one store wrote {again} elements of {name} more than once: mask what does not exist")
                   for name, again in facts.get("repeated", {}).items()]


def _programs(facts, right):
    got, wanted, unit = facts.get("programs", 0), right.get("programs", 0), right.get("unit", "program")
    workers, needed = facts.get("workers", 0), right.get("workers", 0)
    grid = f"the grid has {got} {unit}{'s' * (got != 1)}"
    if not wanted:                                       # no kernel is asked for
        return []
    if got != wanted:
        name = "too_many_programs" if got > wanted else "one_program" if got == 1 else "too_few_programs"
        return [Problem(name, f"{grid}, {wanted} are {'enough' if got > wanted else 'asked for'}")]
    if 0 < workers < needed:
        return [Problem("idle_programs", f"{workers} of the {got} {unit}s did all the storing")]
    if unit == "thread" and workers > needed:
        return [Problem("done_twice", f"{workers} threads stored something; {needed} have an element of their own")]
    return _exchanged(facts.get("by", {}), right.get("by", {}), unit)


def _exchanged(by, right, unit):
    """Did programs, or threads, take each other's elements?"""
    for name, programs in by.items():
        other = ((programs != right[name]).any(1) & (programs >= 0).all(1)).nonzero()[0]
        if len(other):
            first = other[0]
            did, should = (tuple(map(int, of[first])) for of in (programs, right[name]))
            did, should = (did[0], should[0]) if unit == "thread" else (did, should)
            return [Problem(f"{unit}s_exchanged",
                            f"{unit} {did} stored an element of {name} that belongs to {unit} {should}, and so on for "
                            f"{len(other)} of {len(programs)} elements")]
    return []


# ---- how much was moved

def _traffic(facts, right, numbers_right):
    needed, moved = facts.get("needed", right.get("moved", {})), facts.get("moved", {})
    less = facts.get("fewer") or "needed" not in facts and numbers_right   # on modelled memory nothing comes unseen
    said = [Problem("tile_too_large", f"{got} elements of {name} were loaded at once: at most {most} are allowed")
            for name, most in facts.get("most", {}).items() if (got := facts.get("largest", {}).get(name, 0)) > most]
    said += [Problem("atomics", f"atomics updated {elements} elements of {name}: each belongs to one program, "
                                "so a store is enough")
             for name, elements in facts.get("atomic", {}).items() if elements]
    for name in sorted(set(needed) | set(moved)) if moved else ():
        got, wanted = moved.get(name, (0, 0)), needed.get(name, (0, 0))
        if wanted[0] < got[0] <= right.get("padded", {}).get(name, 0):
            got, facts["wrapped"] = (wanted[0], got[1]), name      # rows past the end start again at the first: `% M`
        said += [finding for verb, *bytes_ in zip(("read", "stored"), got, wanted, strict=True)
                 if (finding := _moved(name, verb, *bytes_, less, "needed" in facts))]
    if facts.get("eager", 0) > right.get("eager", 0):
        said.append(Problem("outside_the_kernel",
                            f"operations outside the kernel moved {facts['eager']} bytes through HBM; "
                            f"{right['eager']} are enough"))
    if facts.get("scratch"):
        said.append(Problem("scratch", f"{facts['scratch']} elements of tensors of your own went through HBM"))
    return said


def _moved(name, verb, got, wanted, less, sure):
    """The Problem if these bytes of a tensor are too many or too few. sure: no right answer reads less."""
    if got > wanted:
        times = f" {got / wanted:.3g} times as often as needed" if wanted else ", though it need not be"
        return Problem(f"{verb}_too_often", f"{name} was {verb}{times}: {got} bytes, {wanted} are enough")
    if got < wanted and not less:
        least = f"{wanted} have to be" if verb == "stored" or sure else f"{wanted}{USUAL}"
        again = " (each time counted)" if verb == "read" else ""
        return Problem(f"not_all_{verb}", f"only {got} bytes of {name} were {verb}{again}; {least}")
    return None


# ---- the same?

def agree(a, b):
    """Did two Judged break the same rules? Traffic counts to the byte where nothing else tells mistakes apart."""
    counted = ["eager", "programs", "overwritten", "repeated"]
    counted += ["moved"] * ("needed" not in a.outcome.facts or not a.wrong) + ["changed"] * (not a.wrong)

    def seen(facts):
        return [*map(facts.get, counted), *(set(facts.get(key, ())) for key in ("stray", "broken", "missed"))]
    return seen(a.outcome.facts) == seen(b.outcome.facts)
