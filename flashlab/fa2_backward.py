"""Moved to flashlab.rungs.fa2_backward. Kept for exercise answers that were written when it stood here."""

from flashlab.rungs.fa2_backward import fa2_backward, fa2_backward_two_pass  # noqa: F401
