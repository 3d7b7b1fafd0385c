"""Let a notebook end early without an error: the cells below say that they were skipped, Run All reaches the end."""


def skip_the_rest(reason):
    """Print the reason. Until it is restarted this kernel runs no further cell: each prints one line instead.

    Outside IPython only the reason is printed.
    """
    print(f"{reason} The cells below are skipped until that is put right: then restart the kernel and run all.")
    try:
        from IPython import get_ipython
    except ImportError:
        return
    if shell := get_ipython():
        shell.input_transformers_cleanup.append(lambda lines: ['print("skipped: the first cell says why")\n'])
