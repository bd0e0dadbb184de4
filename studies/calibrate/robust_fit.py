"""Parameters that fit logarithms of times: robust least squares with log-normal priors."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from groundwork.array_types import Bools, Floats

_IDENTIFIED = 0.5
"""Share of a parameter's information that must come from the rows, not from the prior."""


def fitted_logs(
    errors: Callable[[Floats], Floats],
    start: Floats,
    width: Floats,
    bounds: tuple[Any, Any],
    *,
    ordinary: float,
    steps: int | None = None,
    diff_step: float | None = None,
) -> tuple[Floats, Bools]:
    """Minimise the soft absolute error of logarithms of times plus the priors.

    Args:
        errors: Returns the logarithms of predicted over measured times, for logarithms of the parameters.
        start: Logarithms of the medians of the parameters before any measurement.
        width: Standard deviations of these logarithms.
        bounds: Least and greatest logarithms.
        ordinary: Size of an ordinary error: beyond it rows count less.
        steps: Most steps of the search.
        diff_step: Relative step of the derivatives; None: as small as rounding allows.

    Returns:
        Logarithms of the parameters, and which of them the rows identify.
    """

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([errors(logs) / ordinary, (logs - start) / width])

    search: dict[str, Any] = {"loss": "soft_l1", "x_scale": width, "max_nfev": steps, "diff_step": diff_step}
    fit = least_squares(residuals, start, bounds=bounds, **search)
    information = (fit.jac[: -len(start)] ** 2).sum(axis=0)
    return fit.x, information / (information + 1 / width**2) >= _IDENTIFIED
