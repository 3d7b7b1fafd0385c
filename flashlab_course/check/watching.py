"""python -m flashlab check --watch: check whenever the file is saved, and go on to the next exercise after a pass."""

import time

from flashlab_course.check import checker, form, overview, source

PAUSE = 0.3                    # seconds between two looks at the file


def pause():
    time.sleep(PAUSE)


def watch(name=None):
    """Until every exercise, from `name` on, has passed, or Ctrl-C."""
    name, seen = name or overview.Overview.now().next, None
    while name is not None:
        stamp = _stamp(name)
        if stamp == seen:
            pause()
            continue
        report, seen = checker.checked(name, terminal=True), stamp
        print(f"\n{'─' * 100}\n{report}", flush=True)
        if report.passed:
            name, seen = _after(name), None
            if name is not None:
                print(f"\nNext: {name}", flush=True)
        else:
            print(f"\nWaiting for exercises/{name}.py to be saved. Ctrl-C ends it.", flush=True)
    print("\nEvery exercise has passed.")
    return 0


def _stamp(name):
    try:
        status = source.exercise_path(name).stat()
    except OSError:                                    # an editor replaces the file at this moment, or it is not there
        return ()
    return status.st_mtime_ns, status.st_size


def _after(name):
    """The next one that has not passed, from this one on and then from the start."""
    names = form.names()
    at = names.index(name)
    return next((other for other in [*names[at + 1:], *names[:at]] if overview.state(other) != overview.PASSED), None)
