"""The engine of the course: checker, player, figures, lessons and benchmarks over the package flashlab."""

import flashlab  # noqa: F401 (decides how Triton runs its kernels, so it comes before Triton)
