"""Let a notebook end early and in peace: the cells below say that they were skipped, so Run All still reaches the end."""


def skip_the_rest(reason):
    """Print the reason. From now on this kernel runs no cell: each prints one line instead, until the kernel is restarted.

    Outside IPython only the reason is printed.
    """
    print(f"{reason} The cells below are skipped until that is put right: then restart the kernel and run all.")
    try:
        from IPython import get_ipython
    except ImportError:
        return
    if shell := get_ipython():
        shell.input_transformers_cleanup.append(lambda lines: ['print("skipped: the first cell says why")\n'])
